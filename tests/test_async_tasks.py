"""Async tasks on an event loop, in a real worker: what one attempt may do to another, and to the loop."""

import logging
import time
from collections import Counter

import helpers
import pytest
from django.core.cache import caches
from django.db import connection
from probe import ends, framework, on_loop

from django_txtasks import cancel_task, signals
from django_txtasks.features.async_loop import children, lag
from django_txtasks.features.async_loop.event_loop import EventLoop
from django_txtasks.models import FinishedTask, Outcome, Status, Task, Worker

pytestmark = pytest.mark.usefixtures("rows", "quick")


@pytest.fixture(autouse=True)
def fresh():
    on_loop.entered.clear()
    on_loop.seen.clear()
    on_loop.doors.clear()
    on_loop.Noted.told.clear()
    on_loop.NotedCache.used.clear()
    on_loop.NotedCache.closed.clear()
    children._told.clear()


def on_a_loop(async_tasks=100, **options):
    return helpers.working(kind="loop", async_tasks=async_tasks, **options)


def all_done(count):
    helpers.wait_until(lambda: FinishedTask.objects.count() == count, what=f"{count} tasks")


def told(signal):
    """Collect what a signal says; the receiver is kept by the list itself."""
    found = []

    def note(**facts):
        found.append(facts)

    found_by[id(found)] = note
    signal.connect(note)
    return found


found_by = {}


def test_tasks_wait_at_the_same_time():
    for _ in range(60):
        on_loop.nap.enqueue(0.3)
    began = time.monotonic()
    with on_a_loop() as worker:
        all_done(60)
        assert worker.slots.running == 0
        helpers.wait_until(lambda: worker.slots.free > 16, what="a wider claim")
    assert time.monotonic() - began < 60 * 0.3


def test_no_more_tasks_run_than_there_are_slots():
    for number in range(5):
        on_loop.note_and_nap.enqueue(str(number))
    with on_a_loop(async_tasks=3) as worker:
        helpers.wait_until(lambda: len(on_loop.entered) == 3)
        assert (worker.slots.running, worker.slots.free) == (3, 0)
        assert Task.objects.filter(status=Status.PENDING).count() == 2
        for task in Task.objects.all():
            cancel_task(task.id)
        helpers.wait_until(lambda: not Task.objects.filter(status=Status.CLAIMED))


def test_a_retry_a_failure_and_a_result_take_their_arrows():
    retried = on_loop.retry_once.enqueue("again")
    with on_a_loop():
        helpers.wait_until(lambda: helpers.finished(retried.id))
    assert helpers.runs("again") == 2


def test_an_attempt_sees_nothing_of_the_context_of_another():
    with on_a_loop():
        on_loop.see_context.enqueue("a")
        all_done(1)
        on_loop.see_context.enqueue("b")
        all_done(2)
    assert on_loop.seen == {"a": "", "b": ""}


def test_the_caches_of_an_attempt_are_closed_with_it(monkeypatch):
    monkeypatch.setitem(
        caches.settings, "noted", {"BACKEND": f"{on_loop.__name__}.NotedCache", "LOCATION": ""}
    )
    for _ in range(3):
        on_loop.use_cache.enqueue()
    with on_a_loop():
        all_done(3)
    used, closed = on_loop.NotedCache.used, on_loop.NotedCache.closed
    assert len({id(one) for one in used}) == 3 and {id(one) for one in used} == {
        id(one) for one in closed
    }


def test_a_task_of_django_calls_no_thread_for_its_log_lines():
    result = framework.give_async.enqueue(3)
    with on_a_loop() as worker:
        all_done(1)
        assert not worker.slots._shared._threads
    result.refresh()
    assert result.return_value == 3


def test_a_cancel_reaches_the_await():
    handles = [on_loop.wait_to_be_cancelled.enqueue(str(number)) for number in range(3)]
    with on_a_loop():
        helpers.wait_until(lambda: len(on_loop.entered) == 3)
        for one in handles:
            cancel_task(one.id)
        all_done(3)
    assert set(FinishedTask.objects.values_list("outcome", flat=True)) == {Outcome.CANCELLED}
    assert on_loop.seen == {"0": True, "1": True, "2": True}


def test_a_timeout_cancels_and_counts_as_a_failure():
    handle = on_loop.answer.using(max_attempts=1).enqueue(60)
    with on_a_loop():
        helpers.wait_until(lambda: helpers.row(handle.id).status == Status.DEAD)
    (error,) = helpers.row(handle.id).errors
    assert error["type"] == "TimedOut"
    assert "timeout of 0.5 s" in error["message"]


def test_an_answer_that_came_while_another_task_blocked_the_loop_counts():
    """The answer comes at 0.3 s, the timeout at 0.5 s, and the loop is blocked from 0.1 s to 1.1 s."""
    with on_a_loop():
        answer = on_loop.answer.enqueue(0.3)
        helpers.wait_until(lambda: helpers.row(answer.id).status == Status.CLAIMED)
        on_loop.block.enqueue(1.0)
        all_done(2)
    assert helpers.finished(answer.id).errors == []


def test_a_task_that_a_body_has_left_is_cancelled_and_named():
    left = told(signals.async_tasks_left)
    with on_a_loop():
        on_loop.leave_child.enqueue("left")
        all_done(1)
        assert on_loop.seen["left"] == "cancelled"
        helpers.wait_until(lambda: left)
        assert "write_later" in left[0]["names"]
    assert helpers.runs("left child") == 0


def test_sys_exit_in_a_child_ends_no_other_task():
    with on_a_loop():
        for number in range(5):
            on_loop.nap_and_note.enqueue(str(number), 0.5)
        on_loop.exit_in_child.enqueue("exit")
        all_done(6)
    assert on_loop.seen["exit"] is True
    assert helpers.runs() == 5


def test_steps_stay_serial_in_a_gather():
    with on_a_loop():
        on_loop.step_in_group.enqueue("steps")
        all_done(1)
    assert on_loop.seen["steps"] == 1


def test_sync_code_may_call_async_code():
    with on_a_loop():
        for number in range(5):
            on_loop.sync_inside.enqueue(str(number))
        all_done(5)
    assert set(on_loop.seen.values()) == {"default"}


@pytest.mark.about("guarded")
def test_many_tasks_with_rows_need_few_sessions():
    for number in range(50):
        on_loop.count_sessions.enqueue(str(number))
    with on_a_loop(threads=2):
        all_done(50)
    assert 1 <= len(set(on_loop.seen.values())) <= 2


def test_a_blocked_loop_is_named_with_its_line_and_its_end(monkeypatch):
    monkeypatch.setattr(lag, "BLOCKED_SECONDS", 0.2)
    blocked, resumed = told(signals.loop_blocked), told(signals.loop_resumed)
    with on_a_loop():
        on_loop.block.enqueue(2.5)
        all_done(1)
        on_loop.nap.enqueue(1.5)  # the turns look again only while something runs
        helpers.wait_until(lambda: resumed)
    (one,) = blocked
    assert one["task"] == "probe.on_loop.block"
    assert "probe/on_loop.py:" in one["where"]
    assert "time.sleep(seconds)" in one["stack"]
    assert resumed[0]["task"] == "probe.on_loop.block"


def test_the_greatest_lag_is_in_the_worker_s_row():
    with on_a_loop():
        on_loop.block.enqueue(0.7)
        on_loop.note_and_nap.enqueue("beside", 3.0)
        helpers.wait_until(lambda: (Worker.objects.get().progress or {}).get("@lag", [0])[0] > 0.3)


def test_progress_of_many_tasks_has_no_notes(monkeypatch):
    monkeypatch.setattr("django_txtasks.features.progress.notes.MOST_WITH_NOTES", 3)
    handles = [on_loop.report.enqueue(str(number)) for number in range(6)]
    with on_a_loop():
        helpers.wait_until(lambda: len(on_loop.entered) == 6)
        helpers.wait_until(lambda: len(Worker.objects.get().progress or {}) == 6)
        notes = Worker.objects.get().progress
        assert {tuple(one) for one in notes.values()} == {(1, 2, "")}
        for one in handles:
            cancel_task(one.id)
        helpers.wait_until(lambda: not Task.objects.filter(status=Status.CLAIMED))


def test_a_worker_that_was_declared_lost_cancels_its_tasks():
    handle = on_loop.wait_to_be_cancelled.enqueue("lost")
    with on_a_loop() as worker:
        helpers.wait_until(lambda: on_loop.entered)
        helpers.execute("UPDATE txtasks_worker SET lost = true")
        helpers.wait_until(lambda: on_loop.seen.get("lost") is False, what="the cancel")
        helpers.wait_until(lambda: not worker.slots.running)
    assert helpers.row(handle.id).status == Status.CLAIMED


@pytest.mark.parametrize("how", ["library", "finally"])
def test_an_error_of_a_task_whose_worker_was_declared_lost_has_no_outcome(how, caplog):
    handle = ends.answer_a_cancel.enqueue("lost", how)
    with on_a_loop() as worker:
        helpers.wait_until(lambda: helpers.runs("lost"))
        helpers.execute("UPDATE txtasks_worker SET lost = true")
        helpers.wait_until(lambda: not worker.slots.running)
    assert helpers.row(handle.id).status == Status.CLAIMED
    assert "was cancelled" in caplog.text


def test_a_claim_follows_the_size_of_the_arguments():
    text = "x" * 250 * 1024
    count = 12 if connection.vendor == "sqlite" else 40
    for number in range(count):
        on_loop.big.enqueue(str(number), text)
    with on_a_loop(async_tasks=2500) as worker:
        all_done(count)
        assert worker.slots.free <= 16


@pytest.mark.once
def test_many_cancels_leave_the_loop_time_between_them():
    """10,000 in one round of the loop made it late by 7.8 s."""
    loop, rounds, called = EventLoop(), [0], []

    def count():
        rounds[0] += 1
        loop.loop.call_soon(count)

    def take_time():
        time.sleep(0.004)
        called.append(rounds[0])

    loop.call(count)
    for _ in range(10):
        loop.call(lambda: [loop.spread(take_time) for _ in range(20)])
    helpers.wait_until(lambda: len(called) == 200)
    loop.close()
    assert max(Counter(called).values()) <= 3  # of 4 ms each, where a round has 10 ms


@pytest.mark.once
def test_a_call_that_raises_stops_no_other_call():
    loop, called = EventLoop(), []
    loop.spread(lambda: 1 / 0)
    loop.spread(called.append, "next")
    helpers.wait_until(lambda: called)
    loop.close()


def test_many_failures_leave_the_loop_time_between_them():
    """As when the database goes away."""
    count = 80
    for number in range(count):
        on_loop.fail_together.enqueue(number, count)
    with on_a_loop():
        helpers.wait_until(lambda: Task.objects.filter(status=Status.DEAD).count() == count)
    assert len(on_loop.Noted.told) == count
    assert max(Counter(on_loop.Noted.told).values()) <= 3  # of 4 ms each, where a round has 10 ms


@pytest.mark.parametrize("pinned", [False, True])
def test_an_attempt_that_is_cancelled_after_its_error_keeps_the_error(pinned):
    """A timer that the function has left may cancel the attempt at any time."""
    handle = on_loop.fail_and_be_cancelled.enqueue(pinned=pinned)
    with on_a_loop(threads=1) as worker:
        helpers.wait_until(lambda: helpers.row(handle.id).status == Status.DEAD)
        helpers.wait_until(lambda: not worker.slots._shared.pinned)
        on_loop.nap_and_note.enqueue("after")
        helpers.wait_until(lambda: helpers.runs("after"))
    assert [one["type"] for one in helpers.row(handle.id).errors] == ["ValueError"] * 2
    assert not helpers.runs("pinned")


def test_no_child_goes_on_while_its_attempt_waits_for_its_error():
    count = 100  # their errors take 0.4 s together
    for number in range(count):
        on_loop.fail_together.enqueue(number, count)
    on_loop.fail_beside_child.enqueue("child", count)
    with on_a_loop(async_tasks=200):
        helpers.wait_until(lambda: Task.objects.filter(status=Status.DEAD).count() == count + 1)
    assert not helpers.runs("child")


def test_a_cancel_that_raises_keeps_no_other_task_from_its_end():
    stuck = on_loop.wait_without_cancel.enqueue()
    with on_a_loop() as worker:
        helpers.wait_until(lambda: "without cancel" in on_loop.entered)
        helpers.wait_until(lambda: worker.slots._runner.expired)
        failing = on_loop.fail_together.enqueue(0, 2)  # both have entered
        helpers.wait_until(lambda: helpers.row(failing.id).status == Status.DEAD)
        assert helpers.row(stuck.id).status == Status.CLAIMED
        cancel_task(stuck.id)  # this cancel works
        helpers.wait_until(lambda: helpers.finished(stuck.id))


def test_a_loop_claims_no_more_than_500_at_once():
    from django_txtasks.core.rows.attempts import Attempt
    from django_txtasks.features.async_loop.policy import ClaimWidth

    width, attempt = ClaimWidth(), Attempt(None, 1, None)
    assert width.most == 16
    for most in (32, 64, 128, 256, 500, 500):
        width.learn([attempt] * width.most)
        assert width.most == most


def test_the_log_names_no_local_values_of_a_blocked_loop(caplog, monkeypatch):
    monkeypatch.setattr(lag, "BLOCKED_SECONDS", 0.2)
    caplog.set_level(logging.WARNING, "django_txtasks")
    with on_a_loop():
        on_loop.block.enqueue(1.5, key="secret-key")
        all_done(1)
    assert "has blocked the event loop" in caplog.text
    assert "secret-key" not in caplog.text
