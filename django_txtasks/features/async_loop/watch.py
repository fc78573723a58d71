"""The look at an event loop and its threads once a second, from the thread of the turns."""

from __future__ import annotations

from django_txtasks.features.async_loop.attempts import OnLoop
from django_txtasks.features.async_loop.default_executor import RunningCall
from django_txtasks.features.async_loop.event_loop import EventLoop
from django_txtasks.features.async_loop.exchange import Exchange
from django_txtasks.features.async_loop.extra_threads import ExtraThreads
from django_txtasks.features.async_loop.held_threads import WaitNotes
from django_txtasks.features.async_loop.lag import LagWatch
from django_txtasks.features.async_loop.left_calls import LeftCalls
from django_txtasks.features.async_loop.shared_threads import SharedThreads
from django_txtasks.features.progress.notes import LAG, Progress, ProgressNotes

LOOK_SECONDS = 1.0
"""Seconds between two looks."""


class LoopWatch:
    """Looks for tasks that block the loop, calls that wait for a thread, and calls that outlive their attempts.

    Args:
        notes: the lag and long waits for threads are written there.
        alias: see ``ExtraThreads``.
        grace: see ``LagWatch``.
        patience: see ``LagWatch`` and ``LeftCalls``.

    Attributes:
        looked_at: time of the last look, by ``time.monotonic()``.
        blocker: the attempt that had blocked the loop for too long at the last look; None = none.
    """

    def __init__(
        self,
        loop: EventLoop,
        exchange: Exchange,
        shared: SharedThreads,
        notes: ProgressNotes,
        *,
        alias: str,
        grace: float,
        patience: float,
    ) -> None:
        self._loop, self._exchange, self._shared, self._notes = loop, exchange, shared, notes
        self._lag = LagWatch(loop, grace=grace, patience=patience)
        self._wait_notes = WaitNotes(notes)
        self._extra_threads = ExtraThreads(shared, alias)
        self._left = LeftCalls(loop.executor, patience)
        self.looked_at = 0.0
        self.blocker: OnLoop | None = None

    def look(self, now: float) -> None:
        """Look, if the last look was LOOK_SECONDS ago.

        Args:
            now: the time, by ``time.monotonic()``.
        """
        if now < self.looked_at + LOOK_SECONDS:
            return
        self.looked_at = now
        self._shared.start_missing()
        waits = self._shared.waits(now)
        self._extra_threads.look(waits, now)
        self._wait_notes.tell(waits, now)
        self._note_lag()
        self._left.look(self._exchange.has, now)
        self.blocker = self._lag.look(self._exchange.alive.copy().values(), now)

    @property
    def is_needed(self) -> bool:
        """True if calls run that may outlive their attempts."""
        return self._left.may_come

    @property
    def is_blocked(self) -> bool:
        """True if the loop does not turn, so that no other attempt can end."""
        return self._lag.is_blocked

    @property
    def is_stuck(self) -> bool:
        """True if the loop has not turned for too long."""
        return self._lag.is_stuck

    @property
    def stuck_calls(self) -> list[RunningCall]:
        """Calls of ended attempts that keep half of the threads of the default executor; else empty."""
        return self._left.stuck

    def _note_lag(self) -> None:
        lag = round(self._loop.take_lag(), 1)
        if lag or self._notes.has(LAG):
            self._notes.note(LAG, Progress(lag))
