"""The slots of one worker, whatever they are: threads (``slots``), or asyncio tasks of an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple, Protocol

from django_txtasks.core.rows.attempts import Attempt, Ended
from django_txtasks.core.working.running.in_hand import InHand, Key
from django_txtasks.core.working.running.limits import NEVER


class Overrunning(Protocol):
    """An attempt that no exception ends. Only the end of its process does."""

    @property
    def attempt(self) -> Attempt: ...
    def error(self) -> BaseException:
        """Return the error for the row."""


class Place(NamedTuple):
    """Where an attempt runs.

    Attributes:
        thread: number of the thread of its slot; 0 = it has no slot, but an event loop.
        tasks: asyncio tasks: first the one of its function, then its children.
        loop_thread: number of the thread of their event loop.
    """

    thread: int = 0
    tasks: Sequence[asyncio.Task[Any]] = ()
    loop_thread: int = 0


class SlotPool(Protocol):
    """The slots of one worker. Only its turns use them. ``Slots`` describes each member."""

    in_hand: InHand
    asks_by_worker: bool = False
    """True: a look asks for all claims of the worker, because a list of the ids of thousands takes longer."""

    @property
    def running(self) -> int: ...
    @property
    def free(self) -> int: ...
    @property
    def next_look(self) -> float: ...
    def wake_after(self, count: int) -> None: ...
    def holds(self) -> set[Key]: ...
    def running_since(self, moment: float) -> list[Attempt]: ...
    def start(self, attempts: list[Attempt], good_until: float = NEVER) -> None: ...
    def release(self, *, stalled: bool) -> list[Attempt]: ...
    def enforce_limits(self) -> Sequence[Overrunning]: ...
    def collect(self) -> list[tuple[Ended, float]]: ...
    def place_of(self, key: Key) -> Place | None: ...
    def close(self) -> None: ...

    # An event loop has a slot for each task that it claims, so its tasks never wait for one.

    # An event loop has no calls with several attempts, because the functions of such calls are not async.

    def start_call(self, attempts: list[Attempt], good_until: float = NEVER) -> None:
        """Give attempts with the same timeout to one slot, which calls their function once."""
        self.start(attempts, good_until)

    @property
    def held(self) -> int:
        """Number of attempts as of ``running``, where all attempts of one call count as one."""
        return self.running

    @property
    def waiting(self) -> int:
        """Number of slot runs that wait for a slot."""
        return 0

    def begun_between(self, earliest: float, latest: float) -> int:
        """Return the number of slot runs that began in this span, by whose ends turns may wait for slots."""
        return 0

    def are_handed(self, names: AbstractSet[str]) -> bool:
        """Return True if a slot run begins with a task of one of these names."""
        return False

    def interrupt(self, seconds: float) -> None:
        """Cancel all attempts, and give them this time to clean up. They keep their claims. Only a loop can."""
        return

    def claims_lost(self) -> list[Attempt]:
        """Return, and forget, attempts that have not begun, because this worker was declared lost."""
        return self.release(stalled=False)
