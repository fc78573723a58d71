"""Ageing, which keeps low priorities from starving: a due task gains a step for each period that it waits."""

import helpers
import pytest
from django.db import connection, transaction  # noqa: F401 -- in conditions
from probe import tasks
from probe.models import Run

from django_txtasks import enqueue_many
from django_txtasks.conf import get_config, parse
from django_txtasks.core.rows import engines, workers
from django_txtasks.core.rows.turn import Capacity, Scan, TurnRequest
from django_txtasks.core.working.running.slots import Slots
from django_txtasks.core.working.schedule import Plan
from django_txtasks.core.working.turn_writer import TurnWriter
from django_txtasks.exceptions import ConfigError
from django_txtasks.models import Task

pytestmark = pytest.mark.usefixtures("rows")


def claimed(room, ageing=10.0, cursors=None):
    """Ids that a turn claims."""
    worker = workers.register(
        "default", queues=["default"], threads=1, listening=None, lease=get_config().lease
    )
    scan = Scan(("default",), cursors or {}, ageing=ageing)
    with transaction.atomic():
        request = TurnRequest(Capacity(room), scan=scan)
        result = engines.claim(helpers.subscription(), worker, request)
    return [one.task_id for one in result.claimed], result


def waiting(priority, seconds):
    return tasks.note.using(priority=priority, run_after=-seconds).enqueue().id


def test_a_task_gains_a_step_for_each_time_that_it_waits():
    fresh, old, older = waiting(5, 0), waiting(0, 55), waiting(-1, 75)
    same = waiting(5, 1)
    assert claimed(4)[0] == [older, same, fresh, old]
    # 6, 5 (the longest due of that priority), 5, 5 (a lower priority of its own)


def test_without_it_priorities_are_strict():
    old, fresh = waiting(0, 5000), waiting(1, 0)
    assert claimed(2, ageing=None)[0] == [fresh, old]


def test_scans_go_on_behind_what_they_have_claimed():
    """Of each priority by itself."""
    ids = [waiting(priority, 100 - n) for n in range(6) for priority in (0, 3)]
    first, result = claimed(5)
    assert result.has_more
    second, result = claimed(5, cursors=result.scan.cursors)
    third, _ = claimed(5, cursors=result.scan.cursors)
    assert sorted([*first, *second, *third]) == sorted(ids)
    assert set(first) == set(ids[1::2]) - {ids[11]}


@pytest.mark.skipif("connection.vendor == 'sqlite'", reason="one writer at a time")
def test_no_row_is_locked_that_is_not_claimed():
    """Others would take the queue for empty, or younger ones."""
    ids = [waiting(priority, 9) for priority in (0, 0, 3, 3)]
    with transaction.atomic():
        worker = workers.register(
            "default", queues=["default"], threads=1, listening=None, lease=get_config().lease
        )
        request = TurnRequest(Capacity(1), scan=Scan(("default",), ageing=10.0))
        (first,) = engines.claim(helpers.subscription(), worker, request).claimed
        others = []

        def claim_beside():
            others.append(claimed(4))

        with helpers.second_session(claim_beside):
            helpers.wait_until(lambda: others)
    ((taken, result),) = others
    assert {first.task_id, *taken} == set(ids)
    assert result.has_more  # one was in other hands


@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="it has such times")
def test_a_row_that_is_due_since_ever_takes_no_other_with_it():
    odd, old, fresh = waiting(0, 1), waiting(0, 500), waiting(5, 0)
    helpers.execute("UPDATE txtasks_task SET run_after = '-infinity' WHERE id = %s", odd.hex)
    assert claimed(3)[0] == [odd, old, fresh]


def test_a_stream_of_higher_ones_keeps_nobody_waiting(txtasks):
    txtasks(ageing=0.05, poll_interval=0.05)
    low = tasks.note.using(priority=-20).enqueue("low")
    with helpers.working(threads=1):
        helpers.wait_until(lambda: _more_until(low))
    order = list(Run.objects.order_by("id").values_list("key", flat=True))
    assert "low" in order


def _more_until(low):
    """Keep a backlog of higher ones; say whether the low one has run."""
    if tasks.Run.objects.filter(key="low").exists():
        return True
    if low.status() == "pending" and Task.objects.filter(status="pending").count() < 100:
        helpers.patiently(lambda: enqueue_many([(tasks.note.using(priority=20), ["high"])] * 20))
    return False


@pytest.mark.parametrize("seconds", [600.0, -1.0], ids=["whole scans", "sweeps"])
def test_a_backlog_that_grows_faster_than_it_is_claimed_keeps_nobody_waiting(
    txtasks, monkeypatch, seconds
):
    """Nor does it where scans take long and are made in parts: one hiccup of the machine is enough.

    That holds for what is there as the backlog begins, for what comes later, and for a priority that is new.
    """
    monkeypatch.setattr("django_txtasks.core.working.scan_cursor.SLOW_SCAN_SECONDS", seconds)
    monkeypatch.setattr("django_txtasks.core.working.scan_cursor.PAUSE_PER_SECOND", 0)
    txtasks(ageing=0.001, poll_interval=0.001)
    low, found = [waiting(-20, 0)], set()
    writer = TurnWriter(get_config(), helpers.subscription(), threads=4)
    slots = Slots(0, run=None, wake=None, patience=1.0, took=None)
    for turn in range(1000):
        if turn == 50:
            low += [waiting(-20, 100), waiting(-21, 0)]
        enqueue_many([(tasks.note.using(priority=20), ["high"])] * 5)
        claimed = writer.write(Plan(Capacity(4), scans=True), slots, None).claimed
        found |= {one.task_id for one in claimed}
        if turn > 50 and found >= set(low):
            break
    assert found >= set(low)


@pytest.mark.parametrize("wrong", [0, -1, "often", True])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ConfigError, match="ageing"):
        parse({"ageing": wrong})


def test_it_may_be_said_that_it_is_off():
    assert parse({"ageing": None}).ageing is None
