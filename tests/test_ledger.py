"""A worker's turn is one transaction that begins with its beat, and its COMMIT may go unanswered."""

import contextlib

import helpers
import pytest
from django.db import DataError, OperationalError, connection, transaction
from probe import tasks

from django_txtasks import registry
from django_txtasks.conf import get_config
from django_txtasks.lifecycle import recovery
from django_txtasks.lifecycle.attempts import Arrow, Ended
from django_txtasks.lifecycle.claims import Room, Subscription
from django_txtasks.models import Status, Worker
from django_txtasks.worker.ledger import DeclaredLost, Ledger, Turn

pytestmark = pytest.mark.usefixtures("rows")


@pytest.fixture
def ledger():
    """A registered worker's."""
    ledger = Ledger(get_config(), Subscription("default", ["default"], registry.names()), threads=4)
    take(ledger, room=0)
    return ledger


class Running(set):
    """What runs in slots."""

    running = property(len)
    holds = set.copy


def take(ledger, room=4, running=()):
    """Write a turn that scans; return what it claimed."""
    turn = Turn(Room(room), [], scan=True)
    ledger.write(turn, Running(running), None)
    return turn.claimed


def test_a_lost_worker_claims_nothing_and_goes_on_under_a_new_id(ledger):
    handle, first = tasks.note.enqueue(), ledger.id
    helpers.execute("UPDATE txtasks_worker SET lost = TRUE")
    with pytest.raises(DeclaredLost) as caught:
        take(ledger)
    assert helpers.row(handle.id).status == Status.PENDING
    ledger.failed(caught.value)
    assert len(take(ledger)) == 1
    assert helpers.row(handle.id).worker == ledger.id != first


def test_nobody_can_declare_a_worker_lost_between_its_beat_and_the_commit_of_its_claims(ledger):
    tasks.note.enqueue()
    answers = []

    def lose():
        with contextlib.suppress(OperationalError), transaction.atomic():  # SQLite: it is locked
            (seen,) = recovery.living_workers("default")
            answers.append(recovery.lose("default", seen))

    def while_claiming(execute, sql, params, many, context):
        result = execute(sql, params, many, context)
        if "SET status = 'claimed'" in sql:
            with helpers.second_session(lose):
                pass
            answers.append("asked")
        return result

    with connection.execute_wrapper(while_claiming):
        assert len(take(ledger)) == 1
    assert "asked" in answers
    assert True not in answers
    assert not Worker.objects.filter(lost=True).exists()


def test_claims_whose_commit_went_unanswered_are_given_back_free(ledger):
    handle = tasks.note.enqueue()
    take(ledger)  # and the loop never learns of it
    ledger.failed(OperationalError("the connection was cut"))
    take(ledger, room=0)
    task = helpers.row(handle.id)
    assert (task.status, task.attempt, task.crashes, task.failures) == (Status.PENDING, 1, 0, 0)


def test_claims_that_run_are_not_given_back(ledger):
    handle = tasks.note.enqueue()
    (attempt,) = take(ledger)
    ledger.failed(OperationalError("the connection was cut"))
    take(ledger, room=0, running=[(attempt.task_id, attempt.number)])
    assert helpers.row(handle.id).status == Status.CLAIMED


def test_an_outcome_whose_commit_went_unanswered_is_not_recorded_twice(ledger):
    handle = tasks.note.enqueue()
    (attempt,) = take(ledger)
    done = Ended(attempt=attempt, arrow=Arrow.FINISH)
    ledger.recorder.add([done])
    take(ledger)
    ledger.recorder.add([done])  # the loop never learned that it is recorded
    ledger.failed(OperationalError("the connection was cut"))
    take(ledger)
    assert ledger.recorder.waiting == []
    assert helpers.finished(handle.id).attempt == 1
    assert helpers.counts()["finished"] == 1


def test_an_outcome_that_failed_to_be_written_is_written_by_the_next_turn(ledger):
    handle = tasks.note.enqueue()
    (attempt,) = take(ledger)
    ledger.recorder.add([Ended(attempt=attempt, arrow=Arrow.FINISH)])

    def refuse(execute, sql, params, many, context):
        if "DELETE FROM txtasks_task" in sql:
            raise OperationalError("the connection was cut")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(refuse), pytest.raises(OperationalError) as caught:
        take(ledger)
    ledger.failed(caught.value)
    take(ledger)
    assert helpers.finished(handle.id).attempt == 1


def test_an_outcome_refused_in_a_turn_that_was_rolled_back_is_tried_once_in_the_next(ledger):
    handle = tasks.note.enqueue()
    (attempt,) = take(ledger)
    ledger.recorder.add([Ended(attempt=attempt, arrow=Arrow.FINISH)])

    def refuse(execute, sql, params, many, context):
        if "DELETE FROM txtasks_task" in sql or "UPDATE txtasks_task" in sql:
            raise DataError("no such outcome")
        if "WITH RECURSIVE" in sql:  # the scan, after it
            raise OperationalError("the connection was cut")
        return execute(sql, params, many, context)

    ledger.failed(DataError("an earlier turn met it, so it is recorded apart"))
    with connection.execute_wrapper(refuse), pytest.raises(OperationalError) as caught:
        take(ledger)
    ledger.failed(caught.value)
    take(ledger)
    assert ledger.recorder.waiting == []
    assert helpers.finished(handle.id).attempt == 1
