"""DBOS on PostgreSQL: a workflow of five transactions of its SQLAlchemy datasource, each of which writes a row."""

from __future__ import annotations

import os
import signal
import threading

import records
import sqlalchemy as sa
from dbos import DBOS, DBOSClient, DBOSConfig, SQLAlchemyDatasource

URL = os.environ["DATABASE_URL"].replace("postgres://", "postgresql://", 1)
CONFIG: DBOSConfig = {
    "name": "bench",
    "system_database_url": URL,
    "application_version": "1",
    "log_level": "WARNING",
}
TABLE = """
    CREATE TABLE bench_row (
        id bigserial PRIMARY KEY, key integer NOT NULL, text varchar(100) NOT NULL, at timestamptz NOT NULL
    )
"""
ROW = sa.text("INSERT INTO bench_row (key, text, at) VALUES (:key, 'written by a task', now())")
source = SQLAlchemyDatasource.create(URL.replace("postgresql://", "postgresql+psycopg://", 1))
QUEUE = "bench"
MOST_AT_ONCE = 8
"""Workflows of a worker; without a limit they wait longer for one of its 15 sessions than its pool allows."""


@source.transaction(isolation_level="READ COMMITTED")
def write_row(key: int) -> None:
    """One step: a row and its checkpoint."""
    source.sql_session().execute(ROW, {"key": key})


@DBOS.workflow()
def five_steps(key: int) -> None:
    """Write five rows."""
    for _ in range(5):
        write_row(key)
    records.write(key)


def prepare() -> None:
    """Make its tables, and that of the rows."""
    with sa.create_engine(URL.replace("postgresql://", "postgresql+psycopg://", 1)).begin() as one:
        one.execute(sa.text(TABLE))
        one.execute(sa.text("CREATE INDEX ON bench_row (key)"))
    DBOS(config=CONFIG)
    DBOS.launch()
    DBOS.register_queue(QUEUE, worker_concurrency=MOST_AT_ONCE)
    DBOS.destroy()


def enqueue(count: str) -> None:
    """Enqueue so many workflows, one after the other: it knows no other way."""
    client = DBOSClient(system_database_url=URL)
    for key in range(int(count)):
        client.enqueue(
            {
                "workflow_name": five_steps.__qualname__,
                "queue_name": QUEUE,
                "app_version": "1",
            },
            key,
        )
    client.destroy()


def work(processes: str, *options: str) -> None:
    """Serve the queue until SIGTERM."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    DBOS(config=CONFIG)
    DBOS.launch()
    stop.wait()
    os._exit(0)
