"""Tasks with a set time start when they are due, although no hint and no scan finds them then."""

import os
import random
import signal
import time
import uuid
from datetime import datetime, timedelta, timezone

import helpers
import pytest
from django.db import connection
from probe import tasks

from django_txtasks import enqueue_many, enqueue_task
from django_txtasks.conf import get_config
from django_txtasks.core.working import scan_cursor
from django_txtasks.core.working.scan_cursor import ScanCursor
from django_txtasks.core.working.schedule import TurnSchedule
from django_txtasks.database.execute import fetch
from django_txtasks.database.transactions import own_transaction
from django_txtasks.fast import upcoming
from django_txtasks.fast import upcoming_look as looks
from django_txtasks.fast.upcoming_look import UpcomingLook
from django_txtasks.models import FinishedTask, PausedQueue, Task

pytestmark = pytest.mark.usefixtures("rows")

NEVER = 600  # a poll interval that no test lives to see


@pytest.fixture
def no_scans(txtasks, monkeypatch):
    """Let workers scan only at their start, without hints. Looks may take as long as they need."""
    monkeypatch.setattr(upcoming, "LONGEST_SECONDS", 60)
    txtasks(database_hints=False, poll_interval=NEVER, clean_interval=NEVER)


def look_ahead():
    config, subscription = get_config(), helpers.subscription()
    scans = ScanCursor(subscription, config.poll_interval, longest=1.0)
    return UpcomingLook(config, subscription, TurnSchedule(config), scans)


def all_are_done(count):
    return lambda: FinishedTask.objects.count() == count


@pytest.mark.about("upcoming")
def test_each_starts_at_its_time_and_none_before(no_scans):
    waits = [random.uniform(0.3, 2) for _ in range(40)]
    priorities = [0, 5, 0, -3]
    enqueue_many(
        [
            (tasks.nothing.using(run_after=wait, priority=priorities[number % 4]), [])
            for number, wait in enumerate(waits)
        ]
    )
    with helpers.working(threads=2):
        helpers.wait_until(all_are_done(40))
    for one in FinishedTask.objects.all():
        assert one.started_at >= one.run_after


@pytest.mark.about("upcoming")
def test_more_of_them_than_one_look_reads(no_scans, monkeypatch):
    monkeypatch.setattr(upcoming, "ROWS_PER_PRIORITY", 3)
    enqueue_many([(tasks.nothing.using(run_after=0.2 + 0.05 * n), []) for n in range(20)])
    with helpers.working(threads=2):
        helpers.wait_until(all_are_done(20))


def test_a_look_that_has_read_all_it_may_is_followed_by_one_when_the_last_of_them_is_due(
    no_scans, monkeypatch
):
    monkeypatch.setattr(upcoming, "ROWS_PER_PRIORITY", 1)
    for wait in (5, 8):
        enqueue_task(tasks.nothing.using(run_after=wait))
    look = look_ahead()
    look.look_ahead(time.monotonic())
    now = time.monotonic()
    assert len([at for at in look._due if at > now]) == 1
    assert look._next_look <= now + 5


@pytest.mark.about("upcoming")
def test_what_becomes_due_between_the_first_scan_and_a_late_look(no_scans, monkeypatch):
    enqueue_many([(tasks.nothing.using(run_after=0.7), []) for _ in range(3)])
    waits = [1.0]

    def late(*arguments):
        if waits:
            time.sleep(waits.pop())
        return upcoming.upcoming(*arguments)

    monkeypatch.setattr(looks, "upcoming", late)
    with helpers.working(threads=2):
        helpers.wait_until(all_are_done(3))


@pytest.mark.about("upcoming")
def test_a_priority_that_no_scan_has_seen(no_scans, monkeypatch):
    """Where scans from the head take long, those in between look only in the priorities that they know."""
    monkeypatch.setattr(scan_cursor, "SLOW_SCAN_SECONDS", 0)
    monkeypatch.setattr(scan_cursor, "PAUSE_PER_SECOND", 1_000_000)
    enqueue_task(tasks.nothing.using(run_after=3, priority=-77))
    with helpers.working():
        helpers.wait_until(all_are_done(1))


@pytest.mark.about("upcoming")
def test_many_that_are_due_at_one_instant(no_scans):
    enqueue_many([(tasks.nothing.using(run_after=0.5), []) for _ in range(500)])
    with helpers.working(threads=2):
        helpers.wait_until(all_are_done(500))


@pytest.mark.about("upcoming")
def test_what_a_dead_worker_had_looked_for_is_found_by_the_others(processes, no_scans):
    for _ in range(2):
        processes.start("runworkers", "--threads=1")
    helpers.wait_until(lambda: len(helpers.worker_pids()) == 2)
    enqueue_many([(tasks.nothing.using(run_after=11 + 0.1 * n), []) for n in range(10)])
    os.kill(helpers.worker_pids()[0], signal.SIGKILL)
    helpers.wait_until(all_are_done(10))


def test_what_is_not_for_this_worker_or_is_later_or_due_is_not_told():
    subscription = helpers.subscription()
    soon = datetime.now(timezone.utc) + timedelta(seconds=5)
    for name in ("somebody.elses", tasks.nothing.declaration.name):
        for queue in ("default", "other"):
            Task.objects.create(id=uuid.uuid4(), task_name=name, queue_name=queue, run_after=soon)
    enqueue_task(tasks.nothing)
    enqueue_task(tasks.nothing.using(run_after=15))
    enqueue_task(tasks.nothing.using(run_after=8, priority=7))
    found = upcoming.upcoming(subscription, 12.0)
    assert len(found.waits) == 2
    assert 4 < found.waits[0] < 5.1
    assert 7 < found.waits[1] < 8.1
    assert found.known_for == 12.0


def test_what_is_paused_is_not_told():
    enqueue_task(tasks.nothing.using(run_after=5))
    assert upcoming.upcoming(helpers.subscription(), 12.0).waits
    PausedQueue.objects.create(queue_name="default")
    assert not upcoming.upcoming(helpers.subscription(), 12.0).waits


def test_a_look_that_takes_too_long_rests(monkeypatch):
    monkeypatch.setattr(upcoming, "LONGEST_SECONDS", 0)
    monkeypatch.setattr(upcoming, "STATEMENT_TIMEOUT", timedelta(seconds=0.2))
    look = look_ahead()
    lock = "LOCK TABLE txtasks_task" if connection.vendor == "postgresql" else "SELECT 1"
    with helpers.locked(lock):
        look.look_ahead(1000.0)
    assert look.next == 1000.0 + looks.REST_SECONDS


def test_a_worker_that_comes_too_late_for_others_asks_less_often():
    look = look_ahead()
    look._next_look = 2000.0
    look._due = [1000.0, 1000.001, 1000.5, 1000.6]
    assert look.next == 1000.0
    assert look.pop_due(1000.002)
    look.scanned(1000.49999, claimed=False)
    assert look.next == pytest.approx(1000.49999 + looks.LEAST_PAUSE_SECONDS)
    assert not look.pop_due(1000.4)
    assert look.pop_due(1000.51)
    look.scanned(1000.51, claimed=True)
    assert look.next == 1000.6
    assert look.pop_due(1000.6)
    assert look.next == 2000.0


@pytest.mark.skipif(connection.vendor == "sqlite", reason="it does not count what it reads")
def test_a_look_reads_a_few_rows_of_a_large_table():
    helpers.execute("TRUNCATE TABLE txtasks_task")  # and what is left of the rows of earlier tests
    enqueue_many([(tasks.nothing.using(run_after=3600), [])] * 15_000)
    enqueue_many([(tasks.nothing, [])] * 5000)
    enqueue_many([(tasks.nothing.using(run_after=8), [])] * 2)
    if connection.vendor == "postgresql":
        limits = {"queue": "default", "delay": 10.0, "most": upcoming.ROWS_PER_PRIORITY}
        sql = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + upcoming.POSTGRES_UPCOMING
        with own_transaction("default", limit=timedelta(seconds=10), in_order=True):
            ((plan,),) = fetch("default", sql, **limits)
        whole = plan[0]["Plan"]
        assert whole["Actual Rows"] == 2
        # the index of 20,000 has a few hundred of them
        assert whole["Shared Hit Blocks"] + whole["Shared Read Blocks"] < 60
    else:
        before = handlers_read()
        assert len(upcoming.upcoming(helpers.subscription(), 10.0).waits) == 2
        assert handlers_read() - before < 50


def handlers_read():
    rows = helpers.execute("SHOW SESSION STATUS LIKE 'Handler_read%%'")
    return sum(int(number) for _, number in rows)
