"""DBOS on PostgreSQL: a workflow of five transactions of its SQLAlchemy datasource, each of which writes a row."""

from __future__ import annotations

import os
import signal
import threading

import records
import sqlalchemy as sa
from dbos import DBOS, DBOSClient, DBOSConfig, SQLAlchemyDatasource

URL = os.environ["DATABASE_URL"].replace("postgres://", "postgresql://", 1)
MOST_AT_ONCE = 30
"""Workflows of a worker. It takes as many with each look at the queue, and there has to be a session for each."""
CONFIG: DBOSConfig = {
    "name": "bench",
    "sys_db_pool_size": MOST_AT_ONCE + 5,
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
source = SQLAlchemyDatasource.create(
    URL.replace("postgresql://", "postgresql+psycopg://", 1),
    engine_kwargs={"pool_size": MOST_AT_ONCE},
)
QUEUE = "bench"
LOOK_SECONDS = 0.05
"""Between two looks at the queue; with its own 1 s it would run MOST_AT_ONCE workflows a second."""


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
    DBOS.register_queue(QUEUE, worker_concurrency=MOST_AT_ONCE, polling_interval_sec=LOOK_SECONDS)
    DBOS.destroy()


def enqueue(count: str) -> None:
    """Enqueue ``count`` workflows one by one, the only way that DBOS offers."""
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
