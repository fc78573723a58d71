"""A worker's turn is one transaction that begins with its beat, and its COMMIT may go unanswered."""

import contextlib
import json
from datetime import timedelta

import helpers
import pytest
from django.db import DatabaseError, DataError, OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext
from probe import tasks

from django_txtasks.conf import get_config
from django_txtasks.core.rows import cleaning
from django_txtasks.core.rows.attempts import Arrow, Ended
from django_txtasks.core.rows.turn import Capacity
from django_txtasks.core.working.registration import DeclaredLost
from django_txtasks.core.working.schedule import Plan
from django_txtasks.core.working.turn_writer import TurnWriter
from django_txtasks.models import FinishedTask, Status, Task, Worker

pytestmark = pytest.mark.usefixtures("rows")
on_postgres = pytest.mark.skipif(
    connection.vendor != "postgresql", reason="others take more than one statement"
)


@pytest.fixture
def writer():
    """A registered worker's."""
    return new_writer()


def new_writer():
    writer = TurnWriter(get_config(), helpers.subscription(), threads=4)
    take(writer, room=0)
    return writer


def take(writer, room=4, running=()):
    """Write a turn that scans; return its claims."""
    return writer.write(
        Plan(Capacity(room), scans=bool(room)), helpers.Running(running), None
    ).claimed


def hinted(writer, *handles, room=4):
    """Write a turn that has nothing to do but to look up these tasks."""
    plan = Plan(Capacity(room), [handle.id for handle in handles])
    return writer.write(plan, helpers.Running(), None)


@pytest.mark.parametrize("several", [False, True], ids=["at once", "in several statements"])
def test_a_lost_worker_claims_nothing_and_goes_on_under_a_new_id(writer, several):
    handle, first = tasks.note.enqueue(), writer.id
    writer.buffer.one_by_one = several
    helpers.execute("UPDATE txtasks_worker SET lost = TRUE")
    with pytest.raises(DeclaredLost) as caught:
        take(writer)
    assert helpers.row(handle.id).status == Status.PENDING
    writer.failed(caught.value)
    assert len(take(writer)) == 1
    assert helpers.row(handle.id).worker == writer.id != first


def test_two_attempts_of_a_task_that_end_together_are_recorded_in_one_turn(writer):
    """The first one has lost its claim, to the second."""
    handle = tasks.note.enqueue()
    (first,) = take(writer)
    helpers.execute(
        "UPDATE txtasks_task SET status = 'pending', worker = NULL, claimed_at = NULL, started_at = NULL"
    )
    (second,) = take(writer)
    writer.buffer.add(Ended(attempt=one, arrow=Arrow.FINISH) for one in (first, second))
    take(writer)
    assert helpers.row(handle.id) is None
    assert not writer.buffer.waiting


def test_nobody_can_declare_a_worker_lost_between_its_beat_and_the_commit_of_its_claims(writer):
    tasks.note.enqueue()
    answers = []
    writer.buffer.one_by_one = True  # a turn of several statements

    def lose():
        with contextlib.suppress(OperationalError), transaction.atomic():  # SQLite: it is locked
            (seen,) = cleaning.living_workers("default")
            answers.append(cleaning.lose("default", seen))

    def while_claiming(execute, sql, params, many, context):
        result = execute(sql, params, many, context)
        if "SET status = 'claimed'" in sql:
            with helpers.second_session(lose):
                pass
            answers.append("asked")
        return result

    with connection.execute_wrapper(while_claiming):
        assert len(take(writer)) == 1
    assert "asked" in answers
    assert True not in answers
    assert not Worker.objects.filter(lost=True).exists()


@pytest.mark.about("one_statement")
@pytest.mark.parametrize("scan", [False, True], ids=["hints", "hints and a scan"])
def test_a_turn_is_one_statement_where_the_database_has_it(writer, scan):
    handles = [tasks.note.enqueue() for _ in range(3)]
    plan = Plan(Capacity(3 if scan else 2), [one.id for one in handles[:2]], scan)
    with CaptureQueriesContext(connection) as asked:
        result = writer.write(plan, helpers.Running(), None)
    expected = {one.id for one in handles[: 3 if scan else 2]}
    assert {attempt.task_id for attempt in result.claimed} == expected
    assert {helpers.row(one).worker for one in expected} == {writer.id}
    assert (result.later, result.absent) == ({}, [])
    if connection.vendor == "postgresql":
        assert len(asked) == 1
    assert Worker.objects.get().beat == 2


@pytest.mark.about("one_statement")
@on_postgres
def test_a_session_of_its_own_keeps_the_plans_of_a_worker_s_statements(writer):
    for _ in range(2):
        hinted(writer, tasks.note.enqueue())
    kept = "SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE statement LIKE %s"
    assert helpers.execute(kept, "WITH beat AS%") == [(2, 0)]
    assert helpers.execute("SHOW lock_timeout") == [("1s",)]


@on_postgres
def test_no_statement_of_a_turn_is_compiled(writer):
    """What has to be sorted though that is forbidden seems so expensive that it would be: 2 seconds a turn."""
    connection.close()
    seen = []

    def while_asking(execute, sql, params, many, context):
        result = execute(sql, params, many, context)
        if "txtasks_task" in sql:
            seen.append(helpers.execute("SHOW jit"))
        return result

    helpers.execute("SET jit = on")
    for careful in (True, False):
        writer.buffer.one_by_one = careful
        tasks.note.enqueue()
        with connection.execute_wrapper(while_asking):
            assert len(take(writer)) == 1
    assert seen
    assert {tuple(one) for one in seen} == {(("off",),)}


@on_postgres
def test_a_worker_that_leaves_leaves_no_limits_behind(writer):
    hinted(writer, tasks.note.enqueue())
    writer.registration.leave()
    assert helpers.execute("SHOW statement_timeout") == [("0",)]
    with transaction.atomic():  # as in a test of one's own: this session is somebody else's
        take(new_writer())
        assert helpers.execute("SHOW statement_timeout") != [("0",)]  # for as long as it lasts
    assert helpers.execute("SHOW statement_timeout") == [("0",)]


@pytest.mark.about("one_statement")
@on_postgres
def test_a_worker_outlives_a_column_that_is_made_wider(writer):
    """Plans that a session has kept do not fit any more."""
    take(writer)
    tasks.note.enqueue()
    change = "ALTER TABLE txtasks_task ALTER crashes TYPE {}"
    try:
        with helpers.second_session(lambda: helpers.execute(change.format("bigint"))):
            pass
        with pytest.raises(DatabaseError) as caught:
            take(writer)
        writer.failed(caught.value)
        assert len(take(writer)) == 1
    finally:
        helpers.execute(change.format("integer"))


@pytest.mark.parametrize("ahead", [3, 2], ids=["at once", "in a transaction"])
def test_what_is_short_waits_for_a_slot_and_what_is_not_is_left_to_others(writer, ahead):
    quick = [tasks.quick.enqueue() for _ in range(2)]
    capacity = Capacity(0, ahead, short_names=frozenset({"probe.tasks.quick"}))
    result = writer.write(Plan(capacity, [one.id for one in quick]), helpers.Running(), None)
    assert sorted(one.task_id for one in result.claimed) == sorted(one.id for one in quick)
    assert result.blocked_queue is None
    alone, again, retried = tasks.note.enqueue(), tasks.quick.enqueue(), tasks.quick.enqueue()
    Task.objects.filter(pk=retried.id).update(crashes=1)  # what may have crashed a worker is alone
    result = writer.write(Plan(capacity, [alone.id, again.id, retried.id]), helpers.Running(), None)
    assert {attempt.task_id for attempt in result.claimed} <= {again.id}
    assert {alone.id, retried.id}.isdisjoint(result.settled)
    assert helpers.row(alone.id).status == helpers.row(retried.id).status == Status.PENDING
    assert result.blocked_queue == "default"


@pytest.mark.parametrize("room", [4, 1], ids=["at once", "in a transaction"])
def test_a_hinted_turn_tells_what_is_taken_what_is_due_later_and_what_is_not_there(writer, room):
    later = tasks.note.using(run_after=timedelta(seconds=30)).enqueue()
    due = tasks.note.enqueue()
    gone = tasks.note.enqueue()
    helpers.execute("DELETE FROM txtasks_task WHERE id = %s", gone.id.hex)
    writer.buffer.one_by_one = room == 1
    turn = hinted(writer, due, later, gone, room=room)
    assert [(one.task_id, one.number) for one in turn.claimed] == [(due.id, 1)]
    assert list(turn.later) == [later.id]
    assert 25 < turn.later[later.id] <= 30
    assert turn.absent == [gone.id]
    assert turn.rest.dedicated == room - 1
    assert helpers.row(later.id).status == Status.PENDING


def test_hints_for_more_tasks_than_there_are_slots_fill_them_and_no_more(writer):
    turn = hinted(writer, *[tasks.note.enqueue() for _ in range(5)], room=3)
    assert (len(turn.claimed), len(turn.later)) == (3, 2)


@pytest.mark.parametrize("several", [False, True], ids=["in one statement", "in several"])
def test_what_is_due_later_does_not_count_against_the_limit(writer, several):
    later = tasks.note.using(run_after=timedelta(seconds=30)).enqueue()
    due = tasks.note.enqueue()
    writer.buffer.one_by_one = several
    plan = Plan(Capacity(4, limit=1), [later.id, due.id])
    assert [one.task_id for one in writer.write(plan, helpers.Running(), None).claimed] == [due.id]


def test_a_lost_worker_claims_nothing_that_hints_tell_of(writer):
    handle = tasks.note.enqueue()
    helpers.execute("UPDATE txtasks_worker SET lost = TRUE")
    with pytest.raises(DeclaredLost):
        hinted(writer, handle)
    task = helpers.row(handle.id)
    assert (task.status, task.attempt, Worker.objects.get().beat) == (Status.PENDING, 0, 1)


@pytest.mark.parametrize("keep_finished", [60, 0], ids=["with history", "without history"])
def test_a_usual_turn_finishes_what_ended_and_claims_what_hints_tell(txtasks, keep_finished):
    txtasks(keep_finished=keep_finished)
    writer = new_writer()
    ended = [
        Ended(attempt=one, arrow=Arrow.FINISH, result=json.dumps(str(one.task_id)))
        for one in hinted(writer, *[tasks.note.enqueue() for _ in range(3)]).claimed
    ]
    writer.buffer.add([ended[1], ended[2], ended[0]._replace(result=None)])
    last = tasks.note.enqueue()
    with CaptureQueriesContext(connection) as asked:
        turn = hinted(writer, last, room=1)
    if connection.vendor == "postgresql" and helpers.has_accelerator("one_statement"):
        assert len(asked) == 1
    assert [one.task_id for one in turn.claimed] == [last.id]
    assert writer.buffer.waiting == []
    assert set(Task.objects.values_list("id", flat=True)) == {last.id}
    kept = {one.id: (one.outcome, one.attempt, one.result) for one in FinishedTask.objects.all()}
    expected = {
        one.attempt.task_id: ("succeeded", 1, str(one.attempt.task_id) if number else None)
        for number, one in enumerate(ended)
    }
    assert kept == (expected if keep_finished else {})


def test_an_outcome_whose_row_is_not_held_waits_for_a_turn_that_can_tell_why(writer):
    held, moved = tasks.note.enqueue(), tasks.note.enqueue()
    attempts = hinted(writer, held, moved).claimed
    writer.buffer.add(Ended(attempt=one, arrow=Arrow.FINISH) for one in attempts)
    helpers.execute("UPDATE txtasks_task SET attempt = 7 WHERE id = %s", moved.id.hex)
    for _ in range(2):
        hinted(writer)
    assert writer.buffer.waiting == []
    assert helpers.finished(held.id)
    assert helpers.row(moved.id).attempt == 7


@on_postgres
def test_a_worker_that_is_declared_lost_while_its_turn_waits_writes_nothing(writer):
    """The turn has begun, with a look at a worker that is not lost; then it waits for LOSE to commit."""
    held = tasks.note.enqueue()
    (attempt,) = hinted(writer, held).claimed
    writer.buffer.add([Ended(attempt=attempt, arrow=Arrow.FINISH)])
    waiting = tasks.note.enqueue()
    (seen,) = cleaning.living_workers("default")
    written = []

    def write():
        with pytest.raises(DeclaredLost):
            hinted(writer, waiting)
        written.append(False)

    with contextlib.ExitStack() as session, transaction.atomic():
        assert cleaning.lose("default", seen)
        session.enter_context(helpers.second_session(write))
        blocked = "SELECT 1 FROM pg_locks WHERE NOT granted"
        helpers.wait_until(lambda: helpers.execute(blocked))
    assert written == [False]
    assert helpers.row(held.id).status == Status.CLAIMED
    assert (helpers.row(waiting.id).status, helpers.row(waiting.id).attempt) == (Status.PENDING, 0)


@on_postgres
def test_a_turn_that_cannot_look_everywhere_claims_nothing(writer):
    handle, gone = tasks.note.enqueue(), tasks.note.enqueue()
    helpers.execute("DELETE FROM txtasks_task WHERE id = %s", gone.id.hex)
    lock = "LOCK TABLE txtasks_finishedtask IN ACCESS EXCLUSIVE MODE"
    with helpers.locked(lock), pytest.raises(OperationalError, match="lock timeout"):
        hinted(writer, handle, gone)
    connection.close()
    assert helpers.row(handle.id).status == Status.PENDING


def test_an_outcome_that_is_refused_again_and_again_is_kept_once(writer):
    handle = tasks.note.enqueue()
    (attempt,) = hinted(writer, handle).claimed
    writer.buffer.add([Ended(attempt=attempt, arrow=Arrow.FINISH)])

    def refuse(execute, sql, params, many, context):
        if "DELETE FROM txtasks_task" in sql or "UPDATE txtasks_task" in sql:
            raise DataError("no such outcome")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(refuse):
        for _ in range(2):
            with contextlib.suppress(DataError):
                hinted(writer)
            writer.failed(DataError("met in a turn, so it is recorded apart"))
            hinted(writer)
            for _ in range(3):
                hinted(writer)
            writer.buffer.try_refused_again(now=True)
            assert len(writer.buffer.waiting) == 1


def test_a_lost_worker_finishes_nothing_in_its_turn(writer):
    handle = tasks.note.enqueue()
    (attempt,) = hinted(writer, handle).claimed
    writer.buffer.add([Ended(attempt=attempt, arrow=Arrow.FINISH)])
    helpers.execute("UPDATE txtasks_worker SET lost = TRUE")
    with pytest.raises(DeclaredLost):
        hinted(writer)
    assert helpers.row(handle.id).status == Status.CLAIMED
    assert len(writer.buffer.waiting) == 1


@pytest.mark.about("one_statement")
@on_postgres
@pytest.mark.parametrize(
    "lock",
    ["UPDATE txtasks_worker SET beat = beat", "LOCK TABLE txtasks_task IN ACCESS EXCLUSIVE MODE"],
    ids=["of the worker's row", "of the table of tasks"],
)
def test_a_turn_in_one_statement_waits_for_no_lock_for_long(writer, lock):
    handle = tasks.note.enqueue()
    with helpers.locked(lock), pytest.raises(OperationalError, match="lock timeout"):
        hinted(writer, handle)
    connection.close()
    assert helpers.row(handle.id).status == Status.PENDING


@on_postgres
def test_where_psycopg_sends_values_apart_from_sql_a_turn_takes_more_statements(writer):
    handle = tasks.note.enqueue()
    connection.close()
    connection.settings_dict["OPTIONS"]["server_side_binding"] = True
    try:
        with CaptureQueriesContext(connection) as asked:
            assert len(hinted(writer, handle).claimed) == 1
    finally:
        connection.settings_dict["OPTIONS"].pop("server_side_binding")
        connection.close()
    assert len(asked) > 1


@pytest.mark.parametrize("write", [take, lambda writer: hinted(writer, *Task.objects.all())],
                         ids=["scan", "hint"])  # fmt: skip
def test_claims_whose_commit_went_unanswered_are_given_back_free(write, writer):
    handle = tasks.note.enqueue()
    write(writer)  # and the loop never learns of it
    writer.failed(OperationalError("the connection was cut"))
    take(writer, room=0)
    task = helpers.row(handle.id)
    assert (task.status, task.attempt, task.crashes, task.failures) == (Status.PENDING, 1, 0, 0)


def test_claims_that_run_are_not_given_back(writer):
    handle = tasks.note.enqueue()
    (attempt,) = take(writer)
    writer.failed(OperationalError("the connection was cut"))
    take(writer, room=0, running=[(attempt.task_id, attempt.number)])
    assert helpers.row(handle.id).status == Status.CLAIMED


def test_an_outcome_whose_commit_went_unanswered_is_not_recorded_twice(writer):
    handle = tasks.note.enqueue()
    (attempt,) = take(writer)
    done = Ended(attempt=attempt, arrow=Arrow.FINISH)
    writer.buffer.add([done])
    take(writer)
    writer.buffer.add([done])  # the loop never learned that it is recorded
    writer.failed(OperationalError("the connection was cut"))
    take(writer)
    assert writer.buffer.waiting == []
    assert helpers.finished(handle.id).attempt == 1
    assert helpers.counts()["finished"] == 1


def test_an_outcome_that_failed_to_be_written_is_written_by_the_next_turn(writer):
    handle = tasks.note.enqueue()
    (attempt,) = take(writer)
    writer.buffer.add([Ended(attempt=attempt, arrow=Arrow.FINISH)])

    def refuse(execute, sql, params, many, context):
        if "DELETE FROM txtasks_task" in sql:
            raise OperationalError("the connection was cut")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(refuse), pytest.raises(OperationalError) as caught:
        take(writer)
    writer.failed(caught.value)
    take(writer)
    assert helpers.finished(handle.id).attempt == 1


def test_an_outcome_refused_in_a_turn_that_was_rolled_back_is_tried_once_in_the_next(writer):
    handle = tasks.note.enqueue()
    (attempt,) = take(writer)
    writer.buffer.add([Ended(attempt=attempt, arrow=Arrow.FINISH)])

    def refuse(execute, sql, params, many, context):
        if "WITH RECURSIVE" in sql or "MAX(priority)" in sql:  # the scan, after it
            raise OperationalError("the connection was cut")
        if "DELETE FROM txtasks_task" in sql or "UPDATE txtasks_task" in sql:
            raise DataError("no such outcome")
        return execute(sql, params, many, context)

    writer.failed(DataError("an earlier turn met it, so it is recorded apart"))
    with connection.execute_wrapper(refuse), pytest.raises(OperationalError) as caught:
        take(writer)
    writer.failed(caught.value)
    take(writer)
    assert writer.buffer.waiting == []
    assert helpers.finished(handle.id).attempt == 1
