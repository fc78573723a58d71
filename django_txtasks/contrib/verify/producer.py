"""``python -m django_txtasks.contrib.verify.producer NAME SEED TASKS SECONDS ROLLED_BACK SLOW``: send a
plan.

It continues whatever happens to the servers. It notes the intent before each COMMIT, and the answer after it.
"""

from __future__ import annotations

import sys
import time
import uuid
from contextlib import AbstractContextManager, nullcontext

import django
from django.db import DatabaseError, InterfaceError, connections, transaction

from django_txtasks.contrib.verify import journal, plan
from django_txtasks.contrib.verify.answers import Answers, wait_for
from django_txtasks.contrib.verify.project import Scene
from django_txtasks.wording import counted


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
