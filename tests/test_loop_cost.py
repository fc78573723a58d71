"""The cost of a pass of the loop, and the number of turns for a backlog: counted, not timed."""

import sys
import threading
import time
from pathlib import Path

import helpers
import pytest
from django.core.management import call_command
from probe import tasks
from test_runs import attempt, slots_of

from django_txtasks import enqueue_many
from django_txtasks.core import working as worker
from django_txtasks.core.working.running.slots import Slots
from django_txtasks.core.working.turn_writer import TurnWriter
from django_txtasks.fast import prefetch
from django_txtasks.fast.prefetch import LONGEST_GATHER_SECONDS, GatherPolicy
from django_txtasks.models import Status

ROOM = str(Path(worker.__file__).parent)


def lines_of(work):
    """Return how many lines of the worker's code were executed."""
    count = 0

    def trace(frame, event, arg):
        nonlocal count
        if not frame.f_code.co_filename.startswith(ROOM):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def a_pass(slots):
    """Do what the loop does with its slots between two waits."""
    slots.collect()
    slots.release(stalled=True)
    slots.enforce_limits()
    slots.are_handed(frozenset({"other"}))
    return slots.running, slots.free, slots.waiting, slots.next_look


@pytest.mark.once
def test_a_pass_of_the_loop_costs_no_more_for_what_waits_for_a_slot(monkeypatch):
    monkeypatch.setattr("django_txtasks.core.working.running.slots.STALL_SECONDS", 60)
    monkeypatch.setattr("django_txtasks.core.working.running.slots.LONGEST_WAIT_SECONDS", 60)
    begin, go_on = threading.Semaphore(0), threading.Event()

    def run(attempt, limit):
        begin.release()
        go_on.wait()

    slots, lines = slots_of(2, run), {}
    for count in (12, 502):
        while slots.running < count:
            slots.start([attempt()._replace(timeout=100.0)], time.monotonic() + 60)
        for _ in range(2 if count == 12 else 0):
            begin.acquire()
        a_pass(slots)  # what is done once for each batch
        lines[count] = lines_of(lambda: a_pass(slots))
    assert len(slots.release(stalled=False)) == 500
    go_on.set()
    slots.close()
    assert lines[502] == lines[12]


@pytest.mark.once
def test_of_what_waits_the_names_that_slots_take_next_count():
    begin, go_on = threading.Semaphore(0), threading.Event()

    def run(attempt, limit):
        begin.release()
        go_on.wait()

    slots = slots_of(1, run)
    for name in ("runs", "next", "later"):
        slots.start([attempt()._replace(task_name=name)], time.monotonic() + 60)
    begin.acquire()
    a_pass(slots)
    assert [slots.are_handed({name}) for name in ("runs", "next", "later")] == [True, True, False]
    go_on.set()
    slots.close()


@pytest.mark.once
@pytest.mark.parametrize(("after", "wakes"), [(1, 4), (2, 3), (4, 1), (5, 0)])
def test_the_loop_is_woken_once_so_many_slots_are_free(after, wakes):
    """With 2: not by the first one, and by each one that the loop has not looked at yet from then on."""
    woken = []
    slots = Slots(
        1,
        run=lambda attempt, limit: None,
        wake=lambda: woken.append(1),
        patience=1.0,
        took=None,
    )
    slots.wake_after(after)
    for _ in range(4):
        slots.start([attempt()], time.monotonic() + 60)
    slots.close()
    assert len(woken) == wakes


@pytest.mark.once
def test_what_ended_before_the_loop_waits_for_fewer_wakes_it():
    """While a turn took its time, all but the last of what it waits for have ended."""
    woken, gate = threading.Event(), threading.Semaphore(0)
    slots = Slots(
        1,
        run=lambda attempt, limit: gate.acquire(),
        wake=woken.set,
        patience=1.0,
        took=None,
    )
    for _ in range(6):
        slots.start([attempt()], time.monotonic() + 60)
    slots.wake_after(3)
    gate.release(2)
    helpers.wait_until(lambda: len(slots._threads.over) == 2)
    assert not woken.is_set()
    slots.wake_after(2)
    assert woken.is_set()
    gate.release(4)
    slots.close()


@pytest.mark.once
def test_what_was_released_does_not_wait_any_more():
    begin, go_on = threading.Semaphore(0), threading.Event()

    def run(attempt, limit):
        begin.release()
        go_on.wait()

    slots = slots_of(2, run)
    for _ in range(12):
        slots.start([attempt()], time.monotonic() + 60)
    for _ in range(2):
        begin.acquire()
    assert slots.waiting == 10
    assert len(slots.release(stalled=False)) == 10
    assert slots.waiting == 0
    slots.start([attempt()], time.monotonic() + 60)
    assert slots.waiting == 1
    go_on.set()
    slots.close()


@pytest.fixture
def claims(monkeypatch):
    """How many tasks each turn has claimed."""
    numbers, write = [], TurnWriter.write

    def counted(self, *args):
        result = write(self, *args)
        numbers.append(len(result.claimed))
        return result

    monkeypatch.setattr(TurnWriter, "write", counted)
    return numbers


@pytest.mark.usefixtures("rows")
def test_in_a_backlog_a_turn_waits_for_all_slots_whose_tasks_are_short(monkeypatch, claims):
    """However long that is here."""
    monkeypatch.setattr(GatherPolicy, "seconds", _ten_minutes)
    monkeypatch.setattr(prefetch, "SOON_TASKS", 1e6)
    monkeypatch.setattr(prefetch, "SHORT_SECONDS", 60.0)  # also where a busy machine is slow
    enqueue_many([(tasks.note, (f"n{number}",)) for number in range(80)])
    call_command("runworkers", batch=True, threads=8)
    assert helpers.runs() == 80
    claimed = [number for number in claims if number]
    assert claimed[:8] == [8] * 8  # the last ones may have been tried again


@pytest.mark.usefixtures("rows")
def test_a_turn_does_not_wait_for_a_task_that_takes_longer_than_others(monkeypatch):
    """The other slots go on, though each may wait for ten minutes."""
    monkeypatch.setattr(GatherPolicy, "seconds", _ten_minutes)
    handles = enqueue_many(
        [(tasks.until_released, ("long",)), *((tasks.note, (f"n{one}",)) for one in range(40))]
    )
    tasks.released.clear()
    with helpers.working(threads=4):
        try:
            helpers.wait_until(lambda: helpers.runs() == 41)
            assert handles[0].status() == Status.CLAIMED
        finally:
            tasks.released.set()


def _ten_minutes(policy, task_seconds):
    return 600.0 if task_seconds else 0.0


@pytest.mark.once
def test_a_free_slot_waits_no_longer_than_a_turn_takes_or_a_task_or_four_milliseconds():
    policy = GatherPolicy()
    assert policy.seconds(0.001) == 0
    policy.turn_took(0.002)
    assert [policy.seconds(one) for one in (0.0, 0.001, 0.05)] == [0, 0.001, 0.002]
    for _ in range(100):
        policy.turn_took(1.0)
    assert policy.seconds(0.05) == LONGEST_GATHER_SECONDS


@pytest.mark.once
def test_only_what_will_probably_end_in_a_moment_is_waited_for():
    policy = GatherPolicy()
    policy.turn_took(0.001)
    assert policy.begun_between(0.010, now=100.0) == pytest.approx((99.98, 99.993))
    assert policy.begun_between(0.002, now=100.0) == pytest.approx((99.996, 100.001))  # all of them
