"""PgQueuer with async jobs that wait, without a limit; a row is written through a pool of asyncpg."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import asyncpg
import records
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from peers import launching, pgqueuer

URL = os.environ["DATABASE_URL"]
ROWS = 4


def prepare() -> None:
    """Make its tables, and the one for rows."""
    pgqueuer.prepare()
    asyncio.run(_make_table())


def enqueue_waits(count: str, seconds: str, kind: str) -> None:
    """Write ``count`` jobs."""
    asyncio.run(_enqueue(int(count), float(seconds), kind))


def work(processes: str) -> None:
    """Run its worker."""
    launching.run(processes, sys.executable, "-m", "peers", "pgqueuer_waits", "serve")


def serve() -> None:
    """Run a worker."""
    uvloop.run(_serve())


async def _make_table() -> None:
    session = await asyncpg.connect(URL)
    await session.execute("CREATE TABLE bench_row (id serial PRIMARY KEY, key int, at timestamptz)")
    await session.close()


async def _enqueue(count: int, seconds: float, kind: str) -> None:
    queries = Queries(AsyncpgDriver(await asyncpg.connect(URL)))
    for start in range(0, count, 5000):
        keys = [f"{key} {seconds}".encode() for key in range(start, min(start + 5000, count))]
        await queries.enqueue([kind] * len(keys), keys, [0] * len(keys))


async def _serve() -> None:
    queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(URL)))
    pool = await asyncpg.create_pool(URL, min_size=0, max_size=ROWS)

    @queuer.entrypoint("plain")
    async def plain(job: Job) -> None:
        key, seconds = (job.payload or b"0 0").split()
        await asyncio.sleep(float(seconds))
        records.write(int(key))

    @queuer.entrypoint("row")
    async def row(job: Job) -> None:
        key, seconds = (job.payload or b"0 0").split()
        await asyncio.sleep(float(seconds))
        await pool.execute("INSERT INTO bench_row (key, at) VALUES ($1, now())", int(key))
        records.write(int(key))

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, queuer.shutdown.set)
    await queuer.run(batch_size=500)
