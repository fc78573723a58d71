"""The surroundings of the demo: a directory, a database, processes. All of it is removed at the end."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pika
from django.conf import settings
from django.core.management import call_command
from django.db import connection

from django_txtasks.hints.broker import publisher

ROOM = "TXTASKS_DEMO_ROOM"
"""Names the directory. A process that finds it in its environment is on the stage."""

QUICK = {
    "poll_interval": 0.2,
    "heartbeat_interval": 0.5,
    "lease": 4,
    "clean_interval": 1,
    "grace": 1,
    "retry_base": 0.5,
}
"""Times that let a crash be shown in seconds; a site keeps the defaults."""
SQLITE_TIMEOUT = 1.3  # a lease is at least three of them
PATIENCE = 10
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def prepare(*, database_url: str | None, broker_url: str | None) -> dict[str, str]:
    """Return the environment of every process on the stage. Makes nothing yet.

    Args:
        database_url: a server that gets a database for the demo; None = SQLite.
        broker_url: None = no broker.
    """
    name = f"txtasks_demo_{secrets.token_hex(4)}"
    room = Path(tempfile.gettempdir()) / name
    url = f"sqlite:///{room}/demo.sqlite3?timeout={SQLITE_TIMEOUT}"
    if database_url is not None:
        url = urlsplit(database_url)._replace(path=f"/{name}").geturl()
    return {
        **os.environ,
        ROOM: str(room),
        "TXTASKS_DATABASE_URL": url,
        "TXTASKS_BROKER_URL": broker_url or "",
        "TXTASKS_SETTINGS": json.dumps({**QUICK, "queue_prefix": name}),
    }


@contextmanager
def stage() -> Iterator[Stage]:
    """Set everything up; take everything down, whatever happens in between."""
    room = Path(os.environ[ROOM])
    room.mkdir(mode=0o700)
    try:
        with _database(), _queues():
            call_command("migrate", verbosity=0)
            processes = Stage(room / "demo.log")
            try:
                yield processes
            finally:
                let_nothing_interrupt()
                processes.end()
    finally:
        let_nothing_interrupt()
        shutil.rmtree(room, ignore_errors=True)


class Stage:
    """The demo's processes, and the one file into which they all write."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a ``manage.py`` command, out of reach of this terminal's Ctrl-C."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 -- our own commands
                manage(*command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def end(self) -> None:
        """End every process: in good order if it can."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # a worker ends when its supervisor is gone
                process.wait()

    def tail(self, lines: int = 30) -> str:
        """Return the end of the log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])


def manage(*command: str) -> list[str]:
    """Return the command line of a ``manage.py`` command."""
    return [sys.executable, str(settings.BASE_DIR / "manage.py"), *command]


def free_port() -> int:
    """Return a free port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def let_nothing_interrupt() -> None:
    """From here on only the clearing up is left, which a second Ctrl-C would leave half done."""
    for number in ENDS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def _database() -> Iterator[None]:
    """A database of the demo's own on the server; SQLite's is a file in the room."""
    if connection.vendor == "sqlite":
        try:
            yield
        finally:
            connection.close()
        return
    name = connection.ops.quote_name(connection.settings_dict["NAME"])
    with connection._nodb_cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
    try:
        yield
    finally:
        connection.close()
        force = " WITH (FORCE)" if connection.vendor == "postgresql" else ""
        with connection._nodb_cursor() as cursor:
            cursor.execute(f"DROP DATABASE {name}{force}")


@contextmanager
def _queues() -> Iterator[None]:
    """Remove the demo's queues from RabbitMQ; each program that uses a queue creates it."""
    url, prefix = settings.TXTASKS["broker_url"], settings.TXTASKS["queue_prefix"]
    try:
        yield
    finally:
        if url:
            publisher.close_all()  # else its last hints would make the queue again
            with pika.BlockingConnection(pika.URLParameters(url)) as amqp:
                amqp.channel().queue_delete(f"{prefix}.default")
