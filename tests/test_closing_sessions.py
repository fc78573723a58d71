"""A backend may raise whatever it likes where a session is closed: no slot ends by that, and the log says it."""

import asyncio
import logging
from collections import deque

import helpers
import pytest
from django.db import OperationalError, connections
from probe.closing.base import DatabaseWrapper

from django_txtasks.lifecycle import sessions
from django_txtasks.lifecycle.attempts import Arrow, Ended
from django_txtasks.worker.slot_threads import Batch, Running, SlotThreads

pytestmark = pytest.mark.usefixtures("rows")


@pytest.fixture
def second():
    """An alias with that backend."""
    with helpers.second_alias(ENGINE="probe.closing", CONN_MAX_AGE=0):
        yield
        DatabaseWrapper.errors.clear()


def is_open(raw):
    """Whether the driver's connection takes a statement."""
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
        slots.put(Batch([None], deque([Running(None, None)]), float("inf")))

    DatabaseWrapper.errors.append(error)
    slots = SlotThreads(1, run, lambda: None)
    put()
    helpers.wait_until(lambda: not DatabaseWrapper.errors)
    put()
    helpers.wait_until(lambda: len(slots.ended) == 2, 20)
    slots.close()


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
