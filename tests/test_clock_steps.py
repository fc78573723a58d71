"""Changes of the database's clock: they are logged, ticks follow their schedule's rule, and none comes twice."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, timezone

import pytest
from django.db import connection
from probe import tasks  # noqa: F401 -- declares what the schedules name

from django_txtasks import signals
from django_txtasks.conf import get_config
from django_txtasks.features.schedules.rules import ScheduleRule, number_of_ticks, tick_of_id
from django_txtasks.features.schedules.ticker import Ticker
from django_txtasks.guards.clock_changes import ClockChange, ClockChanges
from django_txtasks.models import DatabaseNow, Schedule, Task
from django_txtasks.testing.clock import Clock

HOUR, CELL = timedelta(hours=1), timedelta(minutes=10)
UTC = timezone.utc


@pytest.fixture
def clock(rows):
    """The database's clock as this process sees it, in the middle between two ticks of ten minutes."""
    clock = Clock(connection.vendor)
    with connection.execute_wrapper(clock):
        Schedule.objects.create(name="off", task_name="probe.tasks.note", every=1.0, enabled=False)
        now = Schedule.objects.annotate(now=DatabaseNow()).get().now
        clock.skipped = CELL * 1.5 - (now - datetime(1970, 1, 1, tzinfo=UTC)) % CELL
        yield clock


class Cleaner:
    """Its ticker, which looks each time that it is asked to."""

    def __init__(self):
        self.events, self._now = [], 0.0
        self._ticker = Ticker(
            get_config(), "default", notify=None, emit=self._tell, clock=lambda: self._now
        )

    def _tell(self, event, **facts):
        self.events.append((event, facts))

    def look(self):
        """Write the due ticks; return the number of tasks."""
        self._now += 60
        return self._ticker.work(float("inf"))["scheduled"]


def add(name, **columns):
    values = {"task_name": "probe.tasks.note", "args": [name], "every": CELL.total_seconds()}
    Schedule.objects.create(name=name, **values, **columns)


def written():
    return Counter(args[0] for args in Task.objects.values_list("args", flat=True))


def begin_all():
    Task.objects.update(attempt=1)


def test_ticks_that_a_step_forward_passes_are_told_and_follow_their_rule(clock):
    for catch_up in ("last", "all", "none"):
        add(catch_up, catch_up=catch_up)
    add("within 25 minutes", catch_up="all", grace=1500)
    cleaner = Cleaner()
    assert (cleaner.look(), cleaner.look(), cleaner.events) == (0, 0, [])
    clock.skipped += HOUR
    cleaner.look()
    assert written() == {"last": 1, "all": 6, "within 25 minutes": 2}
    ((event, facts),) = cleaner.events
    assert (event, facts["ticks"]) == (signals.clock_set_forward, 4 * 6)
    begin, end = (
        datetime.strptime(facts[name], "%Y-%m-%d %H:%M:%S UTC") for name in ("begin", "end")
    )
    assert HOUR <= end - begin < HOUR + timedelta(seconds=facts["seconds"] + 2)
    assert (cleaner.look(), len(cleaner.events)) == (0, 1)


@pytest.mark.parametrize("catch_up", ["last", "all"])
def test_a_task_that_was_written_ahead_has_not_waited_for_the_length_of_a_step(clock, catch_up):
    """It was due in three seconds when the clock went forward by an hour, so no worker could begin it."""
    clock.skipped += CELL / 2 - timedelta(seconds=3)
    add("s", catch_up=catch_up)
    Schedule.objects.filter(name="s").update(next_at=tick_to_come())
    cleaner = Cleaner()
    assert cleaner.look() == 1
    clock.skipped += HOUR - CELL / 2
    assert cleaner.look() == {"last": 1, "all": 5}[catch_up]
    assert [event for event, _ in cleaner.events] == [signals.clock_set_forward]


def tick_to_come():
    now = Schedule.objects.annotate(now=DatabaseNow()).first().now
    return now - (now - datetime(1970, 1, 1, tzinfo=UTC)) % CELL + CELL


def test_ticks_come_once_where_the_clock_goes_back_and_that_is_told(clock):
    add("s", catch_up="all")
    cleaner = Cleaner()
    cleaner.look()
    for _ in range(6):
        clock.skipped += CELL
        cleaner.look()
        begin_all()
    assert written() == {"s": 6}
    cleaner.events.clear()
    clock.skipped -= HOUR
    for _ in range(3):
        assert cleaner.look() == 0
    ((event, facts),) = cleaner.events
    assert (event, facts["ticks"]) == (signals.clock_set_back, 6)
    assert facts["end"] < facts["begin"] <= facts["right"]
    clock.skipped += HOUR
    assert cleaner.look() == 0
    clock.skipped += CELL
    assert cleaner.look() == 1
    ticks = [tick_of_id(one) for one in Task.objects.values_list("pk", flat=True)]
    assert len(set(ticks)) == len(ticks) == 7


def test_a_schedule_that_is_new_or_changed_after_a_step_back_ticks_by_the_new_time(clock):
    add("old")
    cleaner = Cleaner()
    cleaner.look()
    clock.skipped -= HOUR
    add("new")
    cleaner.look()
    old, new = (Schedule.objects.get(name=name).next_at for name in ("old", "new"))
    assert old - new == HOUR


def test_what_ticks_no_more_is_not_counted(clock):
    add("s")
    add("of another release")
    Schedule.objects.filter(name="of another release").update(task_name="gone.tasks.run")
    cleaner = Cleaner()
    cleaner.look()
    add("broken")
    Schedule.objects.filter(name="broken").update(cron="x", every=None)
    clock.skipped += HOUR
    cleaner.look()
    assert cleaner.events[0][1]["ticks"] == 6


# -- which difference is a change --------------------------------------------------------------------

START = datetime(2026, 3, 4, 5, 6, tzinfo=UTC)


class Host:
    now = 100.0

    def __call__(self):
        return self.now


def look(changes, host, *, after, gone, answer=0.0):
    """Look again this many seconds after the last answer, with an answer that takes this long."""
    host.now += after
    sent = changes.sent()
    host.now += answer
    return changes.seen(START + timedelta(seconds=gone), sent)


@pytest.mark.parametrize(
    ("after", "gone", "answer", "stepped"),
    [
        (1, 1, 0, 0),
        (1, 11, 0, 0),  # on time
        (1, -8, 0, 0),
        (1, 3601, 0, 3600),
        (1, -3599, 0, -3600),
        (600, 600, 0, 0),  # the database was away
        (600, 4200, 0, 3600),
        (86400, 86400 + 43, 0, 0),  # a time server may speed clocks up by 0.05 %
        (1, 1, 30, 0),  # a slow answer says a time of any moment since the question
        (1, 31, 30, 0),
        (1, 3631, 30, 3600),
        (1, -3599, 30, -3600),
    ],
)
def test_a_step_is_what_neither_time_nor_drift_nor_a_slow_answer_explains(
    after, gone, answer, stepped
):
    host = Host()
    changes = ClockChanges(host)
    assert look(changes, host, after=0, gone=0) is None
    change = look(changes, host, after=after, gone=gone, answer=answer)
    if not stepped:
        assert change is None
        return
    assert (change.end - change.right).total_seconds() == stepped
    assert change.forward == timedelta(seconds=max(stepped, 0)) == changes.forward
    assert look(changes, host, after=1, gone=gone + 1) is None


def test_a_database_that_does_not_say_its_time_shows_no_step():
    host = Host()
    changes = ClockChanges(host)
    assert changes.seen(None, changes.sent()) is None
    assert look(changes, host, after=1, gone=0) is None
    host.now += 1
    assert changes.seen(None, changes.sent()) is None
    assert isinstance(look(changes, host, after=1, gone=100), ClockChange)


def test_a_step_forward_is_known_for_a_moment():
    host = Host()
    changes = ClockChanges(host)
    look(changes, host, after=0, gone=0)
    look(changes, host, after=1, gone=3601)
    host.now += 9
    assert changes.forward == HOUR
    host.now += 1
    assert changes.forward == timedelta(0)


@pytest.mark.parametrize(
    ("rule", "count"),
    [
        (ScheduleRule("", timedelta(minutes=10), "UTC"), 6),
        (ScheduleRule("*/20 * * * *", None, "Europe/Vienna"), 3),
        (ScheduleRule("0 0 1 1 *", None, "UTC"), 0),
    ],
)
def test_ticks_between_two_times_are_counted(rule, count):
    assert number_of_ticks(rule, START, START + HOUR) == count
