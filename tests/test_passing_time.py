"""Tests that let time pass: ``run_due_tasks(until=…)``."""

from __future__ import annotations

from datetime import timedelta

import helpers
import pytest
from django.db import connection, connections
from django.test import TestCase
from django.utils import timezone
from probe import tasks, times

from django_txtasks import exceptions, resume, signals
from django_txtasks.features.steps.answering import token_of
from django_txtasks.models import DatabaseNow, FinishedTask, Schedule, Task, Worker
from django_txtasks.testing import run_due_tasks

DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)


@pytest.fixture(params=["TestCase", "TransactionTestCase"])
def start(rows, request):
    """The time at which a test begins, in a transaction or without one; no time was seen yet."""
    times.SEEN.clear()
    in_transaction = request.param == "TestCase"
    if in_transaction:
        TestCase.setUpClass()
        case = TestCase()
        case._fixture_setup()
    yield timezone.now()
    if in_transaction:
        case._fixture_teardown()
        TestCase.tearDownClass()


def seen(start) -> list[tuple[str, timedelta]]:
    """Return the recorded names with whole minutes; the clocks of Python and the database must agree."""
    for _, at, in_database in times.SEEN:
        assert in_database is None or abs(at - in_database) < MINUTE
    return [(key, (at - start) // MINUTE * MINUTE) for key, at, _ in times.SEEN]


@pytest.mark.smoke
def test_what_becomes_due_runs_in_order_and_sees_its_time(start):
    times.see_times.using(run_after=2 * DAY).enqueue("late")
    times.see_times.using(run_after=DAY).enqueue("early")
    times.see_times.using(run_after=start + 3 * DAY + MINUTE).enqueue("at a date")
    times.see_times_async.using(run_after=HOUR).enqueue("async")
    times.see_times.using(run_after=5 * DAY).enqueue("too late")
    times.see_times.enqueue("now")
    ran = run_due_tasks(until=4 * DAY)
    assert [one.status for one in ran] == ["succeeded"] * 5
    assert seen(start) == [
        ("now", timedelta(0)), ("async", HOUR), ("early", DAY), ("late", 2 * DAY), ("at a date", 3 * DAY + MINUTE),
    ]  # fmt: skip
    assert timezone.now() - start < HOUR and database_now() - start < HOUR
    assert [one.args for one in Task.objects.all()] == [["too late"]]
    assert not Worker.objects.exists()


def database_now():
    return FinishedTask.objects.annotate(at=DatabaseNow()).values_list("at", flat=True).first()


def test_an_expected_retry_is_no_error_and_its_wait_is_part_of_the_time(start):
    times.see_times.enqueue("k", 2 * DAY.total_seconds(), 2 * DAY.total_seconds())
    ran = run_due_tasks(until=4 * DAY)
    assert [one.status for one in ran] == ["pending", "pending", "succeeded"]
    assert seen(start) == [("k", timedelta(0)), ("k", 2 * DAY), ("k", 4 * DAY)]


def test_a_retry_that_no_attempt_follows_is_an_error(start):
    times.see_times.using(max_attempts=2).enqueue("k", 60, 60)
    with pytest.raises(exceptions.Retry):
        run_due_tasks(until=DAY)
    assert Task.objects.get().status == "dead"


def test_failures_wait_as_their_backoff_says(start):
    times.see_failures.enqueue("k")
    with pytest.raises(ValueError, match="again"):
        run_due_tasks(until=4 * DAY)
    times.SEEN.clear()
    ran = run_due_tasks(until=4 * DAY, reraise=False)
    assert [one.status for one in ran] == ["pending", "succeeded"]
    assert seen(start) == [("k", DAY), ("k", 3 * DAY)]


def test_a_task_that_puts_itself_off_is_run_again(start):
    times.see_snoozes.enqueue("k")
    run_due_tasks(until=2 * DAY)
    assert seen(start) == [("k", timedelta(0)), ("k", DAY), ("k", 2 * DAY)]


def test_a_sleep_ends(start):
    tasks.sleep_between.enqueue("k", DAY.total_seconds())
    assert run_due_tasks(until=DAY / 2)[-1].status == "pending"
    assert run_due_tasks(until=DAY)[-1].result == 2


def test_a_wait_times_out_or_gets_its_value(start):
    tasks.ask.enqueue("in vain", timeout=2 * DAY.total_seconds())
    assert run_due_tasks(until=DAY)[-1].status == "pending"
    assert run_due_tasks(until=2 * DAY)[-1].result == ["nobody", 2]
    asked = tasks.ask.enqueue("answered", timeout=2 * DAY.total_seconds())
    run_due_tasks()
    resume(token_of("default", asked.id, "answer"), "yes")
    assert run_due_tasks(until=2 * DAY)[-1].result == ["yes", 2]


def test_requests_that_wait_for_more_of_them_are_one_run(start):
    for _ in range(3):
        times.see_settled.enqueue("k")
    ran = run_due_tasks(until=HOUR)
    assert len(ran) == 1 and len(times.SEEN) == 1


def test_what_an_attempt_enqueues_counts_from_its_own_time(start):
    times.see_once_more.using(run_after=2 * DAY).enqueue("first")
    run_due_tasks(until=3 * DAY)
    assert seen(start) == [("first", 2 * DAY), ("a day later", 3 * DAY)]


def test_what_has_expired_by_then_does_not_run(start):
    times.see_times.using(run_after=2 * DAY, expires=DAY).enqueue("k")
    times.see_times.using(run_after=3 * DAY).enqueue("other")
    run_due_tasks(until=4 * DAY)
    assert [key for key, _ in seen(start)] == ["other"]
    assert {one.outcome for one in FinishedTask.objects.all()} == {"expired", "succeeded"}


@pytest.mark.smoke
def test_schedules_tick(start):
    Schedule(
        name="s", task_name="probe.times.see_times", every=DAY.total_seconds(), args=["tick"], tz="UTC",
        next_at=start + HOUR,
    ).save()  # fmt: skip
    run_due_tasks(until=3 * DAY)
    first, second, *later = [at for _, at in seen(start)]  # from the second on at midnight
    assert first == HOUR and later[0] == second + DAY


UNWRITABLE = {
    "wrong arguments": {"kwargs": {"nowhere": 1}},
    "a zone that this host does not know": {"cron": "* * * * *", "every": None, "tz": "Mars/Base"},
    "a rule that nobody can read": {"catch_up": "x"},
}


@pytest.mark.parametrize("columns", UNWRITABLE.values(), ids=UNWRITABLE)
def test_a_schedule_whose_ticks_cannot_be_written_is_told_of_and_stops_nothing(
    columns, start, told
):
    """What is enqueued in the test runs all the same, and the call ends."""
    row = {"task_name": "probe.times.see_times", "args": ["tick"], "every": 60, **columns}
    Schedule(name="s", next_at=start + timedelta(seconds=2), **row).save()
    times.see_times.using(run_after=HOUR).enqueue("task")
    left = iter(range(500))

    def counted(execute, *statement):
        next(left)  # StopIteration: it asks for ever
        return execute(*statement)

    with connection.execute_wrapper(counted):
        run_due_tasks(until=DAY)
    assert [key for key, _ in seen(start)] == ["task"]
    assert [
        signal in (signals.schedule_not_written, signals.schedule_disabled) for signal, _ in told
    ] == [True]


def test_a_call_in_a_task_shares_its_time(start):
    times.see_within.using(run_after=DAY).enqueue("outer")
    times.see_times.using(run_after=3 * DAY).enqueue("last")
    run_due_tasks(until=4 * DAY)
    assert seen(start) == [
        ("outer", DAY),
        ("inner", 2 * DAY),
        ("outer again", 2 * DAY),
        ("last", 3 * DAY),
    ]


@pytest.mark.smoke
def test_threads_and_other_databases_keep_the_real_time(start):
    before = list(connection.execute_wrappers)
    with helpers.second_alias():
        times.see_in_a_thread.using(run_after=DAY).enqueue("k")
        run_due_tasks(until=DAY)
        assert not connections["second"].execute_wrappers
    assert seen(start) == [("k", DAY), ("thread", timedelta(0))]
    assert connection.execute_wrappers == before


@pytest.mark.parametrize("until", [-1, float("nan"), 1e10, True, "4 days", timedelta(-1)])
def test_what_is_no_time_is_refused(start, until):
    times.see_times.enqueue("k")
    with pytest.raises(ValueError, match="use a timedelta or a number of seconds"):
        run_due_tasks(until=until)
    assert not times.SEEN


def test_without_until_no_time_passes(start):
    times.see_times.using(run_after=MINUTE).enqueue("k")
    assert run_due_tasks() == [] and run_due_tasks(until=0) == []
