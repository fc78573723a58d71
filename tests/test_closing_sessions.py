"""A backend may raise whatever it likes where a session is closed: no slot ends by that, and the log says it."""

import asyncio
import logging
from collections import deque

import helpers
import pytest
from django.db import OperationalError, connections, transaction
from probe.closing.base import DatabaseWrapper

from django_txtasks import signals
from django_txtasks.core.rows.attempts import Arrow, Ended
from django_txtasks.core.working.running.slot_threads import Running, SlotRun, SlotThreads
from django_txtasks.database import sessions

pytestmark = pytest.mark.usefixtures("rows")


@pytest.fixture
def second():
    """An alias with that backend."""
    with helpers.second_alias(ENGINE="probe.closing", CONN_MAX_AGE=0):
        yield
        DatabaseWrapper.errors.clear()


def is_open(raw):
    """Return True if the driver's connection accepts a statement."""
    try:
        raw.cursor().execute("SELECT 1")
    except Exception:  # each driver raises another one
        return False
    return True


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(1), TypeError("not yet")])
def test_an_idle_slot_whose_session_is_closed_with_an_error_runs_the_next_task(
    error, second, monkeypatch
):
    monkeypatch.setattr(sessions, "LEAST_AGE_SECONDS", 0.0)

    def run(attempt, limit):
        connections["second"].ensure_connection()
        return Ended(attempt, Arrow.FINISH)

    def put():
        slots.put(SlotRun([None], deque([Running(None, None)]), float("inf")))

    DatabaseWrapper.errors.append(error)
    slots = SlotThreads(1, run, lambda: None)
    put()
    helpers.wait_until(lambda: not DatabaseWrapper.errors)
    put()
    helpers.wait_until(lambda: len(slots.ended) == 2, 20)
    slots.close()


@pytest.fixture
def heard():
    """The events of a receiver that uses the database."""
    found = []

    def hear(task, **facts):
        with connections["second"].cursor() as cursor:
            cursor.execute("SELECT 1")
        found.append(task)
        if task == "block":
            transaction.atomic(using="second").__enter__()

    signals.task_died.connect(hear)
    yield found
    signals.task_died.disconnect(hear)


def tell(name):
    signals.task_died.emit(task_id=1, task=name, queue="mail", attempt=1, worker="w", error="x")
    signals.flush(10)


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(1), TypeError("not yet")])
def test_events_are_told_after_a_session_of_a_receiver_was_closed_with_an_error(
    error, second, heard
):
    with signals.in_background(1):
        DatabaseWrapper.errors.append(error)
        tell("first")
        tell("second")
    assert heard == ["first", "second"]


def test_a_block_that_a_receiver_leaves_open_is_not_the_next_ones(second, heard):
    with signals.in_background(1):
        tell("block")
        tell("second")
    assert heard == ["block", "second"]


@pytest.mark.parametrize(
    ("error", "is_told"), [(TypeError("not yet"), True), (OperationalError("gone"), False)]
)
def test_the_log_says_what_a_backend_raises_that_is_no_error_of_a_database(
    error, is_told, second, caplog
):
    connections["second"].ensure_connection()
    DatabaseWrapper.errors.append(error)
    raw = connections["second"].connection
    with caplog.at_level(logging.WARNING):
        sessions.close(connections["second"])
    assert connections["second"].connection is None
    assert not is_open(raw)
    assert ("TypeError: not yet" in caplog.text) is is_told
