"""Answers to tasks that wait: a sender brings them to those of its own tasks."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Sequence

from django.db import DatabaseError, InterfaceError, connections, transaction

from django_txtasks.contrib.verify import journal, plan
from django_txtasks.contrib.verify.project import WAIT

PAUSE_SECONDS = 0.2
"""Seconds between two looks at a database that is away."""


class Answers:
    """Every second one is brought at once, often before its task asks; the others when the next one is owed."""

    def __init__(self, alias: str, directory: str) -> None:
        self._alias, self._directory = alias, directory
        self._owed: list[tuple[str, uuid.UUID]] = []
        self._count = 0

    def owe(self, planned: plan.Transaction, ids: Sequence[uuid.UUID]) -> None:
        """Bring what is owed, and half of what these tasks will wait for."""
        for task, task_id in zip(
            planned.tasks, ids, strict=False
        ):  # without ids they are not there
            if task.kind == "waiting":
                self.bring_rest()
                self._owed.append((task.key, task_id))
                self._count += 1
                if self._count % 2:
                    self.bring_rest()

    def bring_rest(self) -> None:
        """Bring all that is owed."""
        while self._owed:
            key, task_id = self._owed.pop()
            self._try(task_id, "what was rolled back", commit=False)
            while not self._try(task_id, plan.answer_to(key), commit=True):
                if not wait_for(self._alias):
                    sys.exit(f"The database did not come back; {key} still waits for its answer.")
            journal.note(self._directory, journal.SENT, "brought", key)

    def _try(self, task_id: uuid.UUID, value: str, *, commit: bool) -> bool:
        """Bring a value in a transaction; say whether the database has answered all of it."""
        from django_txtasks import resume
        from django_txtasks.steps.resuming import token_of

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
    """Return once the database answers, so that an outage does not use up the plan."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        try:
            connections[alias].ensure_connection()
        except (DatabaseError, InterfaceError):
            time.sleep(PAUSE_SECONDS)
        else:
            return True
    return False
