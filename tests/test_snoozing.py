"""Tasks that put themselves off, waits of their own, and options of one request."""

from datetime import timedelta

import helpers
import pytest
from django.db import transaction
from probe import tasks

from django_txtasks import Snooze, signals, task
from django_txtasks.conf import get_config
from django_txtasks.core.rows.attempts import Arrow, Attempt
from django_txtasks.core.working.running.verdicts import failed
from django_txtasks.exceptions import InvalidDeclaration, InvalidOption, UnknownOption
from django_txtasks.models import Outcome, Status
from django_txtasks.operations import operators
from django_txtasks.testing import run_due_tasks

pytestmark = pytest.mark.usefixtures("rows")


def due_again():
    helpers.execute("UPDATE txtasks_task SET run_after = enqueued_at WHERE status = 'pending'")


# -- Snooze ---------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_it_burns_nothing():
    handle = tasks.snooze.enqueue("put off", 2)
    (ran,) = run_due_tasks()
    assert (ran.status, type(ran.error)) == ("pending", Snooze)
    row = helpers.row(handle.id)
    assert (row.status, row.snoozes, row.failures, row.crashes) == (Status.PENDING, 1, 0, 0)
    assert row.errors == []
    assert 0.5 < (row.run_after - row.enqueued_at).total_seconds() < 60
    assert not run_due_tasks()  # not before its time
    for _ in range(2):
        due_again()
        run_due_tasks()
    ended = helpers.finished(handle.id)
    assert (ended.outcome, ended.result, ended.attempt) == (Outcome.SUCCEEDED, 2, 3)


def test_it_does_so_only_so_often():
    handle = tasks.snooze.enqueue("too often", 9)
    for _ in range(3):
        run_due_tasks()
        due_again()
    (ran,) = run_due_tasks(reraise=False)
    assert ran.status == "dead"
    (error,) = helpers.row(handle.id).errors
    operators.revive("default", [handle.id])
    assert helpers.row(handle.id).snoozes == 0
    assert error["type"] == "Snooze"
    assert "3 times before" in error["message"]


def test_a_worker_does_it_and_says_so(quick):
    told = []

    def listen(task_id, delay, **_):
        told.append((task_id, delay))

    signals.task_snoozed.connect(listen)
    try:
        handle = tasks.snooze.enqueue("worker", 1)
        with helpers.working(threads=1):
            helpers.wait_until(lambda: helpers.finished(handle.id))
    finally:
        signals.task_snoozed.disconnect(listen)
    assert helpers.finished(handle.id).result == 1
    assert told == [(handle.id, 1.0)]


def test_what_an_atomic_task_has_done_is_rolled_back(quick):
    handle = tasks.snooze_atomic.enqueue("atomic")
    with helpers.working(threads=1):
        helpers.wait_until(lambda: helpers.finished(handle.id))
    assert helpers.runs("atomic") == 1  # that of the second attempt


@pytest.mark.parametrize("after", [0, 0.5, -1, 1e9, float("nan"), timedelta(0)])
def test_for_a_second_at_least(after):
    with pytest.raises(ValueError, match="at least one second"):
        Snooze(after=after)


@pytest.mark.parametrize("after", [None, "1", True])
def test_a_wait_is_a_number_or_a_timedelta(after):
    with pytest.raises(TypeError, match="use seconds"):
        Snooze(after=after)


@pytest.mark.parametrize("most", [-1, 1.5, True, 10_000_000, None])
def test_a_wrong_limit_is_refused(most):
    with pytest.raises(InvalidDeclaration, match="max_snoozes"):
        task(max_snoozes=most)(tasks.plain)


def test_a_function_that_nobody_declares_any_more_cannot_be_put_off():
    attempt = Attempt(helpers.uuid.uuid4(), 1, helpers.uuid.uuid4(), "gone.task", max_attempts=5)
    assert failed(attempt, Snooze(after=5), get_config()).arrow is Arrow.RETRY


# -- waits of its own -----------------------------------------------------------------------------


def delay_after(failures, text=""):
    name = tasks.fail_at_its_own_pace.declaration.name
    attempt = Attempt(
        helpers.uuid.uuid4(), 1, helpers.uuid.uuid4(), name, failures=failures, max_attempts=9
    )
    return failed(attempt, ValueError(text), get_config()).delay


def test_a_task_has_its_own_waits():
    assert delay_after(0) == timedelta(0)
    assert delay_after(1) == timedelta(seconds=30)
    assert delay_after(2) == timedelta(seconds=9)


def test_a_wait_that_is_none_is_reported_and_the_usual_one_taken():
    told = []

    def listen(error, **_):
        told.append(error)

    signals.backoff_failed.connect(listen)
    try:
        assert delay_after(2, "text") > timedelta(0)
    finally:
        signals.backoff_failed.disconnect(listen)
    (text,) = told
    assert "'soon'" in text


def test_retry_with_a_wait_comes_first():
    from django_txtasks import Retry

    name = tasks.fail_at_its_own_pace.declaration.name
    attempt = Attempt(helpers.uuid.uuid4(), 1, helpers.uuid.uuid4(), name, max_attempts=9)
    assert failed(attempt, Retry(after=77), get_config()).delay == timedelta(seconds=77)


def test_a_wait_that_cannot_be_called_is_refused():
    with pytest.raises(InvalidDeclaration, match="use a function of"):
        task(backoff=30)(tasks.plain)


# -- options of one request -----------------------------------------------------------------------


def test_limits_and_hooks_of_one_request():
    changed = tasks.told.using(max_attempts=1, max_crashes=7, timeout=3, on_failure=tasks.notice)
    with transaction.atomic():
        handle, usual = changed.enqueue("x", failures=1), tasks.told.enqueue("usual")
    row, other = helpers.row(handle.id), helpers.row(usual.id)
    assert (row.max_attempts, row.max_crashes, row.timeout) == (1, 7, 3.0)
    assert row.hooks["on_failure"]["task_name"] == tasks.notice.declaration.name
    assert row.hooks["on_success"] == other.hooks["on_success"]
    assert (other.max_attempts, other.timeout) == (3, None)
    run_due_tasks(reraise=False)
    assert helpers.row(handle.id).status == Status.DEAD
    assert helpers.runs("notice told") == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_attempts": 0},
        {"max_crashes": 40_000},
        {"timeout": -1},
        {"timeout": "soon"},
        {"on_success": print},
        {"on_failure": tasks.notice.using(priority=3)},
    ],
    ids=str,
)
def test_wrong_options_are_refused_before_any_sql(wrong):
    with transaction.atomic():
        with pytest.raises(InvalidOption, match=next(iter(wrong))):
            tasks.note.using(**wrong).enqueue()
        tasks.note.enqueue("stays usable")


def test_what_belongs_to_the_function_is_named():
    with pytest.raises(UnknownOption, match="declared with the function"):
        tasks.note.using(backoff=tasks.after_a_while)
