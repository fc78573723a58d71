"""``task_finished`` of Django's Tasks for ends that no attempt sends: a crash, a cancel, an expiry. Once each."""

from __future__ import annotations

import uuid
from collections import Counter
from datetime import timedelta

import helpers
import pytest
from django.core.management import call_command
from django.db import transaction
from django.utils import timezone
from probe import framework

from django_txtasks import cancel_task, signals
from django_txtasks.backends import compat, running
from django_txtasks.conf import get_config
from django_txtasks.core.cleaning import Cleaner
from django_txtasks.models import Task, Worker
from django_txtasks.operations import operators

pytestmark = [pytest.mark.usefixtures("rows", "quick"), pytest.mark.smoke]


@pytest.fixture
def ends():
    """Count what ``task_finished`` says: (id, status)."""
    heard = Counter()

    def hear(sender, task_result, **_):
        heard[task_result.id, str(task_result.status)] += 1

    compat.task_finished.connect(hear)
    yield heard
    compat.task_finished.disconnect(hear)


def work():
    call_command("runworkers", batch=True, threads=2)


def clean():
    Cleaner(get_config()).run_once()


def claimed(result):
    """Make the task claimed by a worker without a row."""
    Task.objects.filter(pk=result.id).update(
        status="claimed", attempt=1, worker=uuid.uuid4(), claimed_at=timezone.now()
    )


def lost(result):
    claimed(result)
    clean()


def cancelled(result):
    cancel_task(uuid.UUID(result.id))


def cancelled_by_a_person(result):
    assert operators.cancel("default", [uuid.UUID(result.id)], keep=get_config().keeps("cancelled"))


def expired(result):
    Task.objects.filter(pk=result.id).update(expires_at=timezone.now() - timedelta(seconds=1))
    clean()


ENDS = [lost, cancelled, cancelled_by_a_person, expired]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("keep", [timedelta(days=7), 0], ids=["kept", "not kept"])
def test_an_end_without_an_attempt_is_told_once(ends, txtasks, end, keep):
    txtasks(keep_finished=keep)
    result = framework.note.enqueue()
    end(result)
    assert ends == {(result.id, "FAILED"): 1}


def test_a_result_says_what_the_row_says(txtasks):
    heard = []

    def hear(sender, task_result, **_):
        heard.append((sender, task_result))

    compat.task_finished.connect(hear)
    try:
        result = framework.add.enqueue(1, b=2)
        lost(result)
    finally:
        compat.task_finished.disconnect(hear)
    [(sender, told)] = heard
    assert sender.__name__ == "TxTasksBackend"
    assert (told.id, told.backend, told.args, told.kwargs) == (result.id, "default", [1], {"b": 2})
    assert told.task == framework.add and told.finished_at is not None
    assert told.errors[0].exception_class_path == "django_txtasks.exceptions.WorkerLost"


@pytest.mark.parametrize("act", ["rolled back", "runs again", "discarded", "not Django's"])
def test_what_is_no_end_of_a_task_is_not_told(ends, act):
    if act == "rolled back":
        result = framework.note.enqueue()
        with transaction.atomic():
            cancelled(result)
            transaction.set_rollback(True)
    elif act == "runs again":
        lost(framework.note.using(idempotent=True).enqueue())
    elif act == "discarded":
        result = framework.note.enqueue()
        lost(result)
        assert ends.pop((result.id, "FAILED")) == 1
        assert operators.discard("default", [uuid.UUID(result.id)], keep=True)
    else:
        from probe import tasks

        claimed(tasks.note.enqueue())
        clean()
    assert not ends


def test_an_end_that_is_over_when_it_is_told_is_none(ends):
    """Signals are sent by a thread that may be late: a person has revived the task by then."""
    result = framework.note.enqueue()
    facts = {
        "task_id": uuid.UUID(result.id),
        "task": framework.note.module_path,
        "queue": "default",
    }
    signals.task_died.emit(**facts, attempt=1, worker=uuid.uuid4(), error="lost")
    assert not ends


def test_a_revived_task_ends_again(ends):
    result = framework.note.enqueue()
    lost(result)
    operators.revive("default", [uuid.UUID(result.id)])
    work()
    assert ends == {(result.id, "FAILED"): 1, (result.id, "SUCCESSFUL"): 1}


@pytest.mark.parametrize("task", ["fail_once_for_all", "fail_async", "give_nul", "stop", "reject"])
def test_an_attempt_that_ends_its_task_badly_is_told_once(ends, task):
    result = getattr(framework, task).enqueue()
    work()
    assert ends == {(result.id, "FAILED"): 1}


def test_a_task_whose_arguments_fit_no_more_is_told_of(ends):
    result = framework.note.enqueue()
    Task.objects.filter(pk=result.id).update(args="no list")
    work()
    assert ends == {(result.id, "FAILED"): 1}


def test_a_task_that_puts_itself_off_has_not_failed(ends):
    result = framework.snooze_once.enqueue()
    work()
    assert not ends
    Task.objects.update(run_after=timezone.now())
    work()
    assert ends == {(result.id, "SUCCESSFUL"): 1}


@pytest.mark.parametrize("fails", [False, True])
def test_an_attempt_that_ends_after_its_worker_was_declared_lost_tells_nothing(
    ends, monkeypatch, fails
):
    """The cleaner has told of the end; what comes late is noted beside the task, as ever."""
    monkeypatch.setattr(running, "MAY_BE_LOST_AFTER_SECONDS", 0.0)
    framework.BEGUN.clear()
    framework.MAY_END.clear()
    late = []

    def hear(task_id, **_):
        late.append(str(task_id))

    for one in (signals.task_finished_late, signals.claim_lost):
        one.connect(hear, weak=False)
    try:
        with helpers.working():
            result = framework.wait_for_release.enqueue(fails)
            assert framework.BEGUN.wait(helpers.PATIENCE)
            Worker.objects.update(lost=True)
            clean()
            assert ends == {(result.id, "FAILED"): 1}
            framework.MAY_END.set()
            helpers.wait_until(lambda: result.id in late)
    finally:
        framework.MAY_END.set()
        for one in (signals.task_finished_late, signals.claim_lost):
            one.disconnect(hear)
    assert ends == {(result.id, "FAILED"): 1}
