"""The cost of a task for PostgreSQL, in numbers that do not depend on the machine.

    python benchmarks/wal.py [--tasks 2000]

WAL bytes, statements and commits per task, on a private server: for each step of a task alone, and for
tasks run by a real worker process. Full-page images are off, because they depend on the number of
checkpoints; autovacuum is off, and its work is measured separately.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import stage  # isort: skip -- it says where the next ones are
import psycopg
import services

SETTINGS = {"shared_preload_libraries": "pg_stat_statements", "autovacuum": "off"}


@dataclass(frozen=True)
class Reading:
    """The server's counters for the database that is measured."""

    wal: int
    statements: int
    commits: int


class Meter:
    """Reads the server's counters from another database, so that it does not count itself."""

    def __init__(self, url: str, database: str) -> None:
        self.session = psycopg.connect(url, autocommit=True)
        self.session.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        self.database = database

    def read(self) -> Reading:
        """Return the counters, once all sessions that were measured have ended."""
        while self._ask("SELECT count(*) FROM pg_stat_activity WHERE datname = %s"):
            time.sleep(0.02)
        return Reading(
            self._ask("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') WHERE %s <> ''"),
            self._ask(
                "SELECT sum(calls) FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid"
                " WHERE datname = %s"
            ),
            self._ask("SELECT xact_commit FROM pg_stat_database WHERE datname = %s"),
        )

    def _ask(self, sql: str) -> int:
        row = self.session.execute(sql, [self.database]).fetchone()
        return int(row[0] or 0) if row else 0


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=2000, help="for each line")
    tasks = parser.parse_args().tasks
    with services.Postgres() as server:
        with psycopg.connect(server.url, autocommit=True) as session:
            for name, value in SETTINGS.items():
                session.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        server.stop()
        server.start()
        os.environ["TXTASKS_TEST_POSTGRES_URL"] = server.url
        os.environ.pop("TXTASKS_DATABASE_URL", None)
        with stage.project(broker=False, retry_base=0.001):
            from django.db import connection

            meter = Meter(server.url, str(connection.settings_dict["NAME"]))
            print(f"{'per task':44} {'WAL bytes':>9} {'statements':>10} {'commits':>8}")
            for name, work in lines(tasks):
                connection.close()
                before = meter.read()
                work()
                connection.close()
                show(name, before, meter.read(), tasks)
            meter.session.close()


def show(name: str, before: Reading, after: Reading, tasks: int) -> None:
    """Print one line."""
    wal, statements, commits = (
        (getattr(after, key) - getattr(before, key)) / tasks for key in vars(before)
    )
    print(f"{name:44} {wal:9,.0f} {statements:10.3f} {commits:8.3f}", flush=True)


Line = tuple[str, Callable[[], None]]


def lines(tasks: int) -> Iterator[Line]:
    """Yield each line's name and the work that it measures; work between the lines is not measured."""
    steps = Steps(tasks)
    yield "enqueue, 1 per transaction", steps.enqueue_singly
    steps.empty()
    yield "enqueue, 100 per transaction", steps.enqueue
    for size in (1, 100):
        for keep in (False, True):
            steps.empty()
            steps.enqueue()
            if keep:
                steps.claim(size)
            else:
                yield f"claim by id, {size} per transaction", lambda: steps.claim(size)  # noqa: B023
            name = f"finish, {size} per transaction, history {'on' if keep else 'off'}"
            yield name, lambda: steps.finish(size, keep)  # noqa: B023
    yield "vacuum after it", steps.vacuum
    yield "beat (per beat, alone in its transaction)", steps.beat
    for keep in (0, 7 * 86400):
        steps.empty()
        steps.enqueue()
        yield f"worker process, all in all, history {'on' if keep else 'off'}", lambda: drain(keep)  # noqa: B023


class Steps:
    """The steps of a task, one by one, by the functions that workers call."""

    def __init__(self, tasks: int) -> None:
        from probe.tasks import give

        from django_txtasks.conf import get_config
        from django_txtasks.core.declaring import registry
        from django_txtasks.core.rows import workers
        from django_txtasks.core.rows.turn import Subscription

        self.tasks, self.function, self.config = tasks, give, get_config()
        self.subscription = Subscription("default", ("default",), tuple(registry.names()))
        lease = timedelta(hours=1)
        self.worker = workers.register(
            "default", queues=["default"], threads=4, listening=True, lease=lease
        )
        self.claimed: list[Any] = []

    def empty(self) -> None:
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute("TRUNCATE txtasks_task, txtasks_finishedtask")

    def enqueue_singly(self) -> None:
        from django.db import transaction

        for number in range(self.tasks):
            with transaction.atomic():
                self.function.enqueue(number)

    def enqueue(self) -> None:
        from django_txtasks import enqueue_many

        for start in range(0, self.tasks, 100):
            enqueue_many([(self.function, [number]) for number in range(start, start + 100)])

    def claim(self, size: int) -> None:
        from django.db import transaction

        from django_txtasks.core.rows import engines
        from django_txtasks.core.rows.turn import Capacity, TurnRequest
        from django_txtasks.models import Task

        ids = list(Task.objects.order_by("enqueued_at", "id").values_list("id", flat=True))
        self.claimed = []
        for start in range(0, self.tasks, size):
            with transaction.atomic():
                request = TurnRequest(Capacity(size), ids[start : start + size])
                found = engines.claim(self.subscription, self.worker, request)
            self.claimed += found.claimed
        assert len(self.claimed) == self.tasks

    def finish(self, size: int, keep: bool) -> None:
        from django.db import transaction

        from django_txtasks.core.rows import outcomes
        from django_txtasks.core.rows.attempts import Arrow, Ended

        kept = timedelta(days=7) if keep else timedelta(0)
        config = replace(self.config, keep_finished=kept)
        for start in range(0, self.tasks, size):
            batch = [
                Ended(attempt=attempt, arrow=Arrow.FINISH)
                for attempt in self.claimed[start : start + size]
            ]
            with transaction.atomic():
                outcomes.record("default", batch, config=config)

    def vacuum(self) -> None:
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute("VACUUM txtasks_task")

    def beat(self) -> None:
        from django_txtasks.core.rows import workers
        from django_txtasks.database.transactions import own_transaction

        for _ in range(self.tasks):
            with own_transaction("default", limit=timedelta(seconds=7)):
                assert workers.beat("default", self.worker, running=0, listening=True)


def drain(keep: int) -> None:
    """Run all due tasks in one worker process, and keep history for this number of seconds."""
    settings = {**json.loads(os.environ["TXTASKS_SETTINGS"]), "keep_finished": keep}
    env = {"TXTASKS_SETTINGS": json.dumps(settings)}
    with tempfile.TemporaryFile() as log:
        process = stage.start("runworkers", "--batch", "--threads=4", log=log, env=env)
        if process.wait(300):
            log.seek(0)
            raise SystemExit(log.read().decode())


if __name__ == "__main__":
    main()
