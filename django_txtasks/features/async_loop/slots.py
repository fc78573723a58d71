"""The slots of an event loop, as the turns see them. Each call costs the same for any number of slots."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from django_txtasks import signals
from django_txtasks.core.rows.attempts import Attempt, Ended
from django_txtasks.core.working.running.in_hand import InHand, Key
from django_txtasks.core.working.running.limits import NEVER
from django_txtasks.core.working.running.runner import Runner
from django_txtasks.core.working.running.slot_pool import Place, SlotPool
from django_txtasks.exceptions import ClaimLost
from django_txtasks.features.async_loop.attempts import CutShort, LoopRunner, OnLoop
from django_txtasks.features.async_loop.event_loop import EventLoop
from django_txtasks.features.async_loop.exchange import Exchange, emptied
from django_txtasks.features.async_loop.policy import ClaimWidth
from django_txtasks.features.async_loop.shared_threads import SharedThreads
from django_txtasks.features.async_loop.watch import LOOK_SECONDS, LoopWatch
from django_txtasks.features.progress.notes import ProgressNotes


class LoopSlots(SlotPool):
    """The slots of one event loop: asyncio tasks, each for one attempt. Only the turns use them.

    Args:
        count: number of attempts that may run at the same time.
        threads: number of threads for sync code.
        runner: the parts that an attempt needs, wherever it runs.
        wake: wakes the turns.
        grace: see ``LoopWatch``.
        patience: seconds that an attempt has to end after TimedOut was raised in it.

    Attributes:
        watch: looks at the loop and its threads.
    """

    def __init__(
        self,
        count: int,
        *,
        threads: int,
        runner: Runner,
        wake: Callable[[], None],
        grace: float,
        patience: float,
    ) -> None:
        self._count, self._patience = count, patience
        self._loop = EventLoop()
        self._exchange = Exchange(self._loop, wake)
        self._shared = SharedThreads(threads, note_session=runner.note_session_of)
        self._runner = LoopRunner(runner, self._shared, self._loop, self._exchange.over)
        self.watch = LoopWatch(
            self._loop,
            self._exchange,
            self._shared,
            runner.parts.offered.get(ProgressNotes) or ProgressNotes(),
            alias=runner.alias,
            grace=grace,
            patience=patience,
        )
        self._width = ClaimWidth()
        self.in_hand, self.asks_by_worker = InHand(), True

    @property
    def running(self) -> int:
        """Number of attempts that were started and not yet collected."""
        return len(self.in_hand.attempts)

    @property
    def free(self) -> int:
        """Number of tasks that the next turn may claim."""
        return max(0, min(self._count - self.running, self._width.most))

    def holds(self) -> set[Key]:
        """Return (id, attempt) of all attempts here, and of kept-back claims."""
        attempts = [*self.in_hand.attempts.values(), *self.in_hand.kept_back]
        return {(one.task_id, one.number) for one in attempts}

    def running_since(self, moment: float) -> list[Attempt]:
        """Return the attempt that has run for longest, if it began before this time."""
        first = next(iter(self._exchange.alive.copy().values()), None)
        return [first.attempt] if first is not None and first.since <= moment else []

    def start(self, attempts: list[Attempt], good_until: float = NEVER) -> None:
        """Hand attempts to the loop. After ``good_until`` none of them begins, because its claim is too old."""
        self._width.learn(attempts)
        for attempt in attempts:
            self.in_hand.attempts[attempt.task_id.int] = attempt
            self._exchange.hand_over(OnLoop(attempt))
        self._loop.call(self._exchange.begin, self._runner, good_until)

    def place_of(self, key: Key) -> Place | None:
        """Return where an attempt runs; None = it does not run here."""
        return self._exchange.place_of(key)

    def collect(self) -> list[tuple[Ended, float]]:
        """Return the outcomes since the last call, each with the seconds of its attempt."""
        ended = emptied(self._exchange.ended)
        self._forget(one.attempt for one, _ in ended)
        for attempt in self._forget(emptied(self._exchange.lost)):
            signals.claim_lost.emit(**attempt.facts, what="was cancelled")
        return ended

    def wake_after(self, count: int) -> None:
        """Wake the turns when the next attempt has ended; at once if one has."""
        self._exchange.await_end()

    def release(self, *, stalled: bool) -> list[Attempt]:
        """Return, and forget, attempts that have not begun.

        Args:
            stalled: True = only those whose claims became too old.
        """
        back = emptied(self._exchange.too_old)
        if not stalled:
            back += self._exchange.take_back()
        return self._forget(back)

    def claims_lost(self) -> list[Attempt]:
        """Cancel all attempts, because this worker was declared lost. Return the attempts that had not begun."""
        back = self.release(stalled=False)
        self._loop.call(self._exchange.cancel_all, ClaimLost)
        return back

    def interrupt(self, seconds: float) -> None:
        """Cancel all attempts, and give them this time to clean up. They keep their claims."""
        if seconds and not self.watch.is_blocked:
            self._exchange.is_empty.clear()
            self._loop.call(self._exchange.cancel_all, CutShort)
            self._exchange.is_empty.wait(seconds)

    def close(self) -> None:
        """End the loop and its threads."""
        self._loop.close()
        self._shared.close()

    def enforce_limits(self) -> list[OnLoop]:
        """Look at the loop once a second. Return the attempts that no exception ends."""
        now = time.monotonic()
        stuck = [one for one in self._expired() if now >= one.end_of_patience(self._patience)]
        self.watch.look(now)
        if (blocker := self.watch.blocker) is not None and blocker not in stuck:
            stuck.append(blocker)
        return stuck

    @property
    def next_look(self) -> float:
        """Time of the next call of ``enforce_limits``, by ``time.monotonic()``."""
        if not self.running and not self.watch.is_needed:
            return NEVER
        ends = [one.end_of_patience(self._patience) for one in self._expired()]
        looked_at = self.watch.looked_at
        later = [end for end in ends if end > looked_at]
        return min([looked_at + LOOK_SECONDS, *later])

    def _expired(self) -> list[OnLoop]:
        """Return the attempts that still run after their TimedOut."""
        return list(self._runner.expired)

    def _forget(self, attempts: Iterable[Attempt]) -> list[Attempt]:
        gone = list(attempts)
        for one in gone:
            self.in_hand.attempts.pop(one.task_id.int, None)
        return gone
