"""The last chances of tasks after a crash: one runs at a time, and nothing beside it.

A worker that a supervisor has started only looks for them, and tells the supervisor, which starts a process with
one slot. Where no supervisor is, the worker takes one itself, when it holds nothing else.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import NamedTuple

from django.db import DatabaseError

from django_txtasks.core.rows import statements
from django_txtasks.core.rows.turn import Capacity, Kind, Subscription, TurnResult
from django_txtasks.core.working.running.limits import NEVER
from django_txtasks.core.working.workload import Workload
from django_txtasks.database.errors import is_timeout
from django_txtasks.database.execute import as_uuid
from django_txtasks.database.time_limits import fetch_within
from django_txtasks.database.transactions import only_reading

EVERY_SECONDS = 2.0
"""Seconds between two looks."""
HINTED_SECONDS = 1.0
"""Least seconds between two looks if hints have named rows that the worker may not claim."""
PATIENCE_SECONDS = 30.0
"""Seconds after which a worker that always has other work claims no more of it, until it holds nothing."""
AGAIN_SECONDS = 0.1
"""Seconds until the next look if another process was quicker, or if the task's lane is full. Each further pause is
twice as long, up to ``EVERY_SECONDS``."""
REST_SECONDS = 60.0
"""Seconds until the next look after a look that took too long."""
STATEMENT_TIMEOUT = timedelta(seconds=1)
"""Limit for the statement of a look."""
MOST_LAST_CHANCES = 20


class LastChance(NamedTuple):
    """A due row whose next attempt is the last allowed one after a crash. Its lane may be empty."""

    task_id: uuid.UUID
    lane: str


class LastChances:
    """The last chances that one worker knows. All times are by ``time.monotonic()``.

    Args:
        serves: returns True for a lane whose tasks this worker runs.
        tell: tells the supervisor that a last chance is due; None = there is no supervisor.

    Attributes:
        next: time of the next look.
    """

    def __init__(
        self,
        subscription: Subscription,
        workload: Workload,
        serves: Callable[[str], bool],
        tell: Callable[[], None] | None = None,
    ) -> None:
        self._subscription, self._workload, self._serves = subscription, workload, serves
        self._tell, self._takes = tell, subscription.takes_last
        self.are_all = subscription.kind is Kind.ALONE  # this worker runs nothing else
        self._found: list[LastChance] = []
        self._full: set[str] = set()  # lanes that had no room
        # the first last chance of each lane, and since when it is known
        self._first_in: dict[str, tuple[uuid.UUID, float]] = {}
        self._foreign: set[str] = set()  # lanes that have no rule
        self._waits_since, self._pause = NEVER, AGAIN_SECONDS
        self._runs = self._nothing_due = False
        self.next = self._looked_at = 0.0

    @property
    def is_idle(self) -> bool:
        """True if the last look found none that this worker could take.

        A process that runs nothing else waits for room in a full lane, others do not.
        """
        return not self._takes or (self._nothing_due and not self._runs)

    @property
    def are_next(self) -> bool:
        """True if the next turn claims a last chance."""
        return bool(self._found) and not self._runs and self._workload.is_empty

    @property
    def ids(self) -> list[uuid.UUID]:
        """The rows that were found in no lane."""
        return [one.task_id for one in self._found if not one.lane]

    @property
    def groups(self) -> list[str]:
        """The lanes of the others, whose rows are apart: see ``core.working.apart``."""
        return list(dict.fromkeys(one.lane for one in self._found if one.lane))

    def reserved(self) -> set[str]:
        """Return the lanes whose next place is for a last chance, which another process takes.

        Otherwise a worker would refill the place of a busy lane at once, each time. In every second span of
        ``PATIENCE_SECONDS`` the lane is not reserved, because that process may have other tasks for hours.
        """
        if self._takes or self._tell is None or not self._first_in:
            return set()
        now = time.monotonic()
        waits = {
            lane: (now - since) // PATIENCE_SECONDS for lane, (_, since) in self._first_in.items()
        }
        return {lane for lane, spans in waits.items() if spans % 2 == 1}

    def limited(self, capacity: Capacity) -> Capacity:
        """Return the capacity of the next turn: one for a last chance, none beside it or if it waits for long."""
        if not (self._found or self._runs or self.are_all):  # the usual case
            return capacity
        is_empty = self._workload.is_empty
        if self._runs and is_empty:
            self._runs, self._nothing_due, self.next = False, False, 0.0
        if self._runs:
            return Capacity(0)
        if self._found and is_empty:
            one = min(1, capacity.width)
            return Capacity(min(one, capacity.dedicated), limit=one)
        is_late = time.monotonic() >= self._waits_since + PATIENCE_SECONDS
        return Capacity(0) if self.are_all or is_late else capacity

    def taken(self, result: TurnResult) -> None:
        """Note the result of the turn that was to claim one. The next look says if more are due."""
        claimed = bool(result.claimed)
        if not claimed and result.apart is not None:
            self._full.update(result.apart.states)  # without lanes that another session has locked
        self._found, self._runs, self._nothing_due = [], claimed, False
        self._waits_since = NEVER
        self.next = time.monotonic() + (0.0 if claimed else self._pause)
        self._pause = AGAIN_SECONDS if claimed else min(2 * self._pause, EVERY_SECONDS)

    def hurry(self) -> None:
        """Look soon, because a hint has named a row that this worker may not claim."""
        self.next = min(self.next, self._looked_at + HINTED_SECONDS)

    def look(self) -> bool:
        """Look for due rows. Return False: ``limited`` and ``are_next`` make the turn that claims one.

        Raises:
            DatabaseError, InterfaceError: the next look repeats it.
        """
        now = self._looked_at = time.monotonic()
        self.next = now + EVERY_SECONDS
        try:
            found = due(self._subscription, self._full | self._foreign)
        except DatabaseError as error:
            if not is_timeout(error):
                raise
            self.next = now + REST_SECONDS
            return False
        self._foreign.update(one.lane for one in found if one.lane and not self._serves(one.lane))
        found = [one for one in found if one.lane not in self._foreign]
        self._note_first(found, now)
        if found and self._tell is not None and (self._runs or not self._takes):
            self._tell()
        if self._takes and not self._runs:
            self._nothing_due = not (found or (self.are_all and self._full))
            self._waits_since = min(self._waits_since, now) if found else NEVER
            self._found = found
        if not found:
            self._full.clear()
        return False

    def _note_first(self, found: Sequence[LastChance], now: float) -> None:
        before, self._first_in = self._first_in, {}
        for one in found:
            task_id, since = before.get(one.lane, (None, now))
            if one.lane:
                known = (one.task_id, since if task_id == one.task_id else now)
                self._first_in.setdefault(one.lane, known)


def due(subscription: Subscription, without_lanes: Collection[str] = ()) -> list[LastChance]:
    """Return the last chances that have been due for longest, at most ``MOST_LAST_CHANCES``.

    Args:
        without_lanes: leave out the rows of these lanes.

    Raises:
        DatabaseError: among others, if it takes too long: see ``database.errors.is_timeout``.
    """
    alias, names = subscription.alias, {"lanes": sorted(without_lanes)} if without_lanes else {}
    more = statements.OF_OTHER_LANES if without_lanes else ""
    with only_reading(alias, STATEMENT_TIMEOUT):
        rows = fetch_within(
            alias,
            statements.DUE_LAST_CHANCES.replace("<more>", more),
            STATEMENT_TIMEOUT.total_seconds(),
            queues=subscription.queues,
            names=subscription.names,
            limit=MOST_LAST_CHANCES,
            **names,
        )
    return [LastChance(as_uuid(task_id), lane) for task_id, lane in rows]
