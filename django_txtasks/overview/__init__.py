"""All that matters now, in one read: what the admin's first page and other dashboards show.

It only reads, in bounded statements: at most ``counting.MOST`` index entries for each number.

* ``counting``: the tasks of each queue by state
* ``running``: running tasks, workers and cleaners
* ``gathering``: the reads of one overview
* ``figures``: its parts as data
* ``spans``: the chart of a day or a month
* ``problems``: sentences for people
"""

from __future__ import annotations

import threading
import time
from typing import Any, NamedTuple

from django.db import router
from django.db.models.signals import post_migrate
from django.utils.translation import get_language

from django_txtasks.core.ground.forks import register_at_fork
from django_txtasks.database.transactions import is_in_test_case
from django_txtasks.insight import cost
from django_txtasks.models import Task
from django_txtasks.overview import counting, spans
from django_txtasks.overview.counting import Count, Counts
from django_txtasks.overview.figures import (
    Figures,
    FullLane,
    LateSchedule,
    Overview,
    Pause,
    QueueFigures,
)
from django_txtasks.overview.gathering import gather
from django_txtasks.overview.problems import Problem
from django_txtasks.overview.running import CleanerFigures, RunningTask, WorkerFigures

__all__ = [
    "CleanerFigures",
    "Count",
    "Figures",
    "FullLane",
    "LateSchedule",
    "Overview",
    "Pause",
    "Problem",
    "QueueFigures",
    "RunningTask",
    "WorkerFigures",
    "overview",
]


class _Kept(NamedTuple):
    """The last overview of a database in this process, with the time of its read."""

    overview: Overview
    counts: Counts
    read_at: float


READ_SECONDS = 5.0
"""Longest time that a caller waits for the read of another thread."""
_Key = tuple[str, str]
"""A database and the language of the texts."""
_kept: dict[_Key, _Kept] = {}
_reading: dict[_Key, threading.Lock] = {}


def _forget(**_: Any) -> None:
    """Forget all overviews, and locks that a thread of the parent may hold."""
    _kept.clear()
    _reading.clear()
    spans.forget()
    cost.forget()


register_at_fork(after_in_child=_forget)
post_migrate.connect(_forget)  # ``TransactionTestCase`` sends it when it has emptied the tables


def overview(using: str | None = None, max_age: float = 5.0) -> Overview:
    """Return all that matters now about the tasks of one database. It locks nothing.

    Args:
        using: alias of the database; None = the one to which the router sends reads of tasks.
        max_age: seconds up to which an overview of this process is returned again; 0 = read anew. In a
            ``TestCase`` each call reads anew.

    Raises:
        DatabaseError: the database cannot be reached, or did not answer in time.
    """
    alias = using or router.db_for_read(Task)
    if is_in_test_case(alias):
        return gather(alias, {})[0]
    key = (alias, get_language() or "")
    last = _kept.get(key)
    if last is not None and time.monotonic() - last.read_at < max_age:
        return last.overview
    lock = _reading.setdefault(key, threading.Lock())
    is_fresh = last is not None and time.monotonic() - last.read_at < max_age + READ_SECONDS
    if not lock.acquire(timeout=0 if is_fresh else READ_SECONDS):
        if last is not None and is_fresh:  # another thread reads a new one
            return last.overview
        return gather(alias, {})[0]
    try:
        return _read(key, last)
    finally:
        lock.release()


def age_of(found: Overview) -> float:
    """Return the seconds since an overview was read, if this process still keeps it; 0 = it is new."""
    return next(
        (time.monotonic() - one.read_at for one in _kept.values() if one.overview is found), 0.0
    )


def _read(key: _Key, last: _Kept | None) -> Overview:
    now, alias = time.monotonic(), key[0]
    before = counting.aged(last.counts, now - last.read_at) if last is not None else {}
    found, counts = gather(alias, before)
    _kept[key] = _Kept(found, counts, now)
    return found
