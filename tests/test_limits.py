"""Time limits, expiry, and processes that make room for new ones."""

import subprocess
import sys
import threading
import time
from datetime import timedelta

import helpers
import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from django.utils import timezone
from probe import tasks
from probe.models import Run

from django_txtasks import enqueue_many, signals
from django_txtasks.conf import get_config
from django_txtasks.core.cleaning import Cleaner
from django_txtasks.core.rows import workers
from django_txtasks.core.working.running.limits import TimeLimit
from django_txtasks.exceptions import ClaimLost, InvalidDeclaration, InvalidOption, TimedOut
from django_txtasks.functions import task
from django_txtasks.models import FinishedTask, Outcome, Status, Worker
from django_txtasks.operations import operators
from django_txtasks.processes import recycling
from django_txtasks.processes.recycling import RecyclePolicy, resident_megabytes

pytestmark = pytest.mark.usefixtures("rows")

LATER = 1e9


def overtaken(limit):
    """The loop finds that the time is over."""
    limit.enforce(time.monotonic() + LATER)


def test_an_exception_is_raised_in_the_thread_that_runs_the_task():
    limit, caught, started = TimeLimit(60), [], threading.Event()

    def run():
        try:
            with limit:
                started.set()
                tasks.spin(30)
        except TimedOut:
            caught.append(True)

    with helpers.second_session(run):
        started.wait(helpers.PATIENCE)
        overtaken(limit)
    assert caught


def test_what_comes_after_the_task_is_not_hit():
    """The exception was on its way when the task ended."""
    limit = TimeLimit(60)
    with limit:
        pass
    overtaken(limit)
    tasks.spin(0.05)


def test_the_exception_comes_once():
    limit, caught = TimeLimit(60), []
    with limit:
        for _ in range(3):
            try:
                overtaken(limit)
                tasks.spin(0.05)
            except TimedOut:
                caught.append(True)
    assert caught == [True]


TRACED = """
import sys, threading, time
from django_txtasks.exceptions import TimedOut
from django_txtasks.core.working.running.limits import TimeLimit

def traced():
    pass

begun = []  # threads' own means of waiting would break where the exception strikes them

def overtake(limit):
    while not begun:
        time.sleep(0)
    limit.enforce(time.monotonic() + 1)

for _ in range(100):
    limit = TimeLimit(0.0)
    begun.clear()
    loop = threading.Thread(target=overtake, args=(limit,))
    loop.start()
    try:
        with limit:
            begun.append(True)
            for _ in range(100):
                time.sleep(0)
    except TimedOut:
        pass
    loop.join()
sys.settrace(lambda *_: None)
traced()
print("went on")
"""


def test_the_interpreter_goes_on_as_before():
    """An exception that is taken back before it arrives makes a traced Python 3.11 hang."""
    done = subprocess.run(
        [sys.executable, "-c", TRACED], capture_output=True, timeout=60, check=True
    )
    assert done.stdout == b"went on\n"


def test_without_a_limit_nothing_is_raised():
    limit = TimeLimit(None)
    with limit:
        overtaken(limit)
        tasks.spin(0.05)
    assert limit.next(1) == float("inf")


def test_a_time_out_is_a_failed_attempt(quick):
    handle = tasks.spin_too_long.enqueue()
    with helpers.working():
        helpers.wait_until(lambda: helpers.row(handle.id).status == Status.DEAD)
    dead = helpers.row(handle.id)
    assert (dead.failures, dead.crashes) == (2, 0)
    assert (
        helpers.runs("spin") <= 2
    )  # on a busy machine the time is over before it has noted its run
    assert helpers.runs("spin ended") == 0
    assert dead.errors[0]["type"] == "TimedOut"
    assert "its timeout of 1 s" in dead.errors[0]["message"]
    assert "in spin" in dead.errors[0]["traceback"]


def test_a_task_may_catch_it_to_clean_up(quick):
    handle = tasks.clean_up.enqueue("cleaned up")
    with helpers.working():
        helpers.wait_until(lambda: helpers.finished(handle.id))
    assert helpers.runs("cleaned up") == 1


def test_an_async_task_is_cancelled(quick):
    handle = tasks.wait_too_long.enqueue("cancelled")
    with helpers.working():
        helpers.wait_until(lambda: helpers.row(handle.id).status == Status.DEAD)
    assert helpers.runs("cancelled") == 1
    assert helpers.row(handle.id).errors[0]["type"] == "TimedOut"


def test_an_atomic_task_that_takes_too_long_leaves_nothing(quick):
    handle = tasks.atomic_too_long.enqueue("effect")
    with helpers.working():
        helpers.wait_until(lambda: helpers.row(handle.id).status == Status.DEAD)
    assert helpers.runs("effect") == 0


def test_a_slot_that_was_timed_out_runs_the_next_task(quick):
    enqueue_many([(tasks.spin_too_long, ()), (tasks.in_time, ()), (tasks.note, ())])
    with helpers.working(threads=1):
        helpers.wait_until(lambda: helpers.runs("in time") and helpers.runs("note"))
        helpers.wait_until(lambda: helpers.counts()["dead"] == 1)


@pytest.mark.once
def test_a_task_stuck_in_c_code_costs_its_process_and_nobody_else(processes, txtasks, quick):
    """Its neighbours end first, or are given back; the time-out counts as a failure."""
    txtasks(grace=1)
    processes.start("runworkers", "--threads=3")
    first = helpers.wait_until(Worker.objects.first).pid
    stuck = tasks.hang.enqueue()
    neighbour = tasks.slow.enqueue("neighbour", seconds=2)
    helpers.wait_until(lambda: helpers.runs("hang") and helpers.runs("neighbour"))
    dead = helpers.wait_until(
        lambda: helpers.row(stuck.id) if helpers.row(stuck.id).status == Status.DEAD else None
    )
    assert (dead.failures, dead.crashes, helpers.runs("hang")) == (1, 0, 1)
    assert dead.errors[0]["type"] == "TimedOut"
    assert helpers.wait_until(lambda: helpers.finished(neighbour.id)).attempt == 1
    after = tasks.note.enqueue("after")
    helpers.wait_until(lambda: helpers.finished(after.id))
    assert Run.objects.get(key="after").pid != first


@pytest.mark.parametrize("timeout", [0, -1, "5", True, float("inf"), timedelta(0)])
def test_a_timeout_that_cannot_be_is_refused(timeout):
    with pytest.raises(InvalidDeclaration, match="timeout"):
        task(timeout=timeout)(tasks.plain)


def test_a_timeout_is_seconds_or_a_timedelta():
    assert task(timeout=timedelta(minutes=1))(tasks.plain).declaration.columns["timeout"] == 60.0
    assert task(timeout=5)(tasks.plain).declaration.columns["timeout"] == 5.0


# -- expiry ---------------------------------------------------------------------------------------


def clean():
    return Cleaner(get_config()).run_once()


def test_a_task_that_was_not_started_in_time_is_cancelled():
    handle = tasks.note.using(expires=timedelta(seconds=-1)).enqueue("too late")
    later = tasks.note.using(expires=timedelta(hours=1)).enqueue("in time")
    with helpers.working():
        helpers.wait_until(lambda: helpers.finished(later.id))
    assert helpers.row(handle.id).status == Status.PENDING
    assert clean()["expired"] == 1
    done = helpers.finished(handle.id)
    assert (done.outcome, done.attempt) == (Outcome.EXPIRED, 0)
    assert helpers.runs("too late") == 0


def test_a_hint_does_not_start_an_expired_task():
    handle = tasks.note.using(expires=timedelta(seconds=-1)).enqueue()
    worker = workers.register(
        "default", queues=["default"], threads=1, listening=None, lease=get_config().lease
    )
    with transaction.atomic():
        result = helpers.claim(worker, hinted=[handle.id])
    assert (result.claimed, result.absent) == ([], [])


def test_a_task_that_started_in_time_may_end_late():
    handle = tasks.slow.using(expires=timedelta(seconds=1)).enqueue("long", seconds=1.5)
    with helpers.working():
        helpers.wait_until(lambda: helpers.runs("long"))
        helpers.execute(
            "UPDATE txtasks_task SET expires_at = %s", timezone.now().replace(tzinfo=None)
        )
        clean()
        helpers.wait_until(lambda: helpers.finished(handle.id))
    assert helpers.finished(handle.id).outcome == Outcome.SUCCEEDED


def test_a_declared_expiry_counts_from_enqueueing():
    handle = task(expires=timedelta(hours=1))(tasks.plain).enqueue()
    row = helpers.row(handle.id)
    assert row.expires_at - row.enqueued_at == pytest.approx(
        timedelta(hours=1), abs=timedelta(seconds=5)
    )


@pytest.mark.parametrize("expires", [timedelta(0), timezone.now()])
def test_a_declaration_does_not_expire_at_a_moment(expires):
    with pytest.raises(InvalidDeclaration, match="expires"):
        task(expires=expires)(tasks.plain)


def test_a_naive_expiry_is_refused():
    with pytest.raises(InvalidOption, match="expires is the naive datetime"):
        tasks.note.using(expires=timezone.now().replace(tzinfo=None)).enqueue()


# -- claims that take long, and their own check -----------------------------------------------------


def test_a_long_claim_without_a_limit_is_told_of_once_and_left_alone(txtasks):
    txtasks(long_running_after=60)
    told = []

    def listen(**facts):
        told.append(facts["task_id"])

    handle = tasks.note.enqueue()
    limited = tasks.in_time.enqueue()
    worker = workers.register(
        "default", queues=["default"], threads=1, listening=None, lease=get_config().lease
    )
    with transaction.atomic():
        helpers.claim(worker, 2)
    helpers.execute("UPDATE txtasks_task SET started_at = '2001-01-01 00:00:00'")
    signals.task_running_long.connect(listen)
    cleaner = Cleaner(get_config())
    cleaner.run_once()
    cleaner.run_once()
    signals.task_running_long.disconnect(listen)
    assert told == [handle.id]
    assert helpers.row(handle.id).status == helpers.row(limited.id).status == Status.CLAIMED


def test_a_task_can_ask_whether_it_still_holds_its_row(quick):
    tasks.released.clear()
    handle = tasks.check_after.enqueue("lost")
    with helpers.working(threads=1) as worker:
        helpers.wait_until(lambda: helpers.runs("lost"))
        helpers.execute("UPDATE txtasks_worker SET lost = TRUE WHERE id = %s", worker.writer.id.hex)
        tasks.released.set()
        helpers.wait_until(lambda: helpers.row(handle.id).status == Status.DEAD)
    assert helpers.runs("lost checked") == 0
    assert helpers.row(handle.id).errors[0]["type"] == "ClaimLost"
    tasks.released.set()
    held = tasks.check_after.enqueue("held")
    with helpers.working(threads=1):
        helpers.wait_until(lambda: helpers.finished(held.id))
    assert helpers.runs("held checked") == 1


def test_an_attempt_has_an_id_of_its_own():
    from django_txtasks.core.ground.cancel_requests import NOBODY
    from django_txtasks.core.rows.attempts import Attempt
    from django_txtasks.core.rows.running import AttemptRun
    from django_txtasks.core.working.running.runner import _context

    task_id, worker = helpers.uuid.uuid4(), helpers.uuid.uuid4()
    first, second = (
        _context(AttemptRun(Attempt(task_id, number, worker), "default"), NOBODY)
        for number in (1, 2)
    )
    assert first.attempt_id != second.attempt_id
    with pytest.raises(ClaimLost, match="declared lost"):
        first.check()


# -- processes that make room for new ones ----------------------------------------------------------


@pytest.mark.once
def test_a_process_is_replaced_after_so_many_tasks_and_nothing_is_lost(processes, quick):
    enqueue_many((tasks.note, ()) for _ in range(30))
    process = processes.start("runworkers", "--max-tasks-per-process=10", "--batch")
    assert process.wait(helpers.PATIENCE) == 0
    pids = list(Run.objects.values_list("pid", flat=True))
    assert len(pids) == 30
    assert sorted(pids.count(pid) for pid in set(pids)) == [10, 10, 10]
    assert not Worker.objects.exists()


@pytest.mark.once
def test_a_process_that_has_grown_is_replaced(processes, quick):
    process = processes.start("runworkers", "--max-rss=1")
    for number in range(3):
        handle = tasks.note.enqueue(f"{number}")
        helpers.wait_until(lambda h=handle: helpers.finished(h.id))
    assert len(set(Run.objects.values_list("pid", flat=True))) == 3
    assert FinishedTask.objects.filter(attempt=1).count() == 3
    assert process.poll() is None


@pytest.mark.once
def test_running_tasks_end_before_their_process_is_replaced(processes, quick):
    processes.start("runworkers", "--max-tasks-per-process=2", "--threads=2")
    slow = tasks.slow.enqueue("slow", seconds=1.5)
    helpers.wait_until(lambda: helpers.runs("slow"))
    enqueue_many((tasks.note, ()) for _ in range(3))
    assert helpers.wait_until(lambda: helpers.finished(slow.id)).attempt == 1
    helpers.wait_until(lambda: helpers.runs("note") == 3)


def test_a_renewal_knows_its_reasons():
    assert not RecyclePolicy().reason(10**9)
    assert RecyclePolicy(max_tasks=3).reason(3) == "it has run 3 tasks"
    assert not RecyclePolicy(max_rss=1).reason(0)
    assert "more than 1" in RecyclePolicy(max_rss=1).reason(1)
    assert not RecyclePolicy().reason(10**6, check=0.4)
    assert not RecyclePolicy().reason(10**4, check=4.0)
    assert "of its 1,000,000 claims" in RecyclePolicy().reason(10**6, check=0.6)
    assert 5 < resident_megabytes() < 10_000


def test_a_process_whose_claims_are_long_to_look_through_is_replaced(txtasks, monkeypatch):
    """As under the snapshot of a dump that lasts for hours: it would be held up once a lease, then for good."""
    txtasks(heartbeat_interval=0.1, lease=0.5, poll_interval=0.05)
    monkeypatch.setattr(recycling, "MANY_CLAIMS", 3)
    monkeypatch.setattr(recycling, "SLOW_CHECK_SECONDS", 0.0)
    reasons = []

    def hear(reason, **_):
        reasons.append(reason)

    signals.worker_recycled.connect(hear)
    try:
        with helpers.working():
            enqueue_many((tasks.note, ()) for _ in range(3))
            helpers.wait_until(lambda: reasons)
    finally:
        signals.worker_recycled.disconnect(hear)
    assert "its 3 claims" in reasons[0]


def test_a_count_for_good_and_one_for_a_process_exclude_each_other():
    with pytest.raises(CommandError, match="one or the other"):
        call_command("runworkers", max_tasks=3, max_tasks_per_process=1)


def test_a_task_that_somebody_revives_no_longer_expires():
    handle = tasks.note.using(expires=timedelta(hours=1)).enqueue("revived")
    helpers.execute("UPDATE txtasks_task SET status = 'dead', expires_at = enqueued_at")
    assert operators.revive("default", [handle.id])
    assert not Cleaner(get_config()).run_once()["expired"]
    row = helpers.row(handle.id)
    assert (row.status, row.expires_at) == (Status.PENDING, None)
