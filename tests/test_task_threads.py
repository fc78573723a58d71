"""Database sessions of threads that tasks start end with the threads; what lives on is named and left alone."""

import gc
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import helpers
import pytest
from django.db import connection
from probe import sessions
from probe.models import Run
from test_sessions_of_slots import MINE, has_sessions, results, run_one_after_the_other

from django_txtasks.worker import task_threads

pytestmark = [pytest.mark.usefixtures("rows", "quick"), has_sessions]
LISTED = {
    "postgresql": "SELECT pid FROM pg_stat_activity",
    "mysql": "SELECT id FROM information_schema.processlist",
    "sqlite": "",
}[connection.vendor]


@pytest.fixture(autouse=True)
def nothing_is_collected(monkeypatch):
    """Python's collector would close such sessions at a time of its own; and each test has its own warnings."""
    monkeypatch.setattr(task_threads, "_told", set())
    gc.disable()
    yield
    gc.enable()
    gc.collect()


@pytest.fixture
def pool(monkeypatch):
    """The pool of a module."""
    with ThreadPoolExecutor(1) as made:
        monkeypatch.setattr(sessions, "THREADS", made)
        yield made


def wait_until_closed(numbers):
    wanted = {int(one) for one in numbers}
    assert wanted
    helpers.wait_until(lambda: not wanted & {int(one) for (one,) in helpers.execute(LISTED)})


@pytest.mark.parametrize(
    "function",
    [sessions.see_in_threads, sessions.see_in_thread_of_thread, sessions.see_in_thread_of_loop],
    ids=lambda one: one.function.__name__,
)
def test_sessions_of_threads_that_have_ended_are_closed(function, caplog):
    found = results(run_one_after_the_other(*[(function, MINE)] * 3))
    wait_until_closed([number for one in found for number in one])
    assert "live on" not in caplog.text or function is sessions.see_in_thread_of_loop


def test_sessions_of_threads_of_a_failed_attempt_are_closed_as_well():
    run_one_after_the_other((sessions.see_in_thread_and_fail, MINE))
    [run] = Run.objects.filter(key__startswith="session ")
    wait_until_closed([run.key.split()[1]])


def test_a_session_of_a_thread_that_lives_on_is_named_once_and_left_alone(pool, caplog):
    ids = run_one_after_the_other(*[(sessions.see_in_pool, MINE)] * 3)
    first, second, third = results(ids)
    assert first == second == third
    assert pool.submit(sessions.see_mine, MINE).result() == first[0]
    told = re.findall(
        r"Task (\S+) \(probe.sessions.see_in_pool\).*? sessions: (\d+)\.", caplog.text
    )
    assert told == [(str(ids[0]), "1")]
    pool.shutdown()
    wait_until_closed(first)


def test_a_thread_that_closes_its_session_is_not_named(pool, caplog):
    ids = run_one_after_the_other(
        (sessions.see_in_pool, MINE, True), (sessions.see_in_pool, MINE, True)
    )
    assert len({str(one) for one in results(ids)}) == 2
    assert "live on" not in caplog.text


def test_threads_that_live_on_are_named_once_though_each_attempt_starts_one(monkeypatch, caplog):
    stay_until = threading.Event()
    monkeypatch.setattr(sessions, "STAY_UNTIL", stay_until)
    ids = run_one_after_the_other(*[(sessions.see_in_thread_that_stays, MINE)] * 3)
    assert caplog.text.count("(probe.sessions.see_in_thread_that_stays)") == 1
    stay_until.set()
    wait_until_closed([number for one in results(ids) for number in one])
