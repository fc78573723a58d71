"""Django's commands as processes forked from one that has already imported Django.

Importing Django takes a third of the CPU time of a command that a test starts, and the tests start some
hundreds. Each command still has its own session, environment, output and modules: the server has imported
neither settings nor this package, and has neither a thread nor a connection.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

READ_AT_START = ("PYTHON", "COVERAGE", "LD_")
"""Beginnings of the names of variables that decide how Python starts."""
MODULES = [  # without models, settings or threads
    "asyncio",
    "django.core.management",
    "django.core.serializers.json",
    "django.db.backends.postgresql.base",
    "django.db.backends.sqlite3.base",
    "django.db.models.functions",
    "django.forms",
    "django.template.loader_tags",
    "django.test.signals",
    "django.urls",
    "django.utils.autoreload",
    "django.views.generic",
    "multiprocessing.context",
    "pymysql",
    "sqlparse",
]
LOOK_SECONDS = 0.02


class Command:
    """A command that was started, as ``subprocess.Popen`` shows it."""

    def __init__(self, server: Server, pid: int, args: Sequence[str]) -> None:
        self._server, self.pid, self.args = server, pid, args
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return how it has ended; None = not yet."""
        if self.returncode is None:
            self.returncode = self._server.ask({"ended": self.pid})
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end.

        Raises:
            subprocess.TimeoutExpired: after ``timeout`` seconds.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            time.sleep(LOOK_SECONDS)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Server:
    """The process that has imported Django; it ends with this one."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._read_at_start = _read_at_start(environment)
        self._lock = threading.Lock()
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "fork_server", str(theirs.fileno())],
                env=environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._answers = self._channel.makefile()

    def may_start(self, environment: Mapping[str, str]) -> bool:
        """Say whether a command with this environment would start as the server did."""
        return _read_at_start(environment) == self._read_at_start

    def start(
        self, arguments: Sequence[str], environment: Mapping[str, str], output: Path
    ) -> Command:
        """Start ``python -m django`` with these arguments."""
        output.touch()
        told = {"arguments": arguments, "environment": dict(environment), "output": str(output)}
        return Command(self, self.ask(told), [sys.executable, "-m", "django", *arguments])

    def ask(self, told: dict[str, Any]) -> Any:
        """Return the answer of the server."""
        with self._lock:
            self._channel.sendall(f"{json.dumps(told)}\n".encode())
            return json.loads(self._answers.readline())


@functools.cache
def _servers_of(process: int) -> list[Server]:
    """Return the place where a process keeps its server; a child has none of its parent's."""
    return []


def server(environment: Mapping[str, str]) -> Server:
    """Return the server of this process; the first call starts it with this environment."""
    servers = _servers_of(os.getpid())
    if not servers:
        servers.append(Server(environment))
    return servers[0]


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in environment.items() if name.startswith(READ_AT_START)}


# -- in the server --------------------------------------------------------------------------------


def _serve(channel: socket.socket) -> dict[str, Any] | None:
    """Answer until no client is left.

    Returns:
        In a forked process: the command to run.
    """
    with channel, channel.makefile() as requests:
        for line in requests:
            told = json.loads(line)
            answer: int | None
            if "ended" in told:
                answer = _status(told["ended"])
            elif (answer := os.fork()) == 0:
                return dict(told)
            channel.sendall(f"{json.dumps(answer)}\n".encode())
    return None


def _status(pid: int) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _become(told: dict[str, Any]) -> None:
    """Make this process the command that was asked for."""
    os.setsid()
    output = os.open(told["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.clear()
    os.environ.update(told["environment"])
    time.tzset()
    sys.argv = ["django", *told["arguments"]]
    runpy.run_module("django", run_name="__main__", alter_sys=True)


def main() -> None:
    """Import, and fork when told."""
    for name in MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()
    told = _serve(socket.socket(fileno=int(sys.argv[1])))
    if told is not None:
        _become(told)


if __name__ == "__main__":
    main()
