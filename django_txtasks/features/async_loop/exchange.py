"""The attempts between two threads: the turns hand them to the event loop, and the loop hands their ends back."""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeVar

from django_txtasks.core.rows.attempts import Attempt, Ended
from django_txtasks.core.working.running.in_hand import Key
from django_txtasks.core.working.running.slot_pool import Place
from django_txtasks.exceptions import ClaimLost
from django_txtasks.features.async_loop.attempts import LoopRunner, OnLoop, start
from django_txtasks.features.async_loop.event_loop import EventLoop

T = TypeVar("T")


class Exchange:
    """The state that the turns and the loop share.

    Args:
        wake: wakes the turns.

    Attributes:
        alive: attempts that have begun and not ended, in the order in which they began. Written by the loop.
        is_empty: set when the last of them has ended.
        ended: outcomes with the seconds of each attempt, written by the loop, taken by the turns. So are the
            next two.
        too_old: attempts that have not begun because their claims were too old.
        lost: attempts that were cancelled because this worker was declared lost.
    """

    def __init__(self, loop: EventLoop, wake: Callable[[], None]) -> None:
        self._loop, self._wake = loop, wake
        # The loop takes attempts from the left, the turns take them back from the right.
        self._handed: deque[OnLoop] = deque()
        self.alive: dict[int, OnLoop] = {}
        self.is_empty = threading.Event()
        self.ended: deque[tuple[Ended, float]] = deque()
        self.too_old: deque[Attempt] = deque()
        self.lost: deque[Attempt] = deque()
        self._is_awake = True

    # -- the turns ----------------------------------------------------------------------------------

    def hand_over(self, one: OnLoop) -> None:
        """Give an attempt to the loop, which takes it with the next ``begin``."""
        self._handed.append(one)

    def take_back(self) -> Iterator[Attempt]:
        """Yield attempts that the loop has not taken."""
        while self._handed:
            try:
                yield self._handed.pop().attempt
            except IndexError:  # the loop was faster
                return

    def await_end(self) -> None:
        """Wake the turns when the next attempt has ended; at once if one has."""
        self._is_awake = False
        if self.ended or self.too_old or self.lost:
            self._wake_once()

    def has(self, task_id: uuid.UUID, number: int) -> bool:
        """Return True if this attempt of a task has begun here and not ended. From any thread."""
        one = self.alive.get(task_id.int)
        return one is not None and one.attempt.number == number

    def place_of(self, key: Key) -> Place | None:
        """Return where an attempt runs; None = it does not run here."""
        one = self.alive.get(key[0].int)
        if one is None or one.task is None or one.attempt.number != key[1] or one.task.done():
            return None
        return Place(0, [one.task, *one.children.all()], self._loop.thread.ident or 0)

    # -- the loop -----------------------------------------------------------------------------------

    def begin(self, runner: LoopRunner, good_until: float) -> None:
        """Begin all attempts that the turns have handed over."""
        is_old = time.monotonic() >= good_until
        while self._handed:
            try:
                one = self._handed.popleft()
            except IndexError:  # the turns were faster
                break
            if is_old:
                self.too_old.append(one.attempt)
                continue
            self.alive[one.attempt.task_id.int] = one
            start(self._loop.loop, runner, one)
        if is_old:
            self._wake_once()
        if self.alive:
            self._loop.tick(lambda: bool(self.alive))

    def over(self, one: OnLoop, ended: Ended | None) -> None:
        """Hand the end of an attempt to the turns; None = see ``OnLoop.why_dropped``."""
        del self.alive[one.attempt.task_id.int]
        if ended is not None:
            self.ended.append((ended, time.monotonic() - one.since))
            self._wake_once()
        elif isinstance(one.why, ClaimLost):  # a cleaner moves its claim
            self.lost.append(one.attempt)
            self._wake_once()
        if not self.alive:
            self.is_empty.set()

    def cancel_all(self, kind: type[BaseException]) -> None:
        """Cancel all attempts with an error of this class."""
        if not self.alive:
            self.is_empty.set()
        for one in list(self.alive.values()):
            what = f"attempt {one.attempt.number} no longer holds task {one.attempt.task_id}"
            self._loop.spread(one.cancel, kind(f"{what}: its worker was declared lost"))

    def _wake_once(self) -> None:
        """Wake the turns, unless they were woken since they last looked."""
        if not self._is_awake:
            self._is_awake = True
            self._wake()


def emptied(waiting: deque[T]) -> list[T]:
    """Remove and return the items of a deque to which another thread may append."""
    return [waiting.popleft() for _ in range(len(waiting))]
