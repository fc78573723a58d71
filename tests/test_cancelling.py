"""Cancelling from Python: in the caller's transaction, whatever the task is doing."""

import asyncio
import contextlib
import functools
import time
from datetime import timedelta

import helpers
import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction  # noqa: F401 -- in a condition
from probe import tasks

from django_txtasks import CancelResult, cancel_task, signals
from django_txtasks.conf import get_config
from django_txtasks.core.cleaning import Cleaner
from django_txtasks.core.ground.cancel_requests import CancelRequests
from django_txtasks.core.rows import cleaning, outcomes, workers
from django_txtasks.core.rows.attempts import Arrow, Ended
from django_txtasks.exceptions import InvalidArguments, TaskCancelled
from django_txtasks.features.results.cancelling import cancel
from django_txtasks.insight.explain import explain
from django_txtasks.models import FinishedTask, Outcome, Status
from django_txtasks.operations import operators
from django_txtasks.testing import run_due_tasks

pytestmark = pytest.mark.usefixtures("rows")

LATER = timedelta(hours=1)


@pytest.fixture(autouse=True)
def open_door():
    tasks.released.clear()
    yield
    tasks.released.set()


def is_begun(key):
    helpers.wait_until(lambda: helpers.runs(key))


def a_claim(room=1):
    """A worker registers and claims; give its id and the attempts."""
    worker = workers.register(
        "default", queues=["default"], threads=1, listening=None, lease=timedelta(seconds=15)
    )
    with transaction.atomic():
        return worker, helpers.claim(worker, room).claimed


def recorded(ended):
    with transaction.atomic():
        done = outcomes.record("default", [ended], config=get_config()).done
    assert done == [ended]


def cancelled(handle):
    ended = helpers.finished(handle.id)
    return ended is not None and ended.outcome == Outcome.CANCELLED


# -- what waits -----------------------------------------------------------------------------------


def test_what_waits_is_gone_with_the_commit():
    handle = tasks.note.enqueue("cancelled")
    assert handle.cancel() is CancelResult.CANCELLED
    assert helpers.row(handle.id) is None
    assert cancelled(handle)
    assert handle.cancel() is CancelResult.TOO_LATE
    run_due_tasks()
    assert not helpers.runs()


def test_a_cancel_that_rolls_back_has_not_happened():
    handle = tasks.note.enqueue("after all")
    with transaction.atomic():
        assert handle.cancel() is CancelResult.CANCELLED
        transaction.set_rollback(True)
    run_due_tasks()
    assert helpers.runs("after all") == 1


def test_a_task_can_be_cancelled_in_the_transaction_that_enqueues_it():
    with transaction.atomic():
        handle = tasks.note.enqueue("never")
        assert handle.cancel() is CancelResult.CANCELLED
    assert helpers.row(handle.id) is None
    run_due_tasks()
    assert not helpers.runs()


def test_what_is_held_is_cancelled_and_what_is_dead_is_not():
    held, dead = tasks.note.enqueue("held"), tasks.reject.enqueue()
    operators.hold("default", [held.id])
    run_due_tasks(reraise=False)
    assert held.cancel() is CancelResult.CANCELLED
    assert dead.cancel() is CancelResult.TOO_LATE
    assert helpers.row(dead.id).status == Status.DEAD


def test_nothing_is_kept_where_nothing_is_kept(settings):
    settings.TXTASKS = {**settings.TXTASKS, "keep_finished": timedelta(0)}
    handle = tasks.note.enqueue("gone")
    assert handle.cancel() is CancelResult.CANCELLED
    assert not FinishedTask.objects.exists()


def test_by_id_from_another_process():
    handle = tasks.note.enqueue("by id")
    assert cancel_task(str(handle.id)) is CancelResult.CANCELLED
    assert cancel_task(helpers.uuid.uuid4()) is CancelResult.TOO_LATE
    for wrong in ("no id", None, 7):
        with pytest.raises(InvalidArguments, match="pass the id of a TaskHandle"):
            cancel_task(wrong)
    with transaction.atomic():  # it stays usable
        tasks.note.enqueue("more")


def test_from_async_code():
    handle = tasks.note.enqueue("async")
    assert async_to_sync(handle.acancel)() is CancelResult.CANCELLED


def test_it_is_told_after_the_commit():
    told = []

    def listen(task_id, **_):
        told.append(task_id)

    handle = tasks.note.enqueue("told")
    signals.task_cancelled.connect(listen)
    try:
        with transaction.atomic():
            handle.cancel()
            assert not told
            transaction.set_rollback(True)
        assert not told
        handle.cancel()
    finally:
        signals.task_cancelled.disconnect(listen)
    assert told == [handle.id]


@pytest.mark.skipif("connection.vendor == 'sqlite'", reason="one writer at a time")
def test_a_claim_that_is_about_to_commit_is_waited_for():
    """Then the task is asked to stop, and not removed."""
    handle, results = tasks.note.enqueue("claimed"), []
    with contextlib.ExitStack() as second, transaction.atomic():
        a_claim()
        second.enter_context(helpers.second_session(lambda: results.append(handle.cancel())))
        time.sleep(0.3)
        assert not results
    assert results == [CancelResult.ASKED]


# -- what runs ------------------------------------------------------------------------------------


def test_what_runs_sees_it_when_it_asks(quick):
    handle = tasks.check_after.enqueue("asks")
    with helpers.working(threads=1):
        is_begun("asks")
        assert handle.cancel() is CancelResult.ASKED
        (reason,) = explain("default", handle.id)
        assert reason.gate == "asked"
        tasks.released.set()
        helpers.wait_until(lambda: cancelled(handle))
    assert not helpers.runs("asks checked")
    (error,) = helpers.finished(handle.id).errors
    assert error["type"] == "TaskCancelled"


def test_it_may_finish_all_the_same(quick):
    handle = tasks.until_released.enqueue("finishes")
    with helpers.working(threads=1):
        is_begun("finishes")
        handle.cancel()
        tasks.released.set()
        helpers.wait_until(lambda: helpers.finished(handle.id))
    assert helpers.finished(handle.id).outcome == Outcome.SUCCEEDED


def test_the_flag_is_set_within_a_second_or_so(quick):
    handle = tasks.until_cancelled.enqueue("flag")
    with helpers.working(threads=1):
        is_begun("flag")
        handle.cancel()
        helpers.wait_until(lambda: helpers.finished(handle.id))
    assert helpers.finished(handle.id).outcome == Outcome.SUCCEEDED
    assert helpers.runs("flag saw it") == 1


@pytest.mark.smoke
def test_async_tasks_are_cancelled(quick):
    handle = tasks.sleep_async.enqueue("async")
    with helpers.working(threads=1):
        is_begun("async")
        handle.cancel()
        helpers.wait_until(lambda: cancelled(handle))
    assert helpers.runs("async cleaned up") == 1


@pytest.mark.smoke
def test_what_is_interruptible_is_interrupted_anywhere(quick):
    handle = tasks.spin_interruptibly.enqueue("spins")
    with helpers.working(threads=1):
        is_begun("spins")
        handle.cancel()
        helpers.wait_until(lambda: cancelled(handle))
        other = tasks.note.enqueue("slot goes on")
        helpers.wait_until(lambda: helpers.finished(other.id))
    assert not helpers.runs("spins ended")


def test_others_that_run_beside_it_go_on(quick):
    one, other = tasks.spin_interruptibly.enqueue("one"), tasks.until_released.enqueue("other")
    with helpers.working(threads=2):
        is_begun("one")
        is_begun("other")
        one.cancel()
        helpers.wait_until(lambda: cancelled(one))
        assert helpers.row(other.id).status == Status.CLAIMED
        tasks.released.set()
        helpers.wait_until(lambda: helpers.finished(other.id))


@pytest.mark.skipif("connection.vendor == 'sqlite'", reason="it holds the only write lock")
def test_the_effects_of_an_atomic_task_are_rolled_back(quick):
    handle = tasks.atomic_until_cancelled.enqueue("atomic")
    with helpers.working(threads=1):
        helpers.wait_until(lambda: helpers.row(handle.id).status == Status.CLAIMED)
        handle.cancel()
        helpers.wait_until(lambda: cancelled(handle))
    assert not helpers.runs("atomic")


def test_a_task_may_cancel_itself():
    handle = tasks.cancel_itself.enqueue()
    (ran,) = run_due_tasks()
    assert ran.status == "cancelled"
    assert cancelled(handle)


# -- no other attempt starts ----------------------------------------------------------------------


def claimed_and_asked(function=tasks.note, *args):
    handle = function.enqueue(*args)
    worker, (attempt,) = a_claim()
    assert handle.cancel() is CancelResult.ASKED
    return handle, worker, attempt


def nothing_starts(handle):
    assert a_claim(room=5)[1] == []
    removed = cleaning.expire("default", keeps=bool)
    assert [one.id for one in removed.rows] == [handle.id]
    assert cancelled(handle)


def test_a_failure_is_not_followed_by_another_attempt(quick):
    handle = tasks.fail_when_released.enqueue("fails")
    with helpers.working(threads=1):
        is_begun("fails")
        handle.cancel()
        tasks.released.set()
        helpers.wait_until(lambda: helpers.row(handle.id).status == Status.PENDING)
    (reason, *_) = explain("default", handle.id)
    assert reason.gate == "cancelled"
    assert "It was cancelled" in reason.text
    helpers.execute("UPDATE txtasks_task SET run_after = enqueued_at")
    nothing_starts(handle)


@pytest.mark.parametrize("stays", [0, 1], ids=["gone", "kept"])
def test_a_cleaner_counts_what_was_asked_to_stop_as_cancelled(stays, txtasks):
    txtasks(keep_finished=timedelta(days=stays))
    asked, _, attempt = claimed_and_asked()
    recorded(Ended(attempt=attempt, arrow=Arrow.RELEASE))
    expired = [tasks.note.using(expires=0.001).enqueue() for _ in range(2)]
    helpers.wait_until(lambda: reasons(expired[-1]) == ["expired"])
    assert reasons(asked) == ["cancelled"]
    counts = Cleaner(get_config()).run_once()
    assert (counts["expired"], counts["cancelled"]) == (2, 1)


def test_a_cleaner_counts_no_lost_claim_as_retried_that_was_asked_to_stop():
    handle, worker, _ = claimed_and_asked(tasks.slow_once, "slow")
    helpers.execute("UPDATE txtasks_worker SET lost = TRUE WHERE id = %s", worker.hex)
    counts = +Cleaner(get_config()).run_once()
    assert counts == {"cancelled": 1}
    assert cancelled(handle)


def reasons(handle):
    return [one.gate for one in explain("default", handle.id)][:1]


def test_a_claim_that_is_given_back_does_not_start():
    handle, _, attempt = claimed_and_asked()
    recorded(Ended(attempt=attempt, arrow=Arrow.RELEASE))
    nothing_starts(handle)


def test_a_lost_worker_s_claim_does_not_run_again():
    handle, worker, _ = claimed_and_asked(tasks.slow_once, "slow")
    helpers.execute("UPDATE txtasks_worker SET lost = TRUE WHERE id = %s", worker.hex)
    (orphan,) = helpers.orphans()
    with transaction.atomic():
        cleaning.recover("default", orphan, lambda _: timedelta(0), get_config())
    nothing_starts(handle)


@pytest.mark.parametrize("stopped", ["", "SIGTERM"], ids=["lost", "stopped"])
@pytest.mark.parametrize("is_asked", [True, False], ids=["asked", "not asked"])
def test_what_is_told_of_a_lost_claim_is_what_happens(stopped, is_asked):
    handle = tasks.slow_once.enqueue("slow")
    worker, _ = a_claim()
    if is_asked:
        assert handle.cancel() is CancelResult.ASKED
    helpers.execute("UPDATE txtasks_worker SET lost = TRUE WHERE id = %s", worker.hex)
    (orphan,) = helpers.orphans()
    with transaction.atomic():
        recovered = cleaning.recover(
            "default", orphan, lambda _: timedelta(0), get_config(), stopped=stopped
        )
    [(event, _)] = cleaning.signals_of(orphan, recovered.ended)
    runs_again = signals.task_cut_short if stopped else signals.task_recovered
    assert event is (signals.task_not_run_again if is_asked else runs_again)


def test_what_is_revived_runs():
    handle, _, attempt = claimed_and_asked()
    recorded(Ended(attempt=attempt, arrow=Arrow.BURY, error={"type": "E"}))
    operators.revive("default", [handle.id])
    row = helpers.row(handle.id)
    assert row.cancel_asked_at is None
    assert row.expires_at is None
    run_due_tasks()
    assert helpers.finished(handle.id).outcome == Outcome.SUCCEEDED


def test_an_expiry_that_was_sooner_stays():
    handle = tasks.note.using(expires=0.3).enqueue("soon")
    a_claim()
    before = helpers.row(handle.id).expires_at
    time.sleep(0.5)
    assert handle.cancel() is CancelResult.ASKED
    assert helpers.row(handle.id).expires_at == before


def test_asking_twice_changes_nothing_and_is_told_once():
    told = []

    def listen(task_id, **_):
        told.append(task_id)

    signals.task_asked_to_stop.connect(listen)
    try:
        handle, _, _ = claimed_and_asked()
        before = helpers.row(handle.id).cancel_asked_at
        assert handle.cancel() is CancelResult.ASKED
        assert operators.ask_to_stop("default", [handle.id]) == []
    finally:
        signals.task_asked_to_stop.disconnect(listen)
    assert helpers.row(handle.id).cancel_asked_at == before
    assert told == [handle.id]


def test_many_at_once():
    handles = [tasks.note.enqueue(f"{n}") for n in range(5)]
    a_claim(room=2)
    results, _ = cancel("default", [one.id for one in handles], keep=True)
    assert sorted(one.value for one in results.values()) == ["asked"] * 2 + ["cancelled"] * 3
    assert cancel("default", [], keep=True) == ({}, [])


# -- the requests of a process --------------------------------------------------------------------


def test_who_begins_to_watch_too_late_is_called_at_once():
    requests, task_id, called = CancelRequests(), helpers.uuid.uuid4(), []
    requests.update([(task_id, 1)], [(task_id, 1)])
    with requests.watched(task_id, 1, lambda: called.append(1)):
        assert called == [1]
    with requests.watched(task_id, 2, lambda: called.append(2)):
        requests.update([(task_id, 1)], [(task_id, 1)])  # asked before
        assert called == [1]


def test_what_has_ended_is_forgotten():
    requests, task_id = CancelRequests(), helpers.uuid.uuid4()
    requests.update([(task_id, 1)], [(task_id, 1)])
    assert requests.include(task_id, 1)
    requests.update([], [])
    assert not requests.include(task_id, 1)


def test_an_exception_that_comes_when_the_task_has_just_ended_hits_nothing_else():
    from django_txtasks.core.working.running.limits import Interruption

    for _ in range(50):
        interruption, ended = Interruption(TaskCancelled), []
        with helpers.second_session(functools.partial(_interrupted, interruption, ended)):
            time.sleep(0.001)
            interruption.interrupt()
        assert ended == [True]


def _interrupted(interruption, ended):
    try:
        with interruption:
            time.sleep(0.0005)
    except TaskCancelled:
        pass
    tasks.spin(0.003)
    ended.append(True)


def test_nobody_waits_for_a_closed_loop():
    from django_txtasks.core.working.running.runner import _cancel_in

    loop = asyncio.new_event_loop()
    task = loop.create_future()
    loop.close()
    _cancel_in(loop, task)  # raises nothing
    assert not task.cancelled()
