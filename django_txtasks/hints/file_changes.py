"""Tells a thread that any process has written to a file, by inotify of the Linux kernel.

On other systems, and if the kernel refuses it, the thread has to look by itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
from collections.abc import Sequence
from typing import Any

_IN_MODIFY = 2
"""Bit of a mask: a file was written to. See inotify(7)."""
_READ_BYTES = 65536


class FileChanges:
    """One thread waits for writes to files; any other thread may wake it."""

    def __init__(self) -> None:
        self._libc: Any = None
        self._inotify = self._wake = -1
        with contextlib.suppress(AttributeError, OSError, TypeError):  # this system has no inotify
            self._libc = ctypes.CDLL(None)
            self._inotify = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def watch(self, paths: Sequence[bytes]) -> bool:
        """Report writes to the existing ones of these files from now on. Return False if the kernel does not."""
        if self._inotify < 0 or self._wake < 0:
            return False
        watches = [self._libc.inotify_add_watch(self._inotify, one, _IN_MODIFY) for one in paths]
        return any(number >= 0 for number in watches)

    def wait(self, seconds: float) -> bool:
        """Wait for a write or for ``wake``, at most ``seconds``. Return True if one came since the last call.

        Call it only after a ``watch`` that returned True.
        """
        poll = select.poll()
        for number in (self._inotify, self._wake):
            poll.register(number, select.POLLIN)
        told = poll.poll(seconds * 1000)
        for number, _ in told:
            with contextlib.suppress(BlockingIOError):
                os.read(number, _READ_BYTES)  # read all of them, although one would do
        return bool(told)

    def wake(self) -> None:
        """End the present wait, or the next one. Any thread may call it."""
        if self._wake >= 0:
            with contextlib.suppress(OSError):
                os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Close the descriptors, when no thread waits any more."""
        for number in (self._inotify, self._wake):
            if number >= 0:
                os.close(number)
        self._inotify = self._wake = -1
