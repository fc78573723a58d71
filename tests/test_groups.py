"""The errors by which a task decides how it continues also count inside a group, as from a TaskGroup."""

import sys
from datetime import timedelta

import helpers
import pytest
from django.utils import timezone
from probe import framework, tasks

from django_txtasks.backends import compat
from django_txtasks.exceptions import TASK_SAYS, meant
from django_txtasks.models import FinishedTask, Task
from django_txtasks.testing import run_due_tasks

if sys.version_info < (3, 11):
    from exceptiongroup import BaseExceptionGroup  # pytest needs it there

pytestmark = pytest.mark.usefixtures("rows", "quick")
SOON = timedelta(minutes=10)


def run_by_worker(handle, **options):
    with helpers.working(**options):
        helpers.wait_until(lambda: not Task.objects.filter(pk=handle.id, attempt=0).exists())
        helpers.wait_until(lambda: not Task.objects.filter(pk=handle.id, status="claimed").exists())


def run_in_test(handle):
    run_due_tasks(reraise=False)


def run_on_loop(handle):
    run_by_worker(handle, kind="loop", async_tasks=5)


has_groups = pytest.mark.skipif(sys.version_info < (3, 11), reason="TaskGroup came with 3.11")
WAYS = [
    *[
        pytest.param(run, tasks.raise_in_task_group, marks=has_groups)
        for run in (run_by_worker, run_on_loop, run_in_test)
    ],
    (run_by_worker, tasks.raise_group),
    (run_in_test, tasks.raise_group),
]
IDS = [
    "group in a slot",
    "group on a loop",
    "group in a test",
    "errors in a slot",
    "errors in a test",
]


def state(handle):
    """Return status or outcome, failures, snoozes, and whether it is due soon."""
    row = Task.objects.filter(pk=handle.id).first()
    if row is None:
        return FinishedTask.objects.get(pk=handle.id).outcome
    is_soon = row.run_after < timezone.now() + SOON
    return row.status, row.failures, row.snoozes, is_soon


EXPECTED = {
    "retry": ("pending", 1, 0, False),
    "snooze": ("pending", 0, 1, False),
    "suspended": ("pending", 0, 0, False),
    "cancelled": "cancelled",
    "reject": ("dead", 1, 0, True),
}


@pytest.mark.parametrize(("run", "function"), WAYS, ids=IDS)
@pytest.mark.parametrize("name", EXPECTED)
def test_alone_in_a_group_it_counts_as_by_itself(run, function, name):
    handle = function.enqueue(name)
    run(handle)
    assert state(handle) == EXPECTED[name]


@pytest.mark.parametrize(("run", "function"), WAYS, ids=IDS)
@pytest.mark.parametrize("name", EXPECTED)
def test_beside_a_foreign_error_it_is_a_failure_with_the_whole_traceback(
    run, function, name, txtasks
):
    txtasks(retry_base=60, retry_ceiling=60)
    handle = function.enqueue(name, "foreign")
    run(handle)
    assert state(handle) == ("pending", 1, 0, True)
    (entry,) = Task.objects.get(pk=handle.id).errors
    assert "ExceptionGroup" in entry["type"]
    assert "no paper" in entry["traceback"]
    assert type(tasks.ERRORS[name]()).__name__ in entry["traceback"]


@pytest.mark.parametrize("place", range(len(TASK_SAYS) - 1))
def test_of_several_the_first_in_this_order_counts(place):
    ordered = [one() for kind in TASK_SAYS for one in tasks.ERRORS.values() if type(one()) is kind]
    assert [type(one) for one in ordered] == list(TASK_SAYS)
    first, *others = ordered[place:]
    group = BaseExceptionGroup("inside", [others[-1], first])
    assert meant(BaseExceptionGroup("outside", [group, *others])) is first


def test_what_is_no_group_is_meant_as_it_is():
    error = ValueError()
    assert meant(error) is error
    error.exceptions = (1, 2)  # such as a library's own, which has other things there
    assert meant(error) is error
    error.exceptions = ()
    assert meant(error) is error


def test_a_task_of_django_that_waits_in_a_group_has_not_failed():
    heard = []

    def hear(task_result, **_):
        heard.append(task_result.status)

    compat.task_finished.connect(hear)
    try:
        framework.wait_in_a_group.enqueue()
        with helpers.working():
            helpers.wait_until(lambda: helpers.runs("waits in a group") > 1)
    finally:
        compat.task_finished.disconnect(hear)
    assert heard == []
