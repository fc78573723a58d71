"""Worker processes as copies of the supervisor's process, which has loaded the project already.

To load a project of some size takes seconds, and its code takes tens of megabytes. A fork takes milliseconds and
shares the memory. It is safe only if the copy shares nothing else: no other thread, because that thread's locks
would stay locked for ever, and no connection, because two processes would read its bytes. If an app has started a
thread or opened a connection while Django loaded it, workers are started by their command line instead; likewise
on systems other than Linux, which cannot tell.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time

STANDARD = ("0", "1", "2")
"""File descriptors that a child always has, even if one of them is a socket."""
SETTLE_SECONDS = 0.1
"""Seconds for threads and connections to end before a fork."""
LOOK_SECONDS = 0.002
"""Seconds between two looks meanwhile."""


class ForkedProcess:
    """A child made by ``fork``, with the interface of ``subprocess.Popen``."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        """Return the exit code of a child that has ended, negative for a signal; None = it runs."""
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            # The child has ended; SIGCHLD is ignored, or other code has read the exit code.
            return 0
        return os.waitstatus_to_exitcode(status) if pid else None


def can_fork() -> bool:
    """Return True if a copy of this process would share only memory with it.

    A thread that was joined a moment ago may still be listed, because its function ends before the thread does.
    So a process with several threads is looked at again, for ``SETTLE_SECONDS``.
    """
    end = time.monotonic() + SETTLE_SECONDS
    try:
        while not (is_alone := _is_alone()) and time.monotonic() < end:
            time.sleep(LOOK_SECONDS)
    except OSError:  # this is not Linux
        return False
    return is_alone


def _is_alone() -> bool:
    """Return True if this process has one thread and no connection. Raise OSError if the system cannot tell."""
    threads, files = os.listdir("/proc/self/task"), os.listdir("/proc/self/fd")
    return len(threads) == 1 and not any(map(_is_connection, files))


def fork() -> ForkedProcess | None:
    """Copy this process, into a session of its own and without standard input; None = this is the copy.

    Raises:
        OSError: the system has no resources for another process.
    """
    for stream in (sys.stdout, sys.stderr):
        # A stream may be absent or closed.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()  # otherwise the copy writes the buffer, too
    gc.freeze()  # otherwise the copy's garbage collector writes to shared memory, and so copies it
    if pid := os.fork():
        return ForkedProcess(pid)
    os.setsid()
    _read_nothing()
    return None


def _read_nothing() -> None:
    """Replace standard input. If it was closed at the start, another file may have its number."""
    if sys.__stdin__ is not None:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)


def _is_connection(number: str) -> bool:
    """Return True if a file descriptor is a socket, or waits for sockets."""
    if number in STANDARD:
        return False
    with contextlib.suppress(OSError):  # the descriptor of the listing itself is closed by now
        return os.readlink(f"/proc/self/fd/{number}").startswith(("socket:", "anon_inode:"))
    return False
