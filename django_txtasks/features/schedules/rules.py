"""Schedule rules: the times of a schedule's ticks, without a database."""

from __future__ import annotations

import functools
import re
import uuid
import zlib
import zoneinfo
from datetime import date, datetime, time, timedelta, timezone
from itertools import islice, pairwise, takewhile
from os import urandom
from typing import TYPE_CHECKING, Any, NamedTuple

from django_txtasks.exceptions import InvalidSchedule, LibraryMissing, UnknownZone

if TYPE_CHECKING:
    from collections.abc import Iterator

UTC = timezone.utc
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SHORTEST, LONGEST = timedelta(seconds=1), timedelta(days=3653)
CATCH_UP = ("last", "all", "none")
ON_TIME = timedelta(seconds=10)
"""A tick that is written up to this time late counts as on time, because cleaners restart and databases stall."""
MOST_CAUGHT_UP = 1000
"""Number of missed ticks of a schedule that are caught up: the newest."""
LONGEST_GRACE = 1e9
"""Seconds."""
LONGEST_SHIFT = timedelta(hours=3)
"""A change of daylight saving time moves clocks by less than this."""
_LOOK_BACK = tuple(timedelta(hours=hours) for hours in (1, 25, 800, 9000, 100_000))
"""Spans in which to look for the tick before a moment, the shortest first, because most schedules tick often."""
_READY_BY = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")


class ScheduleRule(NamedTuple):
    """The times of ticks, made by ``parse_schedule_rule``.

    Attributes:
        cron: minute, hour, day of the month, month, day of the week; empty: ``every`` applies.
        every: interval between ticks, on a grid that begins with 1970 in UTC.
        tz: the time zone of ``cron``.
    """

    cron: str
    every: timedelta | None
    tz: str


class Due(NamedTuple):
    """The ticks of a schedule that are to be written now, and the next tick after them."""

    ticks: list[datetime]
    next_at: datetime


def parse_schedule_rule(cron: Any, every: Any, tz: Any) -> ScheduleRule:
    """Return a schedule rule.

    Args:
        cron: five fields; empty or None: not given.
        every: a timedelta or seconds; None: not given.
        tz: the name of a time zone.

    Raises:
        InvalidSchedule: an invalid schedule rule, or one without ticks.
        LibraryMissing: cronsim or the time zones are not installed, so the rule cannot be checked.
    """
    if bool(cron) == (every is not None):
        raise InvalidSchedule("Say when: either cron, such as '0 3 * * *', or every, one of them.")
    rule = ScheduleRule(_cron(cron) if cron else "", _every(every), tz)
    zone_of(tz)
    if rule.cron:
        next(ticks_after(rule, datetime.now(UTC)))
    return rule


def _cron(text: Any) -> str:
    fields = text.split() if isinstance(text, str) else []
    if len(fields) != 5 or len(text) > 200:
        raise InvalidSchedule(
            f"cron is {text!r}: use five fields, minute, hour, day of the month, month, day of the week, such as "
            "'0 3 * * *' or '*/10 8-17 * * MON-FRI'. For seconds, use every."
        )
    return " ".join(fields)


def _every(value: Any) -> timedelta | None:
    if type(value) in (int, float) and 0 < value < 1e9:
        value = timedelta(seconds=value)
    if value is None:
        return value
    if (
        not isinstance(value, timedelta)
        or not SHORTEST <= value <= LONGEST
        or value.microseconds % 1000
    ):
        raise InvalidSchedule(
            f"every is {value!r}: use a timedelta or seconds, of a second to ten years, in whole "
            "milliseconds."
        )
    return value


@functools.lru_cache(maxsize=1000)
def zone_of(name: Any) -> zoneinfo.ZoneInfo | timezone:
    """Return a time zone.

    Raises:
        InvalidSchedule: no time zone has this name.
        LibraryMissing: this host has no time zones.
    """
    if name == "UTC":
        return UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, TypeError, AttributeError, OSError):
        if not zoneinfo.available_timezones():
            raise LibraryMissing(
                "This host knows no time zones. Install them: pip install 'django-txtasks[periodic]'"
            ) from None
        raise UnknownZone(
            f"tz is {name!r}, which is no time zone; use a name such as 'Europe/Vienna', or 'UTC'."
        ) from None


def tick_after(rule: ScheduleRule, moment: datetime) -> datetime:
    """Return the first tick after a moment, in UTC."""
    return _tick_after(rule, moment if rule.every else moment.replace(microsecond=0))


@functools.lru_cache(maxsize=10_000)
def _tick_after(rule: ScheduleRule, moment: datetime) -> datetime:
    return next(ticks_after(rule, moment))


def ticks_after(rule: ScheduleRule, moment: datetime) -> Iterator[datetime]:
    """Yield the ticks after a moment, in UTC, each later than the tick before it.

    A tick in the hour that daylight saving time skips comes right after it, and a tick in the hour that is
    repeated comes once, as in Debian's cron. Schedules of each minute or each hour follow the elapsed time.
    """
    if rule.every is not None:
        number = (moment - EPOCH) // rule.every + 1
        while True:
            yield EPOCH + number * rule.every
            number += 1
    last = moment
    for tick in _cron_ticks(rule, moment):
        if tick > last:
            yield tick
            last = tick
    raise InvalidSchedule(f"cron is {rule.cron!r}: no such time comes in the next 50 years.")


def _cron_ticks(rule: ScheduleRule, moment: datetime) -> Iterator[datetime]:
    """Yield ticks in UTC from about this moment on; some may be earlier, or come twice."""
    zone = zone_of(rule.tz)
    minute, hour = rule.cron.split()[:2]
    if zone is UTC or not (minute.startswith("*") or hour.startswith("*")):
        for local in _simulated(rule, moment.astimezone(zone)):
            yield local.astimezone(UTC)
        return
    begin = moment.astimezone(zone)
    if (moment + LONGEST_SHIFT).astimezone(zone).utcoffset() != begin.utcoffset():
        begin -= LONGEST_SHIFT  # clocks will be set back: earlier local times will be repeated
    again: list[datetime] = []
    for wall in _simulated(rule, begin.replace(tzinfo=None)):
        first, second = _instants(wall, zone)
        while again and (first is None or again[0] <= first):
            yield again.pop(0)
        if first is not None:
            yield first
        if second is not None:
            again.append(second)


def _simulated(rule: ScheduleRule, begin: datetime) -> Any:
    cronsim = _cronsim()
    try:
        return cronsim.CronSim(rule.cron, begin)
    except (cronsim.CronSimError, AssertionError, ValueError, TypeError, RecursionError) as error:
        raise InvalidSchedule(f"cron is {rule.cron!r}: {error or 'it cannot be read'}.") from None


def _instants(wall: datetime, zone: Any) -> tuple[datetime | None, datetime | None]:
    """Return the instants at which clocks show this time: one, or none if it is skipped, or two if it is repeated.

    It replaces this part of cronsim, which moves by whole hours if cron has a star, and so loses ticks where
    clocks move by half an hour.
    """
    found = [wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)]
    if found[0].astimezone(zone).replace(tzinfo=None) != wall:
        return None, None
    return found[0], found[1] if found[1] != found[0] else None


def has_cron() -> bool:
    """Return whether this environment can read cron."""
    try:
        _cronsim()
    except LibraryMissing:
        return False
    return True


def _cronsim() -> Any:
    try:
        import cronsim
    except ImportError:
        raise LibraryMissing(
            "Schedules with cron need cronsim, which is not installed: pip install 'django-txtasks[periodic]'"
        ) from None
    return cronsim


def last_tick(rule: ScheduleRule, moment: datetime) -> datetime | None:
    """Return the last tick up to a moment; None: no tick in the eleven years before."""
    if rule.every is not None:
        return EPOCH + (moment - EPOCH) // rule.every * rule.every
    for span in _LOOK_BACK:
        ticks = list(takewhile(lambda tick: tick <= moment, ticks_after(rule, moment - span)))
        if ticks:
            return ticks[-1]
    return None


def number_of_ticks(rule: ScheduleRule, begin: datetime, end: datetime) -> int:
    """Count the ticks after ``begin`` and up to ``end``; with cron at most ``MOST_CAUGHT_UP``."""
    if rule.every is not None:
        return (end - EPOCH) // rule.every - (begin - EPOCH) // rule.every
    ticks = islice(ticks_after(rule, begin), MOST_CAUGHT_UP)
    return sum(1 for _ in takewhile(lambda tick: tick <= end, ticks))


def due_ticks(
    rule: ScheduleRule, next_at: datetime, now: datetime, *, catch_up: str, grace: timedelta | None
) -> Due:
    """Return the ticks that are to be written now.

    Args:
        next_at: the first tick that is not written; if it is in the future, it is written ahead.
        catch_up: the missed ticks to write if no tick is on time: ``last``, ``all`` or ``none``.
        grace: the longest delay of a tick; an older tick is not written; None: no limit.
    """
    if next_at > now:
        return Due([next_at], tick_after(rule, next_at))
    oldest = None if grace is None else now - grace
    if catch_up == "all":
        ticks = _newest(rule, next_at, now, oldest)
    else:
        ticks = _between(rule, max(next_at, now - ON_TIME), next_at, now)
        if not ticks and catch_up == "last":
            ticks = [max(next_at, last_tick(rule, now) or next_at)]
    return Due([one for one in ticks if oldest is None or one >= oldest], tick_after(rule, now))


def _newest(
    rule: ScheduleRule, next_at: datetime, now: datetime, oldest: datetime | None
) -> list[datetime]:
    begin = next_at if oldest is None else max(next_at, oldest)
    spans = _LOOK_BACK if rule.every is None else [min(MOST_CAUGHT_UP * rule.every, LONGEST)]
    ticks: list[datetime] = []
    for span in spans:
        ticks = _between(rule, max(begin, now - span), next_at, now)
        if len(ticks) >= MOST_CAUGHT_UP or now - span <= begin:
            break
    return ticks[-MOST_CAUGHT_UP:]


def _between(
    rule: ScheduleRule, begin: datetime, next_at: datetime, now: datetime
) -> list[datetime]:
    """Return the ticks from ``begin`` to ``now``. Also ``next_at`` is a tick, even if the rule has changed."""
    first = [next_at] if begin <= next_at else []
    after = next_at if first else begin - timedelta(microseconds=1)
    return first + list(takewhile(lambda tick: tick <= now, ticks_after(rule, after)))


def check_grace(grace: Any) -> timedelta | None:
    """Return the longest delay of a tick; None: no limit.

    Args:
        grace: seconds, or None.

    Raises:
        InvalidSchedule: neither of them.
    """
    if grace is None:
        return None
    if type(grace) not in (int, float) or not 0 <= grace < LONGEST_GRACE:
        raise InvalidSchedule(
            f"grace is {grace!r}: use seconds, from 0 to less than {LONGEST_GRACE:,.0f}, or leave it empty."
        )
    return timedelta(seconds=grace)


# -- ready by -----------------------------------------------------------------------------------------


def check_ready_by(rule: ScheduleRule, ready_by: Any) -> None:
    """Refuse an invalid hour, and any hour for a schedule with several ticks a day, where it has no meaning.

    Raises:
        InvalidSchedule: the hour is refused.
    """
    if ready_by == "":
        return
    if not isinstance(ready_by, str) or not _READY_BY.fullmatch(ready_by):
        raise InvalidSchedule(f"ready_by is {ready_by!r}: use an hour such as '07:00'.")
    ticks = list(islice(ticks_after(rule, datetime.now(UTC)), 8))
    if any(b - a < timedelta(hours=22) for a, b in pairwise(ticks)):
        raise InvalidSchedule(
            f"ready_by is {ready_by!r}: it is for what ticks once a day, or less often."
        )


def expected_by(rule: ScheduleRule, ready_by: str, now: datetime) -> datetime | None:
    """Return the tick whose task should be done by the last such hour; None: no such tick."""
    zone = zone_of(rule.tz)
    today = now.astimezone(zone).date()
    hour = _hour_of(today, ready_by, zone)
    if hour > now:
        hour = _hour_of(today - timedelta(days=1), ready_by, zone)
    tick = last_tick(rule, hour)
    return tick if tick is not None and tick > hour - timedelta(hours=24) else None


def _hour_of(day: date, ready_by: str, zone: Any) -> datetime:
    return datetime.combine(day, time.fromisoformat(ready_by), zone).astimezone(UTC)


# -- the instant of a task, in its id -----------------------------------------------------------------
# The id of a tick's task is a UUID of version 7 with the tick's millisecond, 42 random bits and a checksum. One
# other id in four thousand million has a valid checksum by chance. So retries, finished rows and the admin know
# the instant, and other tasks need no column for it.

_VERSION_7 = 0x7 << 76 | 0x2 << 62


def id_of_tick(tick: datetime) -> uuid.UUID:
    """Return a fresh id for the task of a tick: see ``tick_of_id``."""
    milliseconds = (tick - EPOCH) // timedelta(milliseconds=1)
    bits = int.from_bytes(urandom(6), "big")
    value = milliseconds << 80 | _VERSION_7 | (bits >> 30 & 0xFFF) << 64 | (bits & 0x3FFFFFFF) << 32
    return uuid.UUID(int=value | _checksum(value))


def tick_of_id(task_id: uuid.UUID) -> datetime | None:
    """Return the tick for which a schedule made the task with this id; None: not a task of a schedule."""
    if task_id.int & 0xFFFFFFFF != _checksum(task_id.int):
        return None
    return EPOCH + timedelta(milliseconds=task_id.int >> 80)


def _checksum(value: int) -> int:
    return zlib.crc32(b"txtasks tick" + (value >> 32).to_bytes(12, "big"))
