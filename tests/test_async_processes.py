"""``runworkers --async-tasks``: its processes, their ends, and what a crash does to the tasks of an event loop."""

import os
import signal
import sys
import time

import helpers
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from probe import ends, on_loop, tasks
from probe.models import Run

from django_txtasks import CancelResult, enqueue_many
from django_txtasks.core.rows.turn import LOOP_MARK
from django_txtasks.features.results.cancelling import cancel
from django_txtasks.insight.status import snapshot
from django_txtasks.models import FinishedTask, Outcome, Status, Task, Worker

NEVER = 600  # a poll interval that no test lives to see
pytestmark = pytest.mark.usefixtures("rows", "quick")


def workers(*, on_loops):
    living = Worker.objects.filter(lost=False)
    return [one for one in living if (LOOP_MARK in one.task_names) is on_loops]


def has_begun(count):
    helpers.wait_until(lambda: Run.objects.count() >= count, what=f"{count} runs")


def start(processes, *options):
    """Start both kinds and a cleaner; return the supervisor when the event loop has registered."""
    processes.start("runcleaner")
    supervisor = processes.start("runworkers", "--threads=2", "--async-tasks=200", *options)
    helpers.wait_until(lambda: workers(on_loops=True), what="the event loop")
    return supervisor


def all_done(count):
    helpers.wait_until(lambda: FinishedTask.objects.count() == count, what=f"{count} tasks")


def hears_both_kinds():
    """Enqueue tasks of both kinds; without hints none of them would start."""
    helpers.wait_until(
        lambda: Worker.objects.filter(listening=True).count() == 2, what="both to hear"
    )
    for number in range(5):
        on_loop.nap_and_note.enqueue(f"async {number}")
        tasks.note.enqueue(f"sync {number}")
        all_done(2 * number + 2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--async-tasks=5", "--batch"], "--batch ends a process"),
        (["--async-tasks=5", "--max-tasks=5"], "--max-tasks ends a process"),
        (["--async-tasks=5"], "only the command line starts"),
        (["--async-tasks=0"], "at least 1"),
        (["--async-tasks=10001"], "more than 10000"),
        (["--async-tasks=x"], "whole number"),
        (["--processes=0"], "starts no process"),
        (["--processes=0", "--async-tasks=5", "--task=probe.tasks.note"], "no chosen function is async"),
    ],
)  # fmt: skip
def test_options_that_contradict_each_other_are_refused(options, words):
    with pytest.raises(CommandError, match=words):
        call_command("runworkers", *options)
    assert not Worker.objects.exists()


def test_each_kind_runs_in_a_process_of_its_own(processes):
    start(processes)
    helpers.wait_until(lambda: workers(on_loops=False))
    on_loop.nap_and_note.enqueue("async")
    tasks.note.enqueue("sync")
    all_done(2)
    pids = {one.key: one.pid for one in Run.objects.all()}
    assert pids["async"] == workers(on_loops=True)[0].pid
    assert pids["sync"] == workers(on_loops=False)[0].pid
    status = snapshot("default").workers
    assert (status.loops, status.async_slots, status.threads) == (1, 200, 2)


def test_without_threads_a_last_chance_has_a_process_of_its_own(processes):
    handle = on_loop.nap_and_note.enqueue("last")
    Task.objects.filter(pk=handle.id).update(max_crashes=2, crashes=1)
    start(processes, "--processes=0")
    all_done(1)
    assert Run.objects.get().pid not in [one.pid for one in workers(on_loops=True)]


def test_without_async_functions_no_process_starts(processes):
    supervisor = processes.start("runworkers", "--async-tasks=5", "--task=probe.tasks.note")
    tasks.note.enqueue("sync")
    all_done(1)
    assert not workers(on_loops=True)
    helpers.wait_until(lambda: "No chosen task function is async" in processes.log_of(supervisor))


def test_the_start_says_what_async_tasks_cost_and_which_may_not_run_again(processes):
    plain = processes.start("runworkers")
    helpers.wait_until(lambda: "each attempt takes a thread" in processes.log_of(plain))
    supervisor = start(processes)
    helpers.wait_until(lambda: "may not run again" in processes.log_of(supervisor))


def test_a_waiting_async_task_is_not_said_to_have_no_worker(processes):
    on_loop.nap_and_note.enqueue("async")
    supervisor = start(processes)
    all_done(1)
    helpers.wait_until(lambda: workers(on_loops=False))
    assert "no living worker" not in processes.log_of(supervisor)


def test_a_poisoned_task_does_not_take_its_neighbours_along(processes, txtasks):
    """Each crash of the loop counts for all its tasks; so the last chance of each runs alone."""
    txtasks(lease=4, clean_interval=0.2, heartbeat_interval=0.3)
    poison = on_loop.poison.enqueue()
    for number in range(30):
        on_loop.neighbour.enqueue(str(number))
    start(processes)
    helpers.wait_until(lambda: helpers.row(poison.id).status == Status.DEAD)
    helpers.wait_until(lambda: not Task.objects.exclude(status=Status.DEAD))
    dead = Task.objects.exclude(pk=poison.id).count()
    assert not dead
    assert FinishedTask.objects.count() == 30 - dead


def test_tasks_of_a_killed_loop_run_again_on_the_next_one(processes, txtasks):
    txtasks(lease=4, clean_interval=0.2, heartbeat_interval=0.3)
    for number in range(20):
        on_loop.note_and_nap.enqueue(str(number), 1.0)
    once = on_loop.note_and_nap_once.enqueue("once", 60)
    start(processes)
    has_begun(21)
    os.kill(workers(on_loops=True)[0].pid, signal.SIGKILL)
    all_done(20)
    assert Run.objects.count() == 41
    assert helpers.row(once.id).status == Status.DEAD
    pids = set(Run.objects.values_list("pid", flat=True))
    assert len(pids) == 2, "crashes of 1 are below the last chance"


@pytest.mark.parametrize(("seconds", "cleaned"), [(0.3, True), (30, False)])
def test_a_stop_lets_tasks_clean_up_and_gives_them_back_uncounted(processes, seconds, cleaned):
    handles = [on_loop.clean_up.enqueue(str(number), seconds) for number in range(20)]
    once = on_loop.note_and_nap_once.enqueue("once", 60)
    supervisor = start(processes)
    helpers.wait_until(lambda: Task.objects.filter(status=Status.CLAIMED).count() == 21)
    has_begun(1)
    supervisor.send_signal(signal.SIGTERM)
    supervisor.wait(60)
    rows = Task.objects.filter(pk__in=[one.id for one in handles])
    assert set(rows.values_list("status", "crashes", "failures")) == {("pending", 0, 0)}
    assert all(one.errors[0]["type"] == "WorkerStopped" for one in rows)
    assert Run.objects.filter(key__endswith="finally").count() == 20 * cleaned
    assert helpers.row(once.id).status == Status.DEAD
    assert not Worker.objects.filter(lost=False)


def test_a_stop_buries_no_task_that_answers_its_cancel_with_an_error(processes):
    ways = ["library", "finally", "retry", *["group"] * (sys.version_info >= (3, 11))]
    handles = [ends.answer_a_cancel.enqueue(one, one) for one in ways]
    supervisor = start(processes)
    has_begun(len(ways))
    supervisor.send_signal(signal.SIGTERM)
    supervisor.wait(60)
    rows = Task.objects.filter(pk__in=[one.id for one in handles])
    assert list(rows.values_list("status", "crashes", "failures")) == [("pending", 0, 0)] * len(
        ways
    )
    assert {error["type"] for one in rows for error in one.errors} == {"WorkerStopped"}


def test_a_second_signal_ends_the_loop_without_its_finally(processes, txtasks):
    txtasks(grace=60)
    on_loop.clean_up.enqueue("x", 0.1)
    supervisor = start(processes)
    helpers.wait_until(lambda: Task.objects.filter(status=Status.CLAIMED))
    supervisor.send_signal(signal.SIGTERM)
    time.sleep(1.2)  # signals within a second count as one
    supervisor.send_signal(signal.SIGTERM)
    supervisor.wait(60)
    assert Task.objects.get().status == Status.PENDING
    assert not Run.objects.exists()


def test_a_task_that_blocks_the_loop_fails_and_the_others_run_again(processes):
    blocker = on_loop.block.using(max_attempts=1).enqueue(600)
    beside = [on_loop.nap_and_note.enqueue(str(number), 0.5) for number in range(10)]
    start(processes)
    helpers.wait_until(lambda: helpers.row(blocker.id).status == Status.DEAD)
    (error,) = helpers.row(blocker.id).errors
    assert error["type"] == "LoopBlocked"
    assert "blocked the event loop for" in error["message"]
    assert "probe/on_loop.py:" in error["message"]
    assert helpers.row(blocker.id).crashes == 0
    all_done(10)
    assert all(
        one.crashes == 0 for one in FinishedTask.objects.filter(pk__in=[b.id for b in beside])
    )


def test_a_callback_that_blocks_the_loop_ends_its_process(processes):
    handle = on_loop.block_in_callback.enqueue()
    start(processes)
    helpers.wait_until(lambda: helpers.row(handle.id).errors, what="the end of the process")
    assert helpers.row(handle.id).errors[0]["type"] == "WorkerStopped"


def test_a_task_that_ignores_its_cancel_ends_with_its_process(processes):
    handle = on_loop.ignore_cancel.enqueue("x")
    start(processes)
    helpers.wait_until(lambda: helpers.row(handle.id).status == Status.DEAD)
    assert helpers.row(handle.id).errors[0]["type"] == "TimedOut"
    on_loop.nap_and_note.enqueue("next")
    all_done(1)


def test_a_broker_carries_hints_to_the_kind_that_takes_them(processes, broker, txtasks):
    txtasks(poll_interval=NEVER)
    start(processes)
    hears_both_kinds()


@pytest.mark.skipif(connection.vendor != "postgresql", reason="other databases send no NOTIFY")
def test_notify_reaches_the_kind_that_takes_the_task(processes, txtasks):
    txtasks(poll_interval=NEVER, database_hints=True)
    start(processes)
    hears_both_kinds()


MANY = 2000


@pytest.fixture
def many_in_flight(processes, txtasks):
    """An event loop with many waiting tasks; gives its supervisor."""
    txtasks(grace=1, lease=4, clean_interval=0.2, heartbeat_interval=0.3)
    processes.start("runcleaner")
    enqueue_many((on_loop.nap, [600]) for _ in range(MANY))
    supervisor = processes.start("runworkers", "--threads=2", f"--async-tasks={MANY}")
    claimed = Task.objects.filter(status=Status.CLAIMED)
    helpers.wait_until(lambda: claimed.count() == MANY, what="all to be in flight")
    return supervisor


def test_many_tasks_are_given_back_at_a_stop(many_in_flight):
    many_in_flight.send_signal(signal.SIGTERM)
    assert many_in_flight.wait(60) == 1, "tasks were cut short"
    assert set(Task.objects.values_list("status", "crashes", "failures")) == {("pending", 0, 0)}
    assert not Worker.objects.exists(), "the worker's row would stay if a claim were left"


def test_many_tasks_are_cancelled_at_once(many_in_flight):
    ids = list(Task.objects.values_list("pk", flat=True))
    assert set(cancel("default", ids, keep=True)[0].values()) == {CancelResult.ASKED}
    all_done(MANY)
    assert set(FinishedTask.objects.values_list("outcome", flat=True)) == {Outcome.CANCELLED}


def test_many_tasks_of_a_killed_loop_are_recovered(many_in_flight):
    os.kill(workers(on_loops=True)[0].pid, signal.SIGKILL)
    helpers.wait_until(lambda: Task.objects.filter(crashes=1).count() == MANY)
    helpers.wait_until(lambda: Task.objects.filter(status=Status.CLAIMED).count() == MANY)
