"""A storm of failovers of PostgreSQL to a real standby that lags, and its account.

The link of the standby is cut for a moment, then the primary is killed, and the standby is promoted. An
asynchronous standby does not have the last commits then. With a synchronous one, commits wait in this moment.
Workers, cleaner and senders reach the primary by one address, as by a proxy or a virtual IP. No process of ours is
killed.

The account compares four places: what senders were promised, business rows (``orders.Order``), tasks, and a
journal file to which each run writes one line. Effects of atomic tasks are rows of ``probe.Run``.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import helpers
import psycopg
from promises import promised
from proxy import Proxy
from servers import HOST, Postgres, Standby

KINDS = ("atomic", "default", "idempotent")
LAG_SECONDS = 0.7
SENDERS = 3
THREADS = 4
LONG_SECONDS = 0.5
"""Seconds that some tasks take: they are claimed before the link is cut, and end after it."""


@dataclass
class Account:
    """Result of a storm.

    Attributes:
        transactions: transactions whose COMMIT was answered.
        lacked: among these, transactions that a promoted server did not have.
        tasks: tasks of the transactions that exist.
        finished: those among them that are in the history.
        lost: tasks that do not exist although their business row does.
        alone: tasks that exist although their business row does not.
        atomic_doubled, atomic_missing: finished atomic tasks with more or less than one effect.
        default_doubled: default tasks that ran again although a worker held them when the promoted server
            began.
        doubled: their names and the numbers of their attempts.
        default_reclaimed: default tasks that ran again because the promoted server did not have their
            claim.
        dead: default tasks that are dead because the database lost their end.
        dead_others: other tasks that are dead.
        reruns: runs of idempotent tasks after the first one.
        false_rescues: living workers that were declared lost.
        undone: tasks that had not ended in time.
        ended: processes that ended unexpectedly.
        slowest_seconds: longest time from the enqueueing of a task to its end.
    """

    transactions: int = 0
    lacked: int = 0
    tasks: int = 0
    finished: int = 0
    lost: int = 0
    alone: int = 0
    atomic_doubled: int = 0
    atomic_missing: int = 0
    default_doubled: int = 0
    default_reclaimed: int = 0
    dead: int = 0
    dead_others: int = 0
    reruns: int = 0
    false_rescues: int = 0
    undone: int = 0
    ended: int = 0
    slowest_seconds: float = 0.0
    failovers: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Return True if all guarantees held."""
        wrong = (
            self.lost, self.alone, self.atomic_doubled, self.atomic_missing, self.default_doubled,
            self.dead_others, self.false_rescues, self.undone, self.ended,
        )  # fmt: skip
        return not any(wrong) and self.tasks > 0

    def as_dict(self) -> dict[str, Any]:
        """Return all of it."""
        return {**asdict(self), "passed": self.passed}


class Cluster:
    """A primary behind one address, and a standby whose link can be cut.

    Args:
        synchronous: a COMMIT waits until the standby has it.

    Attributes:
        unclaimed: tasks that no worker held when a promoted server began, according to that server.
    """

    def __init__(self, stack: ExitStack, *, synchronous: bool = False) -> None:
        self._stack, self.unclaimed, self._synchronous = stack, set[str](), synchronous
        self.primary: Postgres = stack.enter_context(Postgres())
        self.proxy = stack.enter_context(Proxy(HOST, self.primary.port))
        self.url = f"postgres://postgres@{HOST}:{self.proxy.port}/postgres"
        self._attach_standby()

    def fail_over(self) -> str:
        """Kill the primary with commits that the standby lacks, and promote the standby; return what was lost."""
        self._wait_until_streaming()
        self._link.cut(away=3600)
        time.sleep(LAG_SECONDS)
        with psycopg.connect(self.primary.url) as session:
            end = session.execute("SELECT pg_current_wal_lsn()").fetchone()
        self.primary.home.stop(signal.SIGKILL)
        self.proxy.cut(away=3600)
        old, self.primary = self.primary, self._standby
        had = self._standby.promote()
        if self._synchronous:  # its configuration is a copy, and it has no standby yet
            self._wait_for_standby("")
        with psycopg.connect(self.primary.url) as session:  # nobody else can reach it yet
            rows = session.execute("SELECT args->>0 FROM txtasks_task WHERE status = 'pending'")
            self.unclaimed.update(key for (key,) in rows)
        self.proxy.move(HOST, self.primary.port)
        self.proxy.cut(away=0)
        old.close()
        self._attach_standby()
        return f"killed at {end[0]}, promoted at {had}"

    def _attach_standby(self) -> None:
        self._link = self._stack.enter_context(Proxy(HOST, self.primary.port))
        self._standby = self._stack.enter_context(Standby(self._link.port))
        if self._synchronous:
            self._wait_for_standby("*")

    def _wait_for_standby(self, names: str) -> None:
        """Have each COMMIT wait for these standbys; an empty name: for none."""
        with psycopg.connect(self.primary.url, autocommit=True) as session:
            session.execute("SET synchronous_commit = off")
            session.execute("ALTER ROLE postgres SET synchronous_commit = on")
            session.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
            session.execute("SELECT pg_reload_conf()")

    def _wait_until_streaming(self) -> None:
        """Return once the standby has what the primary had written a moment ago."""
        with psycopg.connect(self.primary.url, autocommit=True) as session:
            here = session.execute("SELECT pg_current_wal_lsn()").fetchone()
            helpers.wait_until(
                lambda: session.execute(
                    "SELECT 1 FROM pg_stat_replication WHERE replay_lsn >= %s", here
                ).fetchone(),
                what="the standby follows",
            )


class Senders:
    """Threads that enqueue: a business row and one task of each kind in each transaction."""

    def __init__(self, transactions: int, seconds: float, slots: int) -> None:
        self.promises: dict[str, str] = {}
        # so many that half of the slots are in a long task at any time
        self._long_each = max(
            1, round(transactions / seconds * len(KINDS) * LONG_SECONDS * 2 / slots)
        )
        self._each, self._pause = transactions // SENDERS, seconds * SENDERS / transactions
        self._threads = [
            threading.Thread(target=self._send, args=[number]) for number in range(SENDERS)
        ]

    def start(self) -> None:
        """Begin to send."""
        for thread in self._threads:
            thread.start()

    def wait(self) -> None:
        """Return once all is sent."""
        for thread in self._threads:
            thread.join()

    def _send(self, sender: int) -> None:
        from django.db import connection
        from orders.models import Order
        from probe import tasks

        of_kind = (tasks.journal_atomic, tasks.journal_default, tasks.journal_idempotent)
        begin = time.monotonic()
        for number in range(self._each):
            key = f"{sender}-{number}"
            seconds = LONG_SECONDS if number % self._long_each == 0 else 0.0

            def write(key: str = key, seconds: float = seconds) -> None:
                Order.objects.create(customer=key)
                for kind, task in zip(KINDS, of_kind, strict=True):
                    task.enqueue(f"{key} {kind}", seconds)

            self.promises[key] = promised(write)
            if self.promises[key] != "committed":
                time.sleep(0.2)
            time.sleep(max(0.0, begin + number * self._pause - time.monotonic()))
        connection.close()


def run(
    *,
    failovers: int,
    tasks: int,
    seconds: float,
    workers: int,
    broker: str | None,
    say: Callable[[str], None],
    synchronous: bool = False,
) -> Account:
    """Run the storm on servers of its own; return its account."""
    account = Account()
    with ExitStack() as stack, tempfile.TemporaryDirectory() as directory:
        cluster = Cluster(stack, synchronous=synchronous)
        journal = Path(directory) / "journal"
        journal.touch()
        _set_up(cluster.url, broker, journal)
        with _crew(workers, account) as crew:
            senders = Senders(tasks // len(KINDS), seconds, workers * THREADS)
            senders.start()
            for number in range(failovers):
                time.sleep(seconds / (failovers + 1))
                account.failovers.append(cluster.fail_over())
                say(f"failover {number + 1}: {account.failovers[-1]}")
            senders.wait()
            say("all is sent")
            account.undone = drain(60 + tasks / 50)
            count(account, senders.promises)
            count_runs(account, journal, cluster.unclaimed)
            account.false_rescues = crew.lost_workers()
        close()
    return account


def _set_up(url: str, broker: str | None, journal: Path) -> None:
    import django
    from django.core.management import call_command

    os.environ.update(
        DJANGO_SETTINGS_MODULE="settings_for_tests",
        TXTASKS_DATABASE_URL=url,
        PROBE_JOURNAL=str(journal),
        TXTASKS_SETTINGS='{"database_hints": true}',
    )
    os.environ.pop("TXTASKS_BROKER_URL", None)
    if broker:
        os.environ["TXTASKS_BROKER_URL"] = broker
    django.setup()
    call_command("migrate", run_syncdb=True, verbosity=0)  # probe has no migrations


class _Crew:
    def __init__(self, workers: int) -> None:
        from django.conf import settings

        self.processes = helpers.Processes(lambda: settings.TXTASKS)
        for _ in range(workers):
            self.processes.start("runworkers", "--processes=1", f"--threads={THREADS}")
        self.cleaner = self.processes.start("runcleaner")
        helpers.wait_until(lambda: len(helpers.worker_pids()) == workers, what="workers")
        close()  # the session of this thread would lead to the first primary

    def lost_workers(self) -> int:
        """Return how many workers were declared lost."""
        return self.processes.log_of(self.cleaner).count(" is lost: ")


@contextmanager
def _crew(workers: int, account: Account) -> Iterator[_Crew]:
    crew = _Crew(workers)
    try:
        yield crew
        for process in crew.processes.started:
            if process.poll() is not None:
                account.ended += 1
    finally:
        for process in crew.processes.started:
            process.terminate()
        for process in crew.processes.started:
            process.wait(helpers.PATIENCE)
        crew.processes.directory.cleanup()


def drain(seconds: float) -> int:
    """Wait for the end of all tasks; return how many have none."""
    from django_txtasks.models import Status, Task

    end = time.monotonic() + seconds
    live = Task.objects.exclude(status=Status.DEAD)
    while (left := live.count()) and time.monotonic() < end:
        time.sleep(0.2)
    return left


def count(account: Account, promises: dict[str, str]) -> None:
    from orders.models import Order
    from probe.models import Run

    from django_txtasks.models import FinishedTask, Task

    orders = set(Order.objects.values_list("customer", flat=True))
    ended = FinishedTask.objects.values_list("args", "enqueued_at", "finished_at")
    seconds = {args[0]: (end - begin).total_seconds() for args, begin, end in ended}
    account.slowest_seconds = round(max(seconds.values(), default=0.0), 1)
    finished = set(seconds)
    account.finished = len(finished)
    live = {args[0] for args in Task.objects.values_list("args", flat=True)}
    there, wanted = finished | live, {f"{key} {kind}" for key in orders for kind in KINDS}
    promised_keys = {key for key, word in promises.items() if word == "committed"}
    account.transactions, account.lacked = len(promised_keys), len(promised_keys - orders)
    account.tasks, account.lost, account.alone = (
        len(there),
        len(wanted - there),
        len(there - wanted),
    )
    effects = Counter(Run.objects.values_list("key", flat=True))
    atomic = {key for key in finished if key.endswith("atomic")}
    account.atomic_doubled = sum(number > 1 for number in effects.values())
    account.atomic_missing = sum(not effects[key] for key in atomic)
    account.dead = sum(key.endswith("default") for key in live)
    account.dead_others = len(live) - account.dead


def count_runs(account: Account, journal: Path, unclaimed: set[str]) -> None:
    """Count runs beyond the first one, by the journal."""
    attempts: dict[str, list[str]] = {}
    for line in journal.read_text().splitlines():
        key, _, attempt = line.rpartition(" ")
        attempts.setdefault(key, []).append(attempt)
    for key, numbers in attempts.items():
        if key.endswith("idempotent"):
            account.reruns += len(numbers) - 1
        elif key.endswith("default") and len(numbers) > 1:
            if key in unclaimed:
                account.default_reclaimed += 1
            else:
                account.default_doubled += 1
                account.doubled.append(f"{key}: attempts {', '.join(numbers)}")


def close() -> None:
    from django.db import connections

    from django_txtasks import hints

    hints.flush()
    connections.close_all()
