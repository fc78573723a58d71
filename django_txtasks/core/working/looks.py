"""The looks of a worker's loop, which come between its turns.

The table has all ways by which a worker finds work or news, in a turn (T) or in a look (L).
A statement is named by the constant that holds its SQL.

==  ==============  ==================================  ====================  ===================================
..  Looked for      When                                Statement             Turned off by
==  ==============  ==================================  ====================  ===================================
T   hinted tasks    a hint has come                     CHOOSE_BY_ID          no RabbitMQ and no database hints
T   timed tasks     a retry, snooze or release within   CHOOSE_BY_ID          nothing
                    60 s is due; a row that a hint
                    named was absent
T   due tasks       scan: every poll_interval; at once  CHOOSE_DUE            nothing; it waits while enough tasks
                    in a backlog, after an overflow                           are prefetched
                    hint, or if a look finds work
T   due tasks       sweep: instead of a scan, where     CHOOSE_DUE in a       nothing
                    scans take more than 0.1 s          range of times, ids
T   lanes           every poll_interval; 0.025 s later  POSTGRES_BUCKETS,     TXTASKS["lanes"] is empty
                    if lanes are left to look at        FIRST_BUCKET
T   tasks in lanes  a lane may have a due task and a    LOCK_LANES,           TXTASKS["lanes"] is empty
                    free place                          CHOOSE_IN_LANE
L   upcoming tasks  every 2 poll_intervals, at most     POSTGRES_UPCOMING,    a backlog
                    10 s; a scan follows when one of    UPCOMING
                    them is due
L   due tasks       glance: every 0.04 s, until 5 s     DUE_HEAD              a connected source of hints, or
                    after the last claim                                      TXTASKS["database_hints"] = False
L   hinted tasks    rerouting: after a turn with hints  Task by primary key,  hints without RabbitMQ, because they
                    that this worker may not claim      after all Workers     reach all workers
L   cancels,        every second, while an attempt      STOPS_AND_QUESTIONS;  nothing
    stacks          runs for more than a second         of an event loop
                                                        STOPS_OF_LOOP
L   progress        a second after the last write, if   WRITE_PROGRESS        nothing
                    a task has said something new
L   ended batches   0.02 s after the last look, if a    ARE_LIVE,             nothing
                    member has ended                    LIVE_MEMBER
L   nothing: it     every 15 s, if an attempt has       NEXT_SEQ and rows     TXTASKS["stats"] = False
    writes figures  ended                               of RawStat
L   last chances    every 2 s; each second while hints  DUE_LAST_CHANCES      nothing
                    name rows that this worker leaves
L   a cleaner       once, a lease after the start       all rows of cleaners  nothing
==  ==============  ==================================  ====================  ===================================
"""

from __future__ import annotations

from collections.abc import Sequence

from django_txtasks.core.working.parts import Look, Parts
from django_txtasks.core.working.running.limits import NEVER


class Looks:
    """The looks of one worker: the looks of its parts, and its own.

    Attributes:
        before: looks before each turn, so that the turn scans; only while found tasks may be claimed.
        instead: looks in place of a turn; only while found tasks may be claimed.
        others: looks after each turn, even if the worker is full.
        last: the ``others`` that the worker makes once more before it leaves.
    """

    def __init__(self, parts: Parts, own: Sequence[Look]) -> None:
        self.before = [look for one in parts.all for look in one.looks_before]
        self.instead = [look for one in parts.all for look in one.looks_instead]
        self.others = [*own, *(look for one in parts.all for look in one.looks)]
        self.last = [look for one in parts.all for look in one.last_looks]
        self._with_room = [*self.others, *self.before, *self.instead]

    def next(self, *, has_room: bool) -> float:
        """Return the time of the first look that is due, by ``time.monotonic()``.

        Args:
            has_room: True if the worker may claim the tasks that are found.
        """
        return min([look.next for look in (self._with_room if has_room else self.others)])

    @property
    def last_are_due(self) -> bool:
        """True if one of the last looks has something to look for."""
        return any(look.next < NEVER for look in self.last)
