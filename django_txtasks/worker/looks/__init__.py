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

from typing import Protocol

from django_txtasks.conf import Config
from django_txtasks.lifecycle.turn import Subscription
from django_txtasks.progress import ProgressNotes
from django_txtasks.worker.hint_inbox import HintInbox
from django_txtasks.worker.lane_book import LaneBook
from django_txtasks.worker.looks.batch_look import BatchLook
from django_txtasks.worker.looks.figures import FigureWriter
from django_txtasks.worker.looks.glances import Glances
from django_txtasks.worker.looks.progress import ProgressWriter
from django_txtasks.worker.looks.rerouting import Rerouting
from django_txtasks.worker.looks.upcoming import UpcomingLook
from django_txtasks.worker.recording.outcome_buffer import OutcomeBuffer
from django_txtasks.worker.registration import Registration
from django_txtasks.worker.scan_cursor import ScanCursor
from django_txtasks.worker.schedule import TurnSchedule


class Look(Protocol):
    """A search that the loop makes between two turns."""

    @property
    def next(self) -> float:
        """Time of the next look, by ``time.monotonic()``; NEVER = there is nothing to look for."""

    def look(self) -> bool:
        """Look. Return True if a task may be due, so that the next turn scans.

        Raises:
            DatabaseError, InterfaceError: the loop treats it as a failed turn.
        """


class Looks:
    """The looks of one worker.

    Args:
        cancels: the look for tasks that were asked to stop.
        last_chances: the look for tasks that must run alone after a crash.

    Attributes:
        upcoming: look before each turn, so that the turn scans; only while found tasks may be claimed.
        glances: look in place of a turn; only while found tasks may be claimed.
        rerouting, batches: two of the others, for callers that know them.
        others: looks after each turn, even if the worker is full.
    """

    def __init__(
        self,
        config: Config,
        subscription: Subscription,
        *,
        schedule: TurnSchedule,
        lanes: LaneBook,
        scans: ScanCursor,
        registration: Registration,
        inbox: HintInbox,
        buffer: OutcomeBuffer,
        cancels: Look,
        notes: ProgressNotes,
        figures: FigureWriter,
        last_chances: Look,
    ) -> None:
        alias = subscription.alias
        self.upcoming = UpcomingLook(config, subscription, schedule, scans)
        self.glances = Glances(config, subscription, inbox, lanes)
        self.rerouting = Rerouting(config, subscription, inbox)
        self.batches = BatchLook(alias, buffer)
        self.others: tuple[Look, ...] = (
            self.rerouting,
            cancels,
            ProgressWriter(alias, registration, notes),
            self.batches,
            figures,
            last_chances,
        )

    def next(self, *, has_room: bool) -> float:
        """Return the time of the first look that is due, by ``time.monotonic()``.

        Args:
            has_room: True if the worker may claim the tasks that are found.
        """
        first = min([look.next for look in self.others])
        return min(first, self.upcoming.next, self.glances.next) if has_room else first
