"""Slots that the database gives no session, while the worker's loop keeps its own: nothing is lost."""

import contextlib
import os
import socket
import threading
import uuid
from urllib.parse import urlsplit

import helpers
import pytest
from django.db import OperationalError, connection
from probe import tasks

from django_txtasks.core.rows.attempts import Arrow, Ended
from django_txtasks.core.rows.turn import Capacity
from django_txtasks.core.working.running.limits import NEVER
from django_txtasks.database.errors import NoSession
from django_txtasks.guards import awaited_sessions, slot_sessions
from django_txtasks.guards.slot_sessions import SlotSessions
from django_txtasks.models import Task

pytestmark = pytest.mark.usefixtures("rows")
has_roles = pytest.mark.skipif(connection.vendor == "sqlite", reason="what a server has")
REFUSE, ADMIT = {
    "mysql": ("ALTER USER {} ACCOUNT LOCK", "ALTER USER {} ACCOUNT UNLOCK"),
    "postgresql": ("ALTER ROLE {} NOLOGIN", "ALTER ROLE {} LOGIN"),
    "sqlite": ("", ""),
}[connection.vendor]
FREE = Capacity(dedicated=4, prefetch=10)
NOT_BEGUN = Ended(attempt=None, arrow=Arrow.RELEASE, exception=NoSession("no more of them"))
DONE = Ended(attempt=None, arrow=Arrow.FINISH)


@pytest.fixture
def role():
    """A role that may do everything but to keep others out of the database."""
    name = f"role_{uuid.uuid4().hex[:12]}"
    if connection.vendor == "mysql":
        grants, ends = ["CREATE USER {}", "GRANT ALL ON *.* TO {}"], ["DROP USER {}"]
    else:
        grants = ["CREATE ROLE {} LOGIN", "GRANT ALL ON ALL TABLES IN SCHEMA public TO {}",
                  "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {}"]  # fmt: skip
        ends = ["DROP OWNED BY {}", "DROP ROLE {}"]
    for statement in grants:
        helpers.execute(statement.format(name))
    yield name
    for statement in ends:
        helpers.execute(statement.format(name))


@pytest.fixture
def worker(role, txtasks, processes):
    """A worker of that role with one slot, which has registered; its slot has no session yet."""
    txtasks(poll_interval=0.2, heartbeat_interval=0.2)
    return start(role, processes)


def start(role, processes, *options, **environment):
    parts = urlsplit(os.environ["TXTASKS_DATABASE_URL"])
    url = parts._replace(netloc=f"{role}@{parts.hostname}:{parts.port}").geturl()
    one = processes.start(
        "runworkers", "--threads=1", *options, env={"TXTASKS_DATABASE_URL": url, **environment}
    )
    helpers.wait_until(helpers.worker_pids, what=lambda: processes.log_of(one))
    return one


def refuse(role, function, count, worker, processes):
    """Give the role no more sessions, enqueue tasks, and return their handles once the worker has logged it."""
    helpers.execute(REFUSE.format(role))
    handles = [function.enqueue(str(number)) for number in range(count)]
    text = "(sessions of its threads): cannot use database 'default'"
    helpers.wait_until(
        lambda: text in processes.log_of(worker), what=lambda: processes.log_of(worker)
    )
    return handles


@pytest.fixture
def mute_server():
    """A server that takes connections and says nothing, until it is closed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = []
        thread = threading.Thread(target=take_all, args=(listener, taken), daemon=True)
        thread.start()
        yield listener.getsockname()[1], lambda: [one.close() for one in taken]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    for one in taken:
        one.close()


def take_all(listener, taken):
    with contextlib.suppress(OSError):  # it is shut down
        while True:
            taken.append(listener.accept()[0])


@has_roles
def test_the_log_names_a_task_whose_thread_waits_for_its_session(
    mute_server, quick, monkeypatch, caplog
):
    port, hang_up = mute_server
    monkeypatch.setattr(awaited_sessions, "LONG_SECONDS", 0.2)
    with helpers.working(threads=1):
        helpers.wait_until(helpers.worker_pids)
        with monkeypatch.context() as patch:
            patch.setitem(connection.settings_dict, "HOST", "127.0.0.1")
            patch.setitem(connection.settings_dict, "PORT", str(port))
            handle = tasks.atomic_note_once.enqueue("late")
            told = (
                f"Task {handle.id} (probe.tasks.atomic_note_once) is claimed, and has been waiting"
            )
            helpers.wait_until(lambda: told in caplog.text)
        assert helpers.row(handle.id).status == "claimed"
        hang_up()
        helpers.wait_until(lambda: helpers.finished(handle.id))
    assert caplog.text.count(told) == 1
    assert helpers.runs("late") == 1


@has_roles
def test_atomic_tasks_wait_for_a_session_and_nothing_is_counted(role, worker, processes):
    handles = refuse(role, tasks.atomic_note_once, 20, worker, processes)
    helpers.wait_until(lambda: Task.objects.filter(attempt__gt=1).exists())
    assert {one.failures for one in Task.objects.all()} == {0}
    helpers.execute(ADMIT.format(role))
    helpers.wait_until(lambda: all(helpers.finished(one.id) for one in handles))
    assert [helpers.runs(str(number)) for number in range(20)] == [1] * 20


@has_roles
def test_what_has_not_begun_is_none_of_max_tasks(role, txtasks, processes):
    txtasks(poll_interval=0.2, heartbeat_interval=0.2)
    one = start(role, processes, "--max-tasks=5")
    handles = refuse(role, tasks.atomic_note, 5, one, processes)
    helpers.execute(ADMIT.format(role))
    helpers.wait_until(lambda: all(helpers.finished(one.id) for one in handles))


@has_roles
def test_of_other_tasks_one_fails_in_each_slot(role, worker, processes):
    """It had begun; those behind it had not."""
    handles = refuse(role, tasks.note, 20, worker, processes)
    helpers.wait_until(lambda: Task.objects.filter(attempt__gt=1).exists())
    assert sum(one.failures for one in Task.objects.all()) == 1
    helpers.execute(ADMIT.format(role))
    helpers.wait_until(lambda: all(helpers.finished(one.id) for one in handles))


def sessions():
    return SlotSessions("default", lambda: "Worker x")


@pytest.mark.once
def test_where_all_is_well_all_is_claimed():
    one = sessions()
    one.collected([(DONE, 0.1)])
    assert one.limited(FREE) == FREE
    assert one.next == NEVER


@pytest.mark.once
def test_after_a_refusal_nothing_is_claimed_and_then_one(monkeypatch):
    one = sessions()
    one.collected([(each, 0.1) for each in (NOT_BEGUN, NOT_BEGUN, DONE)])
    assert one.limited(FREE).width == 0
    assert one.next < NEVER
    monkeypatch.setattr(slot_sessions.time, "monotonic", lambda at=one.next: at)
    assert one.limited(FREE).width == 1
    assert one.limited(FREE._replace(limit=0)).width == 0
    assert one.next == NEVER
    one.collected([(DONE, 0.1)])
    assert one.limited(FREE) == FREE


@pytest.mark.once
def test_pauses_grow_but_not_with_slots_that_are_refused_at_once(caplog):
    one, pauses = sessions(), []
    for _ in range(8):
        one.collected([(NOT_BEGUN, 0.1)] * 5)
        pauses.append(one._failures)
        one._pause_end = 0.0
    assert pauses == list(range(1, 9))
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.once
@pytest.mark.parametrize(
    ("error", "is_of_database"),
    [(None, False), (ValueError(), False), (OperationalError(), True), (NoSession(), True)],
)
def test_what_puts_a_session_in_doubt(error, is_of_database):
    from django_txtasks.guards.connections import _is_of_database

    assert _is_of_database(error) is is_of_database
    raised = RuntimeError()
    raised.__cause__ = error
    assert _is_of_database(raised) is is_of_database
