"""The log lines that the error entry of a task keeps, for people without the admin."""

from __future__ import annotations

import uuid

from django_txtasks.insight.story import texts_of


def log_of_last_failure(alias: str, task_id: uuid.UUID) -> list[str]:
    """Return the log lines of the last attempt of a task that failed; empty if it has logged nothing."""
    for entry in texts_of(alias, task_id).errors[-1:]:
        return str(entry.get("log") or "").splitlines()
    return []
