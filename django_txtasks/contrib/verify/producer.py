"""``python -m django_txtasks.contrib.verify.producer NAME SEED TASKS SECONDS ROLLED_BACK SLOW``: send a
plan.

It continues whatever happens to the servers. It notes the intent before each COMMIT, and the answer after it.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import django
from django.db import DatabaseError, InterfaceError, connections, transaction

from django_txtasks.contrib.verify import journal, plan
from django_txtasks.contrib.verify.project import WAIT, Scene
from django_txtasks.core.ground.wording import counted

PAUSE_SECONDS = 0.2
"""Seconds between two tries while the database is unreachable."""


class _RolledBack(Exception):
    """Raised to roll back on purpose."""


def send(alias: str, planned: plan.Transaction) -> tuple[str, list[uuid.UUID]]:
    """Enqueue the tasks in one transaction.

    Returns:
        The outcome, as the journal calls it, and the ids of tasks that may exist.
    """
    from django_txtasks import enqueue_many
    from django_txtasks.contrib.verify.tasks import function_of

    ids, at_commit = list[uuid.UUID](), False
    try:
        with transaction.atomic(using=alias):
            calls = [
                (function_of(task.kind, task.key), [task.key, task.seconds])
                for task in planned.tasks
            ]
            with _batch(alias, planned.end):
                ids = [handle.id for handle in enqueue_many(calls)]
            if not planned.commit:
                raise _RolledBack
            at_commit = True
    except _RolledBack:
        return "refused", []
    except (DatabaseError, InterfaceError):
        connections[alias].close()
        return ("unknown", ids) if at_commit else ("refused", [])
    return "committed", ids


def _batch(alias: str, end: str) -> AbstractContextManager[object]:
    """Return a batch, if the transaction has an ``end``; otherwise an empty context."""
    from django_txtasks import batch
    from django_txtasks.contrib.verify.tasks import ended

    return batch(name=end, on_finish=ended, using=alias) if end else nullcontext()


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
        from django_txtasks.features.steps.answering import token_of

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


def main(name: str, *numbers: str) -> None:
    """Send the whole plan, spread over the given seconds, with the answers for its waiting tasks."""
    seed, tasks, (seconds, rolled_back, slow) = *map(int, numbers[:2]), map(float, numbers[2:])
    django.setup()
    scene = Scene.here()
    directory, alias = scene.journals, scene.alias
    answers = Answers(alias, directory)
    shares = {"rolled_back": rolled_back, "slow": slow}
    begun, sent = time.monotonic(), 0
    for planned in plan.transactions(seed, name, tasks, **shares):
        time.sleep(max(0, begun + seconds * sent / tasks - time.monotonic()))
        journal.note(directory, journal.SENT, "intent", planned.number, ",".join(planned.keys))
        outcome, ids = send(alias, planned)
        journal.note(directory, journal.SENT, outcome, planned.number)
        sent += len(planned.tasks)
        if (planned.commit and outcome != "committed") and not wait_for(alias):
            sys.exit(
                f"The database did not come back; producer {name} ended after {counted(sent, 'task')}."
            )
        answers.owe(planned, ids)
    answers.bring_rest()


if __name__ == "__main__":
    main(*sys.argv[1:])
