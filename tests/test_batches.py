"""Batches: the end of many tasks enqueues the hooks exactly once, whichever process ends the last task."""

import contextlib
import itertools
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import helpers
import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, connections, transaction
from django.urls import reverse
from probe import framework, tasks

from django_txtasks import (
    BatchEnded,
    ClaimLost,
    NotInBatch,
    TaskContext,
    batch,
    cancel_task,
    enqueue_many,
    get_batch,
)
from django_txtasks.backends import running
from django_txtasks.conf import get_config
from django_txtasks.core.cleaning import Cleaner
from django_txtasks.core.rows import cleaning, outcomes, workers
from django_txtasks.core.rows.attempts import Arrow, Ended
from django_txtasks.exceptions import InvalidArguments, InvalidOption
from django_txtasks.features.batches import look as batch_look
from django_txtasks.features.batches import rows as batches
from django_txtasks.features.batches.look import BatchLook
from django_txtasks.models import Batch, FinishedTask, Status, Task
from django_txtasks.operations import operators
from django_txtasks.testing import run_due_tasks
from django_txtasks.testing.threads import worker as real_worker

pytestmark = pytest.mark.usefixtures("rows")

TOLD = {
    "on_finish": tasks.tell_of_batch,
    "on_success": tasks.tell_of_batch,
    "on_failure": tasks.tell_of_batch,
}
FINE = ["finish b fine", "success b fine"]
FAILED = ["failure b failed", "finish b failed"]


def opened(**options):
    return batch(**{"name": "b", **TOLD, **options})


def events():
    """Return the events of the waiting callbacks in order."""
    rows = Task.objects.filter(task_name="probe.tasks.tell_of_batch")
    return sorted(
        f"{one.args[0]['event']} {one.args[0]['name']} {'failed' if one.args[0]['failed'] else 'fine'}"
        for one in rows
    )


def worker_row():
    return workers.register(
        "default", queues=["default"], threads=1, listening=None, lease=get_config().lease
    )


def claim_all(count=1):
    """Claim as a worker would."""
    worker = worker_row()
    with transaction.atomic():
        claimed = helpers.claim(worker, count).claimed
    assert len(claimed) == count
    return claimed


def finish(*attempts):
    """Finish as a worker would that dies before it looks."""
    with transaction.atomic():
        done = [Ended(attempt=one, arrow=Arrow.FINISH) for one in attempts]
        recorded = outcomes.record("default", done, config=get_config())
    assert len(recorded.done) == len(attempts)


def clean():
    return Cleaner(get_config()).run_once()


@pytest.mark.smoke
@pytest.mark.parametrize("kept", [0, None])
def test_the_end_of_the_last_member_is_told_once(kept, txtasks, quick):
    txtasks(keep_finished=kept)
    with opened() as b:
        tasks.note.enqueue("1")
        enqueue_many([(tasks.note, [f"{n}"]) for n in range(2, 30)])
        tasks.atomic_note.enqueue("30")
        framework.note.enqueue("31")
    tasks.note.enqueue("not a member")
    assert b.status().waiting == 31
    with real_worker() as working:
        working.wait_until_idle()
    assert [helpers.runs(one) for one in FINE] == [1, 1]
    assert helpers.runs("failure b failed") == 0
    assert helpers.runs() == 34
    status = b.status()
    assert (status.waiting, status.running, status.failed) == (0, 0, 0)
    assert status.succeeded == (31 if kept is None else None)
    assert status.finished_at is not None
    assert status.has_failed is False
    assert get_batch(str(b.id)) == b


def test_it_is_written_with_its_transaction_or_not_at_all():
    with transaction.atomic():
        with opened() as b:
            tasks.note.enqueue()
        transaction.set_rollback(True)
    assert not Batch.objects.exists()
    with pytest.raises(LookupError, match="rolled back"):
        b.status()
    with transaction.atomic():
        with pytest.raises(KeyError), opened():
            tasks.note.enqueue()
            raise KeyError
        tasks.note.enqueue("after it")
    assert not Batch.objects.exists()
    assert [one.batch for one in Task.objects.all()] == [None]


def test_one_without_members_ends_at_once():
    with opened() as b:
        pass
    assert events() == FINE
    assert b.status().finished_at is not None
    with opened(name="c"):
        cancel_task(tasks.note.enqueue().id)
    assert events() == ["failure c failed", "finish b fine", "finish c failed", "success b fine"]


def test_a_member_that_a_savepoint_rolls_back_is_none():
    with opened(), transaction.atomic():
        tasks.note.enqueue()
        transaction.set_rollback(True)
    assert events() == FINE


def test_one_hook_is_enough_and_none_is_allowed():
    with batch() as quiet, pytest.raises(ZeroDivisionError):
        tasks.note.enqueue()
        1 / 0  # noqa: B018
    with batch(name="b", on_failure=tasks.tell_of_batch):
        tasks.note.enqueue()
    run_due_tasks()
    assert quiet.status().has_failed is False
    assert helpers.runs() == 2
    assert Batch.objects.filter(finished_at__isnull=False).count() == 2


# -- each door ------------------------------------------------------------------------------------


def die(b, handle):
    with helpers.working():
        helpers.wait_until(lambda: b.status().finished_at)


def crash(b, handle):
    claim_all()
    helpers.execute("UPDATE txtasks_worker SET lost = TRUE")
    Cleaner(get_config()).find_lost()


def cancel(b, handle):
    handle.cancel()


def cancel_held(b, handle):
    operators.hold("default", [handle.id])
    assert b.status().waiting == 1
    assert not events()
    handle.cancel()


def cancel_in_the_admin(b, handle):
    operators.cancel("default", [handle.id], keep=get_config().keeps("cancelled"))


def expire(b, handle):
    Task.objects.filter(pk=handle.id).update(expires_at="2020-01-01T00:00Z")
    with transaction.atomic():
        cleaning.expire("default", keeps=get_config().keeps)


def stop(b, handle):
    (attempt,) = claim_all()
    with transaction.atomic():
        cancelled = [Ended(attempt=attempt, arrow=Arrow.CANCEL, error={"type": "x"})]
        outcomes.record("default", cancelled, config=get_config())
    assert not events()  # its worker has died before it looked
    clean()


@pytest.mark.parametrize("kept", [0, None])
@pytest.mark.parametrize(
    "door",
    [crash, cancel, cancel_held, cancel_in_the_admin, expire, stop],
    ids=lambda f: f.__name__,
)
def test_each_way_to_fail_ends_the_batch_as_failed(door, kept, txtasks):
    txtasks(keep_finished=kept)
    with opened() as b:
        handle = tasks.note.enqueue()
        other = tasks.note.using(run_after=timedelta(days=1)).enqueue()
    helpers.execute("UPDATE txtasks_task SET batch = NULL WHERE id = %s", other.id.hex)
    door(b, handle)
    assert events() == FAILED
    assert b.status().has_failed is True
    assert b.status().failed == 1 or (kept == 0 and door is stop)  # and is pruned already
    clean()
    clean()
    assert events() == FAILED


@pytest.mark.parametrize("kept", [0, None])
def test_what_failed_long_ago_is_known_at_the_end(kept, txtasks):
    txtasks(keep_finished=kept)
    with opened() as b:
        first, second = tasks.note.enqueue("1"), tasks.note.enqueue("2")
    first.cancel()
    helpers.execute("UPDATE txtasks_finishedtask SET finished_at = '2020-01-01 00:00:00'")
    clean()
    assert helpers.finished(first.id) is not None
    assert b.status().failed == 1
    assert not events()
    second.cancel()
    assert events() == FAILED
    if kept == 0:
        clean()
        assert not FinishedTask.objects.exists()


def test_a_dead_member_that_is_revived_in_time_is_waited_for_and_may_succeed():
    with opened() as b:
        first, second = tasks.note.enqueue("1"), tasks.note.enqueue("2")
    Task.objects.filter(pk=first.id).update(status=Status.DEAD)
    operators.revive("default", [first.id])
    second.cancel()
    assert not events()
    FinishedTask.objects.all().delete()  # as if it had succeeded
    run_due_tasks()
    assert b.status().has_failed is False


def test_a_member_that_is_revived_after_the_end_runs_without_it():
    with opened() as b:
        handle = tasks.grow.enqueue(1)
    claim_all()
    helpers.execute("UPDATE txtasks_worker SET lost = TRUE")
    Task.objects.update(on_crash="dead")
    clean()
    assert events() == FAILED
    operators.revive("default", [handle.id])
    with pytest.raises(BatchEnded, match="revived after the end"):
        run_due_tasks()
    assert events() == []  # they have run
    assert helpers.runs("finish b failed") == 1
    assert b.status().has_failed is True


def test_a_dead_member_that_is_discarded_still_counts_as_failed():
    with opened() as b:
        first, second = tasks.note.enqueue("1"), tasks.note.enqueue("2")
    Task.objects.filter(pk=first.id).update(status=Status.DEAD)
    operators.discard("default", [first.id], keep=False)
    assert not events()
    finish(*claim_all())
    clean()
    assert events() == FAILED
    assert second.status() == "succeeded"
    assert b.status().failed == 1


def test_a_held_member_is_waited_for():
    with opened() as b:
        first, second = tasks.note.enqueue("1"), tasks.note.enqueue("2")
    operators.hold("default", [second.id])
    first.cancel()
    clean()
    assert not events()
    assert batches.live_member("default", b.id) == second.id
    operators.resume("default", [second.id])
    run_due_tasks()
    assert helpers.runs("failure b failed") == 1


def test_many_batches_of_one_task_do_not_keep_a_worker_from_its_turns(quick, monkeypatch):
    monkeypatch.setattr(batch_look, "LOOK_SECONDS", 0.0)  # one at a time
    for n in range(30):
        with batch(name=f"{n}", on_finish=tasks.tell_of_batch):
            tasks.note.enqueue()
    with real_worker() as working:
        working.wait_until_idle()
    assert helpers.runs() == 60


@pytest.mark.skipif(connection.vendor == "sqlite", reason="who has one lock")
@pytest.mark.parametrize("who", ["worker", "cleaner"])
def test_one_that_somebody_has_locked_keeps_no_other_from_its_end(who, monkeypatch):
    for name in "ab":
        with opened(name=name):
            tasks.note.enqueue()
    finish(*claim_all(2))
    first, second = sorted(one.pk for one in Batch.objects.all())
    locked, may_commit = threading.Event(), threading.Event()

    def lock():
        with transaction.atomic():
            Batch.objects.select_for_update().get(pk=first)
            locked.set()
            assert may_commit.wait(helpers.PATIENCE)

    with helpers.second_session(lock):
        assert locked.wait(helpers.PATIENCE)
        helpers.do_not_wait_for_locks()
        try:
            if who == "cleaner":
                clean()
            else:
                look_twice({first, second})
            assert Batch.objects.get(finished_at__isnull=False).pk == second
        finally:
            may_commit.set()
            connection.close()
    clean()
    assert not Batch.objects.filter(finished_at=None)


def look_twice(ids):
    """As a worker does that has ended members of these."""
    look = BatchLook("default")
    look.batches = set(ids)
    for _ in range(2):
        with contextlib.suppress(DatabaseError):
            look.look()


def test_the_limits_of_a_look_do_not_stay_with_the_session_of_a_request():
    with opened():
        tasks.note.enqueue().cancel()
    with opened():
        handle = tasks.note.enqueue()
    sql = {
        "postgresql": "SELECT current_setting('idle_in_transaction_session_timeout')",
        "mysql": "SELECT @@idle_transaction_timeout",
    }.get(connection.vendor, "SELECT 1")
    before = helpers.execute(sql)
    handle.cancel()
    assert helpers.execute(sql) == before


# -- merging ----------------------------------------------------------------------------------------


def test_members_are_merged_with_members_alone():
    one = tasks.note.using(unique_key="k")
    with opened() as b:
        enqueue_many([(one, ["x"])] * 3)
    one.enqueue("x")
    run_due_tasks()
    assert helpers.runs("x") == 2
    assert FinishedTask.objects.filter(outcome="merged").count() == 2
    assert {one.batch for one in FinishedTask.objects.filter(outcome="merged")} == {b.id}
    assert [helpers.runs(one) for one in FINE] == [1, 1]
    assert b.status().succeeded == 1


# -- members add members ---------------------------------------------------------------------------


@pytest.mark.parametrize("member", [tasks.grow, tasks.grow_atomic])
def test_members_add_members(member, quick):
    with opened():
        member.enqueue(3)
    with real_worker() as working:
        working.wait_until_idle()
    assert helpers.runs("member 0") == (8 if member is tasks.grow else 1)
    assert [helpers.runs(one) for one in FINE] == [1, 1]


def test_a_task_of_djangos_own_adds_members():
    with opened():
        framework.grow.enqueue(2)
    run_due_tasks()
    assert [helpers.runs(one) for one in ("member 0", *FINE)] == [1, 1, 1]
    with pytest.raises(NotInBatch, match="without a row"):
        framework.grow.call(running.TaskContext(task_result=None), 1)


def context_of(attempt):
    return TaskContext(
        task_id=attempt.task_id,
        attempt=attempt.number,
        task_name=attempt.task_name,
        queue_name="default",
        failures=0,
        max_attempts=1,
        snoozes=0,
        _claim=attempt,
        _alias="default",
        _requests=None,
    )


def test_one_that_has_lost_its_claim_adds_none():
    with opened():
        tasks.grow.enqueue(1)
    (attempt,) = claim_all()
    helpers.execute("UPDATE txtasks_worker SET lost = TRUE")
    Cleaner(get_config()).find_lost()
    (again,) = claim_all()
    with pytest.raises(ClaimLost), context_of(attempt).batch():
        tasks.note.enqueue()
    with context_of(again).batch() as b:
        tasks.note.enqueue()
    assert b.status().waiting == 1


def test_what_is_in_no_batch_adds_none():
    tasks.grow.enqueue(1)
    (attempt,) = claim_all()
    with pytest.raises(NotInBatch, match="is in no batch"), context_of(attempt).batch():
        pass


def test_nobody_ends_the_batch_while_a_member_is_being_added():
    """The row of the member that adds is locked: its end waits, also that of a lost worker."""
    with opened() as b:
        tasks.grow.enqueue(1)
    (attempt,) = claim_all()
    adds, may_commit = threading.Event(), threading.Event()

    def add():
        with context_of(attempt).batch():
            tasks.note.enqueue("added")
            adds.set()
            may_commit.wait(helpers.PATIENCE)

    with helpers.second_session(add):
        assert adds.wait(helpers.PATIENCE)
        try:
            if connection.vendor != "sqlite":  # whose only writer is the other one
                with transaction.atomic():
                    done = [Ended(attempt=attempt, arrow=Arrow.BURY, error={"type": "x"})]
                    recorded = outcomes.record("default", done, config=get_config())
                assert recorded.busy == done
                helpers.execute("UPDATE txtasks_worker SET lost = TRUE")
                clean()
                assert helpers.row(attempt.task_id).status == Status.CLAIMED
            assert b.status().finished_at is None
        finally:
            may_commit.set()
    finish(attempt)
    assert not events()
    clean()
    assert not events()
    finish(*claim_all())
    clean()
    assert events() == FINE


# -- exactly once ------------------------------------------------------------------------------------


def test_the_end_that_nobody_has_looked_for_is_found_by_a_cleaner_once():
    with opened():
        enqueue_many([(tasks.note, [])] * 3)
    finish(*claim_all(3))
    assert not events()
    clean()
    assert events() == FINE
    clean()
    assert events() == FINE


def test_a_worker_that_does_not_know_batches_ends_members_and_a_cleaner_looks():
    """As a release of before does: it neither reads nor writes the column, and keeps no batch in its rows."""
    with opened() as b:
        handle = tasks.note.enqueue()
    (attempt,) = claim_all()
    finish(attempt._replace(batch=None))
    FinishedTask.objects.update(batch=None)
    assert b.status().finished_at is None
    clean()
    assert events() == FINE
    assert handle.status() == "succeeded"


def test_many_that_find_none_left_tell_once():
    with opened():
        tasks.note.enqueue()
    finish(*claim_all())
    b = Batch.objects.get()
    start = threading.Barrier(4)

    def look():
        start.wait(helpers.PATIENCE)
        helpers.patiently(lambda: batches.look("default", b.pk))

    with helpers.second_session(look), helpers.second_session(look), helpers.second_session(look):
        start.wait(helpers.PATIENCE)
        helpers.patiently(lambda: batches.look("default", b.pk))
    assert events() == FINE


def test_a_look_that_began_before_the_last_end_sees_it_after_the_lock():
    """W1 has looked and waits for the batch's row; meanwhile a member comes and ends elsewhere."""
    with opened():
        tasks.note.enqueue()
    finish(*claim_all())
    b = Batch.objects.get()
    if connection.vendor == "sqlite":
        return
    with transaction.atomic():
        helpers.execute("UPDATE txtasks_batch SET name = 'b' WHERE id = %s", b.pk.hex)
        tasks.note.using().enqueue("late")
        Task.objects.update(batch=b.pk)

        def look():
            batches.look("default", b.pk)

        session = helpers.second_session(look)
        thread = session.__enter__()
        thread.join(0.3)
        assert thread.is_alive()
    session.__exit__(None, None, None)
    assert not events()
    assert Batch.objects.get().finished_at is None


class Moves:
    """Makes moves in another thread's session, each before a chosen statement about our tables."""

    def __init__(self, other, moves=()):
        self.other, self.moves, self.statements = other, list(moves), 0

    def __call__(self, execute, sql, params, many, context):
        if "txtasks_" not in sql:
            return execute(sql, params, many, context)
        while self.moves and self.moves[0][0] <= self.statements:
            self.other.submit(self.moves.pop(0)[1]).result(helpers.PATIENCE)
        self.statements += 1
        return execute(sql, params, many, context)


def dead_member(worker):
    """A batch whose one member is dead; the three moves by which this member is revived and dies once more."""
    with batch(name="b", on_success=tasks.tell_of_batch, on_failure=tasks.tell_of_batch) as b:
        task_id = tasks.note.enqueue().id
    claimed = []

    def claim():
        with transaction.atomic():
            claimed.extend(helpers.claim(worker, hinted=[task_id]).claimed)
        assert [one.task_id for one in claimed] == [task_id]

    def bury():
        with transaction.atomic():
            done = [Ended(attempt=claimed.pop(), arrow=Arrow.BURY, error={"type": "x"})]
            recorded = outcomes.record("default", done, config=get_config())
        assert len(recorded.done) == 1

    claim()
    bury()
    return b, (lambda: operators.revive("default", [task_id]), claim, bury)


@pytest.mark.skipif(connection.vendor == "sqlite", reason="nobody else writes while SQLite looks")
def test_no_batch_ends_as_a_success_whatever_a_dead_member_does_between_two_statements():
    worker = worker_row()
    with ThreadPoolExecutor(1) as other:
        counted = Moves(other)
        b, _ = dead_member(worker)
        with connection.execute_wrapper(counted):
            batches.look("default", b.id)
        assert counted.statements > 3
        places = range(1, counted.statements + 1)
        for when in itertools.combinations_with_replacement(places, 3):
            b, steps = dead_member(worker)
            with connection.execute_wrapper(Moves(other, zip(when, steps, strict=True))):
                batches.look("default", b.id)
            assert b.status().has_failed in {True, None}, f"moves before the statements {when}"
        other.submit(connections.close_all).result(helpers.PATIENCE)


@pytest.mark.skipif(connection.vendor == "sqlite", reason="nobody else writes while SQLite looks")
def test_a_member_that_is_revived_while_its_batch_ends_adds_none():
    """It is revived and claimed between the question for members and the end; it waits for that end."""
    b, (revive, _, _) = dead_member(worker_row())
    task_id, worker, outcome = Task.objects.get().pk, worker_row(), []

    def add():
        with transaction.atomic():
            (attempt,) = helpers.claim(worker, hinted=[task_id]).claimed
        with pytest.raises(BatchEnded), context_of(attempt).batch():
            tasks.note.enqueue("added")
        outcome.append("refused")

    def before_the_end(execute, sql, params, many, context):
        if sql.lstrip().startswith("UPDATE txtasks_batch"):
            revive_elsewhere.submit(revive).result(helpers.PATIENCE)
            added.append(revive_elsewhere.submit(add))
            helpers.wait_until(lambda: helpers.somebody_waits() or added[0].done())
        return execute(sql, params, many, context)

    added = []
    with ThreadPoolExecutor(1) as revive_elsewhere:
        with connection.execute_wrapper(before_the_end):
            batches.look("default", b.id)
        added[0].result(helpers.PATIENCE)
        revive_elsewhere.submit(connections.close_all).result(helpers.PATIENCE)
    assert outcome == ["refused"]
    assert b.status().has_failed is True
    assert not Task.objects.filter(batch=b.id, attempt=0).exists()


def test_ended_batches_are_forgotten_after_a_while(txtasks):
    txtasks(keep_finished=0)
    with opened() as b:
        pass
    clean()
    assert b.status().has_failed is False
    helpers.execute("UPDATE txtasks_batch SET finished_at = '2020-01-01 00:00:00'")
    clean()
    assert not Batch.objects.exists()
    with pytest.raises(LookupError, match="ended longer ago"):
        get_batch(b.id)


def test_more_batches_than_one_look_takes(monkeypatch):
    monkeypatch.setattr(batches, "BATCHES_PER_LOOK", 3)
    for n in range(8):
        with opened(name=f"{n}"):
            tasks.note.using(run_after=timedelta(days=n % 2)).enqueue()
    finish(*claim_all(4))
    clean()
    assert events() == sorted(
        text for n in range(0, 8, 2) for text in (f"finish {n} fine", f"success {n} fine")
    )


def test_no_batch_is_looked_at_twice_whatever_order_the_database_has():
    """MariaDB has an order of ids of its own."""
    ids = [uuid.uuid4() for _ in range(2 * batches.BATCHES_PER_LOOK + 100)]
    Batch.objects.bulk_create(Batch(id=one) for one in ids)
    seen, after = [], batches.FIRST_ID
    while after is not None:
        page, after = batches.without_live_member("default", after)
        seen += page
    assert sorted(seen) == sorted(ids)


# -- refused -------------------------------------------------------------------------------------------


def test_batches_do_not_nest():
    with pytest.raises(InvalidOption, match="do not nest"), opened(), opened():
        pass
    assert not Batch.objects.exists()
    with opened():
        pass


def test_what_cannot_be_stored_is_refused_before_any_sql(django_assert_num_queries):
    with django_assert_num_queries(0):
        with pytest.raises(InvalidOption, match="no task function"), batch(on_finish=print):
            pass
        with pytest.raises(InvalidOption, match="printable text"), batch(name="x" * 201):
            pass
        with pytest.raises(InvalidOption, match="printable text"), batch(name="\0"):
            pass
        with (
            pytest.raises(InvalidOption, match="a batch has no result"),
            batch(on_success=tasks.add_up.with_result()),
        ):
            pass
        with pytest.raises(InvalidArguments, match="got 'x'"):
            get_batch("x")


def test_a_task_of_another_database_is_refused(second_database):
    with pytest.raises(InvalidOption, match="do not commit together"), opened():
        connections["second"].ensure_connection()
        tasks.note.using(using="second").enqueue()
    with pytest.raises(InvalidOption, match="do not commit together"), opened():
        enqueue_many([(tasks.note.using(using="second"), [])])


def test_another_thread_adds_no_member():
    with opened() as b:
        tasks.note.enqueue()
        if connection.vendor != "sqlite":
            with helpers.second_session(lambda: tasks.note.enqueue("not a member") and None):
                pass
    assert b.status().waiting == 1


def test_a_row_that_names_a_batch_which_is_none_harms_nobody(quick):
    handle = tasks.note.enqueue()
    Task.objects.update(batch=uuid.uuid4())
    with real_worker() as working:
        working.wait_until_idle()
    assert handle.status() == "succeeded"
    assert not Batch.objects.exists()


# -- people ------------------------------------------------------------------------------------------


def test_the_admin_shows_a_batch_and_its_members(client):
    with opened(name="<b>bold</b>") as b:
        handles = enqueue_many([(tasks.note, [f"{n}"]) for n in range(60)])
    handles[0].cancel()
    Task.objects.filter(pk=handles[1].id).update(status=Status.DEAD)
    Task.objects.filter(pk=handles[2].id).update(run_after="2020-01-01T00:00Z")
    finish(*claim_all())
    user = User.objects.create_superuser("ann")
    client.force_login(user)
    text = client.get(reverse("admin:txtasks_batch_changelist")).content.decode()
    assert "<b>bold" not in text
    assert "&lt;b&gt;bold" in text
    assert ">open<" in text
    text = client.get(reverse("admin:txtasks_batch_change", args=[b.id])).content.decode()
    assert "waiting: 57" in text
    assert "failed: 2" in text
    assert "succeeded: 1" in text
    assert "and others" in text
    assert "tell_of_batch" in text
    for n, name in ((0, "finishedtask"), (1, "task"), (2, "finishedtask")):
        assert reverse(f"admin:txtasks_{name}_change", args=[handles[n].id]) in text
    for n, name in ((0, "finishedtask"), (1, "task")):
        page = client.get(reverse(f"admin:txtasks_{name}_change", args=[handles[n].id]))
        assert reverse("admin:txtasks_batch_change", args=[b.id]) in page.content.decode()
    for one in handles:
        one.cancel()
    operators.discard("default", [handles[1].id], keep=True)
    text = client.get(reverse("admin:txtasks_batch_changelist")).content.decode()
    assert "a member failed" in text
    user.delete()
