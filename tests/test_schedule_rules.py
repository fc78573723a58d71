"""The times of ticks: cron on both days of daylight saving time, grids, catching up, hours of the day."""

import sys
import uuid
from datetime import datetime, timedelta, timezone
from itertools import islice, pairwise, takewhile

import cronsim
import pytest

from django_txtasks.core.rows.enqueueing import new_id, new_ids
from django_txtasks.exceptions import InvalidSchedule, LibraryMissing
from django_txtasks.features.schedules.rules import (
    MOST_CAUGHT_UP,
    check_ready_by,
    due_ticks,
    expected_by,
    id_of_tick,
    last_tick,
    parse_schedule_rule,
    tick_after,
    tick_of_id,
    ticks_after,
    zone_of,
)

pytestmark = pytest.mark.once
UTC = timezone.utc
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def ticks(cron, tz, begin, count):
    rule = parse_schedule_rule(cron, None, tz)
    begin = datetime.fromisoformat(begin).replace(tzinfo=zone_of(tz))
    found = list(islice(ticks_after(rule, begin.astimezone(UTC)), count))
    assert found == sorted(set(found))
    return [f"{one.astimezone(zone_of(tz)):%d %H:%M%z}" for one in found]


# The hour that is left out, and the one that comes twice: day, hours as cron has them, what comes of them.
DAYS = [
    ("Europe/Vienna", "2026-03-28 12:00", "30 2 * * *", ["29 03:00+0200", "30 02:30+0200"]),
    ("Europe/Vienna", "2026-10-24 12:00", "30 2 * * *", ["25 02:30+0200", "26 02:30+0100"]),
    ("America/New_York", "2026-03-07 12:00", "30 2 * * *", ["08 03:00-0400", "09 02:30-0400"]),
    ("America/New_York", "2026-10-31 12:00", "30 1 * * *", ["01 01:30-0400", "02 01:30-0500"]),
    ("Australia/Lord_Howe", "2026-10-03 12:00", "15 2 * * *", ["04 02:30+1100", "05 02:15+1100"]),
    ("Australia/Lord_Howe", "2026-04-04 12:00", "45 1 * * *", ["05 01:45+1100", "06 01:45+1030"]),
    ("Africa/Cairo", "2026-04-23 12:00", "30 0 * * *", ["24 01:00+0300", "25 00:30+0300"]),
    ("Africa/Cairo", "2026-10-29 12:00", "30 23 * * *", ["29 23:30+0300", "30 23:30+0200"]),
    ("America/Santiago", "2026-09-05 12:00", "0 0 * * *", ["06 01:00-0300", "07 00:00-0300"]),
    ("America/Santiago", "2026-04-04 12:00", "30 23 * * *", ["04 23:30-0300", "05 23:30-0400"]),
]


@pytest.mark.parametrize(("tz", "begin", "cron", "expected"), DAYS)
def test_a_daily_tick_comes_once_a_day_on_days_of_23_and_25_hours(tz, begin, cron, expected):
    assert ticks(cron, tz, begin, 2) == expected


@pytest.mark.parametrize(("tz", "begin"), [(tz, begin) for tz, begin, _, _ in DAYS])
def test_what_ticks_each_ten_minutes_goes_on_as_time_does(tz, begin):
    rule = parse_schedule_rule("*/10 * * * *", None, tz)
    begin = datetime.fromisoformat(begin).replace(tzinfo=zone_of(tz)).astimezone(UTC)
    found = list(islice(ticks_after(rule, begin), 200))
    assert {b - a for a, b in pairwise(found)} == {timedelta(minutes=10)}


STARS = [
    "0 */3 * * *",
    "0 */1 * * *",
    "*/15 * * * *",
    "*/20 1-4 * * *",
    "30 */2 * * *",
    "15 * * * *",
    "*/30 2 * * *",
]


@pytest.mark.parametrize("cron", STARS)
@pytest.mark.parametrize(("tz", "begin"), [(tz, begin) for tz, begin, _, _ in DAYS])
def test_with_a_star_each_minute_ticks_whose_local_time_fits(tz, begin, cron):
    """Also where clocks move by half an hour: all minutes of three days are asked one by one."""
    rule, zone = parse_schedule_rule(cron, None, tz), zone_of(tz)
    begin = datetime.fromisoformat(begin).replace(tzinfo=zone).astimezone(UTC)
    end = begin + timedelta(days=3)
    minutes, hours = (cronsim.cronsim.Field(n).parse(cron.split()[n - 1]) for n in (1, 2))
    expected = [
        one
        for one in (begin + timedelta(minutes=n) for n in range(1, 3 * 1440 + 1))
        if one.astimezone(zone).minute in minutes and one.astimezone(zone).hour in hours
    ]
    assert list(takewhile(lambda tick: tick <= end, ticks_after(rule, begin))) == expected
    for earlier, later in list(pairwise(expected))[::3]:
        assert tick_after(rule, earlier) == tick_after(rule, later - timedelta(seconds=1)) == later


@pytest.mark.parametrize(("tz", "begin", "cron", "expected"), DAYS)
def test_from_wherever_one_looks_the_next_tick_is_the_same(tz, begin, cron, expected):
    rule = parse_schedule_rule(cron, None, tz)
    begin = datetime.fromisoformat(begin).replace(tzinfo=zone_of(tz)).astimezone(UTC)
    all_of_them = list(islice(ticks_after(rule, begin), 3))
    for minutes in range(0, 60 * 40, 7):
        moment = begin + timedelta(minutes=minutes)
        assert tick_after(rule, moment) == next(one for one in all_of_them if one > moment)
        if moment >= all_of_them[0]:
            assert last_tick(rule, moment) == max(one for one in all_of_them if one <= moment)


def test_the_grid_of_every_begins_with_1970():
    rule = parse_schedule_rule("", timedelta(minutes=5), "UTC")
    assert tick_after(rule, NOON) == NOON + timedelta(minutes=5)
    assert tick_after(rule, NOON - timedelta(microseconds=1)) == NOON
    assert last_tick(rule, NOON) == NOON
    rule = parse_schedule_rule(None, 1.5, "UTC")
    assert tick_after(rule, NOON) == NOON + timedelta(seconds=1.5)


@pytest.mark.parametrize(
    ("cron", "every", "tz", "text"),
    [
        ("", None, "UTC", "one of them"),
        ("0 3 * * *", 5, "UTC", "one of them"),
        ("0 3 * *", None, "UTC", "use five fields"),
        ("* 0 3 * * *", None, "UTC", "use five fields"),
        ("@daily", None, "UTC", "use five fields"),
        ("61 3 * * *", None, "UTC", "Bad minute"),
        ("0 3 30 2 *", None, "UTC", "Bad day-of-month"),
        ("0 3 ? * *", None, "UTC", "Bad day-of-month"),
        ("0 3 * * *\0", None, "UTC", "cron is"),
        (7, None, "UTC", "use five fields"),
        ("", 0.5, "UTC", "of a second to ten years"),
        ("", 1.00001, "UTC", "whole milliseconds"),
        ("", 1e12, "UTC", "of a second to ten years"),
        ("", float("nan"), "UTC", "of a second to ten years"),
        ("", "often", "UTC", "of a second to ten years"),
        ("0 3 * * *", None, "Europe/Wien", "no time zone"),
        ("0 3 * * *", None, "../etc/passwd", "no time zone"),
        ("0 3 * * *", None, "", "no time zone"),
        ("0 3 * * *", None, None, "no time zone"),
    ],
)
def test_what_is_no_rule_is_refused(cron, every, tz, text):
    with pytest.raises(InvalidSchedule, match=text):
        parse_schedule_rule(cron, every, tz)


def test_without_the_library_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cronsim", None)
    with pytest.raises(LibraryMissing, match=r"pip install 'django-txtasks\[periodic\]'"):
        parse_schedule_rule("0 3 * * *", None, "UTC")
    assert parse_schedule_rule("", 5, "UTC").every == timedelta(seconds=5)


def due(every, late, catch_up="last", grace=None):
    """Return the ages of the ticks that are written this late, in ticks."""
    rule = parse_schedule_rule("", every, "UTC")
    now = NOON + timedelta(milliseconds=1)
    found = due_ticks(rule, NOON - late, now, catch_up=catch_up, grace=grace)
    assert found.next_at == NOON + timedelta(seconds=every)
    return [(NOON - one) // timedelta(seconds=every) for one in found.ticks]


def test_what_is_late_for_a_moment_was_not_missed():
    for catch_up in ("last", "all", "none"):
        assert due(1, timedelta(seconds=5), catch_up) == [5, 4, 3, 2, 1, 0]


def test_what_was_missed_is_made_up_for_as_was_said():
    hour = timedelta(hours=1)
    assert due(60, hour, "last") == [0]
    assert due(60, hour, "all") == list(range(60, -1, -1))
    assert due(60, hour, "none") == [0]
    rule = parse_schedule_rule("0 12 * * *", None, "UTC")
    for catch_up, expected in (
        ("last", [NOON]),
        ("none", []),
        ("all", [NOON - timedelta(days=1), NOON]),
    ):
        found = due_ticks(
            rule, NOON - timedelta(days=1), NOON + hour, catch_up=catch_up, grace=None
        )
        assert (found.ticks, found.next_at) == (expected, NOON + timedelta(days=1))


def test_grace_says_how_late_a_tick_may_be():
    rule = parse_schedule_rule("0 12 * * *", None, "UTC")
    for minutes, expected in ((59, []), (61, [NOON])):
        found = due_ticks(
            rule, NOON, NOON + timedelta(hours=1), catch_up="last", grace=timedelta(minutes=minutes)
        )
        assert found.ticks == expected
    assert len(due(60, timedelta(days=2), "all", timedelta(minutes=5))) == 5


def test_a_long_outage_is_no_long_work():
    assert len(due(1, timedelta(days=3000), "all")) == MOST_CAUGHT_UP
    assert due(1, timedelta(days=3000)) == list(range(9, -1, -1))
    rule = parse_schedule_rule("* * * * *", None, "Europe/Vienna")
    long_ago = NOON - timedelta(days=3000)
    found = due_ticks(rule, long_ago, NOON, catch_up="last", grace=None)
    assert found.ticks == [NOON]
    found = due_ticks(rule, long_ago, NOON, catch_up="all", grace=None)
    assert (len(found.ticks), found.ticks[-1]) == (MOST_CAUGHT_UP, NOON)


def test_what_is_to_come_is_written_ahead():
    rule = parse_schedule_rule("", 60, "UTC")
    found = due_ticks(rule, NOON, NOON - timedelta(seconds=4), catch_up="last", grace=None)
    assert found == ([NOON], NOON + timedelta(seconds=60))


def test_the_hour_by_which_a_task_is_to_be_done():
    rule = parse_schedule_rule("0 3 * * MON-FRI", None, "Europe/Vienna")
    check_ready_by(rule, "07:00")
    monday = datetime(2026, 6, 1, 1, tzinfo=UTC)  # 3:00 in Vienna
    assert expected_by(rule, "07:00", monday + timedelta(hours=3, minutes=59)) is None  # of Sunday
    assert expected_by(rule, "07:00", monday + timedelta(hours=4)) == monday
    assert expected_by(rule, "07:00", monday + timedelta(hours=27)) == monday


@pytest.mark.parametrize("hour", ["7", "24:00", "07:60", 700, "07:00:00"])
def test_what_is_no_hour_is_refused(hour):
    with pytest.raises(InvalidSchedule, match="use an hour"):
        check_ready_by(parse_schedule_rule("0 3 * * *", None, "UTC"), hour)


def test_an_hour_is_for_what_ticks_once_a_day():
    with pytest.raises(InvalidSchedule, match="once a day"):
        check_ready_by(parse_schedule_rule("0 3,15 * * *", None, "UTC"), "07:00")


def test_the_id_of_a_task_tells_its_tick():
    tick = NOON + timedelta(milliseconds=123)
    made = {id_of_tick(tick) for _ in range(1000)}
    assert len(made) == 1000
    assert {tick_of_id(one) for one in made} == {tick}
    assert {one.version for one in made} == {7}
    others = [new_id(), *new_ids(1000), *(uuid.uuid4() for _ in range(1000))]
    assert {tick_of_id(one) for one in others} == {None}
