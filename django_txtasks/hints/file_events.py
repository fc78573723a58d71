"""Tells a thread that any process has written to a file: inotify, of the Linux kernel.

Elsewhere, and where the kernel refuses it, nobody is told, and the thread has to look.
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


class FileEvents:
    """One thread waits for writes to files; any other one may wake it."""

    def __init__(self) -> None:
        self._libc: Any = None
        self._inotify = self._wake = -1
        with contextlib.suppress(AttributeError, OSError, TypeError):  # this system has none
            self._libc = ctypes.CDLL(None)
            self._inotify = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def watch(self, paths: Sequence[bytes]) -> bool:
        """Hear of writes to these files, as far as they are there, from now on. False = nobody tells of them."""
        if self._inotify < 0 or self._wake < 0:
            return False
        watches = [self._libc.inotify_add_watch(self._inotify, one, _IN_MODIFY) for one in paths]
        return any(number >= 0 for number in watches)

    def wait(self, seconds: float) -> bool:
        """Wait for a write or for ``wake``, at most for ``seconds``; say whether one came since the last call.

        Only after a ``watch`` that returned True.
        """
        poll = select.poll()
        for number in (self._inotify, self._wake):
            poll.register(number, select.POLLIN)
        told = poll.poll(seconds * 1000)
        for number, _ in told:
            with contextlib.suppress(BlockingIOError):
                os.read(number, _READ_BYTES)  # all of them: one would do
        return bool(told)

    def wake(self) -> None:
        """End the wait of now, or the next one. From any thread."""
        if self._wake >= 0:
            with contextlib.suppress(OSError):
                os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Give the descriptors back, when no thread waits any more."""
        for number in (self._inotify, self._wake):
            if number >= 0:
                os.close(number)
        self._inotify = self._wake = -1
