"""Database sessions of threads that tasks start end with the threads; what lives on is named and left alone."""

import gc
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import helpers
import pytest
from django.core.management import call_command
from django.db import connection, connections
from probe import sessions
from probe.models import Run
from test_sessions_of_slots import (
    MINE,
    has_sessions,
    on_postgres,
    results,
    run_one_after_the_other,
)

from django_txtasks.guards import task_threads

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
    assert "are still alive" not in caplog.text or function is sessions.see_in_thread_of_loop


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
    assert "are still alive" not in caplog.text


@on_postgres
def test_the_sender_of_hints_is_no_thread_of_the_task_that_is_first_to_enqueue(txtasks, caplog):
    from django_txtasks.hints import sender

    txtasks(database_hints=True)
    sessions.enqueue_and_wait_for_sender.enqueue()
    sender.close_all()  # else that of this process would be there already
    connection.close()
    call_command("runworkers", batch=True, threads=1)
    assert helpers.runs("by a task ") == 1
    assert "are still alive" not in caplog.text


def test_threads_that_live_on_are_named_once_though_each_attempt_starts_one(monkeypatch, caplog):
    stay_until = threading.Event()
    monkeypatch.setattr(sessions, "STAY_UNTIL", stay_until)
    ids = run_one_after_the_other(*[(sessions.see_in_thread_that_stays, MINE)] * 3)
    assert caplog.text.count("(probe.sessions.see_in_thread_that_stays)") == 1
    stay_until.set()
    wait_until_closed([number for one in results(ids) for number in one])


def test_a_thread_that_opens_session_after_session_keeps_nothing_of_them(pool):
    """A pool of the module lives as long as its process."""

    def references():
        return pool.submit(lambda: sys.getrefcount(connections["default"])).result()

    run_one_after_the_other(*[(sessions.see_in_pool, MINE, True)] * 2)
    before = references()
    run_one_after_the_other(*[(sessions.see_in_pool, MINE, True)] * 10)
    assert references() == before


def test_a_thread_that_makes_connection_objects_keeps_none_of_them(pool):
    run_one_after_the_other((sessions.copy_in_pool, 1))
    gc.collect()
    before = objects()
    run_one_after_the_other((sessions.copy_in_pool, 10))
    gc.collect()
    assert objects() <= before


def objects():
    return sum(isinstance(one, type(connections["default"])) for one in gc.get_objects())


def test_a_thread_that_starts_after_the_end_of_its_attempt_leaves_nothing(pool, monkeypatch):
    """A context may outlive its attempt: pools of other packages copy that of their caller."""
    is_later = threading.Event()
    monkeypatch.setattr(sessions, "IS_LATER", is_later)
    pool.submit(int).result()
    run_one_after_the_other((sessions.start_thread_later,))
    is_later.set()
    pool.submit(int).result()
    assert not task_threads._running


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("fork", [sessions.fork_in_thread, sessions.fork_beside_thread])
def test_a_fork_leaves_the_session_of_a_thread_to_its_parent(rows, fork):
    [[before, after]] = results(run_one_after_the_other((fork, MINE)))
    assert after == before
