"""The loop's record of its slots: their attempts, which of them wait, and how long they may take."""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice

from django_txtasks.core.rows.attempts import Attempt, Ended
from django_txtasks.core.rows.running import awaited
from django_txtasks.core.working.running.in_hand import InHand, Key
from django_txtasks.core.working.running.limits import NEVER, NO_LIMIT, TimeLimit
from django_txtasks.core.working.running.slot_pool import Place, SlotPool
from django_txtasks.core.working.running.slot_threads import CallOf, Running, SlotRun, SlotThreads

STALL_SECONDS = 0.15
"""Seconds that attempts wait for another one of their slot run, or for a slot, before they are released."""
LONGEST_WAIT_SECONDS = 0.5
"""Longest wait in seconds of a slot run for a slot while others go on: longer than the work claimed ahead."""


class SlotRuns:
    """The slot runs that slots have, or wait for. Only the loop uses it.

    Attributes:
        all: slot runs that are not over.
        calls: slot runs with one call for all attempts.
        begun: the begun ones, at most one for each thread, as of ``note_begun``.
        queue: the others, in the order in which slots take them.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self.all: set[SlotRun] = set()
        self.calls: set[SlotRun] = set()
        self.begun: set[SlotRun] = set()
        self.queue: deque[SlotRun] = deque()

    def add(self, run: SlotRun) -> None:
        """Add a slot run, which waits for a slot."""
        self.all.add(run)
        if run.is_call:
            self.calls.add(run)
        self.queue.append(run)

    def remove(self, over: list[SlotRun]) -> list[Attempt]:
        """Remove the slot runs that are over. Return their attempts that have not begun."""
        self.all.difference_update(over)
        self.begun.difference_update(over)
        self.calls.difference_update(over)
        return [one for run in over if run.left for one in _emptied(run.left)]

    def note_begun(self) -> None:
        """Move the slot runs that slots have taken. A slot skips a run whose attempts were all released."""
        while self.queue and (self.queue[0].begun or not self.queue[0].left):
            run = self.queue.popleft()
            if run.begun and run in self.all:
                self.begun.add(run)

    def now_begun(self) -> set[SlotRun]:
        """Return the begun slot runs, as of now."""
        self.note_begun()
        return self.begun

    def forget_empty(self) -> None:
        """Remove slot runs from the queue whose attempts were all released."""
        self.queue = deque(one for one in self.queue if one.left or one.begun)

    def count_waiting(self) -> int:
        """Return the number of slot runs that wait for a slot."""
        self.note_begun()
        return max(0, len(self.begun) + len(self.queue) - self._threads)

    def limited(self) -> list[Running]:
        """Return the running attempts that have a time limit."""
        begun = self.now_begun()
        return [one for run in begun for one in run.present if one.limit is not NO_LIMIT]

    def running_since(self, moment: float) -> list[Attempt]:
        """Return the running attempts that began before this time, by ``time.monotonic()``."""
        began = [run for run in self.now_begun() if run.since <= moment]
        return [one.attempt for run in began for one in run.present]

    @property
    def in_calls(self) -> int:
        """Number of attempts that calls have besides their first one."""
        sizes = [len(run.left if run.call is None else run.call.left) for run in self.calls]
        return sum([size - 1 for size in sizes if size])

    @property
    def calls_without_attempts(self) -> int:
        """Number of calls that go on though each of their attempts was collected."""
        return sum([run.call is not None and not run.call.left for run in self.calls])

    def collect_calls(self) -> Iterator[tuple[Ended, float]]:
        """Yield the new outcomes of the calls, also of running ones, with the seconds of each."""
        for run in self.calls:
            if run.call is not None:
                yield from run.call.collect()

    def place_of(self, key: Key) -> Place | None:
        """Return where an attempt runs; None = it does not run here."""
        for run in self.now_begun():
            thread = run.thread
            if _runs(run, key):
                task, loop_thread = awaited.get(key, (None, 0))
                return Place(thread, () if task is None else (task,), loop_thread)
        return None

    def stalled(self, now: float) -> Iterator[SlotRun]:
        """Yield the slot runs that wait too long: for an attempt of their own, or for a slot."""
        yield from (one for one in self.begun if one.left and now >= one.since + STALL_SECONDS)
        for one in self._waiting():
            if now < self._stalls_at(one):  # the runs behind it came later
                break
            yield one

    def stall_times(self) -> Iterator[float]:
        """Yield the times from which the begun slot runs, and the first waiting one, wait too long."""
        yield from (run.since + STALL_SECONDS for run in self.now_begun() if run.left)
        if (first := next(self._waiting(), None)) is not None:
            yield self._stalls_at(first)

    def _waiting(self) -> Iterator[SlotRun]:
        """Yield the slot runs that wait for a slot, in order. If a slot is idle, none waits."""
        if len(self.all) > self._threads:
            yield from (one for one in self.queue if one.left and not one.begun)

    def _stalls_at(self, run: SlotRun) -> float:
        """Return the time from which a slot run waits too long for a slot. A moving queue is no stall."""
        moved = max((one.since for one in self.begun), default=run.since)
        return min(max(run.since, moved) + STALL_SECONDS, run.since + LONGEST_WAIT_SECONDS)


class Slots(SlotPool):
    """The slots as the loop sees them: the threads that run tasks, with their attempts. Only the loop uses it.

    The cost of each round of the loop grows with the number of threads and of ended attempts, not with the number
    of attempts that wait for a slot.

    Args:
        run, wake, call_of: see ``SlotThreads``.
        patience: seconds that an attempt has to end after TimedOut was raised in it.
        took: called with the name of each task and the seconds that it took.
    """

    def __init__(
        self,
        count: int,
        *,
        run: Callable[[Attempt, TimeLimit], Ended],
        wake: Callable[[], None],
        patience: float,
        took: Callable[[str, float], None],
        call_of: CallOf | None = None,
    ) -> None:
        self._threads = SlotThreads(count, run, wake, call_of)
        self._patience, self._took = patience, took
        self._runs = SlotRuns(count)
        self._too_old, self._count = list[Attempt](), 0
        self._timeouts: Counter[float] = Counter()  # timeouts in seconds of all attempts here
        self.in_hand = InHand()

    @property
    def running(self) -> int:
        """Number of attempts that were started and not yet collected, and of calls that go on without any."""
        return self._count + self._runs.calls_without_attempts if self._runs.calls else self._count

    @property
    def held(self) -> int:
        """Number of attempts as of ``running``, where all attempts of one call count as one."""
        return self.running - self._runs.in_calls if self._runs.calls else self._count

    @property
    def free(self) -> int:
        """Number of idle slots."""
        return max(0, len(self._threads) - len(self._runs.all))

    def wake_after(self, count: int) -> None:
        """Wake the loop when this number of slots has become free since its last look; at once if they have."""
        self._threads.wake_after(count)

    @property
    def waiting(self) -> int:
        """Number of slot runs that wait for a slot, without released ones."""
        return self._runs.count_waiting()

    def begun_between(self, earliest: float, latest: float) -> int:
        """Return the number of slot runs whose last attempt began, or that were handed over, in this span."""
        return sum([earliest <= one.since <= latest for one in self._runs.all])

    def are_handed(self, names: AbstractSet[str]) -> bool:
        """Return True if the first task of a slot run that has begun, or soon will, has one of these names."""
        handed = [*self._runs.begun, *islice(self._runs.queue, len(self._threads))]
        return any(run.attempts[0].task_name in names for run in handed)

    def holds(self) -> set[Key]:
        """Return (id, attempt) of all attempts of the present slot runs, and of kept-back claims."""
        attempts = [one for run in self._runs.all for one in run.attempts]
        return {(one.task_id, one.number) for one in [*attempts, *self.in_hand.kept_back]}

    def running_since(self, moment: float) -> list[Attempt]:
        return self._runs.running_since(moment)

    def start(self, attempts: list[Attempt], good_until: float = NEVER) -> None:
        """Give attempts to one slot, which runs them one after the other.

        Args:
            good_until: time by ``time.monotonic()`` after which no attempt begins, because the claims are too old.
        """
        self._start(SlotRun(attempts, _left(attempts), good_until))

    def start_call(self, attempts: list[Attempt], good_until: float = NEVER) -> None:
        """Give attempts with the same timeout to one slot, which calls their function once."""
        left = _left(attempts, limit=_limit_of(attempts[0]))
        self._start(SlotRun(attempts, left, good_until, is_call=True))

    def _start(self, run: SlotRun) -> None:
        for attempt in run.attempts:
            self.in_hand.attempts[attempt.task_id.int] = attempt
            if attempt.timeout is not None:
                self._timeouts[attempt.timeout] += 1
        self._count += len(run.attempts)
        self._runs.add(run)
        self._threads.put(run)

    def release(self, *, stalled: bool) -> list[Attempt]:
        """Return, and forget, attempts that have not begun.

        Args:
            stalled: True = only attempts that wait for a task that takes longer than a short one.
        """
        back, self._too_old = self._too_old, []
        self._runs.note_begun()
        for run in list(self._runs.stalled(time.monotonic()) if stalled else self._runs.all):
            back += _emptied(run.left)
        if back:
            self._runs.forget_empty()
        self._forget(back)
        return back

    def enforce_limits(self) -> list[Running]:
        """Raise TimedOut in attempts whose time is over. Return the attempts that did not end by it."""
        now = time.monotonic()
        limited = self._limited()
        for running in limited:
            running.limit.enforce(now)
        return [one for one in limited if one.limit.overrun(self._patience, now)]

    @property
    def next_look(self) -> float:
        """Time of the next call of ``enforce_limits`` or ``release``, by ``time.monotonic()``."""
        looks = [one.limit.next(self._patience) for one in self._limited()]
        if self._timeouts:  # of an attempt that begins while the loop waits
            looks.append(time.monotonic() + min(self._timeouts))
        return min([*looks, *self._runs.stall_times()], default=NEVER)

    def collect(self) -> list[tuple[Ended, float]]:
        """Return the outcomes since the last call, each with the seconds of its attempt."""
        over = [self._threads.over.popleft() for _ in range(len(self._threads.over))]
        collected = list(self._runs.collect_calls())
        while self._threads.ended:
            collected.append(timed := self._threads.ended.popleft())
            self._took(timed[0].attempt.task_name, timed[1])
        self._forget([one.attempt for one, _ in collected])
        self._too_old += self._runs.remove(over)
        return collected

    def place_of(self, key: Key) -> Place | None:
        return self._runs.place_of(key)

    def close(self) -> None:
        """End the threads, which must be idle."""
        self._threads.close()

    def _limited(self) -> list[Running]:
        return self._runs.limited() if self._timeouts or self._runs.calls else []

    def _forget(self, attempts: Sequence[Attempt]) -> None:
        self._count -= len(attempts)
        for attempt in attempts:
            self.in_hand.attempts.pop(attempt.task_id.int, None)
            if attempt.timeout is not None:
                _uncount(self._timeouts, attempt.timeout)


def _uncount(counts: Counter[float], key: float) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


def _left(attempts: list[Attempt], *, limit: TimeLimit | None = None) -> deque[Running]:
    return deque([Running(one, limit or _limit_of(one)) for one in attempts])


def _limit_of(attempt: Attempt) -> TimeLimit:
    return NO_LIMIT if attempt.timeout is None else TimeLimit(attempt.timeout)


def _runs(run: SlotRun, key: Key) -> bool:
    return any((one.attempt.task_id, one.attempt.number) == key for one in run.present)


def _emptied(left: deque[Running]) -> list[Attempt]:
    attempts = []
    with contextlib.suppress(IndexError):
        while True:
            attempts.append(left.pop().attempt)
    return attempts
