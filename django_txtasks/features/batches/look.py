"""A worker's look at batches of which it has ended members: after the turn, and once for many members."""

from __future__ import annotations

import time
import uuid
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from django.db import DatabaseError, InterfaceError

from django_txtasks.core.enqueueing.commit_hints import notify_on_commit
from django_txtasks.core.rows.attempts import Arrow, Ended, FollowUps
from django_txtasks.core.working.parts import Part
from django_txtasks.core.working.running.limits import NEVER
from django_txtasks.features.batches import rows as batches
from django_txtasks.models import Status

PAUSE_SECONDS = 0.02
"""Seconds between two looks, however many members end."""
WAITING_SECONDS = 0.1
"""Seconds between two looks while all members that were looked for are pending. The pause is longer, because after
each round trip the loop has to wait for Python's lock.
"""
LOOK_SECONDS = 0.1
"""Seconds for which a look reads one batch after the other; then tasks have their turn."""
FAILED_SECONDS = 1.0
REMEMBERED = 1000
"""Number of batches whose live member is remembered."""

_LAST = {Arrow.FINISH, Arrow.BURY, Arrow.CANCEL}
"""Arrows after which a member of a batch is not live."""


class BatchLook(Part):
    """Looks in statements of its own, between turns: first for the members that were live at the last look.

    The remembered member is the one with the highest id, which usually ends late. So as long as a batch is worked
    on, a look is one short statement, by primary key.

    Attributes:
        batches: batches of which members have ended since the last look, as the database gives them.
    """

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self.looks = self.last_looks = (self,)
        self.batches: set[Any] = set()
        self._members: dict[uuid.UUID, uuid.UUID] = {}
        self._again_at = 0.0
        self._last = batches.FIRST_ID

    def recorded(self, ended: Sequence[Ended]) -> None:
        """Note the batches of ended members."""
        for one in ended:
            if one.attempt.batch is not None and one.arrow in _LAST:
                self.batches.add(one.attempt.batch)

    @property
    def next(self) -> float:
        """Time of the next look, by ``time.monotonic()``."""
        return self._again_at if self.batches else NEVER

    def look(self) -> bool:
        """Look at the batches of which members have ended since the last look; end those without a live member.

        Returns:
            True if the end of a batch has enqueued tasks.

        Raises:
            DatabaseError, InterfaceError: the next look comes a second later. It looks at the same batches, and
                last at the batch that failed, because another session may have locked it for long.
        """
        try:
            return bool(self._look())
        except (DatabaseError, InterfaceError):
            self._again_at = time.monotonic() + FAILED_SECONDS
            raise

    def _look(self) -> FollowUps:
        self._again_at = time.monotonic() + PAUSE_SECONDS
        noted = self.batches
        ids = batches.readable(noted)
        known = {batch: self._members[batch] for batch in ids if batch in self._members}
        live = batches.which_are_live(self._alias, known.values())
        follow_ups: FollowUps = []
        end = time.monotonic() + LOOK_SECONDS
        left = {batch for batch in ids if known.get(batch) not in live}
        if not left and set(live.values()) == {Status.PENDING.value}:
            self._again_at += WAITING_SECONDS - PAUSE_SECONDS
        self.batches = set(left)
        for batch in self._in_turn(left):
            self._last = batch
            follow_ups += self._look_at(batch)
            self.batches.discard(batch)
            if time.monotonic() >= end:  # the rest after the next turn
                break
        notify_on_commit(self._alias, follow_ups)
        return follow_ups

    def _in_turn(self, ids: set[uuid.UUID]) -> list[uuid.UUID]:
        """Return the ids in order, beginning behind the batch that was looked at last."""
        ids_in_order = sorted(ids)
        place = bisect_right(ids_in_order, self._last)
        return ids_in_order[place:] + ids_in_order[:place]

    def _look_at(self, batch: uuid.UUID) -> FollowUps:
        self._members.pop(batch, None)
        looked = batches.look(self._alias, batch)
        if looked.member is not None:
            if len(self._members) >= REMEMBERED:
                self._members.clear()
            self._members[batch] = looked.member
        return looked.follow_ups
