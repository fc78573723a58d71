"""The entry of an error has the last log lines of its attempt."""

from __future__ import annotations

from django_txtasks.lifecycle.attempts import Attempt
from django_txtasks.signals import last_lines
from django_txtasks.worker.running.verdicts import ErrorPart


class LogLines(ErrorPart):
    """Adds the lines to the entry."""

    def details(self, attempt: Attempt) -> dict[str, str]:
        """Return the lines as text; empty if the attempt has logged nothing."""
        return last_lines.entry(attempt.task_id, attempt.number)


PARTS = (LogLines(),)
