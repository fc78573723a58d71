"""Faults where a task asks for a value, where its worker gives the row back, and where the value is brought.

The name of a wait says its plan: the time of its value, the place, and the fault.
"""

from __future__ import annotations

import functools
import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from django.db import OperationalError, connection

from failpoints import points
from failpoints.faults import Fault

ASKING = ("begin", "look", "ask commit")
BRINGING = ("end", "wake", "bring commit")
PLACES = {
    "early": ("end", "ahead", "bring commit", "brought", *ASKING, "got"),
    "between": ("suspend", "suspend commit", *BRINGING),
    "late": ("before", *ASKING, "asked", "suspend", "suspend commit", *BRINGING, "brought", "got"),
    "never": ("give up", "give up commit"),
}
"""By when the value comes: before the task asks; after it has asked, and before its worker gives the row back;
while it waits. A place is right after a statement, around a COMMIT (see ``points``), or where a task function says
so."""


class Plan(NamedTuple):
    """The plan of a wait."""

    when: str
    place: str
    kind: str

    @property
    def name(self) -> str:
        """The name of the wait, and of the file that says that the fault has struck."""
        return ": ".join(self)

    @property
    def fault(self) -> Fault:
        """The fault, which strikes once, in whichever process meets it."""
        return Fault(self.kind, Path(os.environ["TXTASKS_WAIT_FAULTS"]) / self.name)

    @property
    def may_miss(self) -> bool:
        """True if a neighbour's fault may come first: the next attempt finds the value, and its row stays."""
        return self.when == "between" and self.place.startswith("suspend")

    @classmethod
    def of(cls, name: Any) -> Plan | None:
        """Return the plan of a name; None if the name is not a plan."""
        parts = name.split(": ") if isinstance(name, str) else []
        return cls(*parts) if len(parts) == len(cls._fields) else None


class AtPlace:
    """The faults of the waits whose statements have come to this place in this thread.

    Args:
        told_by: the statements that name the wait.
    """

    skip = 0

    def __init__(self, place: str, *told_by: str) -> None:
        self.place, self.told_by = place, told_by
        self._thread = threading.local()

    def listen(self) -> None:
        """Receive the events of waits from now on, before the faults."""
        points.on_each_connection(lambda one: one.execute_wrappers.append(self._hear))

    def _hear(self, call: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if points.is_one_of(self.told_by, sql):
            values = params.values() if isinstance(params, dict) else params
            self._plans.extend(filter(None, map(Plan.of, values)))
        return call(sql, params, many, context)

    @property
    def _plans(self) -> deque[Plan]:
        if not hasattr(self._thread, "plans"):
            self._thread.plans = deque(maxlen=100)  # a turn gives several rows back
        plans: deque[Plan] = self._thread.plans
        return plans

    def _next(self) -> Fault | None:
        faults = (one.fault for one in self._plans if one.place == self.place)
        return next((one for one in faults if not one.marker.exists()), None)

    @property
    def kind(self) -> str:
        """Return the kind that ``points.commit`` asks for."""
        fault = self._next()
        return "" if fault is None else fault.kind

    def strike(self, cut: Callable[[], None]) -> None:
        """Strike, if planned. An outcome that alone is refused is buried, unless the database is unreachable."""
        fault = self._next()
        if fault is not None:
            fault.strike(cut, OperationalError)


STATEMENTS = {
    "begin": ("BEGIN_WAIT", "BEGIN_WAIT"),
    "look": ("SEE_WAIT", "SEE_WAIT"),
    "give up": ("GIVE_UP_WAIT", "GIVE_UP_WAIT"),
    "suspend": ("SUSPEND", "SUSPEND"),
    "end": ("END_WAIT", "END_WAIT"),
    "ahead": ("END_WAIT_AHEAD", "END_WAIT_AHEAD"),
    "wake": ("WAKE", "END_WAIT"),  # which says the name
}
COMMITS = {
    "ask commit": ("BEGIN_WAIT",),
    "give up commit": ("GIVE_UP_WAIT",),
    "suspend commit": ("SUSPEND",),
    "bring commit": ("END_WAIT", "END_WAIT_AHEAD"),
}


def arm() -> None:
    """Hook all places in a process that a test has told to."""
    if "TXTASKS_WAIT_FAULTS" not in os.environ:
        return
    for place, (statement, told_by) in STATEMENTS.items():
        _hook(AtPlace(place, told_by), points.statement(statement))
    for place, statements in COMMITS.items():
        _hook(AtPlace(place, *statements), points.commit(*statements))


def _hook(place: AtPlace, seam: Callable[[Any], None]) -> None:
    place.listen()
    seam(place)


def reached(place: str, name: str) -> None:
    """Said by task functions: strike if this is the place."""
    plan = Plan.of(name)
    if plan is not None and plan.place == place:
        plan.fault.strike(functools.partial(points.cut_database, connection), ValueError)
