"""Each arrow is fenced: a late attempt does not change a row that has moved on."""

import uuid
from datetime import timedelta

import helpers
import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from probe import tasks

from django_txtasks import enqueue_many, enqueue_task
from django_txtasks.conf import get_config
from django_txtasks.core.cleaning import Cleaner, rescue
from django_txtasks.core.rows import cleaning, history, outcomes, statements, workers
from django_txtasks.core.rows.attempts import Arrow, Attempt, Ended, capped
from django_txtasks.core.rows.buckets import pending_priorities
from django_txtasks.database.execute import fetch
from django_txtasks.database.transactions import own_transaction
from django_txtasks.exceptions import ClaimLost
from django_txtasks.models import Outcome, Status, Task, TaskColumns, Worker
from django_txtasks.operations import operators

pytestmark = pytest.mark.usefixtures("rows")


def new_worker() -> uuid.UUID:
    config = get_config()
    return workers.register(
        "default", queues=["default"], threads=1, listening=None, lease=config.lease
    )


def claim_all(worker, limit=100):
    with transaction.atomic():
        assert workers.beat("default", worker, running=0, listening=None)
        return helpers.claim(worker, limit, "default", "mail").claimed


def claim_one(worker):
    (attempt,) = claim_all(worker)
    return attempt


def declare_lost(worker):
    helpers.execute("UPDATE txtasks_worker SET lost = TRUE WHERE id = %s", worker.hex)


def clean():
    return Cleaner(get_config()).run_once()


def ended(attempt, arrow, **more):
    return Ended(attempt=attempt, arrow=arrow, **more)


def record(*outcomes_):
    with transaction.atomic():
        return outcomes.record("default", outcomes_, config=get_config())


def claimed_twice():
    """Return an attempt that lost its claim, and the one that holds the row now."""
    handle = tasks.slow_once.enqueue("x")
    first = new_worker()
    stale = claim_one(first)
    declare_lost(first)
    clean()
    return handle.id, stale, claim_one(new_worker())


@pytest.mark.parametrize("arrow", Arrow, ids=str)
def test_an_attempt_that_lost_its_claim_cannot_move_the_next_ones_row(arrow):
    task_id, stale, current = claimed_twice()
    recorded = record(ended(stale, arrow, error={"type": "Late"}))
    assert (recorded.lost, recorded.done, recorded.busy) == (
        [ended(stale, arrow, error={"type": "Late"})],
        [],
        [],
    )
    task = helpers.row(task_id)
    assert (task.status, task.attempt, task.worker) == (
        Status.CLAIMED,
        current.number,
        current.worker,
    )
    assert record(ended(current, Arrow.FINISH)).done


@pytest.mark.parametrize("arrow", [Arrow.RETRY, Arrow.BURY, Arrow.RELEASE], ids=str)
def test_the_statement_itself_refuses_a_stale_attempt(arrow):
    task_id, stale, current = claimed_twice()
    with pytest.raises(ClaimLost), transaction.atomic():
        outcomes.move("default", ended(stale, arrow, error={"type": "Late"}))
    assert helpers.row(task_id).attempt == current.number


def test_a_stale_atomic_attempt_rolls_its_effects_back():
    task_id, stale, _ = claimed_twice()
    with pytest.raises(ClaimLost), transaction.atomic():
        tasks.ran("effect")
        outcomes.finish("default", ended(stale, Arrow.FINISH), config=get_config())
    assert helpers.runs("effect") == 0
    assert helpers.finished(task_id) is None
    assert helpers.row(task_id).status == Status.CLAIMED


@pytest.mark.parametrize("field", ["number", "worker", "task_id"])
def test_each_part_of_the_fence_counts(field):
    tasks.note.enqueue()
    attempt = claim_one(new_worker())
    other = {"number": attempt.number + 1, "worker": uuid.uuid4(), "task_id": uuid.uuid4()}[field]
    stale = attempt._replace(**{field: other})
    assert record(ended(stale, Arrow.FINISH)).lost
    with pytest.raises(ClaimLost), transaction.atomic():
        outcomes.finish("default", ended(stale, Arrow.FINISH), config=get_config())
    with pytest.raises(ClaimLost), transaction.atomic():
        outcomes.move("default", ended(stale, Arrow.BURY))
    assert record(ended(attempt, Arrow.FINISH)).done


def test_a_finish_cannot_be_repeated():
    tasks.note.enqueue()
    attempt = claim_one(new_worker())
    assert record(ended(attempt, Arrow.FINISH)).done
    assert record(ended(attempt, Arrow.FINISH)).lost


def test_attempt_numbers_never_go_down():
    handle = tasks.note.enqueue()
    for number in range(1, 4):
        attempt = claim_one(new_worker())
        assert attempt.number == number
        record(ended(attempt, Arrow.RELEASE))
    task = helpers.row(handle.id)
    assert (task.attempt, task.failures, task.crashes) == (3, 0, 0)


def test_a_worker_that_was_declared_lost_cannot_beat():
    worker = new_worker()
    declare_lost(worker)
    with transaction.atomic():
        assert not workers.beat("default", worker, running=0, listening=None)


def test_a_worker_that_beats_in_between_is_not_declared_lost():
    worker = new_worker()
    (seen,) = cleaning.living_workers("default")
    with transaction.atomic():
        workers.beat("default", worker, running=0, listening=None)
    with transaction.atomic():
        assert not cleaning.lose("default", seen)
    assert not Worker.objects.get().lost


def test_a_worker_that_holds_claims_keeps_its_row_when_it_stops():
    worker = new_worker()
    tasks.note.enqueue()
    claim_one(worker)
    workers.unregister("default", worker)
    assert Worker.objects.exists()


def test_the_claims_of_a_worker_without_a_row_are_recovered():
    worker = new_worker()
    handle = tasks.slow_once.enqueue("x")
    claim_one(worker)
    Worker.objects.all().delete()
    assert clean()["retried"] == 1
    assert helpers.row(handle.id).status == Status.PENDING


def test_claims_of_living_workers_are_left_alone():
    handle = tasks.slow_once.enqueue("x")
    claim_one(new_worker())
    assert clean()["retried"] == 0
    assert helpers.row(handle.id).status == Status.CLAIMED


def crash(handle):
    """Claim the task's row and lose the worker."""
    worker = new_worker()
    helpers.execute("UPDATE txtasks_task SET run_after = enqueued_at WHERE status = 'pending'")
    claim_one(worker)
    declare_lost(worker)
    counts = clean()
    return counts, helpers.row(handle.id)


def test_a_task_that_runs_again_at_once_keeps_its_place_in_the_queue():
    handle = tasks.slow_once.using(run_after=timedelta(hours=-1)).enqueue("x")
    before = helpers.row(handle.id).run_after
    claim_one(new_worker())
    helpers.execute("UPDATE txtasks_worker SET lost = TRUE")
    assert clean()["retried"] == 1
    assert helpers.row(handle.id).run_after == before


def test_a_default_task_is_dead_after_a_crash_with_the_reason():
    counts, task = crash(tasks.note.enqueue())
    assert counts["buried"] == 1
    assert (task.status, task.crashes, task.failures, task.worker) == (Status.DEAD, 1, 0, None)
    assert task.errors[0]["type"] == "WorkerLost"
    assert "worker lost in mid-task" in task.errors[0]["message"]
    assert "neither atomic nor idempotent" in task.errors[0]["message"]
    assert "held several" not in task.errors[0]["message"]


@pytest.mark.parametrize("seconds", [rescue.TURN_SECONDS, 0.001])
def test_what_else_was_in_the_hands_of_a_lost_worker_is_named(seconds, monkeypatch):
    """One of them may have ended the process: a person must look at all of them.

    In a millisecond, a cleaner recovers one claim.
    """
    monkeypatch.setattr(rescue, "TURN_SECONDS", seconds)
    handles = [tasks.note.enqueue(), tasks.note.enqueue(), tasks.slow.enqueue()]
    worker = new_worker()
    assert len(claim_all(worker)) == len(handles)
    declare_lost(worker)
    clean()
    for handle in handles:
        message = helpers.row(handle.id).errors[0]["message"]
        assert "may have ended it: probe.tasks.note (2), probe.tasks.slow. The" in message


@pytest.mark.parametrize("function", [tasks.slow_once, tasks.atomic_note], ids=str)
def test_an_idempotent_or_atomic_task_runs_again_at_once_then_later_then_is_dead(function):
    handle = function.enqueue("x")
    counts, task = crash(handle)
    assert counts["retried"] == 1
    assert (task.status, task.crashes, task.failures) == (Status.PENDING, 1, 0)
    assert task in Task.objects.due()
    _, task = crash(handle)
    assert (task.status, task.crashes) == (Status.PENDING, 2)
    assert task not in Task.objects.due()
    counts, task = crash(handle)
    assert counts["buried"] == 1
    assert (task.status, task.crashes) == (Status.DEAD, 3)
    assert "crash 3 of 3" in task.errors[-1]["message"]


def test_two_cleaners_with_the_same_list_recover_a_claim_once():
    handle = tasks.slow_once.enqueue("x")
    worker = new_worker()
    claim_one(worker)
    declare_lost(worker)
    (orphan,) = helpers.orphans()
    with transaction.atomic():
        cleaning.recover("default", orphan, lambda _: None, get_config())
    current = claim_one(new_worker())
    with pytest.raises(ClaimLost), transaction.atomic():
        cleaning.recover("default", orphan, lambda _: None, get_config())
    assert helpers.row(handle.id).worker == current.worker


def test_errors_are_capped_to_the_first_and_the_newest():
    errors = [{"attempt": number} for number in range(1, 31)]
    assert [error["attempt"] for error in capped(errors)] == [1, *range(22, 31)]


# -- a person's arrows --------------------------------------------------------------------------------


def in_state(state):
    handle = enqueue_task(tasks.note, state)
    if state == "held":
        operators.hold("default", [handle.id])
    if state in ("claimed", "dead"):
        attempt = claim_one(new_worker())
        if state == "dead":
            record(ended(attempt, Arrow.BURY, error={"type": "Reject"}))
    return handle.id


def cancel(alias, ids):
    return operators.cancel(alias, ids, keep=True)


def discard(alias, ids):
    return operators.discard(alias, ids, keep=True)


PERSON = {
    "hold": (operators.hold, "pending", Status.HELD),
    "resume": (operators.resume, "held", Status.PENDING),
    "run now": (operators.run_now, "pending", Status.PENDING),
    "revive": (operators.revive, "dead", Status.PENDING),
    "cancel": (cancel, "pending", Outcome.CANCELLED),
    "discard": (discard, "dead", Outcome.DISCARDED),
}


@pytest.mark.parametrize("name", PERSON)
def test_a_person_moves_rows_of_the_right_state_only(name):
    move, start, end = PERSON[name]
    for state in ("claimed", "dead", "held", "pending"):
        task_id = in_state(state)
        moved = move("default", [task_id, uuid.uuid4()])
        if state == start:
            assert moved == [(task_id, "default")]
            live, gone = helpers.row(task_id), helpers.finished(task_id)
            assert end == (live.status if live else gone.outcome)
        else:
            assert moved == []
            assert helpers.row(task_id).status == state
        helpers.empty_tables()


def test_a_revived_task_has_its_failures_forgiven_and_its_errors_kept():
    task_id = in_state("dead")
    operators.revive("default", [task_id])
    task = helpers.row(task_id)
    assert (task.failures, task.crashes, len(task.errors)) == (0, 0, 1)
    assert claim_one(new_worker()).number == 2


def test_run_now_makes_a_later_task_due():
    handle = tasks.note.using(run_after=tasks.timedelta(hours=1)).enqueue()
    operators.run_now("default", [handle.id])
    assert claim_one(new_worker()).task_id == handle.id


# -- races, staged with a second session ------------------------------------------------------------------


def test_a_claim_takes_no_more_than_its_limit():
    enqueue_many((tasks.note, ()) for _ in range(10))
    assert len(claim_all(new_worker(), limit=3)) == 3
    assert Task.objects.filter(status=Status.CLAIMED).count() == 3


def on_sqlite():
    from django.db import connection

    return connection.vendor == "sqlite"


def test_rows_that_another_session_has_locked_are_left_out_and_not_waited_for():
    handles = [tasks.note.enqueue(str(number)) for number in range(3)]
    attempts = []
    if (
        on_sqlite()
    ):  # one writer: the other session's transaction ends first, and nothing is left out
        attempts = claim_all(new_worker())
        assert len(attempts) == 3
        return
    with helpers.locked("UPDATE txtasks_task SET priority = 1 WHERE id = %s", handles[1].id.hex):
        attempts = claim_all(new_worker())
        assert {attempt.task_id for attempt in attempts} == {handles[0].id, handles[2].id}
    assert claim_one(new_worker()).task_id == handles[1].id


def test_an_outcome_whose_row_is_locked_waits_for_the_next_turn():
    tasks.note.enqueue()
    attempt = claim_one(new_worker())
    done = ended(attempt, Arrow.FINISH)
    if not on_sqlite():
        with helpers.locked(
            "UPDATE txtasks_task SET priority = 1 WHERE id = %s", attempt.task_id.hex
        ):
            assert record(done).busy == [done]
    assert record(done).done == [done]


def test_a_worker_whose_turn_is_frozen_is_not_waited_for():
    worker = new_worker()
    (seen,) = cleaning.living_workers("default")
    if not on_sqlite():
        with (
            helpers.locked("UPDATE txtasks_worker SET beat = beat + 1 WHERE id = %s", worker.hex),
            transaction.atomic(),
        ):
            assert not cleaning.lose("default", seen)
    with transaction.atomic():
        assert cleaning.lose("default", seen)


def limit_of_idle_transactions():
    shown = {
        "postgresql": "SELECT current_setting('idle_in_transaction_session_timeout')",
        "mysql": "SELECT @@idle_transaction_timeout",
        "sqlite": "SELECT 'one writer, whose file lock ends with its process'",
    }
    ((limit,),) = helpers.execute(shown[connection.vendor])
    return limit


def test_a_turn_limits_how_long_it_may_freeze_with_its_locks():
    with own_transaction("default", limit=timedelta(seconds=7)):
        limit = limit_of_idle_transactions()
    assert limit in ("7s", 7) or connection.vendor == "sqlite"


def test_a_callers_transaction_keeps_its_own_limit():
    """The server would end the caller's session if the caller is slow: see ATOMIC_REQUESTS."""
    with transaction.atomic():
        before = limit_of_idle_transactions()
        with own_transaction("default", limit=timedelta(seconds=7)):
            assert limit_of_idle_transactions() == before
        assert limit_of_idle_transactions() == before


@pytest.mark.skipif(
    connection.vendor != "mysql", reason="elsewhere it is a limit of the transaction"
)
def test_mariadb_is_told_this_limit_once_by_each_session():
    def statements_of(seconds):
        with (
            CaptureQueriesContext(connection) as asked,
            own_transaction("default", limit=timedelta(seconds=seconds)),
        ):
            pass
        return [one["sql"] for one in asked if "idle_transaction_timeout" in one["sql"]]

    assert [len(statements_of(seconds)) for seconds in (7, 7, 8, 8)] == [1, 0, 1, 0]
    connection.close()
    assert [len(statements_of(seconds)) for seconds in (8, 8)] == [1, 0]


def test_many_sessions_claim_each_row_once():
    enqueue_many((tasks.note, ()) for _ in range(200))
    taken: list[Attempt] = []

    def take():
        worker = helpers.patiently(new_worker)
        while attempts := helpers.patiently(lambda: claim_all(worker, limit=7)):
            taken.extend(attempts)

    with helpers.second_session(take), helpers.second_session(take), helpers.second_session(take):
        pass
    assert len(taken) == 200
    assert len({attempt.task_id for attempt in taken}) == 200


@pytest.mark.skipif(
    connection.vendor != "postgresql",
    reason="only PostgreSQL tells how many pages a statement read",
)
def test_looking_for_priorities_does_not_walk_the_backlog():
    for name in ("default", "mail"):
        enqueue_many([(tasks.note.using(queue_name=name), ["x"])] * 5000)
    helpers.execute("VACUUM ANALYZE txtasks_task")  # dead rows of earlier tests are no backlog
    for name in ("default", "mail"):
        explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statements.PENDING_PRIORITIES}"
        plan = fetch("default", explain, queue=name)[0][0][0]["Plan"]
        assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 20


def test_the_priorities_of_a_queue_are_found_highest_first():
    for priority, queue in (
        (3, "default"),
        (-7, "default"),
        (3, "default"),
        (5, "mail"),
        (0, "mail"),
    ):
        tasks.note.using(priority=priority, queue_name=queue).enqueue("x")
    held = tasks.note.using(priority=9).enqueue("held")
    operators.hold("default", [held.id])
    found = {
        queue: list(pending_priorities("default", queue))
        for queue in ("default", "mail", "a", "zebra")
    }
    assert found == {"default": [3, -7], "mail": [5, 0], "a": [], "zebra": []}


NOT_IN_HISTORY = {
    "status", "max_attempts", "max_crashes", "on_crash", "timeout", "expires_at", "hooks", "claimed_at",
    "notified_at", "cancel_asked_at", "snoozes", "unique_key", "unique_text", "absorbed", "lane",
    "cause", "headers",
}  # fmt: skip
"""Columns of a live row that say how it waits or runs. A new column is either here or in ``TaskColumns``."""


@pytest.mark.once
def test_history_keeps_the_columns_that_live_and_finished_rows_share():
    shared = [field.column for field in TaskColumns._meta.local_fields]
    assert shared == list(history.KEPT)
    live = {field.column for field in Task._meta.concrete_fields}
    assert live - set(shared) == NOT_IN_HISTORY
