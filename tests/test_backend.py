"""Django's own Tasks on this package: the same rows, the same workers.

The cases of Django's tests of its backends that concern one that writes to a database, and of
django-tasks-db's, are among these; docs/how-to/django-tasks.md says which do not apply.
"""

import logging
import os
import pickle
import signal
import subprocess
import sys
import time
import uuid
from datetime import datetime, timedelta, timezone

import django
import handing
import helpers
import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test import override_settings
from probe import framework, relay, tasks

from django_txtasks import backends, enqueue_task, exceptions
from django_txtasks.backends import compat
from django_txtasks.backends.compat import (
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from django_txtasks.conf import get_config
from django_txtasks.core.declaring import registry
from django_txtasks.features.redaction import declaring as redaction
from django_txtasks.models import FinishedTask, Status, Task, Worker

pytestmark = [pytest.mark.usefixtures("rows", "quick"), pytest.mark.smoke]

BACKEND = "django_txtasks.backends.TxTasksBackend"


def work(**options):
    """Run everything that is due, in this process."""
    call_command("runworkers", batch=True, **{"threads": 2, **options})


@pytest.fixture
def told():
    """Return what the three signals sent: (signal's name, sender, status, in an except block)."""
    heard = []

    def listen(name):
        def hear(sender, task_result, **_):
            heard.append((name, sender, str(task_result.status), sys.exc_info()[0]))

        return hear

    signals = {"enqueued": task_enqueued, "started": task_started, "finished": task_finished}
    receivers = {name: listen(name) for name in signals}
    for name, one in signals.items():
        one.connect(receivers[name])
    yield heard
    for name, one in signals.items():
        one.disconnect(receivers[name])


# ---- hand over


def test_a_task_that_was_handed_over_runs_in_the_other_system(txtasks, told):
    """Its end is unknown here, also after a target has refused it for a while."""
    relay.reset()
    txtasks(queues=["default", "mail"], hand_over={"mail": "probe.relay.send"})
    backend = task_backends["default"]
    row = framework.mail.enqueue()
    relay.answers[Task.objects.get().task_name] = "the shop is closed"
    handing.hand_over("mail")
    waiting = backend.get_result(str(row.id))
    assert (waiting.status, waiting.is_finished) == (TaskResultStatus.READY, False)
    relay.reset()
    Task.objects.update(run_after="2020-01-01 00:00Z")
    handing.hand_over("mail")
    handed = backend.get_result(str(row.id))
    assert (handed.status, handed.is_finished) == (TaskResultStatus.RUNNING, False)
    assert handed.finished_at is None and "finished" not in {one for one, *_ in told}


# ---- enqueue


def test_a_task_is_a_row_of_the_open_transaction():
    with transaction.atomic():
        result = framework.add.enqueue(1, b=2)
        row = helpers.row(uuid.UUID(result.id))
        assert (row.status, row.args, row.kwargs) == (Status.PENDING, [1], {"b": 2})
    assert result.status == TaskResultStatus.READY
    assert result.task is framework.add
    assert (result.args, result.kwargs, result.backend) == ([1], {"b": 2}, "default")
    assert result.enqueued_at is not None
    assert (result.started_at, result.finished_at, result.last_attempted_at) == (None, None, None)
    assert (result.errors, result.worker_ids, result.attempts) == ([], [], 0)
    assert not result.is_finished
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value


def test_a_rolled_back_enqueue_leaves_nothing():
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        result = framework.note.enqueue("rolled back")
        raise ZeroDivisionError
    work()
    assert not Task.objects.exists() and not FinishedTask.objects.exists()
    assert helpers.runs() == 0
    with pytest.raises(TaskResultDoesNotExist):
        framework.note.get_result(result.id)


ENQUEUE_AND_DIE = """
import os, signal, django
django.setup()
from django.db import transaction
from probe import framework
with transaction.atomic():
    framework.note.enqueue("killed after the commit")
    transaction.on_commit(lambda: os.kill(os.getpid(), signal.SIGKILL))
"""


@pytest.mark.usefixtures("broker")
def test_a_process_killed_right_after_its_commit_has_enqueued_all_the_same(processes):
    died = subprocess.run(
        [sys.executable, "-c", ENQUEUE_AND_DIE],
        env=processes._environment(),
        timeout=60,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL
    work()
    assert helpers.runs("killed after the commit") == 1


def test_the_result_can_be_read_until_it_is_pruned():
    result = framework.add.enqueue(2, 3)
    work()
    result.refresh()
    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, 5)
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert result.last_attempted_at == result.started_at
    assert (result.errors, result.attempts, len(result.worker_ids)) == ([], 1, 1)
    again = framework.add.get_result(result.id)
    assert (again.args, again.kwargs, again.return_value) == ([2, 3], {}, 5)
    assert again.task.func is framework.add.func
    FinishedTask.objects.all().delete()
    with pytest.raises(TaskResultDoesNotExist):
        result.refresh()


@pytest.mark.parametrize("missing", ["", "no uuid", "0" * 32, "f" * 32, None, 7, "\x00"])
def test_an_unknown_id_has_no_result(missing):
    with pytest.raises(TaskResultDoesNotExist):
        framework.add.get_result(missing)
    with pytest.raises(TaskResultDoesNotExist):
        async_to_sync(framework.add.aget_result)(missing)


def test_the_id_of_a_task_that_django_did_not_declare_has_no_result():
    handle = tasks.note.enqueue()
    with pytest.raises(TaskResultDoesNotExist, match=r"probe\.tasks\.note"):
        task_backends["default"].get_result(str(handle.id))


def test_the_result_of_another_task_is_refused():
    result = framework.add.enqueue(1)
    with pytest.raises(Exception, match="does not match") as error:
        framework.note.get_result(result.id)
    assert type(error.value).__name__ == "TaskResultMismatch"


def test_async_enqueue_and_result():
    async def story():
        result = await framework.add.aenqueue(1, 2)
        await result.arefresh()
        return result, await framework.add.aget_result(result.id)

    result, again = async_to_sync(story)()
    assert result == again
    assert result.status == TaskResultStatus.READY


def test_arguments_are_made_json_as_django_does():
    result = framework.give.enqueue({"bytes": b"text", "tuple": (1, 2)})
    assert result.args == [{"bytes": "text", "tuple": [1, 2]}]
    work()
    result.refresh()
    assert result.return_value == {"bytes": "text", "tuple": [1, 2]}


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, uuid.UUID(int=1), timedelta(1)],
    ids=["object", "set", "UUID", "timedelta"],
)
def test_an_argument_that_is_no_json_is_refused_before_any_sql(value):
    with transaction.atomic():
        with pytest.raises(TypeError):
            framework.give.enqueue(value)
        framework.give.enqueue(1)  # the transaction goes on
    assert Task.objects.count() == 1


def test_a_number_that_json_cannot_hold_is_refused_before_any_sql():
    with transaction.atomic():
        with pytest.raises(exceptions.InvalidArguments):
            framework.give.enqueue(float("nan"))
        assert not Task.objects.exists()


def test_a_result_that_is_no_json_leaves_the_task_failed():
    result = framework.give_what_is_no_json.using(max_attempts=1).enqueue()
    work()
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert result.errors[0].exception_class is TypeError


# ---- options


def test_priority_queue_and_time_are_in_the_row():
    soon = datetime.now(timezone.utc) + timedelta(hours=1)
    result = framework.add.using(priority=-3, queue_name="mail", run_after=soon).enqueue(1)
    row = helpers.row(uuid.UUID(result.id))
    assert (row.priority, row.queue_name, row.run_after) == (-3, "mail", soon)
    again = framework.add.get_result(result.id)
    assert (again.task.priority, again.task.queue_name) == (-3, "mail")
    assert again.task.run_after == soon
    row = helpers.row(uuid.UUID(framework.mail.enqueue().id))
    assert (row.priority, row.queue_name) == (5, "mail")


def test_a_delay_counts_from_enqueueing_by_the_databases_clock():
    task = framework.add.using(run_after=timedelta(hours=2))
    row = helpers.row(uuid.UUID(task.enqueue(1).id))
    assert row.run_after - row.enqueued_at == timedelta(hours=2)
    assert task.run_after == timedelta(hours=2)
    assert task.using(backend="dummy").run_after == timedelta(hours=2)
    with pytest.raises(InvalidTask, match="run_after"):
        task.using(backend="immediate")


def test_the_packages_options_are_in_the_row():
    task = framework.add.using(
        max_attempts=7,
        max_crashes=2,
        idempotent=True,
        timeout=timedelta(seconds=3),
        expires=timedelta(1),
    )
    row = helpers.row(uuid.UUID(task.enqueue(1).id))
    assert (row.max_attempts, row.max_crashes, row.on_crash, row.timeout) == (7, 2, "retry", 3.0)
    assert row.expires_at - row.enqueued_at == timedelta(1)
    until = datetime.now(timezone.utc) + timedelta(hours=1)
    row = helpers.row(uuid.UUID(framework.add.using(expires=until).enqueue(1).id))
    assert row.expires_at == until
    row = helpers.row(uuid.UUID(framework.charge.enqueue(1).id))
    assert (row.on_crash, row.hooks["compensate"]["task_name"]) == (
        "compensate",
        "probe.framework.compensation",
    )
    assert helpers.row(uuid.UUID(framework.add.enqueue(1).id)).on_crash == "dead"


def test_enqueue_task_takes_them_too():
    handle = enqueue_task(framework.note.using(max_attempts=2, priority=9), "both ways")
    row = helpers.row(handle.id)
    assert (row.task_name, row.max_attempts, row.priority) == ("probe.framework.note", 2, 9)
    work()
    assert helpers.runs("both ways") == 1
    assert framework.note.get_result(str(handle.id)).status == TaskResultStatus.SUCCESSFUL


def test_using_makes_a_new_task_and_changes_no_declaration():
    before = registry.get("probe.framework.add")
    other = framework.add.using(priority=1).using(queue_name="mail").using(max_attempts=2)
    assert (other.priority, other.queue_name, other.max_attempts) == (1, "mail", 2)
    assert (framework.add.priority, framework.add.max_attempts) == (0, 5)
    assert registry.get("probe.framework.add") is before


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"priority": 101}, InvalidTask),
        ({"priority": 1.5}, InvalidTask),
        ({"queue_name": "nobody"}, InvalidTask),
        ({"run_after": datetime(2030, 1, 1)}, InvalidTask),
        ({"backend": "unknown"}, ImproperlyConfigured),
        ({"max_attempts": 0}, InvalidTask),
        ({"timeout": -1}, InvalidTask),
        ({"expires": timedelta(0)}, InvalidTask),
        ({"compensate": print}, InvalidTask),
        ({"atomic": True}, InvalidTask),
        ({"unknown": 1}, TypeError),
    ],
)
def test_an_option_that_cannot_work_is_refused(changes, error):
    with pytest.raises(error):
        framework.add.using(**changes).enqueue(1)
    assert not Task.objects.exists()


def test_a_function_inside_a_function_is_no_task():
    def inner():
        pass

    with pytest.raises(InvalidTask):
        backends.task(inner)


def test_an_async_task_cannot_be_atomic():
    with pytest.raises(InvalidTask, match="atomic"):
        backends.task(atomic=True)(framework.add_async.func)


def test_a_task_that_takes_context_calls_it_so():
    with pytest.raises(InvalidTask, match="context"):
        backends.task(takes_context=True)(framework.add.func)


def test_run_after_belongs_to_using():
    if django.VERSION >= (6, 1):
        with pytest.raises(TypeError, match="run_after"):
            backends.task(run_after=timedelta(1))(framework.add.func)


def test_a_task_can_be_pickled():
    if hasattr(compat.Task, "_reconstruct"):  # Django 6.1
        task = framework.add.using(priority=4, max_attempts=2)
        assert pickle.loads(pickle.dumps(task)) == task  # noqa: S301 -- our own


def test_calling_runs_it_here_and_now():
    assert framework.add.call(1, 2) == 3
    assert framework.add_async.call(1, 2) == 3
    assert async_to_sync(framework.add.acall)(1, 2) == 3
    assert not Task.objects.exists()
    assert (framework.add.name, framework.add.module_path) == ("add", "probe.framework.add")


def test_a_task_of_another_backend_runs_when_enqueued_here():
    plain = compat.Task(
        func=framework.add.func, priority=0, queue_name="default", backend="dummy", run_after=None
    )
    result = plain.using(backend="default").enqueue(4)
    work()
    result.refresh()
    assert result.return_value == 5


def test_a_task_of_another_packages_backend_is_refused_as_no_worker_knows_it():
    plain = compat.Task(
        func=framework.ran, priority=0, queue_name="default", backend="dummy", run_after=None
    )
    with pytest.raises(InvalidTask, match="no worker knows it"):
        plain.using(backend="default").enqueue("lost")
    assert not Task.objects.exists()


TWO = {
    "default": {"BACKEND": BACKEND, "QUEUES": ["default"]},
    "mail": {"BACKEND": BACKEND, "QUEUES": ["mail"]},
}


@pytest.mark.parametrize("task", [framework.tell_context, framework.tell_context_async])
def test_a_task_runs_that_was_enqueued_through_another_backend_than_its_own(task):
    with override_settings(TASKS=TWO):
        result = task.using(backend="mail", queue_name="mail").enqueue()
        work()
        assert result.backend == "mail"
        result.refresh()
        assert result.status == TaskResultStatus.SUCCESSFUL
        other = task_backends["default"].get_result(result.id)  # no queue of this one
        assert other.task.queue_name == "mail"


def test_a_hook_goes_where_its_task_goes():
    databases = {**TWO, "default": {"BACKEND": BACKEND, "OPTIONS": {"database": "elsewhere"}}}
    with override_settings(TASKS=databases):
        task = framework.charge.as_enqueued(on_failure=framework.compensation)
        assert task.options["using"] == "elsewhere"
        assert task.declaration.hooks["on_failure"]["task_name"] == "probe.framework.compensation"


ODD = ["[1]", '["x"]', '{"a": 1}', '[{"at": "2024-13-45 99:00Z"}]', '[{"at": 7, "worker": 5}]']


@pytest.mark.parametrize("errors", ODD)
def test_a_row_with_odd_errors_has_a_result(errors):
    result = framework.add.enqueue(1)
    helpers.execute("UPDATE txtasks_task SET errors = %s, status = 'dead', priority = 99", errors)
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert framework.add.get_result(result.id).task.priority == 99


# ---- attempts


def test_an_error_is_kept_for_each_attempt():
    result = framework.fail.using(max_attempts=3).enqueue("no paper")
    work()
    while helpers.row(uuid.UUID(result.id)).status == Status.PENDING:
        work()
    result.refresh()
    assert (result.status, result.is_finished) == (TaskResultStatus.FAILED, True)
    assert len(result.errors) == 3 and result.attempts == 3
    for error in result.errors:
        assert error.exception_class is ValueError
        assert "no paper" in error.traceback and "framework.py" in error.traceback
    assert result.last_attempted_at is not None and result.finished_at is not None
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value


def test_a_failed_attempt_that_is_repeated_is_ready_again(txtasks):
    result = framework.fail.using(max_attempts=2).enqueue()
    txtasks(retry_base=3600, retry_ceiling=3600)
    work()
    result.refresh()
    assert (result.status, len(result.errors), result.attempts) == (TaskResultStatus.READY, 1, 1)
    assert result.last_attempted_at is not None
    assert (result.started_at, result.finished_at) == (None, None)


def test_a_rejected_task_fails_at_once():
    result = framework.reject.enqueue()
    work()
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 1)
    assert result.errors[0].exception_class is exceptions.Reject


def test_an_interrupt_inside_a_task_is_a_failure_of_the_task():
    result = framework.interrupt.using(max_attempts=1).enqueue()
    work()
    result.refresh()
    assert result.errors[0].exception_class is KeyboardInterrupt


def test_a_time_out_is_a_failure_of_the_task():
    result = framework.sleep_too_long.enqueue()
    work()
    result.refresh()
    assert result.errors[0].exception_class is exceptions.TimedOut


@pytest.mark.parametrize("held", [False, True])
def test_a_cancelled_or_held_task(held):
    from django_txtasks.operations import operators

    result = framework.add.enqueue(1)
    ids = [uuid.UUID(result.id)]
    operators.hold("default", ids) if held else operators.cancel("default", ids, keep=True)
    result.refresh()
    assert result.status == (TaskResultStatus.READY if held else TaskResultStatus.FAILED)
    assert result.is_finished is not held


def test_an_async_task_runs():
    result = framework.add_async.enqueue(20, b=22)
    failed = framework.fail_async.enqueue()
    work()
    result.refresh()
    failed.refresh()
    assert (result.return_value, helpers.runs("async")) == (42, 1)
    assert failed.errors[0].exception_class is ValueError


def test_the_context_knows_the_attempt_and_its_result():
    result = framework.tell_context.enqueue()
    work()
    result.refresh()
    assert result.return_value == {
        "attempt": 1,
        "attempt_id": f"{result.id}-1",
        "failures": 0,
        "id": result.id,
        "status": "RUNNING",
        "args": [],
        "enqueued": True,
        "started": True,
        "finished": False,
        "workers": 1,
        "errors": [],
    }


def test_the_context_of_a_later_attempt():
    result = framework.fail_until.enqueue(3)
    work()
    while helpers.row(uuid.UUID(result.id)):
        work()
    result.refresh()
    assert (result.return_value, result.attempts) == (3, 3)
    assert [one.exception_class for one in result.errors] == [exceptions.Retry] * 2
    assert helpers.runs("fail_until") == 3


def test_the_context_of_an_async_task():
    result = framework.tell_context_async.enqueue()
    work()
    result.refresh()
    assert result.return_value == [1, True]


def test_an_atomic_task_is_all_or_nothing():
    failed = framework.note_and_fail_later.using(max_attempts=1).enqueue("gone")
    done = framework.enqueue_other.enqueue("kept")
    work()
    failed.refresh()
    done.refresh()
    assert failed.status == TaskResultStatus.FAILED
    assert done.status == TaskResultStatus.SUCCESSFUL
    assert (helpers.runs("gone"), helpers.runs("kept"), helpers.runs("kept follows")) == (0, 1, 1)


@pytest.mark.usefixtures("broker")
def test_a_task_whose_worker_is_killed_runs_again_by_its_policy(processes, txtasks):
    txtasks(lease=3)
    result = framework.die.enqueue("twice")
    processes.start("runcleaner")
    processes.start("runworkers", "--threads=1")
    helpers.wait_until(lambda: framework.die.get_result(result.id).is_finished)
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert helpers.runs("twice") == 2
    assert [one.exception_class for one in result.errors] == [exceptions.WorkerLost]
    assert result.attempts == 2 and len(set(result.worker_ids)) == 2
    processes.end()
    assert not Worker.objects.filter(lost=False).exists()


# ---- signals


def test_the_signals_of_a_success(told):
    framework.add.enqueue(1)
    work()
    assert told == [
        ("enqueued", backends.TxTasksBackend, "READY", None),
        ("started", backends.TxTasksBackend, "RUNNING", None),
        ("finished", backends.TxTasksBackend, "SUCCESSFUL", None),
    ]


@pytest.mark.parametrize("task", [framework.fail_once_for_all, framework.fail_async])
def test_the_signal_of_a_failure_comes_from_inside_the_except_block(told, task):
    task.enqueue()
    work()
    assert [one[0] for one in told] == ["enqueued", "started", "finished"]
    _, sender, status, error = told[-1]
    assert (sender, status) == (backends.TxTasksBackend, "FAILED")
    assert issubclass(error, (KeyError, ValueError))


def test_a_result_that_cannot_be_kept_is_no_success(told):
    result = framework.give_nul.enqueue()
    work()
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert [one[2] for one in told if one[0] == "finished"] == ["FAILED"]


def test_a_time_limit_holds_in_receivers_too():
    def slow(**_):
        end = time.monotonic() + 10
        while time.monotonic() < end:
            time.sleep(0.01)

    task_started.connect(slow)
    try:
        result = framework.sleep_too_long.enqueue()
        work()
    finally:
        task_started.disconnect(slow)
    result.refresh()
    assert [one.exception_class for one in result.errors] == [exceptions.TimedOut]


def test_the_admin_hides_secret_arguments_by_their_names():
    assert redaction.judged(["ada", "hunter2"], "probe.framework.login") == [
        "ada",
        redaction.REDACTED,
    ]
    assert redaction.judged(["hunter2"], "probe.framework.login_with_context") == [
        redaction.REDACTED
    ]


def test_a_task_that_is_repeated_has_not_finished(told):
    framework.fail_until.enqueue(2)
    work()
    while Task.objects.exists():
        work()
    assert [one[0] for one in told] == ["enqueued", "started", "started", "finished"]


def test_a_receiver_that_raises_does_no_harm_to_the_task():
    def wrong(**_):
        raise RuntimeError("a receiver")

    task_started.connect(wrong)
    task_finished.connect(wrong)
    try:
        result = framework.add.enqueue(1)
        work()
    finally:
        task_started.disconnect(wrong)
        task_finished.disconnect(wrong)
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL


def test_an_atomic_task_has_finished_when_its_transaction_has_committed():
    seen = []

    def hear(task_result, **_):
        seen.append((connection.in_atomic_block, FinishedTask.objects.count()))

    task_finished.connect(hear)
    try:
        framework.enqueue_other.enqueue("atomic")
        work(threads=1, max_tasks=1)
    finally:
        task_finished.disconnect(hear)
    assert seen == [(False, 1)]


def test_django_logs_its_tasks(caplog):
    logger = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"
    caplog.set_level(logging.DEBUG, logger=logger)
    done = framework.add.enqueue(1)
    failed = framework.fail_once_for_all.enqueue()
    work()
    lines = [(one.levelname, one.getMessage()) for one in caplog.records if one.name == logger]
    for result, level, state in [(done, "INFO", "SUCCESSFUL"), (failed, "ERROR", "FAILED")]:
        mine = [line for line in lines if result.id in line[1]]
        assert [one[0] for one in mine] == ["DEBUG", "INFO", level]
        for word, (_, text) in zip(["enqueued", "RUNNING", state], mine, strict=True):
            assert word in text


# ---- other backends of the same options


def test_the_immediate_twin_runs_tasks_with_our_options(told):
    task = framework.tell_context.using(backend="immediate")
    result = task.enqueue()
    assert result.return_value["attempt"] == 1
    assert framework.enqueue_other.using(backend="immediate").atomic
    assert not Task.objects.exists()
    assert told[0][1] is backends.ImmediateBackend


def test_the_dummy_twin_keeps_results():
    backend = task_backends["dummy"]
    backend.clear()
    result = framework.mail.using(backend="dummy", max_attempts=2).enqueue()
    assert backend.results == [result]
    assert backend.get_result(result.id) == result
    assert not Task.objects.exists()


# ---- settings


def check(**backend):
    """Return what the checks say of TASKS with this one backend."""
    from django.core import checks

    with override_settings(TASKS={"default": {"BACKEND": BACKEND, **backend}}):
        found = checks.run_checks()
    return [
        (one.id, one.msg, one.hint)
        for one in found
        if (one.id or "").startswith(
            ("txtasks.E016", "txtasks.E017", "txtasks.E018", "txtasks.E019", "txtasks.E02")
        )
    ]


def test_what_is_right_is_no_finding():
    assert check() == check(QUEUES=["mail"]) == check(OPTIONS={"database": "default"}) == []


@pytest.mark.parametrize(
    ("backend", "id_", "says"),
    [
        ({"OPTIONS": {"databse": "default"}}, "txtasks.E017", "Did you mean 'database'?"),
        ({"OPTIONS": {"speed": 9}}, "txtasks.E017", "Known: database."),
        ({"QUEUES": ["nobody"]}, "txtasks.E018", "'nobody', which no worker serves"),
        ({"OPTIONS": {"database": "other"}}, "txtasks.E019", "Known: 'default'."),
    ],
)
def test_what_is_wrong_in_the_setting_is_said(backend, id_, says):
    found = check(**backend)
    assert [one[0] for one in found] == [id_]
    assert says in f"{found[0][1]} {found[0][2]}"


class Away:
    """A router that keeps tasks away."""

    def allow_migrate(self, db, app_label, **_):
        return app_label != "txtasks"


def test_a_database_without_the_table_is_said():
    with override_settings(DATABASE_ROUTERS=[Away()]):
        assert [one[0] for one in check()] == ["txtasks.E020"]


def test_an_app_that_is_not_installed_is_said():
    from django.conf import settings

    apps = [
        app
        for app in settings.INSTALLED_APPS
        if app.partition(".")[0] not in ("django_txtasks", "probe", "orders", "approvals")
    ]
    script = (
        "import django; from django.conf import settings\n"
        f"settings.configure(INSTALLED_APPS={apps!r}, USE_TZ=True, SECRET_KEY='x',\n"
        "    DATABASES={'default': {'ENGINE': 'django.db.backends.sqlite3', 'NAME': ':memory:'}},\n"
        f"    TASKS={{'default': {{'BACKEND': {BACKEND!r}}}}})\n"
        "django.setup()\n"
        "from django_txtasks.backends.compat import task_backends\n"
        "print([one.id for one in task_backends['default'].check()])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": ""},
    )  # fmt: skip
    assert done.stdout.strip() == "['txtasks.E016']"


def test_queues_of_the_backend_are_served_where_txtasks_names_none(settings):
    settings.TXTASKS = {key: value for key, value in settings.TXTASKS.items() if key != "queues"}
    settings.TASKS = {"default": {"BACKEND": BACKEND, "QUEUES": ["slow", "default"]}}
    assert get_config().queues == ("default", "slow")
    assert check(QUEUES=["slow"]) == []
    settings.TASKS = {"default": {"BACKEND": BACKEND}}
    assert get_config().queues == ("default",)


def test_a_queue_that_no_worker_serves_is_refused_by_the_worker(settings):
    with pytest.raises(CommandError, match="nobody"):
        work(queue=["nobody"])


def test_the_backend_imports_no_model_while_apps_load():
    script = (
        "import sys, django_txtasks.backends\n"
        "assert 'django_txtasks.models' not in sys.modules, 'a model was imported'\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_what_the_backend_can_do():
    backend = task_backends["default"]
    flags = [
        getattr(backend, f"supports_{name}")
        for name in ("defer", "async_task", "get_result", "priority")
    ]
    assert flags == [True] * 4
