"""The number of living workers that are declared lost. The right answer is 0.

    python benchmarks/rescues.py [--only amqp,both-links] [--elsewhere] [--minutes 10] [--times 20]
    python benchmarks/rescues.py --broker none [--server mariadb] [--elsewhere] [--times 20]

Two workers and a cleaner with default times, on a private server and RabbitMQ behind proxies (without a
broker the second worker has no proxy, so that only the first one is cut off), while one of these happens
``--times`` times or for ``--minutes``:

* links: the workers' links to the database are cut, with RST
* away: the same, and new ones are refused for 5 s
* freezes: a worker gets SIGSTOP for 5 s
* database: the database is restarted
* amqp: only the links to RabbitMQ are cut, every 2 s
* both-links: the workers' links to both are cut at once, with RST
* both-servers: both servers are restarted together
* outage: the database is unreachable for three leases
* clock: PostgreSQL's clock is stepped by an hour, forward and back (needs libfaketime)

--elsewhere makes the cleaner believe that the workers run on another machine, so that it does not see their
processes.
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import stage  # isort: skip -- it says where the next ones are
import services
from proxy import Proxy

LEASE, AWAY = 15.0, 5.0


class SteppedPostgres(services.Postgres):
    """PostgreSQL whose clock a file shifts, where libfaketime is installed."""

    def _move_in(self, program: object) -> None:
        super()._move_in(program)
        self.clock = Path(tempfile.mkdtemp()) / "clock"
        self.clock.parent.chmod(0o755)
        self.step("+0")
        libraries = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
        self.steppable = bool(libraries)
        if libraries:
            faked = {"FAKETIME_TIMESTAMP_FILE": str(self.clock), "FAKETIME_NO_CACHE": "1"}
            faked |= {"LD_PRELOAD": libraries[0], "DONT_FAKE_MONOTONIC": "1"}
            self._env = {**(self._env or {}), **faked}

    def step(self, shift: str) -> None:
        """Shift the clock from now on: ``+1h``."""
        self.clock.write_text(f"{shift}\n")


class Play:
    """The servers, the links, and the processes."""

    def __init__(self, rows: services.Server, rabbitmq: services.Server | None) -> None:
        self.rows, self.rabbitmq = rows, rabbitmq
        self.to_rows = Proxy("127.0.0.1", rows.port)
        self.to_broker = Proxy("127.0.0.1", rabbitmq.port if rabbitmq is not None else 0)
        self.log = tempfile.TemporaryFile("w+b")  # noqa: SIM115 -- until the end of the process
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str, proxied: bool) -> None:
        """Start a command, behind the proxies or not."""
        rows = self.rows.url
        broker = "" if self.rabbitmq is None else self.rabbitmq.url
        if proxied:
            rows = _through(rows, self.to_rows)
            broker = broker and _through(broker, self.to_broker)
        env = {
            "TXTASKS_DATABASE_URL": rows,
            "TXTASKS_SETTINGS": json.dumps({"broker_url": broker or None}),
        }
        self.processes.append(stage.start(*command, log=self.log, env=env))

    def lost(self) -> int:
        """How often a cleaner has said that a worker is lost."""
        self.log.seek(0)
        return self.log.read().count(b") is lost: ")


def _through(url: str, proxy: Proxy) -> str:
    return url.replace(f":{urlsplit(url).port}", f":{proxy.port}")


def main() -> int:
    """Print a line for each scenario; return 1 if any living worker was declared lost."""
    arguments = _arguments()
    rows = SteppedPostgres() if arguments.server == "postgresql" else services.MariaDB()
    rabbitmq = None if arguments.broker == "none" else services.RabbitMQ()
    with rows, rabbitmq or contextlib.nullcontext():
        os.environ["DJANGO_SETTINGS_MODULE"] = "settings_for_tests"
        os.environ["TXTASKS_DATABASE_URL"] = rows.url
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0)
        play = Play(rows, rabbitmq)
        play.start("runcleaner", proxied=False)
        play.start("runworkers", "--no-cleaner", proxied=True)
        play.start("runworkers", "--no-cleaner", proxied=rabbitmq is not None)
        try:
            return _play(play, arguments)
        finally:
            for process in play.processes:
                process.terminate()
            for process in play.processes:
                process.wait(60)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="which, by comma; all that fit by default")
    parser.add_argument("--broker", choices=["rabbitmq", "none"], default="rabbitmq")
    parser.add_argument("--server", choices=["postgresql", "mariadb"], default="postgresql")
    parser.add_argument("--elsewhere", action="store_true")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--times", type=int, default=20)
    arguments = parser.parse_args()
    if arguments.only is None:
        arguments.only = ",".join(SCENARIOS if arguments.broker != "none" else WITHOUT_BROKER)
    return arguments


def _play(play: Play, arguments: argparse.Namespace) -> int:
    _wait_until_all_are_well(arguments)
    ended = threading.Event()
    stream = threading.Thread(target=_enqueue, args=(ended,))
    stream.start()
    total = 0
    for name in arguments.only.split(","):
        before, start = play.lost(), time.monotonic()
        did = SCENARIOS[name](play, arguments)
        _wait_until_all_are_well(arguments)
        time.sleep(LEASE + 3)
        false = play.lost() - before
        total += false
        print(
            f"{name}: {did}; false rescues {false} ({time.monotonic() - start:.0f} s)", flush=True
        )
    ended.set()
    stream.join()
    return int(bool(total))


def _enqueue(ended: threading.Event) -> None:
    """A stream of small tasks, whatever happens to the servers."""
    from django.db import DatabaseError, InterfaceError, connection
    from probe import tasks

    while not ended.wait(0.1):
        try:
            tasks.note.enqueue("stream")
        except (DatabaseError, InterfaceError):
            connection.close()
    connection.close()


def _wait_until_all_are_well(arguments: argparse.Namespace) -> None:
    """Until both workers beat, under a last will if there is a broker."""
    from django.db import DatabaseError, InterfaceError, connection

    from django_txtasks.models import Worker

    first: dict[object, int] = {}
    while True:
        time.sleep(0.5)
        try:
            living = list(Worker.objects.filter(lost=False))
            if arguments.broker != "none":
                living = [one for one in living if one.will]
            if arguments.elsewhere:
                Worker.objects.update(host="elsewhere")
        except (DatabaseError, InterfaceError):
            connection.close()
            continue
        for worker in living:
            first.setdefault(worker.pk, worker.beat)
        if len([one for one in living if one.beat > first[one.pk] + 3]) >= 2:
            return


def _cut_amqp(play: Play, arguments: argparse.Namespace) -> str:
    end, cuts = time.monotonic() + 60 * arguments.minutes, 0
    while time.monotonic() < end:
        play.to_broker.reset_all()
        cuts += 1
        time.sleep(random.uniform(1, 3))
    return f"{cuts} cuts of the links to RabbitMQ in {arguments.minutes:g} min"


def _repeat(what: str, act: Callable[[Play], None]) -> Callable[[Play, argparse.Namespace], str]:
    def scenario(play: Play, arguments: argparse.Namespace) -> str:
        for _ in range(arguments.times):
            act(play)
            _wait_until_all_are_well(arguments)
            time.sleep(random.uniform(0, 1))
        return f"{arguments.times} {what}"

    return scenario


def _restart_database(play: Play) -> None:
    play.rows.stop()
    play.rows.start()


def _cut_rows(play: Play) -> None:
    play.to_rows.reset_all()


def _away(play: Play) -> None:
    play.to_rows.cut(away=AWAY)
    time.sleep(AWAY)


def _freeze(play: Play) -> None:
    from django_txtasks.models import Worker

    pid = random.choice(Worker.objects.filter(lost=False).values_list("pid", flat=True))
    os.kill(pid, signal.SIGSTOP)
    time.sleep(AWAY)
    os.kill(pid, signal.SIGCONT)


def _cut_both(play: Play) -> None:
    play.to_broker.reset_all()
    play.to_rows.reset_all()


def _restart_both(play: Play) -> None:
    assert play.rabbitmq is not None
    play.rabbitmq.stop()
    play.rows.stop()
    play.rows.launch()
    play.rabbitmq.launch()
    play.rows.wait_until_ready()
    play.rabbitmq.wait_until_ready()


def _outage(play: Play, arguments: argparse.Namespace) -> str:
    play.rows.stop()
    time.sleep(3 * LEASE)
    play.rows.start()
    return "the database away for 3 leases"


def _clock(play: Play, arguments: argparse.Namespace) -> str:
    if not (isinstance(play.rows, SteppedPostgres) and play.rows.steppable):
        return "NOT RUN: libfaketime is not installed"
    seen = []
    for shift in ("+3600", "+0", "-3600", "+0"):
        play.rows.step(shift)
        seen.append(_clock_of_database() - time.time())
        time.sleep(LEASE + 5)
    return "4 steps of the clock, to " + ", ".join(f"{shift:+.0f} s" for shift in seen)


def _clock_of_database() -> float:
    from django.db import connections

    connection = connections["default"].copy()
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXTRACT(EPOCH FROM now())")
        now = float(cursor.fetchone()[0])
    connection.close()
    return now


SCENARIOS: dict[str, Callable[[Play, argparse.Namespace], str]] = {
    "links": _repeat("cuts of links to the database", _cut_rows),
    "away": _repeat(f"cuts of them for {AWAY:g} s", _away),
    "freezes": _repeat(f"freezes for {AWAY:g} s", _freeze),
    "amqp": _cut_amqp,
    "database": _repeat("restarts of the database alone", _restart_database),
    "both-links": _repeat("cuts of both links at once", _cut_both),
    "both-servers": _repeat("restarts of both servers", _restart_both),
    "outage": _outage,
    "clock": _clock,
}
WITHOUT_BROKER = ("links", "away", "freezes", "database", "outage")

if __name__ == "__main__":
    sys.exit(main())
