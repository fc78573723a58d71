"""TaskDetails: a project's own columns for a task, in a table of its own, with the state of the task."""

import helpers
import pytest
from django.db import connection, transaction
from probe import tasks
from probe.models import Parcel, ParcelDetails
from test_enqueue_cost import statements_of

from django_txtasks import status_of
from django_txtasks.models import FinishedTask, Task, TaskId
from django_txtasks.testing import run_due_tasks

pytestmark = [pytest.mark.usefixtures("rows")]


@pytest.fixture
def parcel():
    return Parcel.objects.create()


def enqueued(function, parcel, weight=1):
    with transaction.atomic():
        handle = function.enqueue(str(weight))
        ParcelDetails.objects.create(task_id=handle.id, parcel=parcel, weight=weight)
    return handle


def states():
    rows = ParcelDetails.objects.with_state().order_by("weight")
    return list(rows.values_list("task_id", "task_state"))


@pytest.mark.smoke
def test_the_state_follows_the_task_from_its_row_to_history(parcel):
    one = enqueued(tasks.note, parcel)
    assert states() == [(one.id, "pending")]
    Task.objects.update(status="held")
    assert states() == [(one.id, "held")]
    Task.objects.update(status="pending")
    run_due_tasks()
    assert states() == [(one.id, "succeeded")]
    FinishedTask.objects.all().delete()
    assert states() == [(one.id, "gone")] == [(one.id, status_of(one.id))]


def test_a_rollback_leaves_neither(parcel):
    with transaction.atomic():
        enqueued(tasks.note, parcel)
        transaction.set_rollback(True)
    assert not ParcelDetails.objects.exists() and not Task.objects.exists()


def test_a_merged_task_has_the_state_of_the_task_that_runs_instead(parcel):
    handles = [enqueued(tasks.tidy, parcel, weight) for weight in (1, 2)]
    run_due_tasks()
    assert FinishedTask.objects.get(pk=handles[1].id).outcome == "merged"
    assert states() == [(one.id, "succeeded") for one in handles]


def test_own_columns_and_the_state_in_one_query(parcel):
    dead = [enqueued(tasks.fail.using(max_attempts=1), parcel, weight) for weight in (1, 5, 9)]
    enqueued(tasks.note, parcel, 7)
    run_due_tasks(reraise=False)
    wanted = ParcelDetails.objects.with_state().filter(
        task_state="dead", weight__gt=3, parcel__label="parcel"
    )
    found = []
    (sql,) = statements_of(
        lambda: found.extend(wanted.select_related("parcel").order_by("-weight"))
    )
    assert "probe_parceldetails" in sql
    assert [(one.task_id, one.parcel.pk) for one in found] == [
        (dead[2].id, parcel.pk), (dead[1].id, parcel.pk),
    ]  # fmt: skip


def test_rows_of_tasks_that_are_gone_can_be_deleted(parcel):
    gone, live = enqueued(tasks.note, parcel, 1), enqueued(tasks.note.using(run_after=9), parcel, 2)
    helpers.execute("DELETE FROM txtasks_task WHERE id = %s", gone.id.hex)
    ParcelDetails.objects.with_state().filter(task_state="gone").delete()
    assert [one.task_id for one in ParcelDetails.objects.all()] == [live.id]


def test_the_table_has_no_foreign_key_to_the_task():
    field = ParcelDetails._meta.pk
    assert isinstance(field, TaskId) and field.name == "task_id" and field.remote_field is None
    constraints = [
        one["foreign_key"]
        for one in connection.introspection.get_constraints(
            connection.cursor(), "probe_parceldetails"
        ).values()
    ]
    assert {table for table, _ in filter(None, constraints)} <= {"probe_parcel"}
