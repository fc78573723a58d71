"""Django's commands as processes forked from one that has set up Django.

Importing Django and this package takes most of the CPU time of a command that a test starts, and the tests
start some hundreds. A command has its own session, environment, output and settings, which it reads again.
The server has neither a thread nor a connection. test_startup.py and test_docs.py start commands without it.
"""

from __future__ import annotations

import functools
import gc
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
SETTINGS = "DJANGO_SETTINGS_MODULE"
SETTINGS_MODULES = ["failpoints.settings", "settings_for_tests", "settings"]
"""Modules of settings, which a command reads again, because they depend on its environment."""
COMMANDS = ["runworkers", "runcleaner", "rundrain", "runintake"]
"""Commands whose modules the server imports."""
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
def _servers_of(process: int) -> dict[str, Server]:
    """Return the place where a process keeps its servers; a child has none of its parent's."""
    return {}


def server(environment: Mapping[str, str], usual: Mapping[str, str]) -> Server | None:
    """Return the server of these settings; the first call starts it.

    Args:
        environment: of the command.
        usual: of most commands.

    Returns:
        None if a command with this environment would start differently from most.
    """
    if _read_at_start(environment) != _read_at_start(usual):
        return None
    servers, settings = _servers_of(os.getpid()), environment[SETTINGS]
    if settings not in servers:
        servers[settings] = Server({**usual, SETTINGS: settings})
    return servers[settings]


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
    _read_settings_again()
    sys.argv = ["django", *told["arguments"]]
    runpy.run_module("django", run_name="__main__", alter_sys=True)


def _read_settings_again() -> None:
    from django.apps import apps
    from django.conf import empty, settings
    from django.db import connections

    from django_txtasks.conf import get_config

    for name in SETTINGS_MODULES:
        sys.modules.pop(name, None)
    settings._wrapped = empty
    get_config.cache_clear()
    vars(connections).pop("settings", None)
    connections.__init__()
    for app in apps.get_app_configs():
        if hasattr(app, "arm"):
            app.arm()  # what the environment says to this process


def _set_up() -> None:
    """Do what each command does first."""
    import django
    from django.core.management import load_command_class
    from django.db import connections

    os.environ.pop("TXTASKS_SETTINGS", None)
    django.setup()
    for name in COMMANDS:
        load_command_class("django_txtasks", name)
    opened = [one.alias for one in connections.all(initialized_only=True) if one.connection]
    assert not opened, "a forked process would use this session, too"


def main() -> None:
    """Set up Django, and fork when told."""
    _set_up()
    gc.freeze()
    told = _serve(socket.socket(fileno=int(sys.argv[1])))
    if told is not None:
        _become(told)


if __name__ == "__main__":
    main()
