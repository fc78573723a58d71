"""Faults at each boundary of a task's steps, and inside each of them: the task itself says which one it meets."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from pathlib import Path

from django.db import DatabaseError, connection

from failpoints import points
from failpoints.faults import Fault

NUMBERS = range(1, 6)
PLACES = [
    *(f"{moment} {number}" for number in NUMBERS for moment in ("before", "in", "kept", "commit")),
    "at the end",
]
"""Before a step; in it, after its effect; after its value was written; around its COMMIT: see ``points``."""


class _Thread(threading.local):
    """The planned fault of the task in this thread, and its present step."""

    fault: Fault | None = None
    place = ""
    number = 0


_thread = _Thread()


class AtMoment:
    """The fault of whatever task runs in this thread, if it has come to its place."""

    skip = 0

    def __init__(self, moment: str) -> None:
        self.moment = moment

    @property
    def kind(self) -> str:
        """Return the kind that ``points.commit`` asks for."""
        is_here = _thread.place == f"{self.moment} {_thread.number}"
        return _thread.fault.kind if is_here and _thread.fault is not None else ""

    def strike(self, cut: Callable[[], None], error: type[Exception] = DatabaseError) -> None:
        """Do it, if it is the place."""
        if self.kind and _thread.fault is not None:
            _thread.fault.strike(cut, error)


def arm() -> None:
    """Hook the statement that keeps a step, and its COMMIT, in a process that a test has told to."""
    if "TXTASKS_STEP_FAULTS" in os.environ:
        points.statement("KEEP_STEP")(AtMoment("kept"))
        points.commit("KEEP_STEP")(AtMoment("commit"))


def plan(place: str, kind: str, marker: Path) -> None:
    """Say what the task of this thread meets."""
    _thread.fault, _thread.place, _thread.number = Fault(kind, marker), place, 0


def reached(place: str) -> None:
    """Said by task functions: strike if this is the place."""
    moment, _, number = place.partition(" ")
    if moment == "in":
        _thread.number = int(number)
    if place == _thread.place and _thread.fault is not None:
        _thread.fault.strike(functools.partial(points.cut_database, connection), ValueError)
