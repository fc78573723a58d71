"""The helpers for users' tests, used as they use them."""

import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager
from datetime import timedelta

import helpers
import pytest
from django.core import mail
from django.db import connection, transaction
from django.test import TestCase
from probe import framework, tasks
from probe.models import Run

from django_txtasks import enqueue_task, exceptions, signals, testing
from django_txtasks.exceptions import NotATask
from django_txtasks.features.notices.brake import DEATHS_PER_MINUTE
from django_txtasks.models import FinishedTask, Status, Step, Task, Worker
from django_txtasks.testing import assert_enqueued, assert_not_enqueued, inline

pytestmark = pytest.mark.smoke


@pytest.fixture
def rolled_back(rows):
    """A test in a transaction, as Django's TestCase and pytest-django's db have it."""
    TestCase.setUpClass()
    case = TestCase()
    case._fixture_setup()
    yield case
    case._fixture_teardown()
    TestCase.tearDownClass()


# ---- run_due_tasks


def test_tasks_run_in_the_tests_transaction(rolled_back):
    with transaction.atomic():
        handle = enqueue_task(tasks.note, "inline")
    with rolled_back.captureOnCommitCallbacks(execute=True):
        enqueue_task(tasks.give, 7)
    ran = testing.run_due_tasks()
    assert {(one.task_name, one.status, one.result) for one in ran} == {
        ("probe.tasks.note", "succeeded", None),
        ("probe.tasks.give", "succeeded", 7),
    }  # of one millisecond, SQLite's unit: in any order
    assert helpers.runs("inline") == 1
    assert helpers.finished(handle.id).outcome == "succeeded"
    assert not Worker.objects.exists()
    assert testing.run_due_tasks() == []


def test_steps_are_done_in_the_tests_transaction(rolled_back, txtasks):
    """That one is none of the task's: a step is refused in a block that the task has opened."""
    handle = tasks.two_steps.enqueue("k")
    testing.run_due_tasks(reraise=False)
    assert [one.name for one in Step.objects.filter(task_id=handle.id)] == ["first"]
    tasks.wrong_step.enqueue("in a block")
    (ran,) = testing.run_due_tasks(reraise=False)
    assert isinstance(ran.error, exceptions.StepRefused)


def test_a_test_leaves_nothing_behind(rows):
    TestCase.setUpClass()
    case = TestCase()
    case._fixture_setup()
    tasks.note.enqueue("inline")
    testing.run_due_tasks()
    case._fixture_teardown()
    TestCase.tearDownClass()
    assert not Run.objects.exists() and not FinishedTask.objects.exists()


@contextmanager
def row_locked(seconds=None):
    """Another transaction locks the row of the next attempt, for so long or until the end of the block."""
    with ExitStack() as transactions:

        def lock(task_id, **_):
            sql = "UPDATE txtasks_task SET notified_at = NULL WHERE id = %s"
            transactions.enter_context(helpers.locked(sql, task_id))
            if seconds is not None:
                threading.Timer(seconds, transactions.close).start()

        signals.attempt_starting.connect(lock)
        try:
            yield
        finally:
            signals.attempt_starting.disconnect(lock)


locks_rows = pytest.mark.skipif(connection.vendor == "sqlite", reason="it locks no rows")


@locks_rows
def test_an_end_is_recorded_although_the_row_was_locked(rows):
    """A worker beside the test locks the row for a moment, sees that it is claimed, and leaves it."""
    handle = tasks.note.enqueue("inline")
    with row_locked(seconds=0.3):
        (ran,) = testing.run_due_tasks()
    assert ran.status == helpers.finished(handle.id).outcome == "succeeded"


@locks_rows
def test_a_row_that_stays_locked_is_named(rows, monkeypatch):
    monkeypatch.setattr(inline, "LOCK_TRIES", 20)
    handle = tasks.note.enqueue("inline")
    message = f"Task {handle.id} has run, but another transaction"
    with row_locked(), pytest.raises(AssertionError, match=message):
        testing.run_due_tasks()


def test_what_tasks_enqueue_runs_too(rolled_back):
    framework.enqueue_other.enqueue("first")
    ran = testing.run_due_tasks()
    assert [one.task_name for one in ran] == [
        "probe.framework.enqueue_other",
        "probe.framework.note",
    ]
    assert helpers.runs("first follows") == 1


def test_what_is_due_later_waits(rolled_back):
    tasks.note.using(run_after=timedelta(hours=1)).enqueue("later")
    assert testing.run_due_tasks() == []
    assert Task.objects.get().status == Status.PENDING


def test_higher_priorities_come_first_and_queues_can_be_chosen(rolled_back):
    for key, priority in [("low", -1), ("high", 9), ("middle", 0)]:
        tasks.give.using(priority=priority).enqueue(key)
    tasks.mail.enqueue()
    assert [one.result for one in testing.run_due_tasks(queues=["default"])] == [
        "high",
        "middle",
        "low",
    ]
    assert [one.task_name for one in testing.run_due_tasks()] == ["probe.tasks.mail"]


def test_what_a_task_raises_is_raised_and_recorded(rolled_back):
    handle = tasks.fail.enqueue("out of ink")
    with pytest.raises(ValueError, match="out of ink"):
        testing.run_due_tasks()
    row = helpers.row(handle.id)
    assert (row.status, row.failures) == (Status.PENDING, 1)
    assert row.errors[0]["message"] == "out of ink"
    assert row.run_after > row.enqueued_at
    assert helpers.runs("fail") == 1  # it is not atomic: what it did before it raised stays


def test_without_reraise_all_attempts_are_made(rolled_back, quick):
    handle = tasks.fail.enqueue()
    ran = []
    while Task.objects.in_state(Status.PENDING).exists():
        ran += testing.run_due_tasks(reraise=False)
    assert [one.status for one in ran] == ["pending", "pending", "dead"]
    assert [type(one.error) for one in ran] == [ValueError] * 3
    assert helpers.row(handle.id).status == Status.DEAD


def test_an_atomic_task_that_raises_has_done_nothing(rolled_back):
    framework.note_and_fail_later.enqueue("gone")
    with pytest.raises(ValueError, match="rolled back"):
        testing.run_due_tasks()
    assert helpers.runs("gone") == 0


def test_an_sql_error_in_a_task_does_not_break_the_test(rolled_back):
    tasks.break_the_transaction.using().enqueue()
    [ran] = testing.run_due_tasks(reraise=False)
    assert ran.error is not None
    assert Task.objects.get().failures == 1  # the test's transaction goes on


def test_a_task_may_say_durable_as_it_may_in_a_worker(rolled_back):
    tasks.write_durably.enqueue("durable")
    testing.run_due_tasks()
    assert helpers.runs("durable") == 1


def test_async_tasks_and_contexts(rolled_back):
    tasks.note_async.enqueue()
    tasks.tell_context.enqueue()
    result = framework.tell_context.enqueue()
    ran = {one.task_name: one.result for one in testing.run_due_tasks()}
    assert ran["probe.tasks.note_async"] == "from async"
    assert ran["probe.tasks.tell_context"]["attempt"] == 1
    result.refresh()
    assert result.return_value["attempt"] == 1


def test_hooks_run_too(rolled_back):
    tasks.told.enqueue("hooked")
    assert [one.task_name for one in testing.run_due_tasks()] == [
        "probe.tasks.told",
        "probe.tasks.tell",
    ]


def test_each_test_is_told_of_its_own_dead_tasks(rolled_back, txtasks):
    """However many have died in the tests before it, of the same process and minute."""
    txtasks(dead_notices={"mail": ["ops@example.com"]})
    for number in range(DEATHS_PER_MINUTE + 2):
        tasks.fail_async.enqueue()
        testing.run_due_tasks(reraise=False)
        assert len(mail.outbox) == number + 1


def test_tasks_that_enqueue_themselves_for_ever_are_an_error(rolled_back):
    tasks.enqueue_itself.enqueue()
    with pytest.raises(AssertionError, match=r"More than 20 attempts.*enqueue_itself"):
        testing.run_due_tasks(limit=20)


def test_outside_of_a_transaction_each_task_has_its_own(rows):
    tasks.note.enqueue("committed")
    failed = framework.note_and_fail_later.using(max_attempts=1).enqueue("gone")
    testing.run_due_tasks(reraise=False)
    assert not connection.in_atomic_block
    assert (helpers.runs("committed"), helpers.runs("gone")) == (1, 0)
    failed.refresh()
    assert failed.is_finished


# ---- assert_enqueued


def test_what_was_enqueued_is_returned(rolled_back):
    handle = tasks.mail.enqueue("a key")
    assert assert_enqueued(tasks.mail).pk == handle.id
    assert assert_enqueued(tasks.mail, ["a key"], {}).pk == handle.id
    assert assert_enqueued(tasks.mail, ("a key",), queue_name="mail", priority=7).pk == handle.id
    testing.run_due_tasks()
    assert assert_enqueued(tasks.mail).pk == handle.id
    framework.add.enqueue(1, b=2)
    assert_enqueued(framework.add, [1], {"b": 2})
    assert_not_enqueued(tasks.note)
    assert_not_enqueued(tasks.mail, ["another key"])


def test_what_was_not_enqueued_is_said_with_what_was(rolled_back):
    with pytest.raises(AssertionError, match="nor was anything else"):
        assert_enqueued(tasks.mail)
    tasks.note.enqueue("other")
    with pytest.raises(AssertionError, match=r"there are:\s+probe\.tasks\.note\(args=\['other'\]"):
        assert_enqueued(tasks.mail)
    with pytest.raises(
        AssertionError, match=r"it was enqueued as:\s+probe\.tasks\.note\(args=\['other'\]"
    ):
        assert_enqueued(tasks.note, ["mine"])
    testing.run_due_tasks()
    with pytest.raises(AssertionError, match="status=None"):
        assert_enqueued(tasks.note, status="pending")
    with pytest.raises(TypeError, match="no column 'colour'"):
        assert_enqueued(tasks.note, colour="red")
    with pytest.raises(AssertionError, match="priority=0"):
        assert_enqueued(tasks.note, priority=3)
    with pytest.raises(AssertionError, match=r"probe\.tasks\.note.* was enqueued"):
        assert_not_enqueued(tasks.note)
    with pytest.raises(NotATask):
        assert_enqueued(len)


# ---- worker


def test_a_real_worker_beside_the_test(rows):
    with testing.worker() as running:
        handles = [tasks.note.enqueue(f"thread {number}") for number in range(20)]
        running.wait_until_idle()
        assert [helpers.runs(f"thread {number}") for number in range(20)] == [1] * 20
        assert all(helpers.finished(handle.id) for handle in handles)
    assert not Worker.objects.exists()


def test_a_real_worker_leaves_out_the_exchange_of_dead_notices(rows, txtasks):
    """It has no broker, whatever the project has."""
    txtasks(broker_url="amqp://localhost/", dead_notices={"exchange": "ops"})
    with testing.worker() as running:
        handle = tasks.note.enqueue()
        running.wait_until_idle()
    assert helpers.finished(handle.id)


def test_a_worker_that_is_not_idle_in_time_says_what_is_left(rows):
    with testing.worker(queues=["mail"]) as running:
        tasks.note.enqueue()
        with pytest.raises(AssertionError, match=r"probe\.tasks\.note .* is pending"):
            running.wait_until_idle(seconds=0.3)


def test_a_worker_cannot_see_what_is_not_committed(rolled_back):
    with pytest.raises(RuntimeError, match="run_due_tasks"), testing.worker():
        pass


def test_an_in_memory_database_cannot_be_shared():
    script = """
import django
from django.conf import settings
settings.configure(INSTALLED_APPS=["django_txtasks"], USE_TZ=True, DATABASES={"default": {
    "ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
django.setup()
from django_txtasks.testing import worker
try:
    with worker():
        pass
except RuntimeError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert "Give it a file" in done.stdout


# ---- the plugin


def test_pytest_finds_the_fixtures_by_itself(run_due_tasks, assert_enqueued):
    tasks.give.enqueue(3)
    assert_enqueued(tasks.give, [3])
    assert [one.result for one in run_due_tasks()] == [3]


def test_the_plugins_worker(rows, txtasks_worker):
    handle = tasks.give.enqueue(4)
    txtasks_worker.wait_until_idle()
    assert helpers.finished(handle.id).result == 4


def test_errors_have_their_own_class():
    assert issubclass(exceptions.NotATask, TypeError)
