"""Contenders and their servers: each run has its own database and its own processes.

The servers are private, with a durable PostgreSQL. Everything ends with the ``with`` block, or with this
process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import records
import stage
from databases import Database, OnMariaDB, OnPostgres, OnSQLite
from processes import Guard
from servers import MariaDB, Postgres, RabbitMQ, Server

HERE = stage.ROOT / "benchmarks"
PATIENCE = 120
"""Seconds without a single task: then something is wrong."""


@dataclass(frozen=True)
class Contender:
    """A system under test.

    Attributes:
        name: its module in ``peers``.
        title: how tables call it.
        left: SQL that counts the tasks that have not ended; empty = they are not in the database.
        settings: of TXTASKS.
        python: who runs it.
        checkout: directory of another checkout of this package that it uses; empty = this one.
        database: where its tasks are, or what these write.
    """

    name: str
    title: str
    left: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    python: str = sys.executable
    database: str = "postgresql"
    checkout: str = ""

    @property
    def path(self) -> list[str]:
        """Directories from which its processes import: benchmarks are those of this checkout."""
        other = Path(self.checkout).resolve()
        own = [str(other), str(other / "testproject"), str(other / "tests")]
        return [str(HERE), *(own if self.checkout else []), *filter(None, sys.path)]


def ours(title: str = "django-txtasks", database: str = "postgresql", **settings: Any) -> Contender:
    """Return this package as a contender, with these settings."""
    left = "SELECT count(*) FROM txtasks_task"
    return Contender("txtasks", title, left, settings, database=database)


LIMIT = Contender("limit", "limit", left="SELECT count(*) FROM txtasks_task")


class Run:
    """One contender on a fresh database."""

    def __init__(
        self, contender: Contender, database: Database, url: str, broker: str, directory: Path
    ) -> None:
        self.contender, self.url, self.directory = contender, url, directory
        self._database = database
        self.records, self.others = directory / "records", directory / "others"
        self.records.touch()
        self._worker: subprocess.Popen[bytes] | None = None
        self.env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(contender.path),
            "DATABASE_URL": url,
            "BROKER_URL": broker,
            "NAME": directory.name,
            "TXTASKS_SETTINGS": json.dumps(dict(contender.settings)),
            records.VARIABLE: str(self.records),
        }

    def do(self, verb: str, *arguments: object) -> None:
        """Run a verb to its end; its records go to ``others``, not to the runs of tasks."""
        with self._log() as log:
            done = self._start(verb, arguments, log, self.others).wait()
        if done:
            raise RuntimeError(f"{self.contender.title}: {verb} ended with {done}\n{self.log()}")

    def seconds(self, verb: str, *arguments: object) -> float:
        """Return how long the timed part of a verb took."""
        self.others.unlink(missing_ok=True)
        self.do(verb, *arguments)
        start, end = records.read(self.others)
        return (end.ns - start.ns) / 1e9

    @contextmanager
    def worker(self, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
        """A worker until the end of the block."""
        with self._log() as log, self._start("work", arguments, log, self.records) as process:
            self._worker = process
            try:
                yield process
            finally:
                _stop(process)

    @contextmanager
    def beside(self, verb: str, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
        """Another process until the end of the block, such as a cleaner."""
        with self.start(verb, *arguments) as process:
            try:
                yield process
            finally:
                _stop(process)

    def start(self, verb: str, *arguments: object) -> subprocess.Popen[bytes]:
        """Start a verb, and return at once; it ends with the benchmark, at the latest."""
        with self._log() as log:
            return self._start(verb, arguments, log, self.others)

    def warm_up(self, tasks: int = 10) -> None:
        """See a few tasks through the worker, and forget them."""
        self.do("pace", tasks, 0.05)
        self.wait_for(tasks)
        for file in (self.records, self.others):
            os.truncate(file, 0)

    def wait_for(self, count: int, *, pause: float = 0.002) -> None:
        """Wait until ``count`` runs of tasks are recorded."""
        seen, end = 0, time.monotonic() + PATIENCE
        while (now := records.count(self.records)) < count:
            if now > seen:
                seen, end = now, time.monotonic() + PATIENCE
            ended = self._worker is not None and self._worker.poll() is not None
            if time.monotonic() > end or (ended and records.count(self.records) < count):
                raise RuntimeError(f"{self.contender.title}: {now} of {count} ran\n{self.log()}")
            time.sleep(pause)

    def check(self, keys: range, kept: int = 0) -> None:
        """Fail unless each of these ran exactly once and no more rows are left than were to be kept."""
        ran = sorted(record.key for record in records.read(self.records))
        assert ran == list(keys), f"{self.contender.title}: {len(ran)} runs of {len(keys)} tasks"
        left = self.left() - kept
        assert not left, f"{self.contender.title}: {left} tasks are left"

    def left(self) -> int:
        """Return how many tasks have not ended."""
        return int(self.ask(self.contender.left)) if self.contender.left else 0

    def ask(self, sql: str, *parameters: Any) -> Any:
        """Return the first value that a statement yields, if any."""
        return self._database.ask(self.url, sql, *parameters)

    def log(self) -> str:
        """Return the end of what the contender has printed."""
        return (self.directory / "log").read_text(errors="replace")[-3000:]

    def _log(self) -> IO[bytes]:
        return (self.directory / "log").open("ab")

    def _start(
        self, verb: str, arguments: tuple[object, ...], log: IO[bytes], into: Path
    ) -> subprocess.Popen[bytes]:
        command = [self.contender.python, "-m", "peers", self.contender.name, verb]
        env = {**self.env, records.VARIABLE: str(into)}
        return subprocess.Popen(
            [*command, *map(str, arguments)],
            cwd=HERE, env=env, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


class Contest:
    """Servers, and runs on them."""

    def __init__(
        self,
        databases: Mapping[str, Database],
        postgres: Postgres,
        rabbitmq: RabbitMQ,
        directory: Path,
    ) -> None:
        self.databases, self.postgres, self.rabbitmq = databases, postgres, rabbitmq
        self.directory = directory
        self._templates: dict[tuple[str, str, str], str] = {}
        self._number = 0

    @contextmanager
    def run(self, contender: Contender) -> Iterator[Run]:
        """A run that starts from an empty queue, with nothing left to write by the server."""
        database = self.databases[contender.database]
        if database.has_templates:
            key = (contender.name, contender.database, contender.checkout)
            if key not in self._templates:
                template = self._new_run(contender)
                template.do("prepare")
                self._templates[key] = template.directory.name
            run = self._new_run(contender, self._templates[key])
        else:
            run = self._new_run(contender)
            run.do("prepare")
        yield run
        database.drop(run.directory.name)

    def settle(self) -> None:
        """Write out all that is dirty, so that no checkpoint falls into a figure by chance."""
        for database in self.databases.values():
            database.settle()

    def _new_run(self, contender: Contender, template: str = "") -> Run:
        self._number += 1
        directory = self.directory / f"run{self._number}"
        directory.mkdir()
        database = self.databases[contender.database]
        url = database.create(directory.name, template)
        return Run(contender, database, url, self.rabbitmq.url, directory)


@contextmanager
def contest(*, mariadb: bool = False) -> Iterator[Contest]:
    """Private servers, a directory, and the end of every process that was started meanwhile."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    os.environ["BENCHMARK"] = mark = str(uuid.uuid4())
    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="benchmark-"))
        stack.enter_context(Guard(directory, mark=f"BENCHMARK={mark}"))
        postgres, rabbitmq = Postgres(durable=True), RabbitMQ()
        databases: dict[str, Database] = {
            "postgresql": OnPostgres(postgres),
            "sqlite": OnSQLite(directory),
        }
        servers: list[Server] = [rabbitmq, postgres]
        if mariadb:
            servers.append(maria := MariaDB(durable=True))
            databases["mariadb"] = OnMariaDB(maria)
        for server in servers:
            stack.callback(server.close)
            server.launch()
        for server in servers:
            server.wait_until_ready()
        yield Contest(databases, postgres, rabbitmq, directory)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop a worker in good order, or else with all its children."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
