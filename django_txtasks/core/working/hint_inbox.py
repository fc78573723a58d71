"""The inbox of a worker. The loop waits on it for a hint, an ended task, a stop, or a timeout."""

from __future__ import annotations

import contextlib
import uuid
from collections import deque
from collections.abc import Callable, Collection
from typing import Protocol

from django_txtasks.core.ground.wakeup import WakeUp
from django_txtasks.core.working.running.limits import NEVER


class Hint(Protocol):
    """Ids of committed tasks, with the message that brought them.

    To settle or decline a hint includes all earlier hints of its source.
    """

    @property
    def ids(self) -> list[uuid.UUID]: ...
    @property
    def more(self) -> bool: ...
    @property
    def settle(self) -> Callable[[], None]: ...
    @property
    def decline(self) -> Callable[[], None]: ...


class HintSource(Protocol):
    """A source of hints. It delivers them to ``HintInbox.deliver``."""

    @property
    def connected(self) -> bool: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def listen(self, on: bool) -> None: ...


SCANS_PER_OVERFLOW = 2
"""Scans that follow an overflow hint. Until the last of them the hint can be declined, because the first scan may
fill the worker.
"""
LISTEN_WHEN_FULL_SECONDS = 0.05
"""Seconds that a full worker keeps listening while no task ends. Then other workers get the hints."""


class HintInbox:
    """Any thread and any signal handler may wake it. The worker's loop waits on it.

    Attributes:
        ids: hinted tasks that have not been looked up yet.
        more: number of scans still to do after an overflow hint.
        source: source of hints, set before the worker runs; None = no hints come, so the worker scans.
    """

    def __init__(self) -> None:
        self.source: HintSource | None = None
        self.ids: deque[uuid.UUID] = deque()
        self.more = 0
        self._last: dict[type[Hint], Hint] = {}  # by kind, because each source has its own order
        self._came: deque[Hint] = deque()
        self._wake_up = WakeUp()

    def wake(self) -> None:
        """Wake the loop."""
        self._wake_up.wake()

    def deliver(self, hint: Hint) -> None:
        """Wake the loop with a hint."""
        self._came.append(hint)
        self._wake_up.wake()

    def wait(self, seconds: float) -> None:
        """Wait until woken, at most ``seconds``. Afterwards ``ids`` has the hints that came."""
        self._wake_up.wait(seconds)
        with contextlib.suppress(IndexError):  # the deque is empty
            while True:
                hint = self._came.popleft()
                self.ids.extend(hint.ids)
                self.more = SCANS_PER_OVERFLOW if hint.more else self.more
                self._last[type(hint)] = hint

    def looked_up(self, ids: Collection[uuid.UUID]) -> None:
        """Remove ids that a committed turn has looked up."""
        if ids:
            self.ids = deque(one for one in self.ids if one not in ids)
        if not self.ids and not self.more:
            self._end(lambda hint: hint.settle())

    def scanned(self, *, filled: bool) -> None:
        """Note a committed scan. If it filled all slots, the next scans find the hinted tasks."""
        self.more = max(0, self.more - 1) if filled else 0
        self.looked_up(set(self.ids) if filled and not self.more else set())

    def decline(self) -> None:
        """Leave unread hints to workers with free slots."""
        self.ids.clear()
        self.more = 0
        self._end(lambda hint: hint.decline())

    def listen(self, on: bool) -> None:
        """Take new hints, or leave them to other workers."""
        if self.source is not None:
            self.source.listen(on)

    @property
    def follows_commits(self) -> bool:
        """True if hints come after the commit and reach all workers, as database hints do."""
        return bool(getattr(self.source, "follows_commits", False))

    @property
    def connected(self) -> bool | None:
        """True if hints can arrive; None = there is no source."""
        return None if self.source is None else self.source.connected

    def _end(self, how: Callable[[Hint], None]) -> None:
        last, self._last = self._last, {}
        for hint in last.values():
            how(hint)


class Listening:
    """The decision whether a worker listens for hints: a full worker leaves them to workers with free slots.

    All times are by ``time.monotonic()``.
    """

    def __init__(self, inbox: HintInbox) -> None:
        self._inbox = inbox
        self._full_since: float | None = None

    def moved(self) -> None:
        """Note that a task has ended, so that the hinted tasks begin in a moment."""
        self._full_since = None

    def update(self, now: float, *, has_room: bool) -> float:
        """Listen, or leave hints to others. Return the time of the next decision."""
        if has_room:
            self._full_since = None
            self._inbox.listen(True)
            return NEVER
        self._full_since = self._full_since or now
        end = self._full_since + LISTEN_WHEN_FULL_SECONDS
        if now < end:
            return end
        self._inbox.listen(False)
        self._inbox.decline()
        return NEVER
