"""Copies of the supervisor's process: a worker that is forked has loaded the project already.

A project of some size takes seconds to load, and its code tens of megabytes: a fork takes milliseconds and
shares them. It is safe where the copy shares nothing else: no other thread, whose locks would stay locked for
ever, and no connection, whose bytes two processes would read. Where an app has started a thread or opened a
connection while Django loaded it, and where this cannot be told (only Linux tells), workers are started by their
command line instead.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys

STANDARD = ("0", "1", "2")
"""File descriptors that a child has in any case, even if one of them is a socket."""


class ForkedProcess:
    """A child made by ``fork``, as ``subprocess.Popen`` shows one that it has started."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, once it has ended; None = it runs."""
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except (
            ChildProcessError
        ):  # it has ended, and SIGCHLD is ignored or somebody else was told its code
            return 0
        return os.waitstatus_to_exitcode(status) if pid else None


def can_fork() -> bool:
    """Say whether a copy of this process would share nothing with it but its memory."""
    try:
        threads, files = os.listdir("/proc/self/task"), os.listdir("/proc/self/fd")
    except OSError:  # not Linux
        return False
    return len(threads) == 1 and not any(map(_is_connection, files))


def fork() -> ForkedProcess | None:
    """Make a copy of this process, in a session of its own and without standard input; None = this is the copy.

    Raises:
        OSError: the system has no room for another process.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(
            AttributeError, OSError, ValueError
        ):  # there is none, or it is closed
            stream.flush()  # else the copy writes it, too
    gc.freeze()  # the copy's garbage collector would write to, and so copy, all that is shared
    if pid := os.fork():
        return ForkedProcess(pid)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return None


def _is_connection(number: str) -> bool:
    """Say whether a file descriptor is a socket, or something that waits for one."""
    if number in STANDARD:
        return False
    with contextlib.suppress(OSError):  # the one that listed them is closed by now
        return os.readlink(f"/proc/self/fd/{number}").startswith(("socket:", "anon_inode:"))
    return False
