"""The log lines that the error entry of a task keeps, for people without the admin."""

from __future__ import annotations

import uuid

from django_txtasks.core.rows.attempts import read_entries
from django_txtasks.database.execute import fetch
from django_txtasks.insight.explain import ERRORS_OF


def log_of_last_failure(alias: str, task_id: uuid.UUID) -> list[str]:
    """Return the log lines of the last attempt of a live task that failed; empty if it has logged nothing."""
    for (text,) in fetch(alias, ERRORS_OF, id=task_id):
        for entry in read_entries(str(text))[-1:]:
            return str(entry.get("log") or "").splitlines()
    return []
