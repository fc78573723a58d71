"""Signs of life and news of a child process, which its supervisor reads from a pipe.

The child writes a byte a second: ``TURNS`` while its loop turns, ``HANGS`` if the loop has not turned for long.
The thread that reads the orders writes it, because a loop may wait minutes for the answer of an absent database.
If a C call keeps the GIL, or the process is stopped, no thread of the child writes. All other bytes are news; some
follow each sign of life while they are true.

Neither end ever waits. A byte that finds the pipe full, or no supervisor, is lost.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from django_txtasks.core.ground.forks import register_at_fork

PIPE = "TXTASKS_SIGNS_FD"
SIGN_SECONDS = 1.0
"""Seconds between two signs of life."""
TURNS, HANGS = b"t", b"h"
_READ_BYTES = 65_536
_MOST_NEWS = 4_096
"""Bytes of news that are kept until the supervisor asks for them."""


class _Signs:
    """The writing end, which one process has once; without a supervisor nothing is written."""

    def __init__(self) -> None:
        self._pipe: int | None = None
        self._judge: Callable[[], bool | None] = lambda: None
        self._news: Callable[[], bytes] = bytes

    def use(self, pipe: int | None) -> None:
        """Write into this pipe from now on. Programs that tasks start do not get it."""
        self._pipe = pipe
        if pipe is not None:
            os.set_inheritable(pipe, False)

    def vouch(self, judge: Callable[[], bool | None]) -> None:
        """Ask this function for the state of the loop: True = it turns, False = it hangs, None = not begun."""
        self._judge = judge

    def repeat(self, news: Callable[[], bytes]) -> None:
        """Ask this function for the news that follow each sign of life."""
        self._news = news

    def show_life(self) -> None:
        """Write a sign of life, if the loop has begun."""
        if (turns := self._judge()) is not None:
            self.tell((TURNS if turns else HANGS) + self._news())

    def tell(self, news: bytes) -> None:
        """Write bytes for the supervisor. They may be lost, so repeat them while they are true."""
        if self._pipe is not None:
            with contextlib.suppress(OSError):  # the pipe is full, or the supervisor is gone
                os.write(self._pipe, news)

    def are_heard(self) -> bool:
        """Return True if a supervisor has the other end of the pipe."""
        return self._pipe is not None

    def forget(self) -> None:
        """Close the pipe, in a copy of the process that a task has made."""
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None


_own = _Signs()
use, vouch, repeat, show_life = _own.use, _own.vouch, _own.repeat, _own.show_life
tell, are_heard = _own.tell, _own.are_heard
register_at_fork(after_in_child=_own.forget)


def new_pipe() -> tuple[int, int]:
    """Return the reading and the writing end of a new pipe. Neither end waits.

    Raises:
        OSError: too many files are open.
    """
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    return ends


class Hearing:
    """The reading end, in the supervisor.

    Args:
        pipe: the file descriptor.

    Attributes:
        has_begun: True if the loop has turned.
        hangs: True if the last sign says that the loop hangs.
        silent: seconds without a sign that the loop turns. Time in which the supervisor did not run is left out.
    """

    def __init__(self, pipe: int) -> None:
        self._pipe, self._news = pipe, b""
        self.has_begun = self.hangs = False
        self.silent = 0.0

    def listen(self, seconds: float) -> None:
        """Read all signs.

        Args:
            seconds: time since the last call in which the supervisor ran.
        """
        self.silent += seconds
        heard = self._read()
        if TURNS in heard:
            self.has_begun, self.silent = True, 0.0
        if TURNS in heard or HANGS in heard:
            self.hangs = heard.rfind(HANGS) > heard.rfind(TURNS)
        self._news = (self._news + heard.translate(None, delete=TURNS + HANGS))[:_MOST_NEWS]

    def news(self) -> bytes:
        """Return the news since the last call."""
        news, self._news = self._news, b""
        return news

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._pipe)

    def _read(self) -> bytes:
        try:
            return os.read(self._pipe, _READ_BYTES)
        except BlockingIOError:
            return b""
