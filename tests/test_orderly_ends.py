"""A worker that ends in good order while tasks run lets them go by itself, and counts no crash."""

import contextlib
import signal

import helpers
import pytest
from django.conf import settings as django_settings
from django.db import OperationalError, connection
from probe import tasks

from django_txtasks import batch, models, signals
from django_txtasks.conf import get_config
from django_txtasks.core.cleaning import Cleaner
from django_txtasks.core.rows.attempts import Arrow, Ended
from django_txtasks.core.rows.cleaning import STOPS_IN_A_ROW
from django_txtasks.core.rows.turn import Capacity
from django_txtasks.core.working import worker as worker_module
from django_txtasks.core.working.hint_inbox import HintInbox
from django_txtasks.core.working.leaving import let_go
from django_txtasks.core.working.recording.outcome_buffer import TURN_BYTES
from django_txtasks.core.working.schedule import Plan
from django_txtasks.core.working.turn_writer import TurnWriter
from django_txtasks.core.working.worker import Exit, Worker
from django_txtasks.models import Status, Task
from django_txtasks.models import Worker as WorkerRow
from django_txtasks.operations import operators
from django_txtasks.processes.shutdown import Shutdown

pytestmark = pytest.mark.usefixtures("rows", "quick")
IS_SQLITE = "sqlite3" in django_settings.DATABASES["default"]["ENGINE"]


def new_writer():
    return TurnWriter(get_config(), helpers.subscription(), threads=4)


def claim(writer, room=4, *, last_chance=None):
    """Claim the due tasks, or this last chance after a crash; return the keys of the attempts."""
    plan = Plan(Capacity(room), scans=bool(room))
    if last_chance is not None:
        plan = Plan(Capacity(1), [last_chance.id], is_alone=True)
    claimed = writer.write(plan, helpers.Running(), None).claimed
    return {(one.task_id, one.number) for one in claimed}


def stop(times=1, **claims):
    """A worker claims all that is due, and has to end in the midst of it."""
    for _ in range(times):
        writer = new_writer()
        let_go(writer, claim(writer, **claims), "a second stop signal")


@contextlib.contextmanager
def told(*events):
    """Collect (event, facts) of the events."""
    heard, listeners = [], []
    for event in events:

        def listen(signal, event=event, **facts):
            heard.append((event, facts))

        event.connect(listen)
        listeners.append((event, listen))
    yield heard
    for event, listen in listeners:
        event.disconnect(listen)


# -- a deploy, with real processes ----------------------------------------------------------------------


def deploy(processes, *keys):
    """Start a worker, wait until it runs these, and stop it; its grace is over before they end."""
    process = processes.start("runworkers", "--threads=4")
    seen = {key: helpers.runs(key) for key in keys}
    helpers.wait_until(
        lambda: all(helpers.runs(key) > seen[key] for key in keys),
        what=lambda: processes.log_of(process),
    )
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 1
    return process


def test_a_deploy_counts_as_no_crash_and_needs_no_cleaner(processes, txtasks):
    txtasks(grace=0.3)
    again = tasks.slow_once.enqueue("again")
    once = tasks.slow.enqueue("once")
    paid = tasks.pay.enqueue("paid", amount=7)
    deploy(processes, "again", "once", "paid")
    row = helpers.row(again.id)
    assert (row.status, row.attempt, row.crashes, row.failures) == (Status.PENDING, 1, 0, 0)
    assert row.errors[0]["type"] == "WorkerStopped"
    assert "the end of TXTASKS['grace']" in row.errors[0]["message"]
    dead = helpers.row(once.id)
    assert (dead.status, dead.errors[0]["type"]) == (Status.DEAD, "WorkerStopped")
    assert "worker stopped while the task ran" in dead.errors[0]["message"]
    assert "neither atomic nor idempotent" in dead.errors[0]["message"]
    assert helpers.row(paid.id).is_compensated
    assert Task.objects.get(task_name="probe.tasks.undo").status == Status.PENDING
    assert not models.Worker.objects.exists()
    processes.start("runworkers", "--batch").wait(30)
    done = helpers.finished(again.id)
    assert (done.attempt, done.crashes) == (2, 0)
    assert (helpers.runs("once"), helpers.runs("undo paid 7")) == (1, 1)


@pytest.mark.skipif(
    IS_SQLITE, reason="there an atomic task holds the only write lock until its process is gone"
)
def test_a_deploy_rolls_an_atomic_task_back_and_it_runs_again(processes, txtasks):
    txtasks(grace=0.3)
    handle = tasks.atomic_slow.enqueue("effect", 60)
    process = processes.start("runworkers", "--threads=1")
    helpers.wait_until(WorkerRow.objects.filter(running=1).exists)  # a claim alone has not begun
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 1
    row = helpers.row(handle.id)
    assert (row.status, row.attempt, row.crashes) == (Status.PENDING, 1, 0)
    assert helpers.runs("effect") == 0


def test_what_was_let_go_runs_on_for_a_moment_only_though_the_log_hangs(processes, txtasks):
    txtasks(grace=0.3)
    handle = tasks.stay.enqueue()
    first = processes.start("runworkers", "--threads=1")
    helpers.wait_until(lambda: helpers.runs("stay"), what=lambda: processes.log_of(first))
    first.send_signal(signal.SIGTERM)
    helpers.wait_until(lambda: helpers.row(handle.id).status == Status.PENDING)
    processes.start("runworkers", "--batch").wait(60)
    assert first.wait(60) == 1
    assert (helpers.runs("stay"), helpers.runs("twice for long")) == (2, 0)


# -- what counts ------------------------------------------------------------------------------------------


def test_deploys_bury_no_long_idempotent_task_but_not_for_ever():
    """What stops its workers by itself, as by a probe that fails, must end, too."""
    handle = tasks.slow_once.enqueue()
    stop(STOPS_IN_A_ROW)
    row = helpers.row(handle.id)
    assert (row.status, row.attempt, row.crashes) == (Status.PENDING, STOPS_IN_A_ROW, 0)
    for crashes, status in [(1, Status.PENDING), (2, Status.PENDING), (3, Status.DEAD)]:
        helpers.execute("UPDATE txtasks_task SET run_after = enqueued_at")
        stop(last_chance=handle if crashes == 3 else None)
        row = helpers.row(handle.id)
        assert (row.crashes, row.status) == (crashes, status)
    assert "crash 3 of 3 after 9 stops in a row" in row.errors[-1]["message"]


def test_another_end_between_begins_the_count_anew():
    handle = tasks.slow_once.enqueue()
    stop(STOPS_IN_A_ROW)
    writer = new_writer()
    claim(writer)
    helpers.execute("UPDATE txtasks_worker SET lost = TRUE")
    Cleaner(get_config()).run_once()
    stop(2)
    row = helpers.row(handle.id)
    assert (row.status, row.crashes) == (Status.PENDING, 1)


def test_a_stop_keeps_the_place_in_the_queue():
    handle = tasks.slow_once.enqueue()
    before = helpers.row(handle.id).run_after
    stop()
    assert helpers.row(handle.id).run_after == before


def test_hooks_and_signals_tell_of_a_stop():
    again, once = tasks.rest.enqueue("again"), tasks.note.enqueue("once")
    with told(signals.task_cut_short, signals.task_died) as heard:
        stop()
    assert {(event, facts["task_id"]) for event, facts in heard} == {
        (signals.task_cut_short, again.id),
        (signals.task_died, once.id),
    }
    (event,) = Task.objects.get(task_name="probe.tasks.tell").args
    assert (event["event"], event["failures"], event["crashes"]) == ("retry", 0, 0)
    assert event["error"]["type"] == "WorkerStopped"


# -- in which order -----------------------------------------------------------------------------------------


def test_nothing_is_let_go_before_its_worker_is_declared_lost():
    """Whoever claims it next may meet the end of the first run: not one of a worker that is believed."""
    handle = tasks.slow_once.enqueue()
    writer = new_writer()
    running = claim(writer)
    seen = []

    def look(execute, sql, params, many, context):
        if "SET status = 'pending'" in sql:
            with helpers.second_session(lambda: seen.append(helpers.row(handle.id).status)):
                pass
            seen.append(models.Worker.objects.get().lost)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(look):
        let_go(writer, running, "a second stop signal")
    assert seen == [Status.CLAIMED, True]
    assert not models.Worker.objects.exists()


def test_an_attempt_that_is_let_go_finishes_nothing_any_more():
    handle = tasks.slow_once.enqueue()
    writer = new_writer()
    (attempt,) = writer.write(Plan(Capacity(1), scans=True), helpers.Running(), None).claimed
    let_go(writer, {(handle.id, 1)}, "a second stop signal")
    other = new_writer()
    other.buffer.add([Ended(attempt=attempt, arrow=Arrow.FINISH)])
    claim(other, room=0)
    assert helpers.row(handle.id).status == Status.PENDING


def test_a_worker_that_cannot_let_go_leaves_its_claims_to_the_cleaner():
    handle = tasks.slow_once.enqueue()
    writer = new_writer()
    running = claim(writer)

    def refuse(execute, sql, params, many, context):
        if "SET status = 'pending'" in sql:
            raise OperationalError("the connection was cut")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(refuse), pytest.raises(OperationalError):
        let_go(writer, running, "a second stop signal")
    assert helpers.row(handle.id).status == Status.CLAIMED
    assert models.Worker.objects.get().lost
    assert Cleaner(get_config()).run_once()["retried"] == 1
    assert helpers.row(handle.id).crashes == 1


def test_a_claim_that_its_worker_does_not_know_is_given_back():
    """The answer to its COMMIT was lost: it was never begun, whatever its policy."""
    handle = tasks.note.enqueue()
    writer = new_writer()
    claim(writer)
    let_go(writer, set(), "a second stop signal")
    row = helpers.row(handle.id)
    assert (row.status, row.errors, row.crashes) == (Status.PENDING, [], 0)


def test_an_outcome_that_cannot_be_written_keeps_its_claim():
    handle, other = tasks.note.enqueue(), tasks.slow_once.enqueue()
    writer = new_writer()
    claimed = writer.write(Plan(Capacity(2), scans=True), helpers.Running(), None).claimed
    mine = next(one for one in claimed if one.task_id == handle.id)
    writer.buffer._put_aside([Ended(attempt=mine, arrow=Arrow.FINISH)])
    let_go(writer, {(handle.id, 1), (other.id, 1)}, "a second stop signal")
    assert helpers.row(handle.id).status == Status.CLAIMED
    assert helpers.row(other.id).status == Status.PENDING
    assert models.Worker.objects.get().lost


# -- the loop -----------------------------------------------------------------------------------------------


@pytest.fixture
def workers():
    """Make a worker whose tasks may rest until the end of the test; its threads end with it."""
    made = []
    tasks.released.clear()

    def make(threads=2):
        inbox, everything = HintInbox(), helpers.subscription()
        stop = Shutdown(60, inbox.wake)
        worker = Worker(get_config(), everything, threads=threads, inbox=inbox, stop=stop)
        made.append(worker)
        return worker

    yield make
    tasks.released.set()
    for worker in made:
        worker.slots.close()


def test_what_has_ended_is_recorded_first_however_much_it_is(workers):
    worker = workers()
    handles = [tasks.note.enqueue() for _ in range(7)]
    claimed = worker.writer.write(Plan(Capacity(7), scans=True), helpers.Running(), None).claimed
    result = '"' + "x" * (TURN_BYTES // 2) + '"'
    worker.writer.buffer.add(
        Ended(attempt=one, arrow=Arrow.FINISH, result=result) for one in claimed
    )
    worker.stop.force()
    assert worker.run() is Exit.CUT_SHORT
    assert all(helpers.finished(one.id) for one in handles)
    assert not models.Worker.objects.exists()


def test_neighbours_of_a_stuck_task_end_in_good_order(workers, txtasks, monkeypatch):
    """They have their grace; then what may run again goes back, and the others say what has ended them."""
    monkeypatch.setattr(worker_module, "LEAST_END_SECONDS", 0.1)
    txtasks(grace=0)
    again = tasks.rest.enqueue("again")
    once = tasks.until_released.enqueue("once")
    worker, ends = workers(threads=3), []
    with helpers.second_session(lambda: ends.append(worker.run())):
        helpers.wait_until(lambda: helpers.runs("again") and helpers.runs("once"))
        stuck = tasks.rest_too_long.enqueue()
    assert ends == [Exit.STUCK]
    dead = helpers.row(stuck.id)
    assert (dead.status, dead.failures, dead.crashes) == (Status.DEAD, 1, 0)
    assert dead.errors[0]["type"] == "TimedOut"
    row = helpers.row(again.id)
    assert (row.status, row.crashes, row.failures) == (Status.PENDING, 0, 0)
    assert "replaced: a task did not end after its timeout" in row.errors[0]["message"]
    assert helpers.row(once.id).status == Status.DEAD
    assert "replaced: a task did not end" in helpers.row(once.id).errors[0]["message"]
    assert not models.Worker.objects.exists()


def abandon(workers, txtasks, monkeypatch, *handles):
    """Run tasks that hang until their process would be replaced.

    If there are several, all of them must be over their time when the first one is stuck.
    """
    monkeypatch.setattr(worker_module, "LEAST_END_SECONDS", 0.1 if len(handles) == 1 else 2.0)
    txtasks(grace=0)
    worker, ends = workers(threads=len(handles)), []
    with helpers.second_session(lambda: ends.append(worker.run())):
        pass
    assert ends == [Exit.STUCK]


def test_a_hung_task_with_a_compensation_is_compensated_at_once(workers, txtasks, monkeypatch):
    """It has attempts left, but may not run again: nobody knows how far it came."""
    handle = tasks.hang_paying.enqueue("hung", amount=3)
    abandon(workers, txtasks, monkeypatch, handle)
    row = helpers.row(handle.id)
    assert (row.status, row.is_compensated, row.errors[-1]["type"]) == (
        Status.DEAD,
        True,
        "TimedOut",
    )
    assert "Its compensation was enqueued" in row.errors[-1]["message"]
    operators.revive("default", [handle.id])
    assert helpers.row(handle.id).status == Status.DEAD
    [undo] = models.Task.objects.filter(task_name="probe.tasks.undo")
    assert (undo.args, undo.kwargs) == (["hung"], {"amount": 3})


def test_a_hung_task_that_may_run_again_is_compensated_after_its_last_attempt(
    workers, txtasks, monkeypatch
):
    first = tasks.hang_trying_to_pay.enqueue("first", amount=1)
    last = tasks.hang_trying_to_pay.enqueue("last", amount=2)
    models.Task.objects.filter(pk=last.id).update(failures=1)
    abandon(workers, txtasks, monkeypatch, first, last)
    row = helpers.row(first.id)
    assert (row.status, row.failures, row.crashes) == (Status.PENDING, 1, 0)
    row = helpers.row(last.id)
    assert (row.status, row.is_compensated) == (Status.DEAD, True)
    assert list(models.Task.objects.compensated()) == [row]
    operators.revive("default", [last.id])
    assert helpers.row(last.id).status == Status.DEAD
    [undo] = models.Task.objects.filter(task_name="probe.tasks.undo")
    assert undo.args == ["last"]


def test_a_hung_task_with_a_compensation_ends_its_batch_and_enqueues_its_on_failure(
    workers, txtasks, monkeypatch
):
    with batch(name="b", on_failure=tasks.tell_of_batch):
        handle = tasks.hang_paying.using(on_failure=tasks.notice).enqueue("member", amount=1)
    abandon(workers, txtasks, monkeypatch, handle)
    assert helpers.row(handle.id).is_compensated
    names = set(models.Task.objects.exclude(pk=handle.id).values_list("task_name", flat=True))
    assert names == {"probe.tasks.undo", "probe.tasks.notice", "probe.tasks.tell_of_batch"}


@pytest.mark.skipif(IS_SQLITE, reason="a hung transaction holds the only write lock")
def test_a_hung_atomic_task_is_dead_and_leaves_nothing(workers, txtasks, monkeypatch):
    handle = tasks.hang_in_transaction.enqueue("nothing")
    abandon(workers, txtasks, monkeypatch, handle)
    row = helpers.row(handle.id)
    assert (row.status, row.failures, row.crashes) == (Status.DEAD, 1, 0)
    assert not helpers.runs("nothing")
