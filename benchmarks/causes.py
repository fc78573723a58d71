"""40,000 failures of one cause in a minute, and a person who revives them in a browser.

    python tests/services.py -- python benchmarks/causes.py [--tasks 40000] [--workers 8] [--database mariadb]

Workers let all tasks fail for good, while the overview is read every 5 s. The script prints the failures in a
minute, and the longest wait for a lock. On PostgreSQL, a session looks at ``pg_locks`` every 5 ms. MariaDB notes
the longest wait for a row since its start (``Innodb_row_lock_time_max``), also if the wait has nothing to do with
causes: so the script names the indexes whose entries were waited for.

Then a person opens At a glance in a Chromium, follows the cause, lets the task ``django_txtasks.bulk`` revive
all tasks, asks it to stop, and lets another one go on. The workers run the revived tasks meanwhile, which now
succeed. The script prints clicks and seconds of each part. It needs ``--group browser``.
With fewer than about 8,000 tasks the first revival has ended before the person can stop it.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import stage

MAX_SECONDS = 900
"""Longest time of each part."""
LOOK_SECONDS = 0.005
WAITED_FOR = """
    SELECT DISTINCT lock_index FROM information_schema.innodb_locks AS one
      JOIN information_schema.innodb_lock_waits AS wait ON wait.requested_lock_id = one.lock_id
"""


def main() -> None:
    """Print what was measured."""
    arguments = _arguments()
    url = os.environ[f"TXTASKS_TEST_{arguments.database.upper()}_URL"]
    os.environ |= {"TXTASKS_DATABASE_URL": url, "DJANGO_ALLOW_ASYNC_UNSAFE": "true"}
    with tempfile.TemporaryDirectory() as directory, stage.project(keep_finished=3600):
        away = Path(directory) / "away"
        away.touch()
        os.environ["PROBE_AWAY"] = str(away)
        with _workers(arguments.workers, Path(directory)) as waits:
            _fail(arguments.tasks)
            print(f"longest wait for a lock: {waits}", flush=True)
            away.unlink()
            _revive(arguments.tasks)
            print(f"longest wait for a lock until the end: {waits}")
        _end_sessions()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=40_000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--database", choices=["postgres", "mariadb"], default="postgres")
    return parser.parse_args()


@contextmanager
def _workers(number: int, directory: Path) -> Iterator[LockWaits]:
    """Run workers with a cleaner, read the overview every 5 s, and watch the waits for locks."""
    from django_txtasks.overview import overview

    ended = threading.Event()

    def read() -> None:
        from django.db import connection

        while not ended.wait(5):
            overview(max_age=0)
        connection.close()

    with (directory / "log").open("wb") as log:
        command = ["runworkers", f"--processes={number}", "--threads=4"]
        workers = stage.start(*command, log=log)
        reader = threading.Thread(target=read)
        reader.start()
        waits = LockWaits()
        try:
            yield waits
        finally:
            ended.set()
            reader.join()
            waits.end()
            workers.send_signal(signal.SIGTERM)
            try:
                workers.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(workers.pid, signal.SIGKILL)


class LockWaits:
    """The waits of all sessions for locks of rows."""

    def __init__(self) -> None:
        from django.db import connection

        self._is_mariadb = connection.vendor == "mysql"
        self._longest, self._ended = 0.0, threading.Event()
        self._indexes: set[str] = set()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def __str__(self) -> str:
        names = f" (entries of {', '.join(sorted(self._indexes))})" if self._indexes else ""
        return f"{self._longest:.0f} ms{names}"

    def end(self) -> None:
        """Look no longer."""
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        from django.db import connection

        sql = (
            "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_time_max'"
            if self._is_mariadb
            else "SELECT '', 1000 * EXTRACT(EPOCH FROM max(clock_timestamp() - waitstart)) FROM pg_locks "
            "WHERE NOT granted"
        )
        with connection.cursor() as cursor:
            while not self._ended.wait(LOOK_SECONDS):
                cursor.execute(sql)
                self._longest = max(self._longest, float(cursor.fetchone()[1] or 0))
                if self._is_mariadb:
                    cursor.execute(WAITED_FOR)
                    self._indexes.update(name for (name,) in cursor.fetchall())
        connection.close()


def _fail(number: int) -> None:
    """Let so many tasks fail, and print how many failed in a minute."""
    from probe.tasks import fail_while_away

    from django_txtasks import enqueue_many

    for first in range(0, number, 1000):
        enqueue_many([(fail_while_away, (n,)) for n in range(first, min(first + 1000, number))])
    begin = time.monotonic()
    _wait(lambda: _dead() == number)
    seconds = time.monotonic() - begin
    print(f"failures in a minute: {60 * number / seconds:,.0f}")


def _revive(number: int) -> None:
    import browsing
    from django.conf import settings
    from django.contrib.auth.models import User
    from reviving import Reviver

    from django_txtasks.models import Task

    settings.MIDDLEWARE.append("browsing.SignedIn")
    User.objects.create_superuser("ada", "ada@example.com", "secret")
    with browsing.server() as address, browsing.browser() as chromium:
        person = Reviver(chromium.new_page(), address)
        clock = Clock(person)
        clock.tell(f"found and understood: {person.find()}")
        order = person.revive_all()
        clock.tell("revival ordered")
        person.ask_to_stop()
        clock.tell("asked to stop")
        person.outcome(order)
        left = _dead()
        clock.tell(f"stopped: {number - left:,} revived, {left:,} dead")
        time.sleep(5)  # what At a glance has kept grows old
        clock.tell(f"found again: {person.find()}")
        person.revive_all()
        clock.tell("revival ordered again")
        _wait(lambda: _dead() == 0)
        clock.tell("none dead")
        _wait(lambda: not Task.objects.exists())
        clock.tell("all have succeeded")


class Clock:
    """Prints seconds and clicks of each part."""

    def __init__(self, person: Any) -> None:
        self._person, self._begin = person, time.monotonic()

    def tell(self, text: str) -> None:
        """Print a line."""
        seconds = time.monotonic() - self._begin
        print(f"{seconds:6.1f} s, {self._person.clicks} clicks: {text}", flush=True)


def _end_sessions() -> None:
    """End the sessions of threads that have ended: PostgreSQL would not drop the database."""
    from django.db import connection

    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )


def _dead() -> int:
    from django_txtasks.models import Status, Task

    return Task.objects.filter(status=Status.DEAD).count()


def _wait(is_done: Any) -> None:
    end = time.monotonic() + MAX_SECONDS
    while not is_done():
        if time.monotonic() > end:
            raise TimeoutError("The workers did not get so far.")
        time.sleep(0.2)


if __name__ == "__main__":
    main()
