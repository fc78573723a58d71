"""A worker's look at the batches of which it has ended members: after the turn, and once for many of them."""

from __future__ import annotations

import time
import uuid
from bisect import bisect_right

from django.db import DatabaseError, InterfaceError

from django_txtasks.enqueueing.commit_hints import notify_on_commit
from django_txtasks.lifecycle import batches
from django_txtasks.lifecycle.attempts import FollowUps
from django_txtasks.models import Status
from django_txtasks.worker.recording.outcome_buffer import OutcomeBuffer
from django_txtasks.worker.running.limits import NEVER

PAUSE_SECONDS = 0.02
"""Seconds between two looks, however many members end."""
WAITING_SECONDS = 0.1
"""The same where all members that were looked for still wait. After a round trip a busy loop waits for Python."""
LOOK_SECONDS = 0.1
"""Seconds of looking at one batch after the other, until it is the turn of tasks again."""
FAILED_SECONDS = 1.0
REMEMBERED = 1000
"""Batches of which a live member is remembered."""


class BatchLook:
    """Looks by itself, beside the turns: first for the members that were live at the last look.

    One that has the highest id ends late, as a rule: so while a batch is worked on, a look is one short statement,
    by primary key.
    """

    def __init__(self, alias: str, buffer: OutcomeBuffer) -> None:
        self._alias, self._buffer = alias, buffer
        self._members: dict[uuid.UUID, uuid.UUID] = {}
        self._again_at = 0.0
        self._last = batches.FIRST_ID

    @property
    def next(self) -> float:
        """When to look, by ``time.monotonic()``."""
        return self._again_at if self._buffer.batches else NEVER

    def look(self) -> bool:
        """Look at the batches of which members have ended since the last look; end those that are over.

        Returns:
            Whether tasks were enqueued.

        Raises:
            DatabaseError, InterfaceError: the next look comes a second later. It looks at the same batches, and
                last at the one that failed, because somebody may have locked it for long.
        """
        try:
            return bool(self._look())
        except (DatabaseError, InterfaceError):
            self._again_at = time.monotonic() + FAILED_SECONDS
            raise

    def _look(self) -> FollowUps:
        self._again_at = time.monotonic() + PAUSE_SECONDS
        noted = self._buffer.batches
        ids = batches.readable(noted)
        known = {batch: self._members[batch] for batch in ids if batch in self._members}
        live = batches.which_are_live(self._alias, known.values())
        follow_ups: FollowUps = []
        end = time.monotonic() + LOOK_SECONDS
        left = {batch for batch in ids if known.get(batch) not in live}
        if not left and set(live.values()) == {Status.PENDING.value}:
            self._again_at += WAITING_SECONDS - PAUSE_SECONDS
        self._buffer.batches = set(left)
        for batch in self._in_turn(left):
            self._last = batch
            follow_ups += self._look_at(batch)
            self._buffer.batches.discard(batch)
            if time.monotonic() >= end:  # the rest after the next turn
                break
        notify_on_commit(self._alias, follow_ups)
        return follow_ups

    def _in_turn(self, ids: set[uuid.UUID]) -> list[uuid.UUID]:
        """Return them in order, those first that come behind the last one that was looked at."""
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
