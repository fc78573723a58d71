"""A failover to a standby without the last commits: the end of an attempt is lost, and its claim is back."""

import uuid
from contextlib import contextmanager

import helpers
import pytest
from django.db import connection, transaction
from probe import tasks
from probe.models import Run
from test_orderly_ends import claim, new_writer

from django_txtasks import batch, signals
from django_txtasks.conf import get_config
from django_txtasks.core.cleaning import Cleaner
from django_txtasks.core.rows.attempts import Arrow, Attempt, Ended
from django_txtasks.core.rows.turn import Capacity
from django_txtasks.core.working.leaving import let_go
from django_txtasks.core.working.recording import outcome_buffer, reconciliation
from django_txtasks.core.working.recording.outcome_buffer import OutcomeBuffer
from django_txtasks.core.working.schedule import Plan
from django_txtasks.models import Batch, FinishedTask, Status, Task

pytestmark = pytest.mark.usefixtures("rows", "often")

REASON = "the database lost the end of this attempt"
UNREVIVABLE = 2_147_483_647


@pytest.fixture
def often(txtasks):
    """A worker compares its claims with the table each two seconds."""
    txtasks(heartbeat_interval=0.2, lease=2, poll_interval=0.05)


def enqueued(enqueue):
    """Return the row of a task, as it is before any worker sees it."""
    with transaction.atomic():
        return Task.objects.get(pk=enqueue().id)


@contextmanager
def ended(*enqueue):
    """A worker that has run these tasks to their ends; gives their rows as they were while they ran."""
    with helpers.working() as worker:
        kept = [enqueued(one) for one in enqueue]
        for row in kept:
            helpers.wait_until(lambda row=row: not Task.objects.filter(pk=row.pk).exists())
            claimed_at = row.enqueued_at
            row.status, row.attempt, row.worker = Status.CLAIMED, 1, worker.writer.id
            row.claimed_at = row.started_at = claimed_at
        yield kept


def fail_over(*kept, **changes):
    """Have the database lose the ends of these attempts, in one moment."""
    with transaction.atomic():
        FinishedTask.objects.filter(pk__in=[row.pk for row in kept]).delete()
        for row in kept:
            for name, value in changes.items():
                setattr(row, name, value)
            row.save(force_insert=True)


ONCE = {
    "default": lambda: tasks.note.enqueue("task"),
    "compensated": lambda: tasks.doze_or_undo.enqueue("task", amount=0),
}
AGAIN = {
    "idempotent": lambda: tasks.quick.enqueue("task"),
    "retried, then compensated": lambda: tasks.try_to_pay.enqueue("task", amount=0),
    "in a lane": lambda: tasks.quick.using(lane="lane").enqueue("task"),
}


@pytest.mark.parametrize("policy", ONCE)
def test_what_may_run_once_follows_its_crash_policy(policy):
    with ended(ONCE[policy]) as kept:
        fail_over(*kept)
        row = helpers.wait_until(lambda: Task.objects.filter(status=Status.DEAD).first())
        if policy == "compensated":
            helpers.wait_until(lambda: helpers.runs("undo task 0"))
    assert helpers.runs("task") == 1
    assert helpers.runs("undo task 0") == (policy == "compensated")
    assert (row.attempt, row.crashes, row.worker) == (1, 1, None)
    (error,) = row.errors
    assert error["type"] == "EndLost"
    assert error["message"].startswith(f"{REASON} (finish), which {kept[0].worker} on ")


@pytest.mark.parametrize("policy", AGAIN)
def test_what_may_run_again_is_given_back(policy, txtasks):
    txtasks(lanes={"lane": {"weight": 1}})
    with ended(AGAIN[policy]) as kept:
        fail_over(*kept)
        finished = helpers.wait_until(lambda: helpers.finished(kept[0].pk))
    assert (finished.attempt, finished.crashes, finished.failures) == (2, 0, 0)
    assert helpers.runs("task") == 2


@pytest.mark.parametrize("is_kept", [False, True], ids=["its effects are lost", "they are kept"])
def test_an_atomic_end_is_not_written_again_without_its_effects(is_kept):
    """They are in the same COMMIT; what stands there after all was written before that, by somebody else."""
    with ended(lambda: tasks.atomic_note.enqueue("task")) as kept:
        if not is_kept:
            Run.objects.all().delete()
        fail_over(*kept)
        finished = helpers.wait_until(lambda: helpers.finished(kept[0].pk))
    assert (finished.attempt, finished.crashes) == (2, 0)
    assert helpers.runs("task") == 1 + is_kept


def test_the_hooks_of_the_new_end_run_once():
    with ended(lambda: tasks.told_of_an_end.enqueue("task")) as kept:
        fail_over(*kept)
        helpers.wait_until(lambda: helpers.runs("failure told_of_an_end"))
    assert helpers.runs("failure told_of_an_end") == 1
    assert helpers.row(kept[0].pk).status == Status.DEAD


def test_a_batch_ends_with_the_new_end_of_its_last_member():
    """Its own end was lost with that of the member."""
    told = dict.fromkeys(("on_finish", "on_success", "on_failure"), tasks.tell_of_batch)

    def enqueue():
        with batch(name="b", **told):
            return tasks.note.enqueue("task")

    with ended(enqueue) as kept:
        helpers.wait_until(lambda: FinishedTask.objects.count() == 3)
        Run.objects.exclude(key="task").delete()
        with transaction.atomic():
            FinishedTask.objects.all().delete()
            Batch.objects.update(finished_at=None, failed=None)
            fail_over(*kept)
        helpers.wait_until(lambda: FinishedTask.objects.count() == 2)
    assert helpers.row(kept[0].pk).status == Status.DEAD
    assert Batch.objects.get().failed
    assert sorted(Run.objects.exclude(key="task").values_list("key", flat=True)) == [
        "failure b failed",
        "finish b failed",
    ]


def test_what_was_offered_again_with_its_claim_is_not_begun():
    """The standby lacks the claim as well, and this worker claims the task as the same attempt."""
    with ended(ONCE["default"]) as kept:
        fail_over(
            *kept, status=Status.PENDING, attempt=0, worker=None, claimed_at=None, started_at=None
        )
        row = helpers.wait_until(lambda: Task.objects.filter(status=Status.DEAD).first())
    assert helpers.runs("task") == 1
    assert row.errors[0]["message"].startswith(REASON)


@pytest.mark.parametrize("arrow", [Arrow.RETRY, Arrow.RELEASE, Arrow.BURY, Arrow.SNOOZE])
def test_an_end_that_gave_the_task_back_may_have_been_followed_by_another_attempt(arrow):
    """Of which this worker knows nothing: the database lost it."""
    handle = tasks.note.enqueue()
    writer = new_writer()
    claim(writer)
    attempt = Attempt(handle.id, 1, writer.id, batch=None)
    writer.buffer.moved([Ended(attempt=attempt, arrow=arrow)])
    writer.reconciliation.is_unsure = True
    claim(writer, room=0)
    row = helpers.row(handle.id)
    assert (row.status, row.errors[0]["type"]) == (Status.DEAD, "EndLost")
    assert f"({arrow.value})" in row.errors[0]["message"]


@pytest.mark.skipif(
    connection.vendor != "postgresql", reason="others take a counter beyond its limit"
)
def test_a_row_that_cannot_be_moved_stops_nothing():
    with ended(ONCE["default"], ONCE["default"]) as kept:
        bad, good = kept
        bad.crashes = UNREVIVABLE
        fail_over(bad, good)
        helpers.wait_until(lambda: Task.objects.get(pk=good.pk).status == Status.DEAD)
        after = tasks.note.enqueue("after")
        helpers.wait_until(lambda: helpers.finished(after.id))
    assert Task.objects.get(pk=bad.pk).status == Status.CLAIMED


def test_a_worker_that_must_end_follows_the_same_rule():
    """Its last transaction gives nothing back that it has ended."""
    once, again = tasks.note.enqueue(), tasks.slow_once.enqueue()
    writer = new_writer()
    claim(writer)
    for handle in (once, again):
        attempt = Attempt(handle.id, 1, writer.id)
        writer.buffer.moved([Ended(attempt=attempt, arrow=Arrow.FINISH)])
    let_go(writer, set(), "a second stop signal")
    row = helpers.row(once.id)
    assert (row.status, row.errors[0]["type"]) == (Status.DEAD, "EndLost")
    assert helpers.row(again.id).status == Status.PENDING


KINDS = {
    "never begun": (tasks.note.enqueue, False),
    "ended, runs again": (tasks.slow_once.enqueue, True),
    "ended, runs once": (tasks.note.enqueue, True),
}
"""Claims that a worker does not hold: how each is enqueued, and whether its end was recorded."""


def claim_without_holder(kind):
    """A worker that has claimed a task and does not hold it; return the task's id as well."""
    enqueue, has_ended = KINDS[kind]
    handle, writer = enqueue(), new_writer()
    claim(writer)
    if has_ended:
        attempt = Attempt(handle.id, 1, writer.id)
        writer.buffer.moved([Ended(attempt=attempt, arrow=Arrow.FINISH)])
    return writer, handle.id


def locked_by_somebody(task_id):
    key = task_id if connection.vendor == "postgresql" else task_id.hex
    return helpers.locked("UPDATE txtasks_task SET notified_at = NULL WHERE id = %s", key)


@pytest.mark.skipif(connection.vendor == "sqlite", reason="one writer at a time")
@pytest.mark.parametrize("kind", KINDS)
def test_a_turn_waits_for_nobody_who_has_locked_a_claim_that_is_to_be_given_back(kind, monkeypatch):
    """Such as a transaction that has cancelled the task, and goes on for minutes."""
    monkeypatch.setattr(reconciliation, "LOCKED_SECONDS", 0.0)
    writer, task_id = claim_without_holder(kind)
    other = tasks.note.enqueue("other")
    writer.reconciliation.is_unsure = True
    with locked_by_somebody(task_id):
        held = claim(writer)
    assert held == {(other.id, 1)}
    assert helpers.row(task_id).status == Status.CLAIMED
    writer.write(Plan(Capacity(0)), helpers.Running(held), None)  # the next turn compares again
    assert helpers.row(task_id).status != Status.CLAIMED


@pytest.mark.skipif(connection.vendor == "sqlite", reason="one writer at a time")
@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_that_must_end_waits_for_nobody_either(kind):
    """Its other tasks are let go in good order."""
    writer, task_id = claim_without_holder(kind)
    other = tasks.slow_once.enqueue()
    held = claim(writer)
    with locked_by_somebody(task_id):
        let_go(writer, held, "a second stop signal")
    row = helpers.row(other.id)
    assert (row.status, row.errors[0]["type"]) == (Status.PENDING, "WorkerStopped")
    Cleaner(get_config()).run_once()
    assert helpers.row(task_id).status != Status.CLAIMED


def test_it_is_told_after_the_commit_once():
    told = []

    def note(task_id, error, **_):
        told.append((task_id, Task.objects.get(pk=task_id).status, error.split(" (")[0]))

    signals.task_died.connect(note)
    try:
        with ended(ONCE["default"]) as kept:
            fail_over(*kept)
            helpers.wait_until(lambda: told)
    finally:
        signals.task_died.disconnect(note)
    assert told == [(kept[0].pk, Status.DEAD, REASON)]


@pytest.mark.once
def test_what_is_remembered_is_bounded_and_leaves_out_what_runs_again(monkeypatch):
    monkeypatch.setattr(outcome_buffer, "MAX_REMEMBERED", 3)
    buffer = OutcomeBuffer("default", None)
    attempts = [Attempt(uuid.uuid4(), 1, uuid.uuid4(), may_share=n == 4) for n in range(6)]
    for one in attempts:
        buffer.moved([Ended(attempt=one, arrow=Arrow.FINISH)])
    assert list(buffer.lately) == [(attempts[n].task_id, 1) for n in (2, 3, 5)]
