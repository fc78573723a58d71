"""A worker claims, runs and records: every kind of task, every kind of end."""

import json
import sys
import uuid
from datetime import timedelta

import helpers
import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from probe import tasks

from django_txtasks import enqueue_many, enqueue_task, signals
from django_txtasks.models import FinishedTask, Status, Task, Worker

pytestmark = [pytest.mark.usefixtures("rows", "quick"), pytest.mark.smoke]


def work(**options):
    """Run everything that is due, in this process."""
    call_command("runworkers", batch=True, **{"threads": 2, **options})


def test_a_batch_ends_when_nothing_is_due():
    work()
    assert not Worker.objects.exists()


def test_a_task_runs_and_its_row_moves_to_the_finished_ones():
    with transaction.atomic():
        handle = enqueue_task(tasks.note, "once")
    work()
    done = helpers.finished(handle.id)
    assert helpers.runs("once") == 1
    assert (done.outcome, done.attempt, done.failures, done.result) == ("succeeded", 1, 0, None)
    assert done.enqueued_at <= done.started_at <= done.finished_at
    assert helpers.row(handle.id) is None


def test_results_are_kept():
    values = [{"a": [1, "ü", None]}, 0, "", False, [], "x' OR 1=1 --", "100 %s %(x)s"]
    handles = [tasks.give.enqueue(value) for value in values]
    work()
    assert [helpers.finished(handle.id).result for handle in handles] == values


@pytest.mark.parametrize("value", ["\x00", "\ud800"], ids=["NUL", "surrogate"])
def test_a_result_that_cannot_be_stored_leaves_the_task_dead_with_the_reason(value, settings):
    handle = tasks.give.enqueue("as module")
    helpers.execute("UPDATE txtasks_task SET task_name = 'probe.tasks.give_bad'")
    from django_txtasks.core.declaring import registry

    declaration = registry.get("probe.tasks.give")
    from dataclasses import replace

    registry.register(replace(declaration, name="probe.tasks.give_bad", function=lambda _: value))
    work()
    dead = helpers.row(handle.id)
    assert (dead.status, dead.failures) == (Status.DEAD, 1)
    assert "result holds a" in dead.errors[0]["message"]
    if sys.version_info >= (3, 11):
        assert "The task function had run to its end" in dead.errors[0]["traceback"]


def test_a_context_tells_the_attempt():
    handle = tasks.tell_context.using(queue_name="mail").enqueue()
    work()
    assert helpers.finished(handle.id).result == {
        "id": str(handle.id), "attempt": 1, "queue": "mail", "failures": 0,
    }  # fmt: skip


def test_an_async_task_runs():
    handle = tasks.note_async.enqueue()
    work()
    assert helpers.finished(handle.id).result == "from async"
    assert helpers.runs("async") == 1


def test_an_atomic_task_commits_its_effects_with_its_finish():
    handle = tasks.atomic_note.enqueue()
    work()
    assert helpers.finished(handle.id).outcome == "succeeded"
    assert helpers.runs("atomic") == 1


def test_a_failed_atomic_task_leaves_no_effects():
    handle = tasks.atomic_fail.enqueue()
    work_until_dead(handle)
    assert helpers.runs("atomic_fail") == 0


@pytest.mark.skipif(connection.vendor == "mysql", reason="it checks foreign keys at once")
@pytest.mark.skipif(sys.version_info < (3, 11), reason="an error takes a note")
def test_an_error_of_the_commit_says_that_the_function_had_returned():
    handle = tasks.atomic_broken_key.enqueue()
    work()
    (error,) = helpers.row(handle.id).errors
    assert error["type"] == "IntegrityError"
    assert "The task function had returned" in error["traceback"]
    assert "runner.py" not in error["traceback"]


def work_until_dead(handle):
    def is_dead():
        work()
        return helpers.row(handle.id).status == Status.DEAD

    helpers.wait_until(is_dead)


def test_a_raising_task_is_tried_again_until_max_attempts_and_then_dead():
    handle = tasks.fail.enqueue("out of paper")
    work_until_dead(handle)
    dead = helpers.row(handle.id)
    assert helpers.runs("fail") == 3
    assert (dead.failures, dead.attempt, dead.crashes, dead.worker) == (3, 3, 0, None)
    assert [error["attempt"] for error in dead.errors] == [1, 2, 3]
    last = dead.errors[-1]
    assert (last["type"], last["message"]) == ("ValueError", "out of paper")
    assert "raise ValueError(text)" in last["traceback"]
    assert "a local variable" not in json.dumps(last["traceback"]).replace(
        'secret = \\"a local variable\\"', ""
    )
    assert uuid.UUID(last["worker"])
    assert last["at"].startswith("20")


def test_an_error_text_that_no_database_stores_is_cleaned():
    handle = tasks.fail.enqueue("ok")
    from dataclasses import replace

    from django_txtasks.core.declaring import registry

    def bad(_):
        raise ValueError("NUL \x00, surrogate \ud800, " + "long " * 100_000)

    registry.register(
        replace(
            registry.get("probe.tasks.fail"),
            name="probe.tasks.fail_bad",
            function=bad,
        )
    )
    helpers.execute("UPDATE txtasks_task SET task_name = 'probe.tasks.fail_bad', max_attempts = 1")
    work()
    dead = helpers.row(handle.id)
    assert dead.status == Status.DEAD
    assert dead.errors[0]["message"].startswith("NUL \\x00, surrogate \\ud800, long")
    assert len(json.dumps(dead.errors)) < 30_000


def test_a_task_that_succeeds_at_last_is_finished_with_its_errors():
    handle = tasks.fail_until.enqueue(3)

    def is_finished():
        work()
        return helpers.finished(handle.id)

    done = helpers.wait_until(is_finished)
    assert (done.attempt, done.failures, len(done.errors)) == (3, 2, 2)


def test_retry_waits_as_long_as_the_task_says():
    handle = tasks.retry_once.enqueue(3600)
    work()
    task = helpers.row(handle.id)
    assert task.status == Status.PENDING
    assert timedelta(minutes=59) < task.run_after - task.enqueued_at < timedelta(minutes=61)
    assert task.errors[0]["type"] == "Retry"
    work()
    assert helpers.runs("retry_once") == 1


def test_a_slot_survives_whatever_a_task_raises(txtasks):
    tasks.bad_retry.enqueue()
    tasks.leave_a_block_open.enqueue()
    work(threads=1)
    assert helpers.counts()["claimed"] == 0
    after = tasks.atomic_note.enqueue()
    work(threads=1)
    assert helpers.finished(after.id)


def test_a_block_that_a_task_never_leaves_is_not_inherited_by_the_next():
    tasks.leave_a_block_open.enqueue()
    after = tasks.atomic_note.enqueue()
    work(threads=1)
    assert helpers.finished(after.id).attempt == 1
    assert helpers.runs("in an open block") == 0


def test_reject_is_dead_at_once():
    handle = tasks.reject.enqueue()
    work()
    dead = helpers.row(handle.id)
    assert (dead.status, dead.failures, helpers.runs("reject")) == (Status.DEAD, 1, 1)
    assert dead.errors[0]["message"] == "the address does not exist"


def test_a_task_that_leaves_python_fails_and_ends_no_worker():
    handle = tasks.leave_python.enqueue()
    after = tasks.note.enqueue()
    work(threads=1)
    assert helpers.row(handle.id).errors[0]["type"] == "SystemExit"
    assert helpers.finished(after.id)


def test_a_task_cannot_leave_its_transaction_mode_to_the_next():
    tasks.leave_autocommit_off.enqueue()
    tasks.note.enqueue("next")
    work(threads=1)
    assert (helpers.runs("next"), helpers.runs("never committed")) == (1, 0)


def test_a_task_may_enqueue_others_and_a_batch_runs_them_too():
    tasks.enqueue_another.enqueue("child")
    work()
    assert helpers.runs("child") == 1


def test_a_later_task_does_not_run_yet():
    tasks.note.using(run_after=timedelta(hours=1)).enqueue()
    work()
    assert helpers.counts() == {"pending": 1, "claimed": 0, "dead": 0, "held": 0, "finished": 0}


def test_an_unknown_name_stays_pending_for_a_worker_that_knows_it():
    helpers.execute(
        "INSERT INTO txtasks_task (id, task_name) VALUES (%s, 'os.system')", uuid.uuid4().hex
    )
    tasks.note.enqueue()
    work()
    assert helpers.counts() == {"pending": 1, "claimed": 0, "dead": 0, "held": 0, "finished": 1}
    assert Task.objects.get().attempt == 0


def insert_by_hand(**columns):
    task_id = uuid.uuid4()
    names = ", ".join(["id", "task_name", *columns])
    places = ", ".join(["%s"] * (len(columns) + 2))
    helpers.execute(
        f"INSERT INTO txtasks_task ({names}) VALUES ({places})",
        task_id.hex, "probe.tasks.note", *columns.values(),
    )  # fmt: skip
    return task_id


def test_a_row_written_by_hand_needs_only_an_id_and_a_name():
    task_id = insert_by_hand()
    work()
    assert helpers.finished(task_id).outcome == "succeeded"
    assert helpers.runs("note") == 1


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"args": '{"a": 1}'}, "args are dict, not a JSON array"),
        ({"kwargs": "[1]"}, "kwargs are list, not a JSON object"),
        ({"args": "null"}, "args are NoneType"),
        ({"kwargs": '"text"'}, "kwargs are str"),
    ],
    ids=["object", "array", "null", "text"],
)
def test_a_row_whose_arguments_are_no_arguments_is_dead_with_the_reason(columns, says):
    task_id = insert_by_hand(**columns)
    work()
    dead = helpers.row(task_id)
    assert (dead.status, dead.failures) == (Status.DEAD, 1)
    assert says in dead.errors[0]["message"]


def test_arguments_that_the_function_does_not_take_wait_for_code_that_takes_them():
    task_id = insert_by_hand(kwargs='{"nonsense": 1}', max_attempts=1)
    work()
    row = helpers.row(task_id)
    assert (row.status, row.failures) == (Status.PENDING, 0)
    assert row.errors[0]["type"] == "ArgumentsDoNotFit"


def test_errors_that_somebody_wrote_by_hand_do_not_stop_a_failure_from_being_recorded():
    task_id = insert_by_hand(errors='{"not": "a list"}', kwargs='{"nonsense": 1}', max_attempts=1)
    work()
    assert len(helpers.row(task_id).errors) == 1


def test_higher_priorities_come_first_and_then_the_longest_due():
    enqueue_many(
        (tasks.note.using(priority=priority), (f"{priority}",)) for priority in (0, -5, 100, 0, 7)
    )
    work(threads=1)
    from probe.models import Run

    assert [run.key for run in Run.objects.order_by("id")] == ["100", "7", "0", "0", "-5"]


def test_a_worker_serves_the_queues_it_was_told_to():
    tasks.note.enqueue("default")
    tasks.mail.enqueue("mail")
    work(queue=["mail"])
    assert (helpers.runs("default"), helpers.runs("mail")) == (0, 1)
    tasks.mail.enqueue("mail")
    work(exclude_queue=["mail"])
    assert (helpers.runs("default"), helpers.runs("mail")) == (1, 1)


@pytest.mark.parametrize("options", [{"queue": ["mial"]}, {"exclude_queue": ["mial"]}], ids=str)
def test_an_unknown_queue_is_an_error_that_names_the_known_ones(options):
    with pytest.raises(CommandError, match=r"'mial' is unknown.*'default', 'mail'"):
        work(**options)


def test_no_queue_left_is_an_error():
    with pytest.raises(CommandError, match="leaves no queue"):
        work(queue=["mail"], exclude_queue=["mail"])


def test_a_worker_runs_the_task_functions_it_was_told_to():
    tasks.note.enqueue("note")
    tasks.mail.enqueue("mail")
    tasks.told_atomic.enqueue("")
    work(task=["probe.tasks.note", "probe.tasks.ma*"])
    assert (helpers.runs("note"), helpers.runs("mail"), Task.objects.count()) == (1, 1, 1)
    tasks.note.enqueue("note")
    work(exclude_task=["probe.tasks.note", "django_txtasks.*"])
    assert helpers.runs("note") == 1
    assert Task.objects.get().task_name == "probe.tasks.note"


@pytest.mark.parametrize("option", ["task", "exclude_task"])
def test_a_task_function_that_is_not_declared_is_an_error_that_names_the_nearest(option):
    with pytest.raises(
        CommandError, match=r"'probe.tasks.noet'. The nearest are: probe.tasks.note"
    ):
        work(**{option: ["probe.tasks.noet"]})


def test_no_task_function_left_is_an_error():
    with pytest.raises(CommandError, match="leaves no task function"):
        work(exclude_task=["*"])


@pytest.mark.about("rerouting")
@pytest.mark.once
def test_a_hint_that_meets_a_worker_of_other_functions_reaches_the_right_one(broker, txtasks):
    txtasks(poll_interval=600)
    mine, others = ["probe.tasks.note"], ["probe.tasks.quick"]
    with helpers.working(names=mine), helpers.working(names=others), helpers.working(names=others):
        for number in range(6):
            tasks.note.enqueue(f"told {number}")
            helpers.wait_until(lambda n=number: helpers.runs(f"told {n}"))


def test_a_worker_ends_after_max_tasks():
    enqueue_many((tasks.note, ()) for _ in range(10))
    call_command("runworkers", max_tasks=3, threads=2)
    assert (helpers.runs(), Task.objects.count()) == (3, 7)


def test_finished_tasks_need_not_be_kept(txtasks):
    txtasks(keep_finished=0)
    tasks.note.enqueue()
    tasks.atomic_note.enqueue()
    work()
    assert helpers.runs() == 2
    assert not FinishedTask.objects.exists()
    assert not Task.objects.exists()


def test_signals_tell_what_happened():
    told = []

    def listen(signal, **facts):
        told.append((signal.sentence.split("%s")[-1][:8], facts["task"], facts["attempt"]))
        raise RuntimeError("a receiver that raises stops nothing")

    signals.task_finished.connect(listen)
    signals.task_died.connect(listen)
    try:
        tasks.note.enqueue()
        tasks.reject.enqueue()
        work(threads=1)
    finally:
        signals.task_finished.disconnect(listen)
        signals.task_died.disconnect(listen)
    assert {name for _, name, _ in told} == {"probe.tasks.note", "probe.tasks.reject"}


def test_a_reused_id_of_a_finished_task_ends_dead_and_visible_and_stops_nothing():
    task_id = insert_by_hand()
    work()
    helpers.execute(
        "INSERT INTO txtasks_task (id, task_name) VALUES (%s, 'probe.tasks.note')", task_id.hex
    )
    tasks.note.enqueue("other")
    work()
    assert helpers.row(task_id).status == Status.DEAD
    assert helpers.row(task_id).errors[0]["type"] == "AlreadyRun"
    assert helpers.runs("other") == 1
