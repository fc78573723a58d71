"""Helpers of the tests: rows written and read in one line, waiting, and real processes."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import compress
from pathlib import Path
from typing import Any

import fork_server
import pika
import pytest
from django.db import Error, OperationalError, connection, connections, transaction
from process_tree import frozen_descendants
from processes import Guard

HERE = Path(__file__).parent
PATIENCE = float(os.environ.get("TXTASKS_TEST_PATIENCE", "120"))
"""Seconds, which only a broken run takes: a busy machine needs ten to start a process."""
SHORTEST_PAUSE, LONGEST_PAUSE = 0.01, 0.06
"""Seconds between two looks of a test that waits: many wait at the same time, and a look is a query."""
Started = subprocess.Popen[bytes] | fork_server.Command
NAMES_OF_TABLES = [
    "txtasks_task",
    "txtasks_finishedtask",
    "txtasks_worker",
    "txtasks_endedworker",
    "txtasks_cleaner",
    "txtasks_pausedqueue",
    "txtasks_lane",
    "txtasks_once",
    "txtasks_schedule",
    "txtasks_step",
    "txtasks_batch",
    "txtasks_wait",
    "txtasks_link",
    "txtasks_rawstat",
    "txtasks_stat",
    "txtasks_stackrequest",
    "txtasks_question",
    "probe_run",
    "probe_parceldetails",
    "probe_parcel",
    "probe_country",
    "orders_receipt",
    "orders_order",
]


class Running(set[Any]):
    """The attempts in the slots of a worker, as (id, number), for a turn that a test writes itself."""

    running = property(len)
    holds = set.copy


def url_of(server: str) -> str:
    """Return the URL of a server: POSTGRES, MARIADB or AMQP. Skip the test if the environment names none."""
    url = os.environ.get(f"TXTASKS_TEST_{server}_URL")
    if not url:
        pytest.skip("needs a server: python tests/services.py -- pytest …")
    return url


def empty_tables() -> None:
    """Delete all rows, and users. This is faster than a flush, and leaves permissions alone."""
    from django.contrib.auth.models import User

    names = [*NAMES_OF_TABLES, User._meta.db_table]
    one_of_each = ", ".join(f"(SELECT 1 FROM {table} LIMIT 1)" for table in names)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {one_of_each}")
        *found, has_users = cursor.fetchone()
        for table in compress(NAMES_OF_TABLES, found):
            cursor.execute(f"DELETE FROM {table}")
    if has_users:
        User.objects.all().delete()  # and with them what they have logged


def forget_session() -> bool:
    """Forget what a test has left in its session. A new session takes PostgreSQL ten milliseconds.

    Returns:
        False if a new session is needed.
    """
    is_idle = connection.connection is not None and not connection.in_atomic_block
    if connection.vendor != "postgresql" or not is_idle or not connection.get_autocommit():
        return False
    try:
        execute("DISCARD ALL")
    except Error:
        return False
    return True


def isolation_levels(*, of_long_form: bool) -> list[str]:
    """Return the isolation levels under which a storm runs; the empty one is the default.

    The short form leaves REPEATABLE READ out: what PostgreSQL refuses there it refuses under SERIALIZABLE, too.
    """
    if connection.vendor != "postgresql":
        return [""]
    return ["", "REPEATABLE_READ", "SERIALIZABLE"] if of_long_form else ["", "SERIALIZABLE"]


def execute(sql: str, *params: Any) -> list[tuple[Any, ...]]:
    """Run a statement as a person would by hand."""
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall()) if cursor.description else []


def orphans(alias: str = "default") -> list[Any]:
    """Return the claims that a cleaner would recover."""
    from django_txtasks.core.rows import cleaning

    holders = [*cleaning.lost_workers(alias), *cleaning.holders_without_row(alias)]
    return [
        one
        for holder in holders
        for one in cleaning.orphans(alias, holder, cleaning.held_by(alias, holder))
    ]


def row(task_id: uuid.UUID) -> Any:
    """Return the live row of a task, or None."""
    from django_txtasks.models import Task

    return Task.objects.filter(pk=task_id).first()


def finished(task_id: uuid.UUID) -> Any:
    """Return the finished row of a task, or None."""
    from django_txtasks.models import FinishedTask

    return FinishedTask.objects.filter(pk=task_id).first()


def runs(key: str | None = None) -> int:
    """How many runs were noted."""
    from probe.models import Run

    return Run.objects.filter(key=key).count() if key else Run.objects.count()


def counts() -> dict[str, int]:
    """Return the number of live rows in each state, and of finished ones."""
    from django_txtasks.models import FinishedTask, Status, Task

    found = {str(status.value): Task.objects.filter(status=status).count() for status in Status}
    return {**found, "finished": FinishedTask.objects.count()}


def wait_until(
    true: Callable[[], Any], seconds: float = PATIENCE, what: str | Callable[[], str] = ""
) -> Any:
    """Return the first true answer; fail after ``seconds``."""
    end, pause = time.monotonic() + seconds, SHORTEST_PAUSE
    while not (answer := true()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(pause)
        pause = min(1.2 * pause, LONGEST_PAUSE)
    return answer


@contextmanager
def statistics_of_empty_tables() -> Iterator[None]:
    """Tables that are believed to be empty, and are not analyzed again. (SQLite has no such statistics here.)"""
    words = {
        "postgresql": ("ANALYZE", "SET (autovacuum_enabled = off)", "RESET (autovacuum_enabled)"),
        "mysql": ("ANALYZE TABLE", "STATS_AUTO_RECALC = 0", "STATS_AUTO_RECALC = DEFAULT"),
    }
    if connection.vendor not in words:
        yield
        return
    analyze, off, on = words[connection.vendor]
    names = ("txtasks_task", "txtasks_finishedtask", "txtasks_worker")
    for table in names:
        execute(f"{analyze} {table}")
        execute(f"ALTER TABLE {table} {off}")
    try:
        yield
    finally:
        for table in names:
            execute(f"ALTER TABLE {table} {on}")


@contextmanager
def second_session(work: Callable[[], None]) -> Iterator[threading.Thread]:
    """Run ``work`` in a thread with a database connection of its own."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # handed to the test below
            failures.append(error)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    yield thread
    thread.join(PATIENCE)
    assert not thread.is_alive()
    if failures:
        raise failures[0]


def is_run_by(pid: int, mark: str | None = None) -> None:
    """Make a process of this machine the one of all workers, though they beat in this one."""
    from django_txtasks.core.rows import workers
    from django_txtasks.database import processes
    from django_txtasks.models import Worker

    mark = processes.mark_of(pid) if mark is None else mark
    for worker in Worker.objects.all():
        theirs = [one for one in worker.sessions if not one.startswith(processes.PREFIX)]
        Worker.objects.filter(pk=worker.pk).update(
            host=workers.host_name(), pid=pid, sessions=[*theirs, mark]
        )


def end_process_of_worker() -> None:
    """Make an ended process of this machine the one of all workers."""
    from django_txtasks.database import processes

    process = subprocess.Popen(["sleep", "600"])
    mark = processes.mark_of(process.pid)
    process.kill()
    process.wait()
    is_run_by(process.pid, mark)


@contextmanager
def locked(sql: str, *params: Any) -> Iterator[None]:
    """Keep rows locked by another session's open transaction: ``sql`` changes them, then rolls back."""
    holds, release = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            execute(sql, *params)
            holds.set()
            release.wait(PATIENCE)
            transaction.set_rollback(True)

    with second_session(hold):
        assert holds.wait(PATIENCE)
        try:
            yield
        finally:
            release.set()


@contextmanager
def second_alias(**entry: Any) -> Iterator[dict[str, str]]:
    """``second`` as an alias of this process; gives what makes a command that is started know it, too."""
    connections.settings["second"] = {**connection.settings_dict, **entry}
    try:
        yield {"TXTASKS_SECOND_DATABASE": json.dumps(entry)}
    finally:
        connections["second"].close()
        del connections["second"]
        del connections.settings["second"]


@contextmanager
def second_alias_of_plain_user() -> Iterator[dict[str, str]]:
    """``second`` as an alias of a user of MariaDB that may not write while the server is ``read_only``."""
    user = f"plain_{uuid.uuid4().hex[:8]}"
    execute(f"CREATE USER {user}@'%%' IDENTIFIED BY 'x'")
    try:
        execute(f"GRANT ALL ON `{connection.settings_dict['NAME']}`.* TO {user}@'%%'")
        with second_alias(USER=user, PASSWORD="x", HOST="127.0.0.1") as environment:
            yield environment
    finally:
        execute(f"DROP USER {user}@'%%'")


@contextmanager
def read_only_server() -> Iterator[None]:
    """MariaDB with ``read_only``. Only one test at a time sets it, because tests share the server."""
    execute("SELECT GET_LOCK('read_only', 100)")
    try:
        execute("SET GLOBAL read_only = 1")
        yield
    finally:
        execute("SET GLOBAL read_only = 0")
        execute("SELECT RELEASE_LOCK('read_only')")


def tables_of(alias: str) -> list[str]:
    """Return the names of our tables in a database."""
    return [
        name
        for name in connections[alias].introspection.table_names()
        if name.startswith("txtasks_")
    ]


def delete_queues(url: str, names: list[str]) -> None:
    """Remove a test's queues from the broker."""
    with pika.BlockingConnection(pika.URLParameters(url)) as amqp:
        for name in names:
            amqp.channel().queue_delete(name)


@functools.cache
def _guard_of(process: int) -> tuple[str, Guard]:
    """Return the name of a variable, and a guard: commands with it in their environment end with this process.

    Commands have sessions of their own, so whatever kills pytest does not reach them.
    """
    name = f"TXTASKS_TESTS_OF_{process}_{uuid.uuid4().hex}"
    return name, Guard(mark=f"{name}=1")


class Processes:
    """``manage.py`` commands as processes of their own, in sessions of their own."""

    def __init__(self, read_settings: Callable[[], dict[str, Any]]) -> None:
        self._settings = read_settings
        self.started: list[Started] = []
        self._logs: dict[int, Path] = {}
        self.directory = tempfile.TemporaryDirectory()

    def start(
        self, *arguments: str, env: dict[str, str] | None = None, with_cleaner: bool = False
    ) -> Started:
        """Start a command and return at once.

        Args:
            with_cleaner: ``runworkers`` starts its cleaner, too. Most tests start a cleaner when they need one.
        """
        if arguments[0] == "runworkers" and not with_cleaner:
            arguments = (*arguments, "--no-cleaner")
        log = Path(self.directory.name) / f"{len(self._logs)}.log"
        usual = self._environment()
        environment = {**usual, **(env or {})}
        process: Started
        if server := fork_server.server(environment, usual):
            process = server.start(arguments, environment, log)
        else:
            with log.open("wb") as output:
                process = subprocess.Popen(
                    [sys.executable, "-m", "django", *arguments],
                    env=environment,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        self.started.append(process)
        self._logs[process.pid] = log
        return process

    def log_of(self, process: Started) -> str:
        """Return what a process has printed so far."""
        return self._logs[process.pid].read_text(errors="replace")

    def end(self) -> None:
        """Kill the remaining processes; the workers of a killed supervisor stop themselves.

        A frozen worker cannot: it may hold a lock, for which all later tests would wait.
        """
        for process in self.started:
            for pid in list(frozen_descendants(process.pid)):
                os.kill(pid, signal.SIGKILL)
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.started:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            print(f"{process.args}:\n{self.log_of(process)}")  # pytest shows it where a test fails
        self.started.clear()

    def _environment(self) -> dict[str, str]:
        simple = {name: value for name, value in self._settings().items() if value is not None}
        name, _ = _guard_of(os.getpid())
        return {
            **os.environ,
            name: "1",
            "DJANGO_SETTINGS_MODULE": "settings_for_tests",
            "PYTHONPATH": os.pathsep.join(
                [
                    str(HERE),
                    str(HERE.parent / "testproject"),
                    *filter(None, [os.environ.get("PYTHONPATH")]),
                ]
            ),
            "TXTASKS_IN_TEST_DATABASE": str(connection.settings_dict["NAME"]),
            "TXTASKS_SETTINGS": json.dumps({"grace": 1, **simple}),
        }


def worker_pids() -> list[int]:
    """Return the process ids of registered workers that are not lost."""
    from django_txtasks.models import Worker

    return list(Worker.objects.filter(lost=False).values_list("pid", flat=True))


def do_not_wait_for_locks() -> None:
    """Have this session fail after a second, where MariaDB would wait for 50; close it in the end."""
    if connection.vendor == "mysql":
        execute("SET SESSION innodb_lock_wait_timeout = 1")


def somebody_waits():
    """Say whether a session waits for a lock, as the database itself says."""
    sql = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    if connection.vendor == "mysql":
        # innodb_trx stays as it was while it is looked at again and again
        sql = """SELECT count(*) FROM information_schema.processlist
                  WHERE command = 'Query' AND db = DATABASE() AND id <> CONNECTION_ID() AND time_ms > 300"""
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]


def end_other_sessions() -> None:
    """Let the server end all sessions of this database but the caller's."""
    if connection.vendor == "postgresql":
        execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return
    others = "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
    for (number,) in execute(others):
        with suppress(OperationalError):  # it has ended
            execute(f"KILL CONNECTION {number}")


def patiently(work: Callable[[], Any]) -> Any:
    """Run a transaction again when the database asks for it or a lock was held for long, as workers do."""
    from django_txtasks.database.errors import is_in_the_way, is_timeout

    while True:
        try:
            return work()
        except OperationalError as error:
            is_locked = connection.vendor == "sqlite" and is_timeout(error)
            if not (is_in_the_way(error) or is_locked):
                raise


def subscription(*queues: str, names: Sequence[str] | None = None, kind: str = "every") -> Any:
    """Return a worker's subscription to these queues, or to "default", and to all declared names by default.

    Args:
        kind: "every", or a kind of ``runworkers``: "beside", "loop" or "alone"; "threads" is "beside" for sync
            functions only.
    """
    from django_txtasks.core.declaring import registry
    from django_txtasks.core.rows.turn import Kind, Subscription

    declared, queues = registry.names() if names is None else names, queues or ("default",)
    asyncs = tuple(name for name in declared if registry.is_async(name))
    if kind == "threads":
        syncs = tuple(name for name in declared if name not in asyncs)
        return Subscription("default", queues, syncs, Kind.BESIDE)
    names = asyncs if Kind(kind) is Kind.LOOP else tuple(declared)
    return Subscription("default", queues, names, Kind(kind))


def has_accelerator(name: str) -> bool:
    """Return False if ``TXTASKS_TEST_WITHOUT`` leaves it out."""
    from django_txtasks import assembly

    return any(one.name == name for one in assembly.ACCELERATORS)


def turn_writer(threads: int = 1) -> Any:
    """Return what writes the turns of a worker, with the parts of all features."""
    from django_txtasks.conf import get_config
    from django_txtasks.core.ground.cancel_requests import NOBODY
    from django_txtasks.core.working.hint_inbox import HintInbox
    from django_txtasks.core.working.parts import Parts, WorkerContext, parts_of_features
    from django_txtasks.core.working.schedule import TurnSchedule
    from django_txtasks.core.working.turn_writer import TurnWriter

    config, served, parts = get_config(), subscription(), Parts()
    writer = TurnWriter(config, served, threads, parts=parts)
    schedule, inbox = TurnSchedule(config), HintInbox()
    context = WorkerContext(
        config, served, writer.registration, schedule, writer.scans, inbox, NOBODY
    )
    parts.add(parts_of_features(context))
    return writer


def runner(writer: Any = None) -> Any:
    """Return what runs attempts in the calling thread, with the parts of this writer's worker, or of another."""
    from django_txtasks.conf import get_config
    from django_txtasks.core.working.running.runner import Runner

    parts = (writer or turn_writer()).parts
    return Runner("default", get_config(), lambda session: None, parts=parts)


def claim(
    worker: uuid.UUID,
    room: int = 1,
    *queues: str,
    hinted: Sequence[uuid.UUID] = (),
    with_keys: bool = False,
    **scan: Any,
) -> Any:
    """Claim due or hinted tasks in the open transaction; return the result of the turn."""
    from django_txtasks.core.rows import engines
    from django_txtasks.core.rows.turn import Capacity, Scan, TurnRequest

    wanted = subscription(*queues)
    look = None if hinted else Scan(wanted.queues, **scan)
    request = TurnRequest(Capacity(room), hinted, look)
    return engines.claim(wanted, worker, request, with_keys=with_keys)


@contextmanager
def working(
    threads: int = 2,
    queues: list[str] | None = None,
    names: list[str] | None = None,
    kind: str = "every",
    async_tasks: int = 0,
    *,
    tell: Callable[[], None] | None = None,
) -> Iterator[Any]:
    """A real worker in a thread of this process, with the hints that TXTASKS names; gives the Worker.

    Args:
        names: the task functions that its code declares; None = all.
        kind: see ``subscription``. A loop gets ``async_tasks`` slots.
        tell: called when a last chance after a crash is due, in place of a supervisor.
    """
    from probe.models import wait_for_the_writer

    from django_txtasks import hints
    from django_txtasks.conf import get_config
    from django_txtasks.core.working.hint_inbox import HintInbox
    from django_txtasks.core.working.worker import Worker
    from django_txtasks.hints.broker.will import LastWillConnection
    from django_txtasks.processes.probes import Liveness
    from django_txtasks.processes.recycling import RecyclePolicy
    from django_txtasks.processes.shutdown import Shutdown

    config, inbox, last_will = get_config(), HintInbox(), None
    queues = list(queues or config.queues)
    wanted = subscription(*queues, names=names, kind=kind)
    inbox.source = hints.source(config, wanted, inbox.deliver)
    if config.broker_url is not None:
        last_will = LastWillConnection(config, "default", inbox.wake)
        last_will.start()
    if inbox.source is not None:
        inbox.source.start()
    stop = Shutdown(10, inbox.wake)
    worker = Worker(
        config,
        wanted,
        threads=threads,
        async_tasks=async_tasks,
        inbox=inbox,
        stop=stop,
        recycling=RecyclePolicy(),
        last_will=last_will,
        liveness=Liveness(config.lease),
        tell_of_last_chance=tell,
    )
    wait_for_the_writer(connection)  # beside a busy worker
    try:
        with second_session(worker.run):
            try:
                wait_until(
                    lambda: worker.writer.id and inbox.connected in (None, True),
                    what="the worker's start",
                )
                yield worker
            finally:
                stop.request()
    finally:
        for listener in (inbox.source, last_will):
            if listener is not None:
                listener.stop()
