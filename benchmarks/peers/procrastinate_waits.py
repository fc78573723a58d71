"""procrastinate with async jobs that wait, 1,000 at a time; a row is written through its own connector."""

from __future__ import annotations

import asyncio
import os
import sys

import psycopg
import records
from procrastinate import App, PsycopgConnector

from peers import launching

app = App(connector=PsycopgConnector(conninfo=os.environ["DATABASE_URL"]))


@app.task(name="plain")
async def plain(key: int, seconds: float) -> None:
    """Wait."""
    await asyncio.sleep(seconds)
    records.write(key)


@app.task(name="row")
async def row(key: int, seconds: float) -> None:
    """Wait, and write a row."""
    await asyncio.sleep(seconds)
    await app.connector.execute_query_async(
        "INSERT INTO bench_row (key, at) VALUES (%(key)s, now())", key=key
    )
    records.write(key)


def prepare() -> None:
    """Make its tables, and the one for rows."""
    with app.open():
        app.schema_manager.apply_schema()
    with psycopg.connect(os.environ["DATABASE_URL"]) as session:
        session.execute("CREATE TABLE bench_row (id serial PRIMARY KEY, key int, at timestamptz)")


def enqueue_waits(count: str, seconds: str, kind: str) -> None:
    """Write ``count`` jobs, many per statement."""
    task = {"plain": plain, "row": row}[kind]
    with app.open():
        for start in range(0, int(count), 5000):
            keys = range(start, min(start + 5000, int(count)))
            task.batch_defer(*({"key": key, "seconds": float(seconds)} for key in keys))


def work(processes: str) -> None:
    """Become its own command."""
    command = ["-m", "procrastinate", "--app=peers.procrastinate_waits.app", "worker"]
    launching.run(
        processes, sys.executable, *command, "--concurrency=1000", "--delete-jobs=successful"
    )
