"""``python -m django_txtasks.contrib.verify.sender NAME SEED TASKS SECONDS ROLLED_BACK SLOW``: sends its plan.

Whatever happens to the servers, it goes on, and notes before each COMMIT what it is about to do and
after it what it was told.
"""

from __future__ import annotations

import sys
import time

import django
from django.db import DatabaseError, InterfaceError, connections, transaction

from django_txtasks.contrib.verify import journal, plan
from django_txtasks.contrib.verify.project import Scene

PAUSE_SECONDS = 0.2
"""Seconds between two looks at a database that is away."""


class _RolledBack(Exception):
    """On purpose."""


def send(alias: str, planned: plan.Transaction) -> str:
    """Enqueue the tasks in one transaction; return what became of it, as the journal calls it."""
    from django_txtasks import enqueue_many
    from django_txtasks.contrib.verify.tasks import function_of

    at_commit = False
    try:
        with transaction.atomic(using=alias):
            enqueue_many(
                [(function_of(task.kind), [task.key, task.seconds]) for task in planned.tasks]
            )
            if not planned.commit:
                raise _RolledBack
            at_commit = True
    except _RolledBack:
        return "refused"
    except (DatabaseError, InterfaceError):
        connections[alias].close()
        return "unknown" if at_commit else "refused"
    return "committed"


def main(name: str, *numbers: str) -> None:
    """Send the whole plan, spread over the given seconds."""
    seed, tasks, (seconds, rolled_back, slow) = *map(int, numbers[:2]), map(float, numbers[2:])
    django.setup()
    scene = Scene.here()
    directory, alias = scene.journals, scene.alias
    shares = {"rolled_back": rolled_back, "slow": slow}
    begun, sent = time.monotonic(), 0
    for planned in plan.transactions(seed, name, tasks, **shares):
        time.sleep(max(0, begun + seconds * sent / tasks - time.monotonic()))
        keys = ",".join(task.key for task in planned.tasks)
        journal.note(directory, journal.SENT, "intent", planned.number, keys)
        outcome = send(alias, planned)
        journal.note(directory, journal.SENT, outcome, planned.number)
        sent += len(planned.tasks)
        if (planned.commit and outcome != "committed") and not _wait_for(alias):
            sys.exit(f"The database did not come back; sender {name} ended after {sent} tasks.")


def _wait_for(alias: str, patience: float = 120.0) -> bool:
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


if __name__ == "__main__":
    main(*sys.argv[1:])
