"""Workers and a cleaner beside a web server, for development and for small sites.

``start_workers`` starts ``manage.py runworkers``, which ends with the process that called it: the supervisor reads
a pipe whose other end only this process has. Web processes that are forked later close their copy of that end.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import warnings
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from django.utils.autoreload import DJANGO_AUTORELOAD_ENV, get_child_arguments

from django_txtasks.conf import get_config
from django_txtasks.core.ground.forks import register_at_fork
from django_txtasks.exceptions import ConfigError
from django_txtasks.processes import descriptors
from django_txtasks.processes.orders import PARENT_PIPE, PIPE

__all__ = ["Workers", "start_workers"]

END_SECONDS = 45.0
"""Seconds for a supervisor to kill frozen workers, recover their tasks and end its cleaner."""

_all: list[Workers] = []
"""The workers of this process, also those whose caller keeps no reference."""


class Workers:
    """A running ``runworkers`` command.

    Args:
        command: its command line.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._pipe: int | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        self._start()
        _all.append(self)

    def restart(self) -> None:
        """Start new processes, which load the present code. The old ones take no more tasks, and end.

        Return at once: the old processes may wait for their running tasks for ``grace``.
        """
        self._let_go()
        self._processes = [one for one in self._processes if one.poll() is None]
        self._start()

    def stop(self) -> None:
        """Take no more tasks, wait for the running ones for at most ``grace``, and return when all has ended.

        A supervisor that does not end, because it is frozen, is killed ``END_SECONDS`` after ``grace``.
        """
        self._let_go()
        end = time.monotonic() + get_config().grace.total_seconds() + END_SECONDS
        for process in self._processes:
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self) -> None:
        descriptors.open_closed_ones()
        reader, self._pipe = os.pipe()
        env = {**os.environ, PARENT_PIPE: str(reader)}
        env.pop(DJANGO_AUTORELOAD_ENV, None)
        try:
            self._processes.append(
                subprocess.Popen(  # noqa: S603 -- the project's own command
                    self._command,
                    env=env,
                    pass_fds=[reader],
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C reaches this process alone
                )
            )
        finally:
            os.close(reader)

    def _let_go(self) -> None:
        """Close the pipe. The supervisor takes its end for an order to stop."""
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None


def start_workers(*options: str, program: Sequence[str] | None = None) -> Workers:
    """Start ``manage.py runworkers`` in processes that end with this one, whatever ends it.

    Call this once for each server, not in each web process. Nothing starts a killed supervisor again.

    Args:
        options: options of ``runworkers``.
        program: the command line of ``manage.py``; None = the file ``manage.py`` in the working directory.

    Raises:
        ConfigError: there is no such file, this is Windows, or this process belongs to the workers.
        OSError: the process could not be started.
    """
    if sys.platform == "win32":
        raise ConfigError(
            "start_workers() does not work on Windows, where runworkers does not run."
        )
    if PIPE in os.environ or PARENT_PIPE in os.environ:
        # Each supervisor would start another one, without end.
        raise ConfigError(
            "start_workers() was called in the process of the workers, for example by AppConfig.ready(). "
            "Call it where only the web server does, such as when_ready() of gunicorn."
        )
    return Workers([*(program or _manage()), "runworkers", *options])


def start_with_runserver() -> None:
    """Start workers if this process of ``runserver`` serves, and the setting ``with_runserver`` is True.

    With the autoreloader, the first process only watches its child, which serves.
    """
    serves = os.environ.get(DJANGO_AUTORELOAD_ENV) == "true" or "--noreload" in sys.argv
    if not serves or not _is_wanted():
        return
    itself = get_child_arguments()
    try:
        start_workers(*_path_option(), program=itself[: len(itself) - len(sys.argv[1:])])
    except ConfigError as error:  # this is Windows, where the site itself can run
        warnings.warn(
            f"TXTASKS['with_runserver'] is ignored: {error}", RuntimeWarning, stacklevel=2
        )


def _is_wanted() -> bool:
    try:
        return get_config().with_runserver
    except ConfigError:  # the system checks report it
        return False


def _path_option() -> list[str]:
    """Return the option ``--pythonpath`` of this command. ``--settings`` reaches others by the environment."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--pythonpath")
    path = parser.parse_known_args(sys.argv[2:])[0].pythonpath
    return [f"--pythonpath={path}"] if path else []


def _manage() -> list[str]:
    file = Path("manage.py").resolve()
    if not file.is_file():
        raise ConfigError(
            f"There is no manage.py in {file.parent}: "
            "call start_workers(program=[sys.executable, '/path/to/manage.py'])."
        )
    return [sys.executable, str(file)]


def _let_go_in_a_fork() -> None:
    for workers in _all:
        workers._let_go()
    _all.clear()


register_at_fork(after_in_child=_let_go_in_a_fork)
