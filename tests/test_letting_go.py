"""Many claims let go at once: those that may run again in one statement, each other one by its crash policy."""

from datetime import timedelta

import helpers
import pytest
from django.db import connection, transaction
from probe import on_loop, tasks

from django_txtasks.core.rows import cleaning, workers
from django_txtasks.core.working.recording.reconciliation import holder_of
from django_txtasks.exceptions import WorkerStopped
from django_txtasks.models import Status, Task

pytestmark = pytest.mark.usefixtures("rows")


def claimed(count):
    """Claim this number of tasks; return them as orphans, by key."""
    worker = workers.register(
        "default", queues=["default"], threads=1, listening=None, lease=timedelta(seconds=15)
    )
    with transaction.atomic():
        helpers.claim(worker, count)
    holder = holder_of(worker)
    return cleaning.orphans("default", holder, cleaning.held_by("default", holder))


def together(orphans):
    with transaction.atomic():
        return {one.attempt.task_id for one, _ in cleaning.retry_together("default", orphans, "x")}


def test_claims_that_differ_in_nothing_are_retried_together_and_count_as_nothing():
    ids = {on_loop.nap_and_note.enqueue(str(number)).id for number in range(5)}
    orphans = claimed(5)
    assert together(orphans) == ids
    for row in Task.objects.all():
        assert (row.status, row.crashes, row.failures, row.worker) == (Status.PENDING, 0, 0, None)
        assert [one["type"] for one in row.errors] == [WorkerStopped.__name__]
        assert row.errors[0]["attempt"] == 1
        assert "counted as no crash" in row.errors[0]["message"]


def test_a_claim_that_may_not_run_again_or_has_more_to_write_is_left_to_its_own_arrow():
    plain = on_loop.nap_and_note.enqueue("plain").id
    tasks.note.enqueue("default policy")
    with_error, with_hook, at_limit = (on_loop.nap_and_note.enqueue(str(n)).id for n in range(3))
    Task.objects.filter(pk=with_error).update(errors=[{"type": "ValueError"}])
    Task.objects.filter(pk=with_hook).update(hooks={"on_retry": {}})
    Task.objects.filter(pk=at_limit).update(crashes=1, max_crashes=1)
    orphans = claimed(5)
    assert together(orphans) == {plain}
    assert Task.objects.filter(status=Status.CLAIMED).count() == 4


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite locks the whole file")
def test_a_locked_claim_does_not_keep_back_the_others():
    first, second = (on_loop.nap_and_note.enqueue(str(n)).id for n in range(2))
    orphans = claimed(2)
    with helpers.locked("UPDATE txtasks_task SET priority = 1 WHERE id = %s", id_of(first)):
        assert together(orphans) == {second}
    assert helpers.row(first).status == Status.CLAIMED


def id_of(task_id):
    return task_id if connection.vendor == "postgresql" else task_id.hex
