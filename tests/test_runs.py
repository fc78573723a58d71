"""Short tasks that may run again share a slot: claimed ahead by the hundred, never hoarded."""

import threading
import time
import uuid
from contextlib import contextmanager
from datetime import timedelta

import helpers
import pytest
from django.db import connection, transaction
from probe import tasks
from probe.models import Run

from django_txtasks import enqueue_many, registry
from django_txtasks.broker.consumer import Hint
from django_txtasks.cleaner import Cleaner
from django_txtasks.conf import get_config
from django_txtasks.lifecycle import at_once, claims, workers
from django_txtasks.lifecycle.attempts import Arrow, Attempt, Ended
from django_txtasks.lifecycle.claims import Recent, Room, Subscription
from django_txtasks.models import FinishedTask, Status, Task
from django_txtasks.worker.bell import Bell
from django_txtasks.worker.ledger import Ledger, Turn
from django_txtasks.worker.pace import AHEAD, BATCH, FIRST, INSTANT, RUN, SHORT, TINY, Pace
from django_txtasks.worker.schedule import Schedule
from django_txtasks.worker.slots import LONGEST_WAIT, STALL, Slots
from django_txtasks.worker.stopping import Stop
from django_txtasks.worker.worker import Worker as Loop

pytestmark = pytest.mark.usefixtures("rows")


def attempt(name="short", *, may_share=True):
    return Attempt(uuid.uuid4(), 1, uuid.uuid4(), name, may_share=may_share)


def pace_of(*, threads=1, **means):
    pace = Pace(threads)
    for name, seconds in means.items():
        for _ in range(50):
            pace.took(name, seconds)
    return pace


@pytest.fixture(params=["in a transaction", "at once"])
def claim(request):
    """Claims what a scan finds, in both ways that a worker does it."""

    def in_a_transaction(worker, room, marks=None, *, recent=None, queues=("default",)):
        subscription = Subscription("default", list(queues), registry.names())
        with transaction.atomic():
            return claims.claim_due(subscription, worker, room, marks, recent)

    def in_one_statement(worker, room, marks=None, *, recent=None, queues=("default",)):
        subscription = Subscription("default", list(queues), registry.names())
        state = workers.state_of("default", running=0, listening=None)
        nothing = {"ended": [], "ids": [], "keep": True, "limit": timedelta(seconds=9)}
        marks = {} if marks is None else marks
        written = at_once.turn(
            subscription, worker, state, marks=marks, recent=recent, room=room, **nothing
        )
        return written.claimed

    if request.param == "in a transaction":
        return in_a_transaction
    if connection.vendor != "postgresql":
        pytest.skip("others take more than one statement")
    return in_one_statement


@contextmanager
def held(door):
    door.clear()
    try:
        yield
    finally:
        door.set()


def slots_of(count, run):
    return Slots(count, run=run, ring=lambda: None, patience=1.0, took=lambda name, seconds: None)


def behind(door, one):
    """End an attempt when the door opens."""
    door.wait(60)
    return Ended(attempt=one, arrow=Arrow.FINISH)


@pytest.fixture
def patient_line(monkeypatch):
    """One in line that hangs is waited for by the others, however slow this machine is."""
    monkeypatch.setattr("django_txtasks.worker.slots.HOLDS_UP", 600)


@pytest.fixture
def slow_is_short(monkeypatch):
    """A task that writes one row is short on a machine without time for it, too."""
    for name in ("TINY", "SHORT", "AHEAD"):
        monkeypatch.setattr(f"django_txtasks.worker.pace.{name}", 60)


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
    (taken,) = claim(register(), Room(1))
    assert taken.may_share is expected


def test_a_neighbour_of_a_crash_runs_again_in_a_slot_of_its_own(claim):
    enqueue_many((tasks.quick, ()) for _ in range(3))
    worker = register()
    assert len(claim(worker, Room(3))) == 3
    helpers.execute("UPDATE txtasks_worker SET lost = TRUE WHERE id = %s", worker.hex)
    Cleaner(get_config()).run_once()
    again = claim(register(), Room(3))
    assert [(one.crashes, one.may_share) for one in again] == [(1, False)] * 3


def test_what_finds_no_room_is_overtaken_by_none():
    room = Room(alone=1, ahead=5, short={"short"})
    waiting = [attempt(), attempt("long"), attempt(), attempt("long"), attempt()]
    assert room.take(waiting) == waiting[:3]
    assert room.crowded


def test_a_short_task_without_a_shared_place_takes_one_of_its_own():
    room = Room(alone=2, ahead=1, short={"short"})
    waiting = [attempt(), attempt(), attempt()]
    assert room.take(waiting) == waiting
    assert not room.crowded


def test_a_scan_leaves_what_is_due_later(claim):
    tasks.quick.using(run_after=timedelta(seconds=30)).enqueue()
    due = tasks.quick.enqueue()
    assert ids(claim(register(), Room(5))) == [due.id]


def test_a_scan_takes_higher_priorities_first_and_then_the_queues_in_their_order(claim):
    names = ["mail", "default"]
    handles = {
        (queue, priority): tasks.quick.using(queue_name=queue, priority=priority).enqueue().id
        for priority in (0, 5)
        for queue in names
    }
    tasks.quick.using(priority=9, run_after=timedelta(seconds=30)).enqueue()
    worker, room = register(), Room(3)
    order = [("default", 5), ("mail", 5), ("default", 0), ("mail", 0)]
    found = claim(worker, room, queues=["default", "mail"])
    assert ids(found) == [handles[one] for one in order[:3]]
    assert room.filled
    assert ids(claim(worker, Room(3), queues=["default", "mail"])) == [handles[order[3]]]


# ---- how many


def test_nothing_is_claimed_ahead_before_it_is_known_to_be_short():
    assert Pace(1).ahead(0) == 0
    assert pace_of(short=SHORT / 2, long=SHORT * 2).short == {"short"}


def test_a_name_that_becomes_slow_is_noticed_at_once():
    pace = pace_of(short=0.0001)
    pace.took("short", 1.0)
    assert not pace.short


def test_so_much_is_claimed_ahead_as_takes_a_moment():
    pace = pace_of(tiny=TINY / 2)
    assert pace.ahead(0) == FIRST
    for _ in range(10):
        pace.learn([attempt("tiny") for _ in range(BATCH)])
    assert pace.ahead(0) == int(AHEAD / (TINY / 2))
    assert pace.ahead(BATCH) == 0
    pace.learn([attempt("tiny", may_share=False)])
    assert pace.ahead(0) == 1  # each row that is looked at is locked, which is written, too


def test_slots_that_are_free_in_a_moment_have_their_next_tasks_ready():
    """Else each would be idle for as long as a turn takes, which is a tenth of a short task."""
    pace = pace_of(short=AHEAD / 3, threads=4)
    assert [pace.ahead(held) for held in (0, 4, 10, 11)] == [12, 8, 2, 0]
    long = pace_of(short=SHORT * 0.9, threads=4)
    assert [long.ahead(held) for held in (4, 6, 7, 8)] == [2, 0, 0, 0]


def test_a_run_is_no_longer_than_a_moment_and_what_is_not_tiny_is_alone():
    pace = pace_of(tiny=TINY / 2, short=SHORT / 2, long=1.0)
    each = int(RUN / (TINY / 2))
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
    assert [len(run) for run in pace.runs(waiting)] == [each, 1, 1, 2, 1, 1, 1, 1]


# ---- at work


@pytest.mark.usefixtures("slow_is_short")
def test_short_tasks_are_claimed_by_the_hundred_and_each_runs_once(monkeypatch):
    monkeypatch.setattr("django_txtasks.worker.slots.STALL", 60)
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
    busy, waits = sorted(slots._runs, key=lambda one: not one.begun)
    waits.since = 1000.0
    looks = []
    for busy.since in (999.0, 1000.3, 1060.0):
        looks.append(slots.next_look)
    door.set()
    slots.close()
    assert looks == [1000.0 + STALL, 1000.3 + STALL, 1000.0 + LONGEST_WAIT]


def test_what_takes_no_time_runs_in_line_and_leaves_the_other_slots_to_others(patient_line):
    """Threads that hardly wait would only take Python from each other."""
    threads, order, door = set(), [], threading.Event()

    def run(one, limit):
        threads.add(threading.get_ident())
        order.append(one)
        return behind(door, one)

    slots = slots_of(3, run)
    runs = [[attempt(), attempt()] for _ in range(3)]
    for one in runs:
        slots.start(one, in_line=True)
    helpers.wait_until(lambda: order)
    assert (slots.running, slots.free) == (6, 2)
    assert slots.next_look < time.monotonic() + STALL + 1  # nor do they wait longer than others
    door.set()
    helpers.wait_until(lambda: len(slots.collect()) == 0 and slots.running == 0)
    assert order == [one for several in runs for one in several]
    assert len(threads) == 1
    slots.start([attempt()], in_line=True)  # the line is not left waiting for a slot that has gone
    helpers.wait_until(lambda: slots.collect() != [])
    slots.close()


def test_those_in_line_behind_one_that_takes_long_are_given_back(patient_line):
    door, begun = threading.Event(), threading.Event()

    def run(one, limit):
        begun.set()
        return behind(door, one)

    slots = slots_of(2, run)
    first, second, third = attempt(), attempt(), attempt()
    slots.start([first, second], in_line=True)
    slots.start([third], in_line=True)
    assert begun.wait(30)
    back = []
    helpers.wait_until(lambda: back.extend(slots.take_back(stalled=True)) or len(back) == 2)
    assert sorted(back) == sorted([second, third])
    door.set()
    helpers.wait_until(lambda: slots.collect() != [])
    helpers.wait_until(lambda: slots.collect() == [] and slots.free == 2)
    slots.close()


def test_one_in_line_that_hangs_does_not_hold_up_those_that_come_later():
    door, begun = threading.Event(), []

    def run(one, limit):
        begun.append(one)
        if len(begun) == 1:
            door.wait(60)
        return Ended(attempt=one, arrow=Arrow.FINISH)

    slots = slots_of(2, run)
    slots.start([attempt()], in_line=True)
    helpers.wait_until(lambda: begun)
    others = [attempt(), attempt()]
    for one in others:
        slots.start([one], in_line=True)
    assert slots.next_look < time.monotonic() + STALL
    helpers.wait_until(lambda: slots.collect() and begun[1:] == others)
    door.set()
    helpers.wait_until(lambda: not slots.collect() and slots.free == 2)
    slots.close()


def test_only_what_is_instant_throughout_runs_in_line():
    pace = pace_of(instant=INSTANT / 2, tiny=TINY / 2)
    assert pace.is_instant([attempt("instant")])
    assert not pace.is_instant([attempt("instant"), attempt("tiny")])
    assert not pace.is_instant([attempt("instant", may_share=False)])
    assert not pace.is_instant([attempt("unknown")])


def test_a_worker_with_enough_to_do_looks_up_hints_and_does_not_scan():
    pace = pace_of(tiny=TINY / 5, threads=4)
    enough = next(held for held in range(BATCH) if pace.is_enough(held))
    assert pace.ahead(enough) == 0 < pace.ahead(enough - 1)
    schedule, hint = Schedule(get_config()), uuid.uuid4()
    room = Room(3, enough=True)
    assert schedule.next_turn(room, hinted=False, unrecorded=False) == 0  # it has never beaten
    turn = schedule.turn(room, [hint], 1.0)
    assert (turn.ids, turn.scan) == ([hint], False)
    schedule.written(turn, 1.0, busy=False)
    assert schedule.next_turn(room, hinted=True, unrecorded=False) == 0
    assert schedule.next_turn(room, hinted=False, unrecorded=False) > 1
    assert schedule.next_turn(Room(3), hinted=False, unrecorded=False) == 0


def test_a_backlog_is_scanned_and_hints_come_again_with_the_first_scan_that_has_room():
    schedule, hint, now = Schedule(get_config()), uuid.uuid4(), 1.0
    for filled, looked_up in [(True, [hint]), (True, []), (False, []), (False, [hint])]:
        schedule.look_again()
        turn = schedule.turn(Room(3), [hint], now)
        assert (turn.scan, turn.ids) == (True, looked_up)
        turn.room.filled = filled
        schedule.written(turn, now, busy=False)
        assert schedule.next_turn(Room(3), hinted=True, unrecorded=False) == 0


def test_a_hint_of_more_makes_a_worker_with_room_scan_now():
    schedule, hint, now = Schedule(get_config()), uuid.uuid4(), 1.0
    schedule.written(schedule.turn(Room(3), [], now), now, busy=False)
    full, enough = Room(0), Room(3, enough=True)
    for room, due in [(full, False), (enough, False), (Room(3), True)]:
        time_of_next = schedule.next_turn(room, hinted=False, unrecorded=False, more=True)
        assert (time_of_next == 0) is due
        assert schedule.turn(room, [hint], now, more=True).scan is due
    turn = schedule.turn(Room(3), [hint], now, more=True)
    assert turn.ids == []
    schedule.written(turn, now, busy=False)
    assert schedule.turn(Room(3), [hint], now).ids == [hint]


@pytest.mark.parametrize(
    ("scans", "settled"), [((True,), False), ((True, True), True), ((False,), False)], ids=str
)
def test_whom_the_first_scan_fills_leaves_a_hint_of_more_to_others(scans, settled):
    said, bell = [], Bell()
    one = uuid.uuid4()
    bell.deliver(
        Hint([one], True, settle=lambda: said.append("read"), give_back=lambda: said.append("back"))
    )
    bell.wait(0)
    assert bell.more
    for filled in scans:
        assert not said
        bell.scanned(filled=filled)
    assert said == (["read"] if settled else [])
    assert list(bell.ids) == ([] if settled else [one])
    bell.give_back()
    assert said == (["read"] if settled else ["back"])
    assert not bell.more


def test_claims_that_have_become_too_old_to_begin_are_given_back():
    """A machine that slept: by now the cleaner may have given them to somebody else."""
    begun = []

    def run(one, limit):
        begun.append(one)
        return Ended(attempt=one, arrow=Arrow.FINISH)

    rung = threading.Event()
    slots = Slots(1, run=run, ring=rung.set, patience=1.0, took=lambda name, seconds: None)
    old = [attempt(), attempt()]
    slots.start(old, good_until=time.monotonic() - 0.001)
    assert rung.wait(30)
    assert slots.collect() == []
    assert sorted(slots.take_back(stalled=True)) == sorted(old)
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
    marks, worker = {}, register()
    assert ids(claim(worker, Room(2), marks)) == first[:2]
    older = tasks.quick.enqueue()
    helpers.execute("UPDATE txtasks_task SET run_after = '2001-01-01' WHERE id = %s", older.id.hex)
    assert ids(claim(worker, Room(2), marks)) == first[2:4]
    room = Room(9)
    assert ids(claim(worker, room, marks)) == first[4:]
    assert marks == {} and room.filled  # the next one comes at once
    assert ids(claim(worker, Room(9), marks)) == [older.id]


def test_a_scan_of_what_is_recent_looks_no_further_back(claim):
    heads = [(9, "default"), (0, "default")]
    early, due, urgent, of_no_head = (
        function.using(run_after=timedelta(seconds=seconds), priority=priority).enqueue().id
        for function, seconds, priority in (
            (tasks.quick, -100, 0),
            (tasks.quick, -20, 0),
            (tasks.quick, -5, 9),
            (tasks.quick, -1, 3),
        )
    )
    marks, worker, room = {}, register(), Room(9)
    assert ids(claim(worker, room, marks, recent=Recent(heads, 60.0))) == [urgent, due]
    assert set(marks) == set(heads) and not room.filled
    later = tasks.quick.enqueue().id
    assert ids(claim(worker, Room(9), marks, recent=Recent(heads, 0.001))) == [later]  # by its mark
    room = Room(9)
    assert claim(worker, room, marks, recent=Recent(heads, 60.0)) == []
    assert set(marks) == set(heads) and not room.filled  # nothing more comes at once
    assert ids(claim(worker, Room(9), {})) == [of_no_head, early]


@pytest.fixture
def cheap_head(monkeypatch):
    """A scan takes no long time, however slow this machine is."""
    monkeypatch.setattr("django_txtasks.worker.scans.DEAR", 600.0)


def test_where_a_scan_from_the_head_takes_long_it_is_done_seldom_and_in_parts(
    txtasks, monkeypatch, cheap_head
):
    """An old snapshot keeps dead rows, which such a scan walks over: millions of them, in the end."""
    txtasks(poll_interval=0.001)
    subscription = Subscription("default", ["default"], registry.names())
    ledger = Ledger(get_config(), subscription, threads=1)
    slots = Slots(0, run=None, ring=None, patience=1.0, took=None)

    def scan():
        turn = Turn(Room(9), [], scan=True)
        time.sleep(0.002)
        ledger.write(turn, slots, None)
        return turn

    assert not scan().partial and not scan().partial
    monkeypatch.setattr("django_txtasks.worker.scans.DEAR", -1.0)
    monkeypatch.setattr("django_txtasks.worker.scans.SELDOM", 100_000)
    assert not scan().partial
    assert scan().partial
    new = tasks.quick.enqueue()
    late = tasks.quick.using(run_after=timedelta(seconds=-1000)).enqueue()
    assert ids(scan().claimed) == [new.id]
    assert scan().claimed == []
    schedule = Schedule(get_config())
    schedule.written(scan(), 0.0, busy=False)
    assert not schedule.nothing_due  # nobody has looked at all
    ledger.scans._next_head = 0.0  # half a minute later
    monkeypatch.setattr("django_txtasks.worker.scans.DEAR", 600.0)
    found = []
    helpers.wait_until(lambda: found.extend(ids(scan().claimed)) or found)
    assert found == [late.id]
    helpers.wait_until(lambda: not scan().partial)


def test_workers_that_begin_together_part_and_then_scan_once_an_interval():
    config = get_config()
    poll = config.poll_interval.total_seconds()
    schedules = [Schedule(config) for _ in range(100)]

    def next_turns(now):
        for schedule in schedules:
            schedule.written(Turn(Room(1), [], scan=True), now, busy=False)
        return [one.next_turn(Room(1), hinted=False, unrecorded=False) - now for one in schedules]

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
    marks, worker = {}, register()
    room = Room(alone=0, ahead=5, short={"probe.tasks.quick"})
    assert ids(claim(worker, room, marks)) == [first]
    assert ids(claim(worker, Room(5), marks)) == [alone, last]


def test_a_worker_looks_up_no_more_due_tasks_than_it_has_room_for():
    """Those that it expected to be due by now; in a backlog the scan finds them in their turn."""
    schedule, now = Schedule(get_config()), time.monotonic()
    due = [uuid.uuid4() for _ in range(100)]
    schedule.timers.due_in({task_id: number / 1000 for number, task_id in enumerate(due)}, now)
    turn = schedule.turn(Room(4), [], now + 1)
    assert turn.ids == due[:4]
    assert schedule.timers.next() <= now + 1
    turn.scan, turn.room.filled = True, True
    schedule.written(turn, now + 1, busy=False)
    assert schedule.timers.next() == float("inf")


def test_what_is_given_back_in_a_backlog_is_what_the_next_scan_begins_with(txtasks, cheap_head):
    txtasks(poll_interval=60)
    enqueue_many((tasks.quick, ()) for _ in range(5))
    slots = Slots(0, run=None, ring=None, patience=1.0, took=None)
    ledger = Ledger(get_config(), Subscription("default", ["default"], registry.names()), threads=1)
    turns = [Turn(Room(2), [], scan=True) for _ in range(2)]
    for turn in turns:
        ledger.write(turn, slots, None)
        ledger.recorder.add(Ended(attempt=one, arrow=Arrow.RELEASE) for one in turn.claimed)
    assert ids(turns[0].claimed) == ids(turns[1].claimed)


def test_a_batch_does_not_end_before_what_was_given_back_behind_the_marks_of_its_scans(txtasks):
    txtasks(poll_interval=60)
    bell = Bell()
    subscription = Subscription("default", ["default"], registry.names())
    loop = Loop(
        get_config(), subscription, threads=1, bell=bell, stop=Stop(10, bell.ring), batch=True
    )
    for _ in range(50):  # so long that a worker which is full claims nothing more before it is idle
        loop.pace.took("probe.tasks.at_the_door", AHEAD / 2)
    width = loop._room().width
    tasks.at_the_door.using(run_after=timedelta(seconds=-1)).enqueue("held")
    enqueue_many((tasks.at_the_door, (f"{number}",)) for number in range(1, width))
    with held(tasks.DOOR), helpers.second_session(loop.run):
        helpers.wait_until(lambda: helpers.runs("held"))
        helpers.wait_until(lambda: helpers.counts()["pending"] == width - 1)
        tasks.DOOR.set()
    assert FinishedTask.objects.count() == width


def test_a_scan_that_found_no_room_does_not_say_that_nothing_is_due():
    schedule = Schedule(get_config())
    room = Room(alone=0, ahead=5)
    assert room.take([attempt(may_share=False)]) == []
    schedule.written(Turn(room, [], scan=True), 0.0, busy=False)
    assert not schedule.nothing_due


def test_results_are_kept_as_they_were_returned():
    odd = ['"', "\\", '\\"', "NULL", "null", None, "", "{a,b}", "%s", "a\nb", "ü€😀", {'"': ["\\"]}]
    handles = enqueue_many((tasks.give, [value]) for value in odd)
    with helpers.working(threads=1):
        helpers.wait_until(lambda: FinishedTask.objects.count() == len(odd))
    assert [helpers.finished(one.id).result for one in handles] == odd
