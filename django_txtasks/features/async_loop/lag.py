"""A loop that does not turn: the attempt that blocks it, and the line at which it does.

The turns look from their own thread, because the loop cannot.
"""

from __future__ import annotations

import asyncio
import sys
import sysconfig
import traceback
from collections.abc import Iterable
from types import FrameType
from typing import NamedTuple

from django_txtasks import signals
from django_txtasks.features.async_loop.attempts import OnLoop
from django_txtasks.features.async_loop.event_loop import EventLoop

BLOCKED_SECONDS = 1.0
"""Seconds without a tick from which the log says that the loop is blocked."""
_LIBRARIES = tuple(
    {sysconfig.get_path(one) for one in ("stdlib", "platstdlib", "purelib", "platlib")}
)


class _Block(NamedTuple):
    """A time in which the loop does not turn.

    Attributes:
        one: the attempt that runs; None = unknown, such as a callback of a library.
        since: time since which it is seen to run, by ``time.monotonic()``.
    """

    one: OnLoop | None
    since: float


class LagWatch:
    """Looks whether the loop turns.

    Args:
        grace: seconds after which a blocked loop counts as stuck.
        patience: seconds after an attempt's own timeout after which a loop that it blocks counts as stuck.

    Attributes:
        is_stuck: True if the loop was blocked for too long, by an attempt or by other code, such as a callback.
    """

    def __init__(self, loop: EventLoop, *, grace: float, patience: float) -> None:
        self._loop, self._grace, self._patience = loop, grace, patience
        self._block: _Block | None = None
        self.is_stuck = False

    def look(self, attempts: Iterable[OnLoop], now: float) -> OnLoop | None:
        """Log a block once for each attempt, and its end. Return the attempt that has blocked for too long.

        Args:
            attempts: the attempts on the loop.
        """
        ticked_at = self._loop.ticked_at
        if ticked_at is None or now < ticked_at + BLOCKED_SECONDS:
            self._note_end(ticked_at or now)
            return None
        one = self._running(attempts)
        if self._block is None or self._block.one is not one:
            since = ticked_at if self._block is None else now
            self._block = _Block(one, since)
            self._tell(one, now - ticked_at)
        seconds = now - self._block.since
        self.is_stuck = seconds >= (self._grace if one is None else self._longest(one))
        if one is None or not self.is_stuck:
            return None
        one.where, one.blocked = _place(self._stack()), seconds
        return one

    @property
    def is_blocked(self) -> bool:
        """True if the last look found that the loop does not turn."""
        return self._block is not None

    def _longest(self, one: OnLoop) -> float:
        timeout = one.attempt.timeout
        return self._grace if timeout is None else min(self._grace, timeout + self._patience)

    def _running(self, attempts: Iterable[OnLoop]) -> OnLoop | None:
        """Return the attempt whose code the loop runs now."""
        task = asyncio.current_task(self._loop.loop)
        if task is None:
            return None
        return next(
            (one for one in attempts if one.task is task or one.children.include(task)), None
        )

    def _tell(self, one: OnLoop | None, seconds: float) -> None:
        stack = self._stack()
        if one is not None:
            signals.loop_blocked.emit(
                **one.attempt.facts, seconds=seconds, where=_place(stack), stack=_text(stack)
            )

    def _note_end(self, ticked_at: float) -> None:
        block, self._block, self.is_stuck = self._block, None, False
        if block is not None and block.one is not None:
            seconds = max(0.0, ticked_at - block.since)
            signals.loop_resumed.emit(**block.one.attempt.facts, seconds=seconds)

    def _stack(self) -> list[FrameType]:
        """Return the frames of the loop's thread, the innermost first, up to the loop's own code."""
        frame = sys._current_frames().get(self._loop.thread.ident or 0)
        frames = []
        while frame is not None and not frame.f_code.co_filename.endswith("asyncio/events.py"):
            frames.append(frame)
            frame = frame.f_back
        return frames


def _place(stack: list[FrameType]) -> str:
    """Return the innermost line of the project's own code, such as ``shop/tasks.py:41``."""
    own = [one for one in stack if not one.f_code.co_filename.startswith(_LIBRARIES)]
    for frame in (own or stack)[:1]:
        return f"{'/'.join(frame.f_code.co_filename.split('/')[-2:])}:{frame.f_lineno}"
    return "an unknown line"


def _text(stack: list[FrameType]) -> str:
    """Return the lines of a stack without local variables, as in a traceback."""
    return "".join(traceback.format_list(traceback.StackSummary.extract(
        ((one, one.f_lineno) for one in reversed(stack)), lookup_lines=True
    ))).rstrip()  # fmt: skip
