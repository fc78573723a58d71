"""PgQueuer with asyncpg and uvloop: batches of 500, an async no-op."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import asyncpg
import records
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.errors import DuplicateJobError
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from peers import clashing, filling, launching

URL = os.environ["DATABASE_URL"]
LATER = """
    INSERT INTO pgqueuer (priority, status, entrypoint, payload, execute_after)
    SELECT mod(n, 2) * %s, 'queued', 'no_op', '0', now() + interval '1 day' + n * interval '1 second'
      FROM generate_series(1, %s) AS n
"""


def prepare() -> None:
    """Make its tables."""
    subprocess.run([sys.executable, "-m", "pgqueuer", "--pg-dsn", URL, "install"], check=True)


def enqueue(count: str) -> None:
    """Write ``count`` jobs, many per statement; the first one is not timed."""
    asyncio.run(_enqueue(int(count)))


def later(count: str, priority: str = "0") -> None:
    """Write rows due from tomorrow on, half of them with this priority."""
    filling.fill(LATER, int(count), int(priority))


def work(processes: str) -> None:
    """Run its workers."""
    launching.run(processes, sys.executable, "-m", "peers", "pgqueuer", "serve")


def serve() -> None:
    """Run a worker as PgQueuer's command does; version 1.6 of the command fails with a recent typer."""
    uvloop.run(_serve())


def pace(count: str, seconds: str) -> None:
    """Enqueue one job at a time, each in a transaction."""
    asyncio.run(_pace(int(count), float(seconds)))


async def _serve() -> None:
    queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(URL)))

    @queuer.entrypoint("no_op")
    async def no_op(job: Job) -> None:
        records.write(int(job.payload))

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, queuer.shutdown.set)
    await queuer.run(batch_size=500)


async def _enqueue(count: int) -> None:
    queries = Queries(AsyncpgDriver(await asyncpg.connect(URL)))
    await queries.enqueue("no_op", b"0")
    with records.timed():
        for start in range(1, count, 5000):
            keys = [str(key).encode() for key in range(start, min(start + 5000, count))]
            await queries.enqueue(["no_op"] * len(keys), keys, [0] * len(keys))


async def _pace(count: int, seconds: float) -> None:
    connection = await asyncpg.connect(URL)
    queries = Queries(AsyncpgDriver(connection))
    for key in records.ticks(count, seconds):
        async with connection.transaction():
            await queries.enqueue("no_op", str(key).encode())
        records.write(key)


def clash(count: str, together: str, seconds: str) -> None:
    """Enqueue under one dedupe key, in transactions of several clients."""

    def transaction(commits: bool, work: Callable[[], None]) -> bool:
        return asyncio.run(_clash(commits, work))

    clashing.clash(count, together, seconds, transaction)


async def _clash(commits: bool, work: Callable[[], None]) -> bool:
    session, refused = await asyncpg.connect(URL), False
    outer = session.transaction()
    await outer.start()
    try:
        async with session.transaction():  # a savepoint: an error would end all of it
            queries = Queries(AsyncpgDriver(session))
            await queries.enqueue(["no_op"], [b"0"], [0], dedupe_key=["same"])
    except DuplicateJobError:
        refused = True
    work()
    await (outer.commit if commits else outer.rollback)()
    await session.close()
    return refused
