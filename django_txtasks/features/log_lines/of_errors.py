"""The entry of an error has the last log lines of its attempt."""

from __future__ import annotations

from django_txtasks.core.rows.attempts import Attempt
from django_txtasks.core.working.running.verdicts import ErrorPart
from django_txtasks.features.log_lines import handler as last_lines


class LogLines(ErrorPart):
    """Adds the lines to the entry."""

    def details(self, attempt: Attempt) -> dict[str, str]:
        """Return the lines as text; empty if the attempt has logged nothing."""
        return last_lines.entry(attempt.task_id, attempt.number)


PARTS = (LogLines(),)
