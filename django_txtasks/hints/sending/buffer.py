"""The ids that wait to be sent: a bounded buffer for each queue."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from django_txtasks.hints.sending import message

BUFFER_IDS = 1_000
"""Ids that may wait for a queue. For further ids, hints say only that there are more."""


class Packed(NamedTuple):
    """The content of one hint. ``more`` = more tasks of the queue wait than the buffer took."""

    queue: str
    ids: list[uuid.UUID]
    more: bool

    def message(self) -> bytes:
        """Return the hint."""
        return message.encode(self.ids, more=self.more)


class HintBuffer:
    """The ids that wait, by queue. Any thread may add ids; one thread at a time packs them.

    Args:
        ids_per_hint: maximum number of ids in one hint.
    """

    def __init__(self, ids_per_hint: int) -> None:
        self._most = ids_per_hint
        self._waiting: dict[str, deque[uuid.UUID]] = {}
        self._more: set[str] = set()

    def __bool__(self) -> bool:
        """Return True if something waits."""
        return any(self._waiting.values()) or bool(self._more)

    def queues(self) -> list[str]:
        """Return the queues for which something waits."""
        waiting = list(self._waiting.items())
        return [queue for queue, ids in waiting if ids or queue in self._more]

    def hints(self, queue: str) -> int:
        """Return the number of hints that the waiting ids of this queue fill; at least 1."""
        return max(1, -(-len(self._waiting[queue]) // self._most))

    def fits_one_hint(self, queue: str) -> bool:
        """Return True if ids of this queue wait, and one hint has room for all of them."""
        return queue not in self._more and 0 < len(self._waiting[queue]) <= self._most

    def add(self, queue: str, ids: Sequence[uuid.UUID]) -> None:
        """Add ids; if there are too many, the first ones."""
        waiting = self._waiting.get(queue)
        if waiting is None:
            waiting = self._waiting.setdefault(queue, deque())
        room = BUFFER_IDS - len(waiting)
        if len(ids) <= room:
            waiting.extend(ids)
            return
        waiting.extend(ids[: max(0, room)])
        # Last, because it must survive a thread that empties the buffer meanwhile.
        self._more.add(queue)

    def pack(self, queue: str) -> Packed:
        """Remove the waiting ids of a queue, as many as fit into a hint, and return them.

        Each hint says whether more tasks wait, so that as many workers as possible look for them.
        """
        ids, more = self._waiting[queue], queue in self._more
        packed = [ids.popleft() for _ in range(min(len(ids), self._most))]
        if not ids:
            self._more.discard(queue)
        return Packed(queue, packed, more)

    def put_back(self, packed: Packed) -> None:
        """Let the ids of an unsent hint wait again, before all others."""
        self._waiting[packed.queue].extendleft(reversed(packed.ids))
        if packed.more:
            self._more.add(packed.queue)

    def drop(self, queue: str) -> None:
        """Forget what waits for this queue."""
        self._waiting[queue].clear()
        self._more.discard(queue)
