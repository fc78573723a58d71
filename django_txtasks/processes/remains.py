"""The end of the programs that tasks have started and that are left when their process has ended.

Each child of the supervisor leads a session. Its programs are members of that session, even in process
groups of their own. A program that is to stay makes a session itself. No other session gets the same id
while a member lives, or while the ended child is not collected. So the supervisor collects a child last.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn, Protocol

GRACE_SECONDS = 2.0
"""Seconds that programs have between SIGTERM and SIGKILL."""
UNKILLABLE_SECONDS = 3.0
"""Seconds of SIGKILL after which a program is given up: it waits for a device, in the kernel."""
LOOK_SECONDS = 0.05
"""Seconds between two looks of a process that ends its own programs."""


class _Process(Protocol):
    """A child process, such as a ``Popen``. ``poll`` collects it, if it has ended."""

    pid: int

    def poll(self) -> int | None:
        """Return the exit code of an ended process, negative for a signal; None = it runs."""


class Remains:
    """A child that has ended, and its programs, which get SIGTERM.

    Attributes:
        count: number of programs that were left.
    """

    def __init__(self, process: _Process) -> None:
        self._process, self.pid = process, process.pid
        self._kill_at = time.monotonic() + GRACE_SECONDS
        self.count = _tell(self.pid, signal.SIGTERM)

    def are_gone(self) -> bool:
        """Return True and collect the child if no program is left. Kill programs whose grace is over."""
        late = time.monotonic() - self._kill_at
        if late < UNKILLABLE_SECONDS and _tell(self.pid, signal.SIGKILL if late >= 0 else 0):
            return False
        self._process.poll()
        return True


def exit_code(process: _Process) -> int | None:
    """Return the exit code of an ended process, negative for a signal; None = it runs. Do not collect it.

    If the system has no way to look, or other code collects children, the process is collected.
    """
    try:
        found = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except (AttributeError, ChildProcessError):  # macOS before Python 3.13 has no waitid()
        return process.poll()
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


class _Own:
    """The programs of this process: its supervisor ends them, while there is one."""

    are_left_to_us = False


def supervisor_is_gone() -> None:
    """Let this process end its programs when it ends. It cannot if it is killed."""
    _Own.are_left_to_us = True
    atexit.register(_end_own)


def exit_now(code: int) -> NoReturn:
    """End this process without waiting for its threads; its programs, too, if its supervisor is gone."""
    if _Own.are_left_to_us:
        _end_own()
    os._exit(code)


def _end_own() -> None:
    me = os.getpid()
    if os.getsid(0) != me:  # a task has forked this process
        return
    end = time.monotonic() + GRACE_SECONDS
    left = _tell(me, signal.SIGTERM, but=me)
    while left and time.monotonic() < end:
        time.sleep(LOOK_SECONDS)
        left = _tell(me, 0, but=me)
    _tell(me, signal.SIGKILL, but=me)


def _tell(session: int, number: int, *, but: int = 0) -> int:
    """Signal the members of a session; 0 = only look. Return the number of processes that got the signal.

    Programs of other users get none.
    """
    told = 0
    for pid in _members(session):
        with contextlib.suppress(OSError):
            if abs(pid) != but:
                os.kill(pid, number)
                told += 1
    return told


def _members(session: int) -> Iterator[int]:
    """Yield the processes of a session that run; where the system does not list them, its process group."""
    try:
        if os.readlink("/proc/self") != str(os.getpid()):
            raise OSError("/proc shows the processes of another namespace")
        listed = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        yield -session
        return
    for name in listed:
        with contextlib.suppress(OSError, IndexError):  # it has ended meanwhile
            state, _, _, of = (
                Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[:4]
            )
            if int(of) == session and state not in (b"Z", b"X"):
                yield int(name)
