"""Calls in threads of the event loop's default executor that outlive their attempts."""

import itertools
import threading
import uuid

import helpers
import pytest
from probe import on_loop
from test_async_processes import start, workers
from test_async_tasks import on_a_loop, told

from django_txtasks import enqueue_many, signals
from django_txtasks.features.async_loop import left_calls
from django_txtasks.features.async_loop.default_executor import DefaultExecutor
from django_txtasks.models import EndedWorker, FinishedTask, Status
from django_txtasks.signals.logs import current

pytestmark = pytest.mark.usefixtures("rows", "quick")
HOWS = ("to_thread", "insensitive", "executor")
MANY = 40
"""More calls than any default executor has threads."""


@pytest.fixture
def hold():
    """Hung calls of workers in this process end with the test."""
    left_calls._told.clear()
    on_loop.doors["hold"] = threading.Event()
    yield
    on_loop.doors.pop("hold").set()


def done(handle):
    helpers.wait_until(lambda: FinishedTask.objects.filter(pk=handle.id).exists())
    return FinishedTask.objects.get(pk=handle.id)


@pytest.mark.parametrize("how", HOWS)
def test_a_full_default_executor_holds_no_look_up(hold, how):
    """All threads are taken, and other calls wait for them."""
    left = told(signals.calls_left)
    with on_a_loop() as worker:
        hung = [on_loop.hang_in_thread.enqueue(str(number), how) for number in range(MANY)]
        helpers.wait_until(
            lambda: [helpers.row(one.id).status for one in hung] == [Status.DEAD] * MANY
        )
        pool = worker.slots._loop.executor
        assert len(pool.running) == pool.size
        for number in range(10):
            done(on_loop.look_up.enqueue(f"look-up {number}"))
        helpers.wait_until(lambda: left, what="the warning")
        on_loop.doors["hold"].set()
    assert [(one["task"], one["name"]) for one in left] == [
        ("probe.on_loop.hang_in_thread", "probe.on_loop._hang")
    ]


def test_hung_calls_cost_their_process_and_no_other_task(processes):
    """The others have their time to end. A task that needs a thread runs in the next process."""
    supervisor = start(processes)
    (before,) = workers(on_loops=True)
    how = itertools.cycle(HOWS)
    handles = enqueue_many(
        [
            *((on_loop.hang_in_thread, [f"hung {number}", next(how)]) for number in range(MANY)),
            *((on_loop.nap_and_note, [f"beside {number}", 3.0]) for number in range(10)),
            (on_loop.call_in_thread, ["waits for a thread"]),
            (on_loop.look_up, ["look-up"]),
        ]
    )
    *beside, waits, looks = handles[MANY:]
    looked, waited = done(looks), done(waits)
    assert looked.worker == before.pk != waited.worker
    for one in beside:
        assert done(one).crashes == 0
    ended = helpers.wait_until(lambda: EndedWorker.objects.filter(pk=before.pk).first())
    assert (ended.how, [*ended.held]) == ("stuck", ["probe.on_loop.hang_in_thread"])
    said = processes.log_of(supervisor)
    assert (
        "(probe.on_loop._hang) in threads, made by ended attempts of probe.on_loop.hang_in_thr"
        in said
    )


def test_look_ups_that_name_servers_do_not_answer_cost_no_process():
    """They end by themselves, and another process would have the same name servers."""
    executor, door = DefaultExecutor(), threading.Event()
    left = left_calls.LeftCalls(executor, patience=4.0)
    facts = {"task": "shop.tasks.fetch", "queue": "default", "task_id": uuid.uuid4(), "attempt": 1}
    token = current.set(facts)
    calls = [executor.lookups.submit(door.wait) for _ in range(executor.lookups.size)]
    current.reset(token)
    helpers.wait_until(lambda: len(executor.lookups.running) == len(calls))
    try:
        for now, stuck in ((1.0, 0), (200.0, 0), (302.0, len(calls))):
            left.look(lambda *attempt: False, now)
            assert len(left.stuck) == stuck
    finally:
        door.set()
        executor.shutdown()


def test_calls_that_end_in_the_patience_cut_no_other_task_short(processes, txtasks):
    """The calls are slow and do not hang."""
    txtasks(grace=4)
    supervisor = start(processes)
    helpers.wait_until(lambda: workers(on_loops=True))
    beside = on_loop.nap_and_note.enqueue("beside", 14.0)
    enqueue_many([(on_loop.slow_in_thread, (f"slow {number}", 7.0)) for number in range(MANY)])
    assert done(beside).crashes == 0, processes.log_of(supervisor)
