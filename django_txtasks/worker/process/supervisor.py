"""Starts the processes of ``runworkers``, replaces dead ones, and passes stop requests on.

Orders go through a pipe to each child: see ``orders``. Children are in process groups of their own, so that Ctrl-C
reaches them once. The supervisor holds no connection and runs no task, so that it can fork: see ``forking``.
"""

from __future__ import annotations

import contextlib
import enum
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeGuard

from django.utils.autoreload import iter_all_python_module_files

from django_txtasks import signals
from django_txtasks.rules.retry import backoff
from django_txtasks.wakeup import WakeUp
from django_txtasks.worker.process.forking import ForkedProcess, can_fork, fork
from django_txtasks.worker.process.orders import LOOP_END_SECONDS, PIPE, has_ended
from django_txtasks.worker.process.recycling import EXIT_CODE
from django_txtasks.worker.process.shutdown import Shutdown

HEALTHY_AFTER_SECONDS = 30.0
"""Seconds of life after which the next death of a child counts as its first."""


RESCUE_SECONDS = 4.0
"""Longest time in which the cleaner recovers the tasks of a worker that was killed while it stopped."""
FROZEN_SECONDS = LOOP_END_SECONDS + 5.0
"""Seconds after an order to stop now after which a child is killed. A child that runs ends itself before."""


class Role(enum.Enum):
    """The kind of work of a process."""

    WORKER = "worker"
    LOOP = "loop"
    """A worker that runs async tasks on one event loop."""
    CLEANER = "cleaner"


@dataclass(frozen=True)
class Assignment:
    """The work of one process.

    Attributes:
        command: the command line that starts it if it cannot be forked.
        aliases: the databases that it serves; a worker serves one.
        role: the kind of its work.
        max_tasks: number of tasks after which it ends; None = no limit.
    """

    command: Sequence[str]
    aliases: Sequence[str] = ("default",)
    role: Role = Role.WORKER
    max_tasks: int | None = None


class Forked(BaseException):
    """Raised in the new process of a fork, so that it leaves the supervisor's code. It is no failure.

    Attributes:
        assignment: the work of the new process.
        pipe: the file descriptor of its orders.
    """

    def __init__(self, assignment: Assignment, pipe: int) -> None:
        super().__init__()
        self.assignment, self.pipe = assignment, pipe


class Child:
    """One process, or the wait for its next start.

    Attributes:
        start_at: time of its next start, by ``time.monotonic()``; None = it runs, or has done its work.
        restarts: True = start it again after each end.
    """

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.start_at: float | None = 0.0
        self.restarts = False
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self._failures = 0
        self._started = 0.0
        self._ordered, self._kill_at = b"", float("inf")
        self._pipe = self.pid = -1

    @property
    def role(self) -> str:
        """The kind of its work, for people."""
        return self.assignment.role.value

    @property
    def running(self) -> bool:
        """True if the process runs."""
        return self._process is not None

    @property
    def has_ended(self) -> bool:
        """True if the process does not run and will not start again."""
        return not self.running and self.start_at is None

    def start(self, *, by_fork: bool, siblings: Sequence[Child] = ()) -> None:
        """Start the process, with the reading end of a new pipe.

        Args:
            by_fork: True = copy this process; False = use the command line.
            siblings: other children, whose pipes the copy closes.

        Raises:
            Forked: in the new process.
            OSError: the process could not be started.
        """
        reader, writer = os.pipe()
        try:
            self._process = fork() if by_fork else self._spawn(reader)
        except OSError:
            os.close(reader)
            os.close(writer)
            raise
        if self._process is None:
            for pipe in (writer, *(one._pipe for one in siblings if one.running)):
                os.close(pipe)  # the end of this pipe must mean that the supervisor is gone
            raise Forked(self.assignment, reader)
        os.close(reader)
        self._pipe, self.pid = writer, self._process.pid
        self.start_at, self.restarts, self._started = None, False, time.monotonic()
        self._ordered, self._kill_at = b"", float("inf")

    def _spawn(self, reader: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 -- our own command line
            self.assignment.command,
            env={**os.environ, PIPE: str(reader)},
            pass_fds=[reader],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def order(self, order: bytes) -> None:
        """Send an order, once. A child that has ended does not need it."""
        if self._process is not None and order != self._ordered:
            self._ordered = order
            if order == b"k":
                self._kill_at = time.monotonic() + FROZEN_SECONDS
            with contextlib.suppress(OSError):
                os.write(self._pipe, order)

    def ended(self) -> int | None:
        """Return the exit code of an ended process, once; None = it runs, or there is none."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        os.close(self._pipe)
        self._process = None
        return code

    def kill_if_frozen(self) -> None:
        """Kill a process that has not ended long after the order to stop now: it is frozen."""
        if self._process is not None and time.monotonic() >= self._kill_at:
            os.kill(self.pid, signal.SIGKILL)

    def start_later(self, how: str) -> None:
        """Start again after a pause, which grows while the child dies young."""
        young = time.monotonic() - self._started < HEALTHY_AFTER_SECONDS
        self._failures = self._failures + 1 if young else 1
        pause = backoff(self._failures, base=timedelta(seconds=0.2), ceiling=timedelta(seconds=30))
        self.start_at = time.monotonic() + pause.total_seconds()
        signals.child_died.emit(
            role=self.role, pid=self.pid, status=how, delay=pause.total_seconds()
        )


class Supervisor:
    """Keeps the children running until it is told to stop, or until all have done their work.

    Args:
        assignments: one for each child.
        finite: True = a child that ends without an error has done its work; False = start it again.
        reload: restart the children when a loaded Python file changes.
        may_fork: the children can be copies of this process. With ``reload`` they load the code anew.
        parent: a pipe whose end is a request to stop; None = no such pipe.
        when_started: called once, when each child was started; it may log, so it may start threads.
    """

    def __init__(
        self,
        assignments: Sequence[Assignment],
        *,
        finite: bool,
        reload: bool = False,
        may_fork: bool = False,
        parent: int | None = None,
        when_started: Callable[[], None] | None = None,
    ) -> None:
        self.finite, self._parent, self._when_started = finite, parent, when_started
        self.children = [Child(assignment) for assignment in assignments]
        self._may_fork = may_fork and not reload
        self._wake_up = WakeUp()
        self.stop = Shutdown(float("inf"), self._wake_up.wake)
        self._files = _modified() if reload else None
        self._failed = self._stopping = False
        self._rescue_end = float("-inf")

    def run(self) -> int:
        """Return 0 if all children ended without an error, else 1.

        Raises:
            Forked: in each new process that is a copy of this one.
        """
        while not all(child.has_ended for child in self.children):
            if self._parent is not None and not self.stop.asked and has_ended(self._parent):
                self.stop.request()
            if self.stop.asked:
                self._pass_on_stop()
            before = [child.pid for child in self.children]
            for child in self.children:
                self._look_after(child)
            # All at once, at the end: logs have threads, forks must not.
            for child in self.children:
                if child.running and child.pid not in before:
                    signals.child_started.emit(role=child.role, pid=child.pid)
            if self._when_started is not None:
                self._when_started()
                self._when_started = None
            if self._files is not None and not self.stop.asked:
                self._reload_if_changed()
            self._wake_up.wait(0.2)
        return int(self._failed)

    def _pass_on_stop(self) -> None:
        """Order the children to stop: the cleaner last, because a worker may be killed while it stops."""
        if not self._stopping:
            self._stopping = True
            for child in self.children:
                if _is_failure(code := child.ended()):
                    # The child died before the stop, which may still succeed.
                    self._tell_of_end(child, code)
        told = [one for one in self.children if one.assignment.role is not Role.CLEANER]
        is_rescued = self.stop.now or time.monotonic() >= self._rescue_end
        if is_rescued and all(child.has_ended for child in told):
            told = self.children
        for child in told:
            child.order(b"k" if self.stop.now else b"s")
            child.kill_if_frozen()

    def _look_after(self, child: Child) -> None:
        code = child.ended()
        if code is not None and self.stop.asked:
            self._wake_up.wake()  # the cleaner may be the next to stop
            if _is_failure(code):
                self._failed = True
                self._tell_of_end(child, code)
        elif code is not None and (child.restarts or code == EXIT_CODE):
            child.start_at = 0.0
        elif code or (code is not None and not self.finite):
            child.start_later(_in_words(code))
        if self.stop.asked:
            child.start_at = None
        elif child.start_at is not None and time.monotonic() >= child.start_at:
            self._start(child)

    def _start(self, child: Child) -> None:
        try:
            child.start(by_fork=self._may_fork and can_fork(), siblings=self.children)
        except OSError as error:  # no memory or no process left: start the other children
            child.start_later(repr(error))

    def _tell_of_end(self, child: Child, code: int) -> None:
        signals.child_died_at_stop.emit(role=child.role, pid=child.pid, status=_in_words(code))
        if code < 0:  # it could not let go of its tasks
            self._rescue_end = time.monotonic() + RESCUE_SECONDS

    def _reload_if_changed(self) -> None:
        before, self._files = self._files or {}, _modified()
        changed = [
            path for path, modified in self._files.items() if before.get(path, modified) != modified
        ]
        if changed:
            signals.reloading.emit(path=changed[0])
            for child in self.children:
                child.restarts = True
                child.order(b"s")


def _is_failure(code: int | None) -> TypeGuard[int]:
    """Return True if the exit code of a child that ended at a stop means a failure.

    A service manager signals all processes at once. A child that is still loading has no signal handler and dies
    by the signal, but it has begun no task. A working child handles both signals, so they cannot end it.
    """
    return code not in (None, 0, EXIT_CODE, -signal.SIGTERM, -signal.SIGINT)


def _in_words(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _modified() -> dict[Path, float]:
    """Return the time of the last write to each loaded Python file."""
    times = {}
    for path in iter_all_python_module_files():
        try:
            times[path] = path.stat().st_mtime
        except OSError:
            continue
    return times
