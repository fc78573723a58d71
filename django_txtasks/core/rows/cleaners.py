"""A cleaner's row: registration, beat, end; and whether any cleaner is at work."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from typing import Any

from django.db.models import F
from django.db.models.functions import Coalesce
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _lazy

from django_txtasks.core.ground import payload
from django_txtasks.core.ground.wording import span
from django_txtasks.core.rows.workers import host_name
from django_txtasks.models import Cleaner, DatabaseNow

MAX_SILENT_INTERVALS = 3
"""Number of intervals without a complete pass after which a cleaner counts as ineffective."""
ONCE_COUNTS = timedelta(hours=1)
"""Time for which a pass by ``runcleaner --once`` counts as a cleaner at work, because cron may repeat it."""
KEEP_KILLED = timedelta(hours=1)
"""Time for which the row of a killed cleaner is kept and shown."""
MAX_ROWS = 1000
HOW = _lazy("Keep manage.py runcleaner running, or start runworkers without --no-cleaner.")
MOST_SECONDS = 1e9
"""Longest time that is shown; a time in a row may be invalid."""


@dataclass(frozen=True)
class Seen:
    """State of one cleaner. Times are seconds by the database's clock.

    Attributes:
        interval: time between two passes; None = it was started with ``--once``.
        silence: time since its last beat; infinite = the time in the row is invalid.
        age: time since its start; zero if the time in the row is invalid.
        passed: time since the last complete pass, its own or that of another cleaner; None = no pass.
        error: the last error since that pass.
    """

    host: str
    pid: int
    interval: float | None
    lease: float
    silence: float
    age: float
    passed: float | None
    error: str

    @classmethod
    def of(cls, row: Any) -> Seen:
        """Return the state from a row, which has the database's time in ``now``."""
        return cls(
            row.host, row.pid, row.interval, row.lease,
            silence=inf if row.seen_at is None else (row.now - row.seen_at).total_seconds(),
            age=(row.now - (row.started_at or row.now)).total_seconds(),
            passed=None if row.passed_at is None else (row.now - row.passed_at).total_seconds(),
            error=row.error,
        )  # fmt: skip

    @property
    def is_there(self) -> bool:
        """True if it beats. A cleaner with ``--once`` counts for ``ONCE_COUNTS`` after its pass."""
        if self.interval is None:
            return self._since_pass <= ONCE_COUNTS.total_seconds()
        return self.silence <= self.lease

    @property
    def achieves(self) -> bool:
        """True if it is there, and has completed a pass recently or was started recently."""
        if not self.is_there or self.interval is None:
            return self.is_there
        return self._since_pass <= MAX_SILENT_INTERVALS * self.interval + self.lease

    @property
    def where(self) -> str:
        """Host and process id, for people."""
        return f"{self.host} (pid {self.pid})"

    @property
    def trouble(self) -> str:
        """The problem of a cleaner that is there and completes no pass, for people."""
        facts = {"where": self.where, "span": _span(self._since_pass), "error": self.error}
        if self.error:
            text = _("Cleaner on %(where)s beats, but has finished no pass for %(span)s: %(error)s")
        else:
            text = _(
                "Cleaner on %(where)s beats, but has finished no pass for %(span)s; its log says why"
            )
        return text % facts

    @property
    def _since_pass(self) -> float:
        return self.age if self.passed is None else self.passed


def register(alias: str, *, interval: timedelta, lease: timedelta) -> uuid.UUID:
    """Write a row for this process and return its new id."""
    cleaner = uuid.uuid4()
    Cleaner.objects.using(alias).create(
        id=cleaner, host=host_name(), pid=os.getpid(),
        interval=interval.total_seconds(), lease=lease.total_seconds(),
    )  # fmt: skip
    return cleaner


def beat(alias: str, cleaner: uuid.UUID) -> bool:
    """Note that the cleaner is there. False = its row was deleted."""
    return _change(alias, cleaner, seen_at=DatabaseNow())


def passed(alias: str, cleaner: uuid.UUID) -> bool:
    """Note a complete pass. False = the row was deleted."""
    return _change(alias, cleaner, seen_at=DatabaseNow(), passed_at=DatabaseNow(), error="")


def newer_pass(
    alias: str, cleaner: uuid.UUID, interval: timedelta
) -> tuple[datetime, float] | None:
    """Return when another cleaner completed a pass, and the seconds since then.

    None: no cleaner has completed a pass within ``interval``, or the last one was this cleaner's. A time in the
    future, as after a step of the database's clock, does not count.
    """
    now, rows = DatabaseNow(), Cleaner.objects.using(alias)
    recent = rows.filter(passed_at__gt=now - interval, passed_at__lte=now).annotate(now=now)
    passes = {one.pk: (one.passed_at, one.now) for one in recent[:MAX_ROWS]}
    last, read_at = max(passes.values(), default=(None, None))
    if last is None or read_at is None or passes.get(cleaner, (None,))[0] == last:
        return None
    return last, (read_at - last).total_seconds()


def saw_pass(alias: str, cleaner: uuid.UUID, ended_at: datetime) -> bool:
    """Note another cleaner's complete pass, which this cleaner need not repeat. False = the row was deleted."""
    return _change(alias, cleaner, seen_at=DatabaseNow(), passed_at=ended_at)


def failed(alias: str, cleaner: uuid.UUID, error: str) -> bool:
    """Note the error of an incomplete pass. False = the row was deleted."""
    return _change(alias, cleaner, seen_at=DatabaseNow(), error=payload.storable(error)[:500])


def unregister(alias: str, cleaner: uuid.UUID) -> None:
    """Delete the row of a cleaner that stops."""
    Cleaner.objects.using(alias).filter(pk=cleaner).delete()


def note_once(alias: str, *, lease: timedelta) -> None:
    """Record a pass with ``--once``, in place of earlier records of such passes."""
    Cleaner.objects.using(alias).filter(interval__isnull=True).delete()
    Cleaner.objects.using(alias).create(
        id=uuid.uuid4(), host=host_name(), pid=os.getpid(),
        interval=None, lease=lease.total_seconds(), passed_at=DatabaseNow(),
    )  # fmt: skip


def forget_gone(alias: str) -> None:
    """Delete the rows of cleaners that were killed more than ``KEEP_KILLED`` ago."""
    Cleaner.objects.using(alias).filter(seen_at__lt=DatabaseNow() - KEEP_KILLED).delete()


def seen(alias: str) -> list[Seen]:
    """Return the cleaners with rows, the latest beat first."""
    rows = Cleaner.objects.using(alias).annotate(now=Coalesce(DatabaseNow(), F("seen_at")))
    return [Seen.of(one) for one in rows.order_by("-seen_at", "id")[:MAX_ROWS]]


def only_once(cleaners: list[Seen]) -> float | None:
    """Return the seconds since the last pass with ``--once``, if no other cleaner is at work; else None."""
    at_work = [one for one in cleaners if one.achieves]
    if not at_work or any(one.interval is not None for one in at_work):
        return None
    return min(one.passed or one.age for one in at_work)


def trouble(cleaners: list[Seen]) -> str:
    """Return the problem in one line, with a remedy, if no cleaner is at work; empty = one is."""
    text = fact(cleaners)
    if not text or any(one.is_there for one in cleaners):
        return text
    return f"{text} {_('Tasks of crashed workers stay claimed.')} {HOW}"


def fact(cleaners: list[Seen]) -> str:
    """Return the problem without consequence and remedy if no cleaner is at work; empty = one is."""
    if any(one.achieves for one in cleaners):
        return ""
    stuck = [one for one in cleaners if one.is_there]
    if stuck:
        return stuck[0].trouble
    if not cleaners:
        return _("No cleaner is running.")
    facts = {"where": cleaners[0].where, "span": _span(cleaners[0].silence)}
    last = _("No cleaner is running: the last one, on %(where)s, was seen %(span)s ago.")
    return last % facts


def _change(alias: str, cleaner: uuid.UUID, **changes: Any) -> bool:
    return Cleaner.objects.using(alias).filter(pk=cleaner).update(**changes) == 1


def _span(seconds: float) -> str:
    size = next((one for one in (3600, 60) if seconds >= 2 * one), 1)
    return span(timedelta(seconds=size * round(min(seconds, MOST_SECONDS) / size)))
