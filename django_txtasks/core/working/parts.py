"""Parts that features add to a worker.

A feature overrides some methods of ``Part``, and names its module in ``assembly.FEATURES``. The module has a
function ``parts``, which gets a ``WorkerContext`` and returns the parts of one worker.

The methods around an attempt are called by each driver: slots, calls of ``many`` and the event loop. A context
manager for each part would cost an attempt five times as much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from django_txtasks.core.ground.seams import OF_WORKER, overriding
from django_txtasks.core.rows.running import NOTHING, AttemptRun
from django_txtasks.core.working.apart import RowsApart
from django_txtasks.core.working.running.verdicts import tell_late_error

if TYPE_CHECKING:
    from django_txtasks.core.ground.cancel_requests import CancelRequests
    from django_txtasks.core.ground.config import CoreConfig
    from django_txtasks.core.rows.attempts import Attempt, Ended
    from django_txtasks.core.rows.turn import Capacity, Subscription, TurnResult
    from django_txtasks.core.working.hint_inbox import HintInbox
    from django_txtasks.core.working.registration import Registration
    from django_txtasks.core.working.running.slot_pool import SlotPool
    from django_txtasks.core.working.scan_cursor import ScanCursor
    from django_txtasks.core.working.schedule import TurnSchedule

DatabaseCall: TypeAlias = Callable[[], None]


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


@dataclass(frozen=True)
class WorkerContext:
    """A worker, as its parts see it."""

    config: CoreConfig
    subscription: Subscription
    registration: Registration
    schedule: TurnSchedule
    scans: ScanCursor
    inbox: HintInbox
    requests: CancelRequests

    @property
    def alias(self) -> str:
        """Alias of the database with the tasks."""
        return self.subscription.alias


class Part:
    """One part of one worker. The worker calls the overridden methods only.

    Attributes:
        offers: objects for the code of tasks, by class: see ``AttemptRun.offered``.
        apart: rows that scans leave out, and the part claims.
        looks: looks after each turn, even if the worker is full.
        looks_before: looks before each turn, so that the turn scans; only while found tasks may be claimed.
        looks_instead: looks in place of a turn; only while found tasks may be claimed.
        last_looks: the ``looks`` that the worker makes once more before it leaves. It is not idle until they
            have nothing to look for.
    """

    offers: Mapping[type, Any] = NOTHING
    apart: RowsApart | None = None
    looks: Sequence[Look] = ()
    looks_before: Sequence[Look] = ()
    looks_instead: Sequence[Look] = ()
    last_looks: Sequence[Look] = ()

    # -- an attempt: in its context, by the thread that runs its function -------------------------

    def starting(self, attempts: Sequence[Attempt]) -> None:
        """Note attempts that begin now, before any code of a task; a call of several has several attempts.

        An error is an error of the attempts, whose function is not called.
        """

    def begin(self, run: AttemptRun) -> None:
        """Note the begin of an attempt. It may replace ``run.attempt``. It must not use the database.

        An error is an error of the attempt, whose function is not called.
        """

    def raised(self, run: AttemptRun, error: BaseException) -> DatabaseCall | None:
        """Note the error of an attempt. Return a call that uses the database, or None.

        The driver makes the call where the attempt may use the database: on an event loop, not in this thread.
        """

    def end(self, run: AttemptRun, ended: Ended | None) -> None:
        """Note the outcome of an attempt; None = its worker ends first, or was declared lost.

        It comes also if ``begin`` has not, and not for an attempt that is left behind when its process ends. Parts
        end in reverse order. An error is logged, and changes nothing.
        """

    # -- the loop, for lists of attempts ----------------------------------------------------------

    def collected(self, ended: Sequence[tuple[Ended, float]]) -> None:
        """Note attempts that have ended, each with its seconds, before their outcomes are recorded."""

    def handed(self, attempts: Sequence[Attempt]) -> None:
        """Note claims that were committed, before a slot gets the first of them. It must not raise."""

    def taken_back(self, attempts: Sequence[Attempt]) -> None:
        """Note attempts that have not begun, before their claims are released."""

    def recorded(self, ended: Sequence[Ended]) -> None:
        """Note attempts whose outcomes were committed."""

    def turned(self, result: TurnResult, *, alone: bool) -> None:
        """Note a committed turn, whose claims have started.

        Args:
            alone: True = it claimed nothing but a task that must run alone.
        """

    # -- the worker -------------------------------------------------------------------------------

    @property
    def lacks_session(self) -> bool:
        """True if the database gives this worker, or a thread of it, no session."""
        return False

    def limited(self, capacity: Capacity) -> Capacity:
        """Return the part of the capacity that the next turn may claim."""
        return capacity

    def started(self, slots: SlotPool) -> None:
        """Prepare the process, before the worker's first turn."""

    def registered(self) -> None:
        """Note that the worker has a row now, before it claims. It may use the database."""

    def ended_lately(self) -> Mapping[str, str]:
        """Return the queue of each task function that has ended attempts lately."""
        return {}

    def leaving(self) -> None:
        """Do the last work in the database, before the worker's row goes."""

    def stopped(self) -> None:
        """Undo ``started``, however the worker has ended."""


class Parts:
    """The parts of one worker. A loop over the overridden methods costs less than a call of each.

    Attributes:
        offered: what the parts offer to the code of tasks, by class.
        apart: the rows that scans leave out.
    """

    def __init__(self) -> None:
        self.all: list[Part] = []
        self.offered: dict[type, Any] = {}
        self.apart = RowsApart()
        self.add(())

    def add(self, parts: Iterable[Part]) -> None:
        """Add parts. Call it before the first attempt."""
        self.all += parts
        for one in self.all:
            self.offered.update(one.offers)
            self.apart = one.apart or self.apart
        self._begin, self._raised = (
            overriding(Part.begin, self.all),
            overriding(Part.raised, self.all),
        )
        self._end, self._turned = (
            overriding(Part.end, self.all)[::-1],
            overriding(Part.turned, self.all),
        )
        self._collected, self._recorded = (
            overriding(method, self.all) for method in (Part.collected, Part.recorded)
        )
        self._limited = overriding(Part.limited, self.all)
        self._handed, self._starting = (
            overriding(method, self.all) for method in (Part.handed, Part.starting)
        )
        self._taken_back = overriding(Part.taken_back, self.all)

    # -- an attempt -------------------------------------------------------------------------------

    def starting(self, attempts: Sequence[Attempt]) -> None:
        """See ``Part.starting``."""
        for starting in self._starting:
            starting(attempts)

    def begin_alone(self, run: AttemptRun) -> None:
        """Start and begin an attempt that shares its call with no other."""
        for starting in self._starting:
            starting((run.attempt,))
        for begin in self._begin:
            begin(run)

    def begin(self, run: AttemptRun) -> None:
        """Let the parts begin. An error is an error of the attempt."""
        for begin in self._begin:
            begin(run)

    def raised(self, run: AttemptRun, error: BaseException) -> list[DatabaseCall]:
        """Return the calls that parts want to make because of an error. Never raises."""
        calls = []
        for raised in self._raised:
            try:
                calls.append(raised(run, error))
            except BaseException as problem:
                tell_late_error(run.attempt, problem)
        return [one for one in calls if one is not None]

    def end(self, run: AttemptRun, ended: Ended | None) -> None:
        """Let the parts end. Never raises."""
        for end in self._end:
            try:
                end(run, ended)
            except BaseException as error:
                tell_late_error(run.attempt, error)

    # -- lists of attempts, and turns -------------------------------------------------------------

    def collected(self, ended: Sequence[tuple[Ended, float]]) -> None:
        """See ``Part.collected``."""
        for collected in self._collected:
            collected(ended)

    def handed(self, attempts: Sequence[Attempt]) -> None:
        """See ``Part.handed``."""
        for handed in self._handed:
            handed(attempts)

    def taken_back(self, attempts: Sequence[Attempt]) -> None:
        """See ``Part.taken_back``."""
        for taken_back in self._taken_back:
            taken_back(attempts)

    def recorded(self, ended: Sequence[Ended]) -> None:
        """See ``Part.recorded``."""
        for recorded in self._recorded:
            recorded(ended)

    def turned(self, result: TurnResult, *, alone: bool) -> None:
        """See ``Part.turned``."""
        for turned in self._turned:
            turned(result, alone=alone)

    # -- the worker -------------------------------------------------------------------------------

    def limited(self, capacity: Capacity) -> Capacity:
        """See ``Part.limited``."""
        for limited in self._limited:
            capacity = limited(capacity)
        return capacity

    def ended_lately(self) -> dict[str, str]:
        """See ``Part.ended_lately``."""
        return {name: queue for one in self.all for name, queue in one.ended_lately().items()}


def parts_of_features(context: WorkerContext) -> Iterable[Part]:
    """Import the modules, and return their parts."""
    return [one for module in OF_WORKER.modules for one in module.parts(context)]
