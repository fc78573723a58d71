"""Recovery of workers and cleaners after failovers: recoveries done, tasks lost, sessions stuck. Zeros are
right.

    python benchmarks/failovers.py [--rounds 24] [--lease 3]

On a private PostgreSQL, with a short lease and beat. In each round two workers are in the middle of a task
that may run again, and a cleaner runs. PostgreSQL is stopped, and the first worker gets SIGKILL. PostgreSQL
comes back with read-only sessions (default_transaction_read_only). In that window all processes reconnect,
and a worker without an id starts. Then new sessions may write, but those from the window stay read-only:
they answer SELECT 1 and cannot write. A task is enqueued. The round is over when the killed worker's task
has run again, no row of the round is left, and two workers are registered.

Printed for each round: seconds from there until all of this holds, or the parts that do not hold after
--patience seconds. These count as stuck, and all processes are replaced.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import stage  # isort: skip -- it says where the next ones are
import services
from helpers import wait_until

WINDOW = 1.5
"""Seconds in which the database only reads, once everybody could connect."""


def main() -> int:
    """Print a line for each round; return 1 if anything got stuck."""
    arguments = _arguments()
    with services.Postgres() as postgres, Path(arguments.log).open("w+b") as log:
        os.environ["DJANGO_SETTINGS_MODULE"] = "settings_for_tests"
        os.environ["TXTASKS_DATABASE_URL"] = postgres.url
        os.environ["TXTASKS_SETTINGS"] = json.dumps(
            {"lease": arguments.lease, "heartbeat_interval": 0.5}
        )
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", run_syncdb=True, verbosity=0)
        play = Play(postgres, log, arguments.patience)
        try:
            return play.run(arguments.rounds)
        finally:
            play.end()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--lease", type=float, default=3.0)
    parser.add_argument("--patience", type=float, default=45.0)
    parser.add_argument("--log", default=os.devnull, help="where the processes write their logs")
    return parser.parse_args()


class Play:
    """The server and the processes."""

    def __init__(self, postgres: services.Server, log: IO[bytes], patience: float) -> None:
        self.postgres, self.log, self.patience = postgres, log, patience
        self.cleaner = stage.start("runcleaner", log=log)
        self.workers = [self._worker() for _ in range(2)]

    def run(self, rounds: int) -> int:
        """Return 1 if a recovery was not done or a process got stuck."""
        seconds: list[float] = []
        stuck = 0
        for number in range(1, rounds + 1):
            missing, took = self._round()
            stuck += len(missing)
            seconds += [] if missing else [took]
            shown = f"not after {took:.0f} s: {', '.join(missing)}" if missing else f"{took:.1f} s"
            print(f"{number}: {shown}", flush=True)
            if missing:
                self._start_afresh()
        well = (
            f", p50 {statistics.median(seconds):.1f} s, max {max(seconds):.1f} s" if seconds else ""
        )
        print(f"{rounds} failovers: {len(seconds)} got over{well}; stuck: {stuck}")
        return int(bool(stuck))

    def end(self) -> None:
        """Stop the remaining processes."""
        processes = [self.cleaner, *self.workers]
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _worker(self) -> subprocess.Popen[bytes]:
        return stage.start("runworkers", "--no-cleaner", "--threads=1", log=self.log)

    def _round(self) -> tuple[list[str], float]:
        from probe import tasks
        from probe.models import Run

        from django_txtasks.models import Task, Worker

        wait_until(lambda: Worker.objects.filter(lost=False).count() == 2, 60, "two workers")
        key = uuid.uuid4().hex
        for name in ("one", "other"):
            tasks.slow_once.enqueue(f"{key} {name}", 6)
        begun = wait_until(lambda: _runs(Run, key, 2), 60, "both tasks")
        victim, run = next(
            (one, run) for run in begun for one in self.workers if _is_below(run.pid, one.pid)
        )
        _read_only("SET default_transaction_read_only = on")
        self.postgres.stop()
        os.killpg(victim.pid, signal.SIGKILL)
        os.kill(run.pid, signal.SIGKILL)
        victim.wait()
        self.postgres.start()
        self.workers[self.workers.index(victim)] = self._worker()  # it has no id yet
        _wait_for_sessions(3)
        time.sleep(WINDOW)
        _read_only("RESET default_transaction_read_only")
        start = time.monotonic()
        _patiently(lambda: tasks.note.enqueue(f"{key} after"))
        waited: dict[str, Callable[[], object]] = {
            "the killed worker's task": lambda: Run.objects.filter(key=run.key).count() >= 2,
            "the new task": lambda: Run.objects.filter(key=f"{key} after").exists(),
            "all rows": lambda: not Task.objects.filter(args__contains=key).exists(),
            "two living workers": lambda: Worker.objects.filter(lost=False).count() == 2,
        }
        while waited and time.monotonic() < start + self.patience:
            for name, is_so in list(waited.items()):
                if _patiently(is_so):
                    del waited[name]
            time.sleep(0.05)
        return list(waited), time.monotonic() - start

    def _start_afresh(self) -> None:
        """Replace everything, so that the next round does not suffer from this one."""
        from django_txtasks.models import Task, Worker

        self.end()
        Task.objects.all().delete()
        Worker.objects.all().delete()
        self.cleaner = stage.start("runcleaner", log=self.log)
        self.workers = [self._worker() for _ in range(2)]


def _runs(model: Any, key: str, count: int) -> list[Any]:
    found = list(model.objects.filter(key__startswith=key))
    return found if len(found) >= count else []


def _is_below(pid: int, ancestor: int) -> bool:
    while pid > 1 and pid != ancestor:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:  # it has ended
            return False
    return pid == ancestor


def _read_only(change: str) -> None:
    """Set whether new sessions may write; existing sessions do not change."""
    from django.db import connection

    connection.close()
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = off")
        cursor.execute(f"ALTER DATABASE postgres {change}")
    connection.close()


def _wait_for_sessions(count: int) -> None:
    """Wait for this number of new connections; a session that is closed after a failed turn connects again."""
    from django.db import connection

    seen: set[int] = set()

    def look() -> bool:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pid FROM pg_stat_activity"
                " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
            seen.update(pid for (pid,) in cursor.fetchall())
        return len(seen) >= count

    _patiently(lambda: wait_until(look, 60, "their sessions"))


def _patiently(ask: Callable[[], Any]) -> Any:
    """Ask again in a new session if the old one is gone."""
    from django.db import DatabaseError, InterfaceError, connection

    while True:
        try:
            return ask()
        except (DatabaseError, InterfaceError):
            connection.close()
            time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
