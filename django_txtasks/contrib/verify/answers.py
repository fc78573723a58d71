"""Answers to waiting tasks: each producer answers its own tasks."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Sequence

from django.db import DatabaseError, InterfaceError, connections, transaction

from django_txtasks.contrib.verify import journal, plan
from django_txtasks.contrib.verify.project import WAIT

PAUSE_SECONDS = 0.2
"""Seconds between two tries while the database is unreachable."""


class Answers:
    """Sends every second answer at once, often before its task asks; the others when the next one is due."""

    def __init__(self, alias: str, directory: str) -> None:
        self._alias, self._directory = alias, directory
        self._owed: list[tuple[str, uuid.UUID]] = []
        self._count = 0

    def owe(self, planned: plan.Transaction, ids: Sequence[uuid.UUID]) -> None:
        """Send the owed answers, and every second answer for these tasks."""
        # there are no ids if the transaction was rolled back
        for task, task_id in zip(planned.tasks, ids, strict=False):
            if task.kind == "waiting":
                self.bring_rest()
                self._owed.append((task.key, task_id))
                self._count += 1
                if self._count % 2:
                    self.bring_rest()

    def bring_rest(self) -> None:
        """Send all answers that are owed."""
        while self._owed:
            key, task_id = self._owed.pop()
            self._try(task_id, "what was rolled back", commit=False)
            while not self._try(task_id, plan.answer_to(key), commit=True):
                if not wait_for(self._alias):
                    sys.exit(f"The database did not come back; {key} still waits for its answer.")
            journal.note(self._directory, journal.SENT, "brought", key)

    def _try(self, task_id: uuid.UUID, value: str, *, commit: bool) -> bool:
        """Send a value in a transaction; return True if the database has answered every statement."""
        from django_txtasks import resume
        from django_txtasks.steps.answering import token_of

        try:
            with transaction.atomic(using=self._alias):
                resume(token_of(self._alias, task_id, WAIT), value)
                transaction.set_rollback(not commit, using=self._alias)
        except (DatabaseError, InterfaceError):
            connections[self._alias].close()
            time.sleep(PAUSE_SECONDS)
            return False
        return True


def wait_for(alias: str, patience: float = 120.0) -> bool:
    """Wait until the database answers, so that an outage does not use up the plan."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        try:
            connections[alias].ensure_connection()
        except (DatabaseError, InterfaceError):
            time.sleep(PAUSE_SECONDS)
        else:
            return True
    return False
