"""Attributes that a task sets on Django's connection object are reset afterwards; instrumentation stays."""

import itertools
import threading

import helpers
import pytest
from django.db import connection, connections, transaction
from django.db.backends.signals import connection_created
from probe import sessions, tasks
from test_sessions_of_slots import MINE, has_sessions, results, run_one_after_the_other

from django_txtasks import testing
from django_txtasks.database import sessions as database_sessions
from django_txtasks.guards.wrapper_state import WrapperState
from django_txtasks.signals import attempt_starting

pytestmark = pytest.mark.usefixtures("rows", "quick")


@pytest.fixture
def at_start():
    """Connect a receiver of ``attempt_starting``."""
    connected = []

    def connect(receiver):
        attempt_starting.connect(receiver, weak=False)
        connected.append(receiver)

    yield connect
    for receiver in connected:
        attempt_starting.disconnect(receiver)


@pytest.mark.parametrize(
    "bend",
    [
        *[(sessions.bend_connection, how) for how in sessions.BENT],
        (sessions.bend_connection_in_transaction, "tenant"),
        (sessions.bend_connection_async, "tenant"),
    ],
    ids=lambda bend: f"{bend[0].function.__name__}-{bend[1]}",
)
def test_what_a_task_sets_on_its_connection_is_not_there_for_the_next(bend):
    ids = run_one_after_the_other(
        (sessions.see_connection,),
        bend,
        (sessions.see_connection,),
        (tasks.atomic_note, "after it"),
    )
    before, after = results([ids[0], ids[2]])
    assert after == before
    assert helpers.runs("after it") == 1


def test_what_the_first_task_of_a_thread_sets_before_it_has_a_session_is_not_there_either():
    handle = sessions.bend_connection.using(priority=9).enqueue("tenant", first=True)
    after = sessions.see_connection.enqueue()
    run_one_after_the_other()
    assert helpers.finished(handle.id).outcome == "succeeded"
    assert helpers.finished(after.id).result["tenant"] == "None"


def test_the_same_holds_for_a_connection_to_another_database(second_database):
    handles = [
        sessions.see_connection.using(priority=3).enqueue("second"),
        sessions.bend_connection.using(priority=2).enqueue("tenant", alias="second"),
        sessions.see_connection.using(priority=1).enqueue("second"),
    ]
    run_one_after_the_other()
    first, _, last = results(handle.id for handle in handles)
    assert first == last


def test_what_a_failed_task_has_set_is_not_there_for_the_next(at_start):
    """It fails in a statement, by the execute wrapper that it has left."""
    ids = run_one_after_the_other(
        (sessions.see_connection,), (sessions.refuse_and_fail,), (sessions.see_connection,)
    )
    assert helpers.row(ids[1]).status == "dead"
    before, after = results([ids[0], ids[2]])
    assert after == before


def test_instrumentation_from_before_the_attempt_survives(at_start):
    """An execute wrapper and a method that a site has put on the connection object of each thread."""
    asked = []

    def instrument(**_):
        one = connections["default"]
        if "savepoint_commit" not in vars(one):
            inner = one.savepoint_commit
            one.savepoint_commit = lambda sid: asked.append(sid) or inner(sid)
            one.execute_wrappers.append(sessions.count_statements)

    at_start(instrument)
    seen = run_one_after_the_other(
        (sessions.see_connection,), (sessions.bend_connection, "tenant"), (sessions.see_connection,),
        (sessions.commit_savepoint,), (sessions.bend_connection, "block"), (sessions.see_connection,),
        (sessions.commit_savepoint,),
    )  # fmt: skip
    first, second, third = results([seen[0], seen[2], seen[5]])
    assert first["wrappers"] == second["wrappers"] == third["wrappers"]
    assert "count_statements" in first["wrappers"]
    assert len(asked) == 2


@has_sessions
def test_an_execute_wrapper_that_comes_with_each_session_costs_no_session(monkeypatch):
    monkeypatch.setattr(database_sessions, "LEAST_AGE_SECONDS", 600)

    def watch(connection, **_):
        if sessions.pass_on not in connection.execute_wrappers:
            connection.execute_wrappers.append(sessions.pass_on)

    connection_created.connect(watch)
    try:
        ids = run_one_after_the_other(*[(sessions.see, MINE)] * 5)
    finally:
        connection_created.disconnect(watch)
        connection.execute_wrappers[:] = [  # of this thread, for the tests that follow
            one for one in connection.execute_wrappers if one is not sessions.pass_on
        ]
    assert len({str(one) for one in results(ids[1:])}) == 1


def test_a_signal_before_each_attempt_is_sent_in_its_thread_and_context(at_start):
    told = []

    def hear(**facts):
        told.append((threading.current_thread().name, facts["task_id"], facts["attempt"]))
        sessions.tenant.set(f"tenant of {facts['attempt']}")

    at_start(hear)
    [first, second] = run_one_after_the_other((sessions.see_thread,), (tasks.note, "hook"))
    assert told == [("txtasks-slot-1", first, 1), ("txtasks-slot-1", second, 1)]
    assert results([first]) == [["en-us", "UTC", "tenant of 1"]]


def test_the_state_that_the_signal_sets_holds_for_each_attempt(at_start):
    at_start(lambda **_: setattr(connections["default"], "tenant", "public"))
    ids = run_one_after_the_other(
        (sessions.see_connection,), (sessions.bend_connection, "tenant"), (sessions.see_connection,)
    )
    first, last = results([ids[0], ids[2]])
    assert first["tenant"] == last["tenant"] == "'public'"


@has_sessions
def test_what_a_receiver_sets_before_each_attempt_costs_no_session(at_start, monkeypatch):
    monkeypatch.setattr(database_sessions, "LEAST_AGE_SECONDS", 600)
    numbers = itertools.count()
    at_start(lambda **_: setattr(connections["default"], "tenant", next(numbers)))
    ids = run_one_after_the_other(*[(sessions.see, MINE)] * 4)
    assert len({str(one) for one in results(ids)}) == 1


def test_a_value_that_is_a_list_now_and_nothing_then_ends_no_attempt(at_start):
    """As the search path of django-tenants, which is forgotten when the session is closed."""
    schemas = iter([["public"], None, ["public"], "", ["acme"]])
    at_start(lambda **_: setattr(connections["default"], "schemas", next(schemas)))
    ids = run_one_after_the_other(*[(tasks.note, "schemas")] * 5)
    assert helpers.runs("schemas") == 5
    assert {helpers.finished(one).outcome for one in ids} == {"succeeded"}


def test_an_error_of_a_receiver_fails_the_attempt_and_its_task_does_not_run(at_start):
    def fail(**_):
        raise ValueError("no tenant")

    at_start(fail)
    [task_id] = run_one_after_the_other((tasks.note, "never"))
    row = helpers.row(task_id)
    assert row.failures and not helpers.runs("never")
    assert row.errors[0]["message"] == "no tenant"


def test_a_connection_in_the_transaction_of_a_test_is_left_alone(at_start, txtasks):
    from django_txtasks.core.rows.attempts import Attempt
    from django_txtasks.core.working.running.limits import TimeLimit

    runner = helpers.runner()
    handle = sessions.bend_connection.enqueue("tenant")
    worker = handle.id
    attempt = Attempt(handle.id, 1, worker, "probe.sessions.bend_connection", args='["tenant"]')
    with transaction.atomic():
        tasks.note.enqueue("in it")
        raw = connection.connection
        for _ in range(2):
            ended = runner.run(attempt, TimeLimit(None))
            assert ended.error == {}
            assert connection.connection is raw and connection.in_atomic_block
        assert connection.tenant == "acme"
        del connection.tenant


def test_tasks_that_run_in_the_transaction_of_a_test_leave_it_open(at_start):
    told = []
    at_start(lambda **facts: told.append(facts["task"]))
    with transaction.atomic():
        raw = connection.connection
        sessions.bend_connection.enqueue("tenant")
        [ran] = testing.run_due_tasks()
        assert ran.status == "succeeded" and told == ["probe.sessions.bend_connection"]
        assert connection.in_atomic_block and connection.connection is raw
    del connection.tenant


def test_an_attribute_counts_that_is_set_after_others_were_found_usual():
    """A connection gets attributes of Django when it is used, and these are looked at only once."""
    one = connection.copy()
    state = WrapperState(one)
    try:
        one.ensure_connection()
        assert [state.is_changed(), state.is_changed()] == [False, False]
        one.tenant = "acme"
        assert state.is_changed()
        del one.tenant
        assert not state.is_changed()
    finally:
        one.close()
