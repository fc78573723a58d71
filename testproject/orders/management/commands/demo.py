"""manage.py demo"""

from __future__ import annotations

import os
import signal
import sys
import time
import urllib.request
from argparse import ArgumentParser
from typing import Any

from demo import promises
from demo.stage import ENDS, ROOM, Stage, free_port, let_nothing_interrupt, manage, prepare, stage
from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError
from django.db import connection


class Command(BaseCommand):
    """Exit code 0 if all promises were kept, else 1."""

    help = "Plays the promises with real processes, then serves the admin if there is a terminal."
    requires_system_checks: list[str] = []  # the first process has not got the demo's settings yet

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--exit", action="store_true", help="End after the promises.")
        parser.add_argument(
            "--broker", action="store_true", help="With RabbitMQ at TXTASKS_BROKER_URL."
        )
        for name in ("postgres", "mariadb"):
            parser.add_argument(
                f"--{name}",
                action="store_const",
                const=f"--{name}",
                dest="server",
                help="In a new database on the server at TXTASKS_DATABASE_URL.",
            )

    def handle(self, *args: Any, **options: Any) -> None:
        if ROOM not in os.environ:
            self._enter_stage(options)
        for number in ENDS:
            signal.signal(number, _leave)
        try:
            with stage() as processes:
                kept = self._play(processes)
                if not options["exit"] and sys.stdin.isatty() and sys.stdout.isatty():
                    self._serve_admin(processes)
        except KeyboardInterrupt:
            self._say("stopped")
            sys.exit(130)
        sys.exit(0 if kept else 1)

    def _enter_stage(self, options: dict[str, Any]) -> None:
        """Become a process with the demo's environment, since Django reads its settings once."""
        environment = prepare(
            database_url=_url("TXTASKS_DATABASE_URL", options["server"]),
            broker_url=_url("TXTASKS_BROKER_URL", "--broker" if options["broker"] else None),
        )
        command = manage("demo", *(["--exit"] if options["exit"] else []))
        os.execve(sys.executable, command, environment)  # noqa: S606 -- our own command

    def _play(self, processes: Stage) -> bool:
        """Play every promise; say which were kept, and return whether all were."""
        start, kept = time.monotonic(), 0
        processes.start("runworkers", "--processes=2", "--threads=2")
        broker = "RabbitMQ" if os.environ["TXTASKS_BROKER_URL"] else "no broker"
        self._say(f"{connection.display_name}, {broker}: 2 workers and a cleaner start")
        for number, promise in enumerate(promises.PROMISES, 1):
            try:
                self._say(f"{number}  kept    {promise()}")
                kept += 1
            except promises.Broken as found:
                self._say(f"{number}  BROKEN  {promise.__name__.replace('_', ' ')}: {found}")
        if kept < len(promises.PROMISES):
            self._say(f"The end of the processes' log:\n{processes.tail()}")
        seconds = time.monotonic() - start
        self._say(f"{kept} of {len(promises.PROMISES)} promises kept in {seconds:.0f} s")
        return kept == len(promises.PROMISES)

    def _serve_admin(self, processes: Stage) -> None:
        """Serve until Ctrl-C; workers and cleaner go on."""
        users = get_user_model().objects
        users.create_superuser("demo", password="demo")  # noqa: S106 -- only for this demo
        address = f"127.0.0.1:{free_port()}"
        server = processes.start("runserver", address, "--noreload", "--insecure")
        try:
            _wait_until_up(f"http://{address}/admin/login/")
            self._say(f"The admin: http://{address}/admin/  user demo, password demo. Ctrl-C ends.")
            server.wait()
        except KeyboardInterrupt:
            self._say("")

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


def _url(variable: str, option: str | None) -> str | None:
    """Return the URL that this option needs; None without it, whatever the environment says."""
    if option is None:
        return None
    url = os.environ.get(variable)
    if not url:
        raise CommandError(
            f"{option} needs the server's URL in {variable}. "
            f"Or let tox start a server: python3 -m tox run -e demo -- {option}"
        )
    return url


def _wait_until_up(url: str) -> None:
    """Return when a page can be had, or after 20 s."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            urllib.request.urlopen(url, timeout=2).close()  # noqa: S310 -- our own http server
        except OSError:
            time.sleep(0.1)
        else:
            return


def _leave(*_: object) -> None:
    """Leave through every ``with`` block, once: later signals would only disturb that."""
    let_nothing_interrupt()
    raise KeyboardInterrupt
