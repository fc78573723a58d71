"""procrastinate with psycopg: an async no-op, finished jobs deleted."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import psycopg
import records
from procrastinate import App, PsycopgConnector
from procrastinate.exceptions import AlreadyEnqueued

from peers import clashing, filling, launching

app = App(connector=PsycopgConnector(conninfo=os.environ["DATABASE_URL"]))


@app.task(name="no_op")
async def no_op(key: int) -> None:
    """Say that it ran."""
    records.write(key)


LATER = """
    INSERT INTO procrastinate_jobs (queue_name, task_name, args, priority, scheduled_at)
    SELECT 'default', 'no_op', '{"key": 0}', mod(n, 2) * %s, now() + interval '1 day' + n * interval '1 second'
      FROM generate_series(1, %s) AS n
"""


def prepare() -> None:
    """Make its tables."""
    with app.open():
        app.schema_manager.apply_schema()


def enqueue(count: str) -> None:
    """Write ``count`` jobs, many per statement."""
    with app.open():
        for start in range(0, int(count), 5000):
            keys = range(start, min(start + 5000, int(count)))
            no_op.batch_defer(*({"key": key} for key in keys))


def later(count: str, priority: str = "0") -> None:
    """Write rows due from tomorrow on, half of them with this priority."""
    filling.fill(LATER, int(count), int(priority))


def work(processes: str) -> None:
    """Become its own command."""
    command = ["-m", "procrastinate", "--app=peers.procrastinate.app", "worker"]
    launching.run(
        processes, sys.executable, *command, "--concurrency=10", "--delete-jobs=successful"
    )


def appoint(count: str, ahead: str, seconds: str) -> None:
    """Enqueue jobs for random times within ``seconds``."""
    with app.open():
        for key, at in enumerate(records.instants(int(count), float(ahead), float(seconds))):
            no_op.configure(schedule_at=at).defer(key=key)


def pace(count: str, seconds: str) -> None:
    """Enqueue one job at a time, each in a transaction of its own."""
    with app.open():
        for key in records.ticks(int(count), float(seconds)):
            no_op.defer(key=key)
            records.write(key)


def clash(count: str, together: str, seconds: str) -> None:
    """Enqueue under one queueing lock, in transactions of several clients."""

    def transaction(commits: bool, work: Callable[[], None]) -> bool:
        refused = False
        with psycopg.connect(os.environ["DATABASE_URL"]) as session:
            session.execute("SELECT 1")  # else what follows would be no savepoint
            try:
                with session.transaction():  # a savepoint: an error would end all of it
                    no_op.configure(queueing_lock="same", connection=session).defer(key=0)
            except AlreadyEnqueued:
                refused = True
            work()
            (session.commit if commits else session.rollback)()
        return refused

    with app.open():
        clashing.clash(count, together, seconds, transaction)
