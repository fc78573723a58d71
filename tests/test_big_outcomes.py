"""Outcomes that are too many or too big for one turn are written in smaller turns, and the worker continues."""

import contextlib
import json

import helpers
import pytest
from django.core.management import call_command
from django.db import OperationalError, connection
from probe import tasks

from django_txtasks import enqueue_many
from django_txtasks.conf import get_config
from django_txtasks.core.rows import outcomes
from django_txtasks.core.rows.attempts import Arrow, Attempt, Ended
from django_txtasks.core.rows.turn import Capacity
from django_txtasks.core.working.recording.outcome_buffer import MAX_FAILED_TURNS, TURN_BYTES
from django_txtasks.core.working.schedule import Plan
from django_txtasks.core.working.turn_writer import TurnWriter
from django_txtasks.fast.prefetch import CLAIM_TASKS, PrefetchPolicy
from django_txtasks.models import FinishedTask, Status, Worker

pytestmark = pytest.mark.usefixtures("rows", "quick")
SAYS_TOO_MUCH = {"postgresql": "54000"}.get(connection.vendor, 1153)


class Refused(Exception):
    """An error that a driver raises."""

    def __init__(self, code):
        super().__init__(code, "refused")
        self.sqlstate = code if isinstance(code, str) else None


@contextlib.contextmanager
def refusing(code, asked):
    """The database refuses statements for which ``asked(sql, text of the parameters)``, and ends the session."""

    def refuse(execute, sql, params, many, context):
        if "txtasks" in sql and asked(sql, str(params)):
            connection.close()
            raise OperationalError(code, "refused") from Refused(code)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(refuse):
        yield


@pytest.fixture
def writer():
    writer = TurnWriter(get_config(), helpers.subscription(), threads=4)
    write(writer)
    return writer


def write(writer, room=0):
    return writer.write(Plan(Capacity(room), scans=bool(room)), helpers.Running(), None).claimed


def turns(writer, most=40):
    """Do as a worker does that has room for nothing, until all is written or waits for better times."""
    for _ in range(most):
        if not writer.buffer.waiting:
            return
        try:
            write(writer)
        except OperationalError as error:
            writer.failed(error)
    raise AssertionError(f"still waiting: {writer.buffer.waiting}")


def ended(writer, *results):
    """Claim a task for each of these results, and end it with it; return them with their handles."""
    handles = [tasks.note.enqueue() for _ in results]
    attempts = {one.task_id: one for one in write(writer, room=len(results))}
    writer.buffer.add(
        Ended(attempt=attempts[handle.id], arrow=Arrow.FINISH, result=json.dumps(result))
        for handle, result in zip(handles, results, strict=True)
    )
    return handles


def test_a_turn_writes_no_more_bytes_than_any_server_takes(writer):
    ended(writer, *["x" * (TURN_BYTES // 3)] * 7)
    sizes = []

    def measure(execute, sql, params, many, context):
        if "INTO txtasks_finishedtask" in sql:
            sizes.append(len(str(params)))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(measure):
        turns(writer)
    assert len(sizes) > 2
    assert max(sizes) < 1.1 * TURN_BYTES
    assert helpers.counts()["finished"] == 7


def test_what_follows_counts_too():
    attempt = Attempt(None, 1, None, args="x" * 1000, hooks='{"on_success": {}}')
    finish = Ended(attempt=attempt, arrow=Arrow.FINISH, result="y" * 500)
    assert outcomes.weight(finish) >= 2000 + 500
    assert outcomes.weight(finish._replace(attempt=attempt._replace(hooks="{}"))) == 500
    error = {"type": "Error", "traceback": "z" * 3000}
    failed = Ended(attempt=attempt._replace(errors=[error] * 9), arrow=Arrow.RETRY, error=error)
    assert outcomes.weight(failed) >= 30_000


def test_a_result_that_the_database_cannot_take_leaves_the_task_dead_with_the_reason(writer):
    before, huge, after = ended(writer, "a", "x" * 50_000, "b")
    with refusing(SAYS_TOO_MUCH, lambda sql, params: len(params) > 40_000):
        turns(writer)
    dead = helpers.row(huge.id)
    assert (dead.status, dead.failures, dead.crashes) == (Status.DEAD, 1, 0)
    assert (
        "ended well, but its result (50,002 bytes of JSON) could not be"
        in dead.errors[0]["message"]
    )
    assert helpers.finished(before.id).result == "a"
    assert helpers.finished(after.id).result == "b"


@pytest.mark.skipif(connection.vendor != "mysql", reason="others say so")
@pytest.mark.parametrize("code", [2006, 2013])
def test_a_session_that_ends_at_more_than_a_packet_says_that_it_was_too_much(code):
    error = OperationalError(code, "Server has gone away")
    error.__cause__ = Refused(code)
    finish = Ended(attempt=Attempt(None, 1, None), arrow=Arrow.FINISH, result="x" * 1000)
    assert not outcomes.is_too_much("default", finish, error)
    assert outcomes.is_too_much("default", finish._replace(result="x" * 9_000_000), error)


def test_an_outcome_that_cannot_be_written_even_as_dead_waits_and_is_tried_once_in_a_lease(writer):
    bad, good = ended(writer, "bad", "good")
    refused = []

    def names_it(sql, params):
        if bad.id.hex in params and any(verb in sql for verb in ("INSERT", "DELETE", "UPDATE")):
            refused.append(sql)
            return True
        return False

    with refusing(SAYS_TOO_MUCH, names_it):
        turns(writer)
        assert helpers.finished(good.id)
        assert writer.buffer.keys() == {(bad.id, 1)}
        refused.clear()
        for _ in range(5):
            write(writer)
        assert not refused
        writer.buffer.try_refused_again(now=True)
        turns(writer)
        assert len(refused) == 1
    assert helpers.row(bad.id).status == Status.CLAIMED
    writer.buffer.try_refused_again(now=True)
    turns(writer)
    assert helpers.row(bad.id).status == Status.DEAD


@pytest.mark.parametrize("code", ["55P03", "57014", 1205, 1969], ids=str)
def test_an_outcome_that_meets_a_lock_or_a_time_limit_is_never_buried_and_holds_up_nobody(
    code, writer, txtasks
):
    locked, *others = ended(writer, "locked", *range(9))
    is_its = lambda sql, params: "txtasks_finishedtask" in sql and locked.id.hex in params  # noqa: E731
    with refusing(code, is_its):
        for _ in range(20):
            try:
                write(writer)
            except OperationalError as error:
                writer.failed(error)
        assert not writer.buffer.waiting
    assert helpers.row(locked.id).status == Status.CLAIMED
    assert all(helpers.finished(one.id) for one in others)
    writer.buffer.try_refused_again(now=True)
    turns(writer)
    assert helpers.finished(locked.id).attempt == 1


def test_nothing_is_blamed_while_the_database_is_away(writer):
    (handle,) = ended(writer, "kept")
    with refusing(SAYS_TOO_MUCH, lambda sql, params: True):
        for _ in range(2 * MAX_FAILED_TURNS):
            with pytest.raises(OperationalError) as caught:
                write(writer)
            assert not writer.failed(caught.value)
    turns(writer)
    assert helpers.finished(handle.id).result == "kept"


def test_fewer_are_claimed_ahead_where_their_arguments_are_big():
    def width(size):
        prefetch, claimed = (
            PrefetchPolicy(4),
            [Attempt(None, 1, None, "short", may_share=True, args="x" * size)] * 16,
        )
        prefetch.took("short", 0.00001)
        for _ in range(9):
            prefetch.learn(claimed * 20)
        return prefetch.ahead(0)

    assert width(2) == CLAIM_TASKS > width(50_000) > width(250_000) > 1


def test_outcomes_too_many_for_one_statement_are_written_in_smaller_ones_and_others_go_on():
    big = enqueue_many((tasks.give_much, (4_000,)) for _ in range(30))
    others = enqueue_many((tasks.note, ("other",)) for _ in range(10))
    with refusing(SAYS_TOO_MUCH, lambda sql, params: len(params) > 20_000):
        call_command("runworkers", batch=True, threads=16)
    done = {one.id: (one.attempt, one.failures, one.crashes) for one in FinishedTask.objects.all()}
    assert done == dict.fromkeys([one.id for one in [*big, *others]], (1, 0, 0))
    assert helpers.runs("other") == 10


@pytest.mark.skipif(connection.vendor != "mysql", reason="it is MariaDB's and MySQL's limit")
def test_results_together_bigger_than_a_packet_hold_nobody_up(processes):
    """94 of 250 kB were too much for the default of 16 MB; each session takes the limit that it begins with."""
    ((before,),) = helpers.execute("SELECT @@global.max_allowed_packet")
    helpers.execute("SET GLOBAL max_allowed_packet = 2097152")
    try:
        handles = enqueue_many((tasks.give_much, (250_000,)) for _ in range(12))
        enqueue_many((tasks.note, ("other",)) for _ in range(20))
        process = processes.start("runworkers", "--batch", "--threads=12")
        assert process.wait(60) == 0
    finally:
        helpers.execute(f"SET GLOBAL max_allowed_packet = {before}")
    assert helpers.counts()["finished"] == 32
    assert {helpers.finished(one.id).attempt for one in handles} == {1}
    assert not Worker.objects.exists()
