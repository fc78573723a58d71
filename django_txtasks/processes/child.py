"""A process below the supervisor: its work, its start, the orders that it gets, and its end."""

from __future__ import annotations

import enum
import math
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django_txtasks import signals
from django_txtasks.core.ground.retry import backoff
from django_txtasks.core.ground.seams import OF_CHILDREN
from django_txtasks.processes import signs
from django_txtasks.processes.forking import ForkedProcess, fork
from django_txtasks.processes.orders import LOOP_END_SECONDS, PIPE
from django_txtasks.processes.patience import Patience
from django_txtasks.processes.pipes import Pipes
from django_txtasks.processes.remains import Remains, exit_code

HEALTHY_AFTER_SECONDS = 5.0
"""Seconds of work after which the death of a child counts as its first, and it starts again soon. The pauses of a
child that dies sooner grow, also if it dies after a long start.
"""
FROZEN_SECONDS = LOOP_END_SECONDS + 5.0
"""Seconds after the end of the grace after which a child is killed. A child that runs ends itself before."""
STDOUT = 1


class Role(enum.Enum):
    """The kind of work of a process."""

    WORKER = "worker"
    LOOP = "loop"
    """A worker that runs async tasks on one event loop."""
    CLEANER = "cleaner"
    WATCHER = "load watcher"
    """It looks at the load, for ``runworkers --processes 1..8``."""
    LAST_CHANCE = "last-chance worker"
    """A worker with one slot for tasks that must run alone after a crash. It ends when none is due."""


@dataclass(frozen=True)
class Assignment:
    """The work of one process.

    Attributes:
        command: the command line that starts it if it cannot be forked.
        aliases: the databases that it serves; a worker serves one.
        role: the kind of its work.
        max_tasks: number of tasks after which it ends; None = no limit.
        output: file descriptor of its standard output; None = that of this process.
    """

    command: Sequence[str]
    aliases: Sequence[str] = ("default",)
    role: Role = Role.WORKER
    max_tasks: int | None = None
    output: int | None = None

    @property
    def runs_tasks(self) -> bool:
        """True if an order to stop gives the process the grace."""
        return self.role in (Role.WORKER, Role.LOOP, Role.LAST_CHANCE)


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
        is_retiring: True = it ends when its tasks have ended, and is not started again.
        remains: what its processes have left; the supervisor takes it.
    """

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.start_at: float | None = 0.0
        self.restarts = self.is_retiring = False
        self.remains: list[Remains] = []
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self._failures = 0
        self._worked_since = math.inf
        self._why_killed, self._slow_starts = "", 0
        self._ordered, self._kill_at = b"", float("inf")
        self.pid = -1
        self._pipes: Pipes | None = None

    @property
    def role(self) -> str:
        """The kind of its work, for people."""
        return self.assignment.role.value

    @property
    def ends_by_itself(self) -> bool:
        """True if an end without an error means that its work is done."""
        return self.assignment.role is Role.LAST_CHANCE

    @property
    def running(self) -> bool:
        """True if the process runs."""
        return self._process is not None

    @property
    def has_ended(self) -> bool:
        """True if the process does not run and will not start again."""
        return not self.running and self.start_at is None

    def start(self, *, by_fork: bool, siblings: Sequence[Child] = ()) -> None:
        """Start the process, with a new pipe for its orders and one for its signs of life.

        Args:
            by_fork: True = copy this process; False = use the command line.
            siblings: all children, whose pipes the copy closes.

        Raises:
            Forked: in the new process.
            OSError: the process could not be started.
        """
        self._worked_since = math.inf
        pipes = Pipes()
        try:
            self._process = fork() if by_fork else _spawn(self.assignment, pipes)
        except OSError:
            pipes.close_childs_ends()
            pipes.close_supervisors_ends()
            raise
        if self._process is None:
            for one in (pipes, *(one._pipes for one in siblings if one._pipes)):
                one.close_supervisors_ends()
            signs.use(pipes.signs)
            if self.assignment.output is not None:
                os.dup2(self.assignment.output, STDOUT)
            raise Forked(self.assignment, pipes.orders)
        pipes.close_childs_ends()
        self._pipes, self.pid = pipes, self._process.pid
        self.start_at, self.restarts = None, False
        self._why_killed = ""
        self._ordered, self._kill_at = b"", float("inf")

    def order(self, order: bytes, within: float = float("inf")) -> None:
        """Send an order, once. A child that has ended does not need it.

        Args:
            within: seconds in which the child ends itself; ``FROZEN_SECONDS`` later it is killed.
        """
        if self._pipes is not None and order != self._ordered:
            self._ordered = order
            self._kill_at = min(self._kill_at, time.monotonic() + within + FROZEN_SECONDS)
            self._pipes.order(order)

    def retire(self) -> None:
        """Order the process to end when its tasks have ended. A process that does not run is not started again."""
        self.is_retiring, self.start_at = True, None
        self.order(b"r")

    def ended(self) -> int | None:
        """Return the exit code of an ended process, once; None = it runs, or was not started.

        The programs that it has left get SIGTERM.
        """
        if self._process is None or (code := exit_code(self._process)) is None:
            return None
        if self._pipes is not None:
            self.hear(0.0)
            self._pipes.close_supervisors_ends()
        self.remains.append(Remains(self._process))
        self._process = self._pipes = None
        _tell_end(self.pid, code)
        return code

    def hear(self, seconds: float) -> None:
        """Read the signs of life; ``seconds`` as for ``signs.Hearing.listen``."""
        if self._pipes is not None:
            self._pipes.hearing.listen(seconds)
            if self._pipes.hearing.has_begun:
                self._worked_since = min(self._worked_since, time.monotonic())

    def news(self) -> bytes:
        """Return what the running process has told since the last call: see ``signs.tell``."""
        return b"" if self._pipes is None else self._pipes.hearing.news()

    def kill_if_frozen(self) -> None:
        """Kill a process that has not ended long after the order to stop: it is frozen."""
        if self._process is not None and time.monotonic() >= self._kill_at:
            self._kill("the process was frozen")

    def kill_if_silent(self, patience: Patience) -> None:
        """Kill a process whose loop has given no sign of life for too long."""
        if self._pipes is None or self._why_killed:
            return
        hearing = self._pipes.hearing
        if why := patience.verdict(hearing, self._slow_starts):
            self._slow_starts = 0 if hearing.has_begun else self._slow_starts + 1
            self._kill(why)

    def _kill(self, why: str) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self._why_killed = why

    def end_in_words(self, code: int) -> str:
        """Return an exit code for people, such as ``signal 15 (SIGTERM)``."""
        return _in_words(code, self._why_killed)

    def start_later(self, how: str) -> None:
        """Start again after a pause, which grows while the child dies young."""
        young = time.monotonic() - self._worked_since < HEALTHY_AFTER_SECONDS
        self._failures = self._failures + 1 if young else 1
        pause = backoff(self._failures, base=timedelta(seconds=0.2), ceiling=timedelta(seconds=30))
        self.start_at = time.monotonic() + pause.total_seconds()
        if math.isinf(self._worked_since) and not self._why_killed:
            how += ", before it had begun its work"
        signals.child_died.emit(
            role=self.role, pid=self.pid, status=how, delay=pause.total_seconds()
        )


def _spawn(assignment: Assignment, pipes: Pipes) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 -- our own command line
        assignment.command,
        env={**os.environ, PIPE: str(pipes.orders), signs.PIPE: str(pipes.signs)},
        pass_fds=[pipes.orders, pipes.signs],
        stdin=subprocess.DEVNULL,
        stdout=assignment.output,
        start_new_session=True,
    )


def _in_words(code: int, why_killed: str) -> str:
    if code >= 0:
        return f"exit code {code}"
    if -code == signal.SIGKILL:
        other = "sent by the kernel because memory ran out, by a person or by a service manager"
        own = f"the supervisor sent it, because {why_killed}"
        return f"signal 9 (SIGKILL: {own if why_killed else other})"
    names = {one.value: f" ({one.name})" for one in signal.Signals}
    return f"signal {-code}{names.get(-code, '')}"


def _tell_end(pid: int, code: int) -> None:
    for module in OF_CHILDREN.modules:
        module.ended(pid, code)
