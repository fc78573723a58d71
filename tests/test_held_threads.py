"""Tasks on an event loop that hold all its shared threads while others wait for one: what people read about it."""

import threading

import helpers
import pytest
from probe import on_loop
from probe.models import Run
from test_async_tasks import on_a_loop, told
from test_deaths import ann, page, printed  # noqa: F401 (a fixture)
from test_sessions_of_slots import on_postgres

from django_txtasks import enqueue_many, signals
from django_txtasks.features.async_loop.held_threads import WaitNotes, Waits
from django_txtasks.features.progress.notes import HELD_FROM, ProgressNotes, checked
from django_txtasks.metrics import exposition, kept
from django_txtasks.models import FinishedTask, Outcome

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("rows", "quick")]
HOLDS, WAITS = "probe.on_loop.hold_thread", "probe.on_loop.ask_with_semaphore"
ASKS, HOLDERS = 20, 6
EXTRA = "probe.on_loop.hold_extra_thread"
STOP = f"manage.py txtasks_task stop --task {HOLDS}"


def outcomes(name):
    return list(FinishedTask.objects.filter(task_name=name).values_list("outcome", flat=True))


def start(processes, holders, *, kept, how="iterator", env=None):
    """Start a worker with two threads, tasks that keep them, and tasks that have what those wait for."""
    Run.objects.bulk_create(Run(key="seed") for _ in range(20))
    Run.objects.create(key="locked")
    options = ("--threads=2", "--async-tasks=200")
    supervisor = processes.start("runworkers", *options, env=env, with_cleaner=True)
    enqueue_many(
        [
            *((on_loop.hold_thread, [f"holds {number}", how]) for number in range(holders)),
            *((on_loop.hold_extra_thread, [f"keeps {number}"]) for number in range(kept - 2)),
            *((on_loop.ask_with_semaphore, [f"asks {number}", kept]) for number in range(ASKS)),
        ]
    )
    return supervisor


@on_postgres
@pytest.mark.parametrize("how", ["iterator", "tenant", "SET", "lock"])
def test_tasks_that_wait_for_each_other_and_for_threads_end(processes, how):
    """Six tasks want two threads and a semaphore; those that have it want a thread."""
    supervisor = start(processes, HOLDERS, kept=2, how=how)
    helpers.wait_until(
        lambda: len(outcomes(WAITS)) == ASKS and len(outcomes(HOLDS)) == HOLDERS,
        what=lambda: processes.log_of(supervisor),
    )
    assert {*outcomes(WAITS), *outcomes(HOLDS)} == {Outcome.SUCCEEDED}
    assert Run.objects.filter(key__startswith="asks ").count() == ASKS


@on_postgres
def test_a_pool_without_a_session_for_an_extra_thread_is_logged(processes):
    supervisor = start(processes, 2, kept=2, env={"TXTASKS_TEST_POOL": "2"})

    def log():
        return processes.log_of(supervisor)

    helpers.wait_until(lambda: "an extra thread gets no session of" in log(), what=log)
    assert "couldn't get a connection after" in log()
    printed("txtasks_task", "stop", "--task", HOLDS, "--yes")
    helpers.wait_until(lambda: len(outcomes(WAITS)) == ASKS, what=log)
    assert {*outcomes(WAITS)} == {Outcome.SUCCEEDED}
    assert log().count("an extra thread gets no session of") == 1


def test_who_holds_the_threads_and_who_waits_is_read_everywhere(processes, ann):  # noqa: F811
    """Four tasks with an open iterator hold the two threads and both extra ones, and wait for a semaphore."""
    supervisor = start(processes, 2, kept=4)
    # Once the last extra thread is held, too, nothing moves.
    helpers.wait_until(lambda: f"{EXTRA} (2)" in printed("txtasks_status")[0], what="the problem")
    status, _ = printed("txtasks_status")
    shown, (audit, code) = page(ann), printed("txtasks_audit")
    for text in (status, shown):
        assert f"no thread is free: {HOLDS} (2), {EXTRA} (2) have them all." in text
        assert STOP in text
        assert "All is well" not in text
    assert f"{HOLDS} (2), {EXTRA} (2) have the threads" in audit and code == 1
    for text in (status, shown, audit):
        assert f"{WAITS} (2)" in text
    kept.forget()
    assert 'txtasks_problems{database="default",problem="held_threads"} 1' in exposition.text(
        ["default"]
    )
    log = helpers.wait_until(
        lambda: (said := processes.log_of(supervisor)) and "have a thread" in said and said
    )
    assert f"Functions whose tasks have a thread: {HOLDS} (2), {EXTRA} (2)" in log
    assert "Threads: 4." in log
    assert f"Functions whose tasks wait: {WAITS} (2)" in log

    printed("txtasks_task", "stop", "--task", HOLDS, "--yes")  # as the texts advise
    helpers.wait_until(lambda: len(outcomes(WAITS)) == ASKS, what="the tasks that waited")
    assert outcomes(HOLDS) == [Outcome.CANCELLED] * 2
    helpers.wait_until(lambda: outcomes(EXTRA) == [Outcome.SUCCEEDED] * 2, what="the others")
    helpers.wait_until(lambda: HOLDS not in printed("txtasks_status")[0], what="the end")


def test_sync_code_that_waits_for_async_tasks_gets_an_extra_thread(processes):
    """No thread stays with an attempt, but each is in a call that ends only after others."""
    supervisor = processes.start("runworkers", "--threads=2", "--async-tasks=200")
    holders = [(on_loop.hold_by_sync_code, (f"holds {number}",)) for number in range(2)]
    askers = [(on_loop.ask_with_semaphore, (f"asks {number}", 2)) for number in range(4)]
    enqueue_many([*holders, *askers])
    helpers.wait_until(
        lambda: FinishedTask.objects.count() == 6, what=lambda: processes.log_of(supervisor)
    )


@pytest.fixture
def no_thread_left(monkeypatch):
    """Return a function that lets the system refuse threads whose names begin so; an empty name ends this."""
    refused, tries, start = [], [], threading.Thread.start

    def start_if_there_is_one(self):
        if refused and self.name.startswith(refused[0]):
            tries.append(self.name)
            raise RuntimeError("can't start new thread")
        start(self)

    def refuse(name):
        refused[:] = [name] if name else []
        return tries

    monkeypatch.setattr(threading.Thread, "start", start_if_there_is_one)
    return refuse


def test_a_shared_thread_that_could_not_start_is_started_later(no_thread_left):
    tries = no_thread_left("txtasks-shared")
    with on_a_loop() as worker:
        handles = [on_loop.nap_and_note.enqueue(f"{number}") for number in range(4)]
        helpers.wait_until(lambda: worker.slots._shared.waiting == 4)
        seen = len(tries)
        helpers.wait_until(
            lambda: len(tries) > seen + 1, what="tries although no further call comes"
        )
        no_thread_left("")
        helpers.wait_until(lambda: all(helpers.finished(one.id) for one in handles))


def test_an_extra_thread_that_cannot_start_ends_nothing(no_thread_left):
    refused = told(signals.extra_thread_refused)
    no_thread_left("txtasks-extra")
    with on_a_loop() as worker:
        holders = [on_loop.hold_by_sync_code.enqueue(f"holds {number}") for number in range(2)]
        waiting = on_loop.nap_and_note.enqueue("waits")
        helpers.wait_until(lambda: refused)
        assert "can't start new thread" in refused[0]["error"]
        assert not worker.slots._shared.extras
        no_thread_left("")
        on_loop._asking.add("the test")  # what the holders wait for
        helpers.wait_until(lambda: all(helpers.finished(one.id) for one in [*holders, waiting]))
    on_loop._asking.clear()
    on_loop._holding.clear()


def test_long_names_of_functions_leave_room_for_those_that_wait():
    notes = ProgressNotes()
    names = [f"shop.{'long_name_of_an_app.' * 5}{number}" for number in range(2)]
    waits = Waits(["shop.tasks.waits"] * 3, names, threads=2, pinned=2, seconds=9.0, held=9.0)
    WaitNotes(notes).tell(waits, 100.0)
    (progress,) = notes.take().values()
    holding, _, waiting = checked(1.0, 3, progress.note).note.partition(HELD_FROM)
    assert holding.startswith(names[0][:60]) and holding.endswith("…")
    assert waiting == "shop.tasks.waits (3)"
