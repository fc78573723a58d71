"""Short tasks that may run again share a slot: claimed ahead by the hundred, never hoarded."""

import threading
import time
import uuid
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import helpers
import pytest
from django.db import connection, transaction
from probe import tasks
from probe.models import Run

from django_txtasks import enqueue_many
from django_txtasks.conf import get_config
from django_txtasks.core.cleaning import Cleaner
from django_txtasks.core.rows import engines, workers
from django_txtasks.core.rows.attempts import Arrow, Attempt, Ended
from django_txtasks.core.rows.engines import portable
from django_txtasks.core.rows.turn import (
    Bucket,
    Capacity,
    RecentWindow,
    Scan,
    ScanResult,
    TurnOrder,
    TurnRequest,
    TurnResult,
)
from django_txtasks.core.working.hint_inbox import HintInbox
from django_txtasks.core.working.running.slots import LONGEST_WAIT_SECONDS, STALL_SECONDS, Slots
from django_txtasks.core.working.schedule import Plan, TurnSchedule
from django_txtasks.core.working.turn_writer import TurnWriter
from django_txtasks.core.working.worker import Worker as Loop
from django_txtasks.fast import postgresql
from django_txtasks.fast.prefetch import (
    AHEAD_SECONDS,
    CLAIM_TASKS,
    FIRST_TASKS,
    SHORT_SECONDS,
    SLOT_RUN_SECONDS,
    TINY_SECONDS,
    PrefetchPolicy,
)
from django_txtasks.hints.broker.consumer import Hint
from django_txtasks.models import FinishedTask, Status, Task
from django_txtasks.processes.shutdown import Shutdown

pytestmark = pytest.mark.usefixtures("rows")


def attempt(name="short", *, may_share=True):
    return Attempt(uuid.uuid4(), 1, uuid.uuid4(), name, may_share=may_share)


def pace_of(*, threads=1, **means):
    prefetch = PrefetchPolicy(threads)
    for name, seconds in means.items():
        for _ in range(50):
            prefetch.took(name, seconds)
    return prefetch


AT_ONCE = pytest.param(
    "at_once", marks=[pytest.mark.about("one_statement"), pytest.mark.about("two_blocks")]
)


@pytest.fixture(params=["in_several_statements", AT_ONCE, "after_a_beat"])
def claim(request):
    """Scans, in each way that a worker does it; gives the result of the turn."""

    def in_several_statements(*asked):
        with transaction.atomic():
            return portable.claim(*asked)

    def at_once(subscription, worker, asked):
        state = workers.state_of("default", running=0, listening=None)
        order = TurnOrder(
            subscription, worker, state, asked, [], keep=True, limit=timedelta(seconds=9)
        )
        return engines.turn(order)

    def after_a_beat(subscription, worker, asked):
        with transaction.atomic():
            assert workers.beat("default", worker, running=0, listening=None)
            return postgresql.claim(subscription, worker, asked)

    ways = {one.__name__: one for one in (in_several_statements, at_once, after_a_beat)}
    if (
        request.param
        not in {
            "postgresql": ways,
            "mysql": ["in_several_statements", "at_once"],
            "sqlite": ["in_several_statements"],
        }[connection.vendor]
    ):
        pytest.skip("this database has no such way")

    def scan(worker, capacity, cursors=None, *, recent=None, queues=("default",)):
        if isinstance(capacity, int):
            capacity = Capacity(capacity)
        asked = TurnRequest(capacity, scan=Scan(tuple(queues), cursors or {}, recent))
        return ways[request.param](helpers.subscription(*queues), worker, asked)

    return scan


@contextmanager
def held(door):
    door.clear()
    try:
        yield
    finally:
        door.set()


def slots_of(count, run):
    return Slots(count, run=run, wake=lambda: None, patience=1.0, took=lambda name, seconds: None)


def behind(door, one):
    """End an attempt when the door opens."""
    door.wait(60)
    return Ended(attempt=one, arrow=Arrow.FINISH)


@pytest.fixture
def slow_is_short(monkeypatch):
    """A task that writes one row is short on a machine without time for it, too."""
    for name in ("TINY_SECONDS", "SHORT_SECONDS", "AHEAD_SECONDS"):
        monkeypatch.setattr(f"django_txtasks.fast.prefetch.{name}", 60)


def ids(attempts):
    return [one.task_id for one in attempts]


def register():
    return workers.register(
        "default", queues=["default"], threads=1, listening=None, lease=get_config().lease
    )


# ---- what may share


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"crashes": 1}, False),
        ({"max_crashes": 1}, False),
        ({"on_crash": "dead"}, False),
    ],
)
def test_only_what_may_run_again_and_has_not_crashed_shares_a_slot(claim, changes, expected):
    handle = tasks.quick.enqueue()
    Task.objects.filter(pk=handle.id).update(**changes)
    (taken,) = claim(register(), 1).claimed
    assert taken.may_share is expected


def test_a_neighbour_of_a_crash_runs_again_in_a_slot_of_its_own(claim):
    enqueue_many((tasks.quick, ()) for _ in range(3))
    worker = register()
    assert len(claim(worker, 3).claimed) == 3
    helpers.execute("UPDATE txtasks_worker SET lost = TRUE WHERE id = %s", worker.hex)
    Cleaner(get_config()).run_once()
    again = claim(register(), 3).claimed
    assert [(one.crashes, one.may_share) for one in again] == [(1, False)] * 3


def test_what_finds_no_room_is_overtaken_by_none():
    capacity = Capacity(1, 5, short_names=frozenset({"short"}))
    waiting = [attempt(), attempt("long"), attempt(), attempt("long"), attempt()]
    admitted, rest, blocked_queue = capacity.admit(waiting)
    assert admitted == waiting[:3]
    assert (rest.dedicated, rest.prefetch, blocked_queue) == (0, 3, waiting[3].queue_name)


def test_a_short_task_without_a_shared_place_takes_one_of_its_own():
    capacity = Capacity(2, 1, short_names=frozenset({"short"}))
    waiting = [attempt(), attempt(), attempt()]
    admitted, rest, blocked_queue = capacity.admit([*waiting, attempt()])
    assert (admitted, rest.width, blocked_queue) == (waiting, 0, None)


def test_a_scan_leaves_what_is_due_later(claim):
    tasks.quick.using(run_after=timedelta(seconds=30)).enqueue()
    due = tasks.quick.enqueue()
    assert ids(claim(register(), 5).claimed) == [due.id]


def test_a_scan_takes_higher_priorities_first_and_then_the_queues_in_their_order(claim):
    names = ["mail", "default"]
    handles = {
        (queue, priority): tasks.quick.using(queue_name=queue, priority=priority).enqueue().id
        for priority in (0, 5)
        for queue in names
    }
    tasks.quick.using(priority=9, run_after=timedelta(seconds=30)).enqueue()
    worker = register()
    order = [("default", 5), ("mail", 5), ("default", 0), ("mail", 0)]
    found = claim(worker, 3, queues=["default", "mail"])
    assert ids(found.claimed) == [handles[one] for one in order[:3]]
    assert found.scan.backlog
    assert ids(claim(worker, 3, queues=["default", "mail"]).claimed) == [handles[order[3]]]


# ---- how many


def test_nothing_is_claimed_ahead_before_it_is_known_to_be_short():
    assert PrefetchPolicy(1).ahead(0) == 0
    assert pace_of(short=SHORT_SECONDS / 2, long=SHORT_SECONDS * 2).short == {"short"}


def test_a_name_that_becomes_slow_is_noticed_at_once():
    prefetch = pace_of(short=0.0001)
    prefetch.took("short", 1.0)
    assert not prefetch.short


def test_so_much_is_claimed_ahead_as_takes_a_moment():
    prefetch = pace_of(tiny=TINY_SECONDS / 2)
    assert prefetch.ahead(0) == FIRST_TASKS
    for _ in range(10):
        prefetch.learn([attempt("tiny") for _ in range(CLAIM_TASKS)])
    assert prefetch.ahead(0) == int(AHEAD_SECONDS / (TINY_SECONDS / 2))
    assert prefetch.ahead(CLAIM_TASKS) == 0
    prefetch.learn([attempt("tiny", may_share=False)])
    assert prefetch.ahead(0) == 1  # each row that is looked at is locked, which is written, too


def test_slots_that_are_free_in_a_moment_have_their_next_tasks_ready():
    """Else each would be idle for as long as a turn takes, which is a tenth of a short task."""
    prefetch = pace_of(short=AHEAD_SECONDS / 3, threads=4)
    assert [prefetch.ahead(held) for held in (0, 4, 10, 11)] == [12, 8, 2, 0]
    long = pace_of(short=SHORT_SECONDS * 0.9, threads=4)
    assert [long.ahead(held) for held in (4, 6, 7, 8)] == [2, 0, 0, 0]


def test_a_run_is_no_longer_than_a_moment_and_what_is_not_tiny_is_alone():
    prefetch = pace_of(tiny=TINY_SECONDS / 2, short=SHORT_SECONDS / 2, long=1.0)
    each = int(SLOT_RUN_SECONDS / (TINY_SECONDS / 2))
    waiting = [
        *(attempt("tiny") for _ in range(each + 1)),
        attempt("long"),
        attempt("tiny"),
        attempt("tiny"),
        attempt("short"),
        attempt("short"),
        attempt("tiny"),
        attempt("tiny", may_share=False),
    ]
    assert [len(run) for run in prefetch.runs(waiting)] == [each, 1, 1, 2, 1, 1, 1, 1]


# ---- at work


@pytest.mark.usefixtures("slow_is_short")
def test_short_tasks_are_claimed_by_the_hundred_and_each_runs_once(monkeypatch):
    monkeypatch.setattr("django_txtasks.core.working.running.slots.STALL_SECONDS", 60)
    enqueue_many((tasks.quick, (f"{number}",)) for number in range(900))
    claimed = []

    def all_finished():
        claimed.append(Task.objects.filter(status=Status.CLAIMED).count())
        return FinishedTask.objects.count() == 900

    with helpers.working(threads=2):
        helpers.wait_until(all_finished)
    assert max(claimed) > 100, "no more than run, and what has just ended"
    assert Run.objects.values("key").distinct().count() == Run.objects.count() == 900


@pytest.mark.usefixtures("slow_is_short")
def test_tasks_behind_one_that_takes_long_are_given_back():
    """They are pending again while their slot is busy: another worker may have room."""
    with helpers.working(threads=1), held(tasks.DOOR):
        enqueue_many((tasks.at_the_door, (f"{number}",)) for number in range(30))
        helpers.wait_until(lambda: FinishedTask.objects.count() == 30)
        tasks.at_the_door.enqueue("held")
        helpers.wait_until(lambda: helpers.runs("held"))
        enqueue_many((tasks.at_the_door, (key,)) for key in "abcdefghij")
        given_back = Task.objects.filter(status=Status.PENDING, attempt=1)
        helpers.wait_until(lambda: given_back.count() == 10)
        tasks.DOOR.set()
        helpers.wait_until(lambda: FinishedTask.objects.count() == 41)
    assert Run.objects.count() == 41
    assert set(FinishedTask.objects.values_list("crashes", "failures")) == {(0, 0)}


def test_a_queue_of_runs_that_moves_on_is_no_stall():
    """Else what is claimed ahead on purpose would be given back, and claimed again, for ever."""
    door, begun = threading.Event(), threading.Event()

    def run(one, limit):
        begun.set()
        return behind(door, one)

    slots = slots_of(1, run)
    slots.start([attempt()])
    assert begun.wait(30)
    slots.start([attempt()])
    busy, waits = sorted(slots._runs.all, key=lambda one: not one.begun)
    waits.since = 1000.0
    looks = []
    for busy.since in (999.0, 1000.3, 1060.0):
        looks.append(slots.next_look)
    door.set()
    slots.close()
    assert looks == [1000.0 + STALL_SECONDS, 1000.3 + STALL_SECONDS, 1000.0 + LONGEST_WAIT_SECONDS]


def looked_up(plan, *, filled=False):
    """A turn that found only the tasks that it looked up, which other workers have claimed."""
    scan = ScanResult({}, backlog=filled) if plan.scans else None
    return TurnResult(plan.capacity, looked_up=plan.hinted, scan=scan)


def test_a_worker_with_enough_to_do_looks_up_hints_and_does_not_scan():
    prefetch = pace_of(tiny=TINY_SECONDS / 5, threads=4)
    enough = next(held for held in range(CLAIM_TASKS) if prefetch.is_enough(held))
    assert prefetch.ahead(enough) == 0 < prefetch.ahead(enough - 1)
    schedule, hint = TurnSchedule(get_config()), uuid.uuid4()
    room, nothing = Capacity(3), {"unrecorded": False}
    assert schedule.next_turn(room, hinted=False, may_scan=False, **nothing) == 0  # it never beat
    plan = schedule.plan(room, [hint], 1.0, may_scan=False)
    assert (plan.hinted, plan.scans) == ([hint], False)
    schedule.written(looked_up(plan), 1.0, busy=False)
    assert schedule.next_turn(room, hinted=True, may_scan=False, **nothing) == 0
    assert schedule.next_turn(room, hinted=False, may_scan=False, **nothing) > 1
    assert schedule.next_turn(room, hinted=False, **nothing) == 0


def test_a_backlog_is_scanned_and_hints_come_again_with_the_first_scan_that_has_room():
    schedule, hint, now = TurnSchedule(get_config()), uuid.uuid4(), 1.0
    for filled, ids_looked_up in [(True, [hint]), (True, []), (False, []), (False, [hint])]:
        schedule.look_again()
        plan = schedule.plan(Capacity(3), [hint], now)
        assert (plan.scans, plan.hinted) == (True, ids_looked_up)
        schedule.written(looked_up(plan, filled=filled), now, busy=False)
        assert schedule.next_turn(Capacity(3), hinted=True, unrecorded=False) == 0


def test_a_hint_of_more_makes_a_worker_with_room_scan_now():
    schedule, hint, now = TurnSchedule(get_config()), uuid.uuid4(), 1.0
    schedule.written(looked_up(schedule.plan(Capacity(3), [], now)), now, busy=False)
    for room, may_scan, due in [(0, True, False), (3, False, False), (3, True, True)]:
        asked = {"more": True, "may_scan": may_scan}
        time_of_next = schedule.next_turn(Capacity(room), hinted=False, unrecorded=False, **asked)
        assert (time_of_next == 0) is due
        assert schedule.plan(Capacity(room), [hint], now, **asked).scans is due
    plan = schedule.plan(Capacity(3), [hint], now, more=True)
    assert plan.hinted == []
    schedule.written(looked_up(plan), now, busy=False)
    assert schedule.plan(Capacity(3), [hint], now).hinted == [hint]


@pytest.mark.parametrize(
    ("scans", "settled"), [((True,), False), ((True, True), True), ((False,), False)], ids=str
)
def test_whom_the_first_scan_fills_leaves_a_hint_of_more_to_others(scans, settled):
    said, inbox = [], HintInbox()
    one = uuid.uuid4()
    inbox.deliver(
        Hint([one], True, settle=lambda: said.append("read"), decline=lambda: said.append("back"))
    )
    inbox.wait(0)
    assert inbox.more
    for filled in scans:
        assert not said
        inbox.scanned(filled=filled)
    assert said == (["read"] if settled else [])
    assert list(inbox.ids) == ([] if settled else [one])
    inbox.decline()
    assert said == (["read"] if settled else ["back"])
    assert not inbox.more


def test_claims_that_have_become_too_old_to_begin_are_given_back():
    """A machine that slept: by now the cleaner may have given them to somebody else."""
    begun = []

    def run(one, limit):
        begun.append(one)
        return Ended(attempt=one, arrow=Arrow.FINISH)

    rung = threading.Event()
    slots = Slots(1, run=run, wake=rung.set, patience=1.0, took=lambda name, seconds: None)
    old = [attempt(), attempt()]
    slots.start(old, good_until=time.monotonic() - 0.001)
    assert rung.wait(30)
    assert slots.collect() == []
    assert sorted(slots.release(stalled=True)) == sorted(old)
    slots.close()
    assert (begun, slots.running) == ([], 0)


def test_a_task_that_needs_a_slot_of_its_own_comes_before_a_backlog_of_short_ones_in_another_queue():
    with held(tasks.DOOR), helpers.working(threads=1, queues=["default", "mail"]):
        enqueue_many((tasks.quick, (f"{number}",)) for number in range(200))
        helpers.wait_until(lambda: FinishedTask.objects.count() == 200)
        tasks.at_the_door.enqueue("held")
        helpers.wait_until(lambda: helpers.runs("held"))
        enqueue_many((tasks.quick, (f"{number}",)) for number in range(2000))
        alone = [tasks.note.using(queue_name="mail").enqueue().id for _ in range(3)]
        tasks.DOOR.set()
        helpers.wait_until(lambda: all(helpers.finished(one) for one in alone), 120)
        last = max(helpers.finished(one).finished_at for one in alone)
        later = FinishedTask.objects.filter(finished_at__gt=last).count()
        assert Task.objects.count() + later > 100


# ---- the scan of a backlog


def test_a_scan_goes_on_where_the_last_one_ended_and_begins_anew_after_the_backlog(claim):
    first = sorted(handle.id for handle in enqueue_many((tasks.quick, ()) for _ in range(5)))
    worker = register()
    found = claim(worker, 2)
    assert ids(found.claimed) == first[:2]
    older = tasks.quick.enqueue()
    helpers.execute("UPDATE txtasks_task SET run_after = '2001-01-01' WHERE id = %s", older.id.hex)
    found = claim(worker, 2, found.scan.cursors)
    assert ids(found.claimed) == first[2:4]
    found = claim(worker, 9, found.scan.cursors)
    assert ids(found.claimed) == first[4:]
    assert found.scan.cursors == {} and found.scan.backlog  # the next one comes at once
    assert ids(claim(worker, 9, found.scan.cursors).claimed) == [older.id]


def test_a_scan_of_what_is_recent_looks_no_further_back(claim):
    buckets = (Bucket(9, "default"), Bucket(0, "default"))
    early, due, urgent, of_no_bucket = (
        function.using(run_after=timedelta(seconds=seconds), priority=priority).enqueue().id
        for function, seconds, priority in (
            (tasks.quick, -100, 0),
            (tasks.quick, -20, 0),
            (tasks.quick, -5, 9),
            (tasks.quick, -1, 3),
        )
    )
    worker, minute = register(), RecentWindow(buckets, 60.0)
    found = claim(worker, 9, recent=minute)
    assert ids(found.claimed) == [urgent, due]
    assert set(found.scan.cursors) == set(buckets) and not found.scan.backlog
    later = tasks.quick.enqueue().id
    found = claim(worker, 9, found.scan.cursors, recent=RecentWindow(buckets, 0.001))
    assert ids(found.claimed) == [later]  # by its cursor
    found = claim(worker, 9, found.scan.cursors, recent=minute)
    assert found.claimed == []
    assert (
        set(found.scan.cursors) == set(buckets) and not found.scan.backlog
    )  # nothing more comes at once
    assert ids(claim(worker, 9).claimed) == [of_no_bucket, early]


@pytest.fixture
def cheap_head(monkeypatch):
    """A scan takes no long time, however slow this machine is."""
    monkeypatch.setattr("django_txtasks.core.working.scan_cursor.SLOW_SCAN_SECONDS", 600.0)


def test_where_a_scan_from_the_head_takes_long_it_is_done_seldom_and_in_parts(
    txtasks, monkeypatch, cheap_head
):
    """An old snapshot keeps dead rows, which such a scan walks over: millions of them, in the end."""
    txtasks(poll_interval=0.001)
    subscription = helpers.subscription()
    writer = TurnWriter(get_config(), subscription, threads=1)
    slots = Slots(0, run=None, wake=None, patience=1.0, took=None)

    def scan():
        time.sleep(0.002)
        return writer.write(Plan(Capacity(9), scans=True), slots, None)

    assert not scan().scan.is_partial and not scan().scan.is_partial
    monkeypatch.setattr("django_txtasks.core.working.scan_cursor.SLOW_SCAN_SECONDS", -1.0)
    monkeypatch.setattr("django_txtasks.core.working.scan_cursor.PAUSE_PER_SECOND", 100_000)
    assert not scan().scan.is_partial
    assert scan().scan.is_partial
    new = tasks.quick.enqueue()
    late = tasks.quick.using(run_after=timedelta(seconds=-1000)).enqueue()
    assert ids(scan().claimed) == [new.id]
    assert scan().claimed == []
    schedule = TurnSchedule(get_config())
    schedule.written(scan(), 0.0, busy=False)
    assert not schedule.nothing_due  # nobody has looked at all
    writer.scans._next_head = 0.0  # half a minute later
    monkeypatch.setattr("django_txtasks.core.working.scan_cursor.SLOW_SCAN_SECONDS", 600.0)
    found = []
    helpers.wait_until(lambda: found.extend(ids(scan().claimed)) or found)
    assert found == [late.id]
    helpers.wait_until(lambda: not scan().scan.is_partial)


def test_workers_that_begin_together_part_and_then_scan_once_an_interval():
    config = get_config()
    poll = config.poll_interval.total_seconds()
    schedules = [TurnSchedule(config) for _ in range(100)]

    def next_turns(now):
        for schedule in schedules:
            schedule.written(
                TurnResult(Capacity(1), scan=ScanResult({}, backlog=False)), now, busy=False
            )
        return [
            one.next_turn(Capacity(1), hinted=False, unrecorded=False) - now for one in schedules
        ]

    apart = next_turns(100.0)
    assert len(set(apart)) > 90 and min(apart) >= poll / 2 and max(apart) <= poll
    assert next_turns(200.0) == pytest.approx([poll] * 100)
    for schedule in schedules:  # an outage brings them together again
        schedule.failed(RuntimeError("the server is gone"), 300.0)
    assert len(set(next_turns(300.0))) > 90


def test_what_found_no_room_is_where_the_next_scan_begins(claim):
    first, alone, last = (
        function.using(run_after=timedelta(seconds=seconds)).enqueue().id
        for function, seconds in ((tasks.quick, -3), (tasks.note, -2), (tasks.quick, -1))
    )
    worker = register()
    capacity = Capacity(0, 5, short_names=frozenset({"probe.tasks.quick"}))
    found = claim(worker, capacity)
    assert (ids(found.claimed), found.blocked_queue) == ([first], "default")
    assert ids(claim(worker, 5, found.scan.cursors).claimed) == [alone, last]


def test_a_worker_looks_up_no_more_due_tasks_than_it_has_room_for():
    """Those that it expected to be due by now; in a backlog the scan finds them in their turn."""
    schedule, now = TurnSchedule(get_config()), time.monotonic()
    due = [uuid.uuid4() for _ in range(100)]
    schedule.timers.due_in({task_id: number / 1000 for number, task_id in enumerate(due)}, now)
    plan = schedule.plan(Capacity(4), [], now + 1)
    assert plan.hinted == due[:4]
    assert schedule.timers.next() <= now + 1
    schedule.written(looked_up(replace(plan, scans=True), filled=True), now + 1, busy=False)
    assert schedule.timers.next() == float("inf")


def test_what_is_given_back_in_a_backlog_is_what_the_next_scan_begins_with(txtasks, cheap_head):
    txtasks(poll_interval=60)
    enqueue_many((tasks.quick, ()) for _ in range(5))
    slots = Slots(0, run=None, wake=None, patience=1.0, took=None)
    writer = TurnWriter(get_config(), helpers.subscription(), threads=1)
    turns = []
    for _ in range(2):
        claimed = writer.write(Plan(Capacity(2), scans=True), slots, None).claimed
        writer.buffer.add(Ended(attempt=one, arrow=Arrow.RELEASE) for one in claimed)
        turns.append(ids(claimed))
    assert turns[0] == turns[1] != []


def test_a_batch_does_not_end_before_what_was_given_back_behind_the_marks_of_its_scans(txtasks):
    txtasks(poll_interval=60)
    inbox = HintInbox()
    subscription = helpers.subscription()
    loop = Loop(
        get_config(),
        subscription,
        threads=1,
        inbox=inbox,
        stop=Shutdown(10, inbox.wake),
        until_idle=True,
    )
    for _ in range(50):  # so long that a worker which is full claims nothing more before it is idle
        loop.prefetch.took("probe.tasks.at_the_door", AHEAD_SECONDS / 2)
    width = loop.turns.capacity().width
    tasks.at_the_door.using(run_after=timedelta(seconds=-1)).enqueue("held")
    enqueue_many((tasks.at_the_door, (f"{number}",)) for number in range(1, width))
    with held(tasks.DOOR), helpers.second_session(loop.run):
        helpers.wait_until(lambda: helpers.runs("held"))
        helpers.wait_until(lambda: helpers.counts()["pending"] == width - 1)
        tasks.DOOR.set()
    assert FinishedTask.objects.count() == width


def test_a_scan_that_found_no_room_does_not_say_that_nothing_is_due():
    schedule = TurnSchedule(get_config())
    result = TurnResult(Capacity(0, 5), scan=ScanResult({}, backlog=False), blocked_queue="default")
    schedule.written(result, 0.0, busy=False)
    assert not schedule.nothing_due


def test_results_are_kept_as_they_were_returned():
    odd = ['"', "\\", '\\"', "NULL", "null", None, "", "{a,b}", "%s", "a\nb", "ü€😀", {'"': ["\\"]}]
    handles = enqueue_many((tasks.give, [value]) for value in odd)
    with helpers.working(threads=1):
        helpers.wait_until(lambda: FinishedTask.objects.count() == len(odd))
    assert [helpers.finished(one.id).result for one in handles] == odd


@pytest.mark.once
def test_an_error_of_our_own_in_a_slot_keeps_its_text_and_traceback():
    def run(attempt, limit):
        raise AttributeError("what went wrong")

    slots = slots_of(1, run)
    slots.start([attempt()], good_until=time.monotonic() + 60)
    [(ended, _)] = helpers.wait_until(slots.collect)
    assert (ended.error["type"], ended.error["message"]) == ("AttributeError", "what went wrong")
    assert "raise AttributeError" in ended.error["traceback"]
    assert isinstance(ended.exception, AttributeError)
    slots.close()
