"""Waiting for results where Django does not look after the session: whatever ends it, the wait goes on."""

import asyncio
import json
import subprocess
import sys
import threading
from contextlib import contextmanager

import helpers
import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.core.asgi import get_asgi_application
from django.db import OperationalError, connection, connections
from django.http import JsonResponse
from django.urls import path
from probe import tasks
from proxy import Proxy
from test_sessions_of_slots import on_postgres, pool  # noqa: F401 -- a fixture

from django_txtasks import ResultTimeout, enqueue_task, get_handle
from django_txtasks.features.results import polling

pytestmark = pytest.mark.usefixtures("rows", "quick")
has_server = pytest.mark.skipif(connection.vendor == "sqlite", reason="what a server has")

OTHERS = {
    "postgresql": "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
    "AND pid <> pg_backend_pid() AND backend_type = 'client backend'",
    "mysql": "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> connection_id()",
}
UNKNOWN_THREAD_ID = 1094
"""Number of MariaDB's error for a session that is no longer there."""
CUT = {"postgresql": "SELECT pg_terminate_backend(%s)", "mysql": "KILL %s"}


async def wait(request, task_id):
    """A view that waits for a result."""
    handle = await sync_to_async(get_handle)(task_id)
    return JsonResponse({"result": await handle.aresult(timeout=60)})


urlpatterns = [path("wait/<uuid:task_id>/", wait)]


async def get(application, url):
    """Return the status and the JSON of a page."""
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "path": url,
        "headers": [],
        "server": ("testserver", 80),
    }
    client = ApplicationCommunicator(application, {**scope, "query_string": b""})
    await client.send_input({"type": "http.request", "body": b"", "more_body": False})
    start, body = await client.receive_output(60), await client.receive_output(60)
    await client.wait(60)
    return start["status"], json.loads(body["body"])


def sessions():
    """Return the other sessions of this test's database; none on SQLite."""
    sql = OTHERS.get(connection.vendor)
    return [number for (number,) in helpers.execute(sql)] if sql else []


def cut():
    """End the other sessions, as a restart of the database does; return how many there were."""
    found = sessions()
    for number in found:
        try:
            helpers.execute(CUT[connection.vendor], number)
        except OperationalError as error:
            if error.args[0] != UNKNOWN_THREAD_ID:  # this one has just ended by itself
                raise
    helpers.wait_until(lambda: not set(sessions()) & set(found))
    return len(found)


def closing_after(work):
    """Return the function's result, and close the session of this thread."""
    try:
        return work()
    finally:
        connection.close()


def finish(*handles):
    """Have a worker run what waits."""
    with helpers.working():
        for one in handles:
            helpers.wait_until(lambda one=one: one.status() == "succeeded")


def succeeded():
    handle = enqueue_task(tasks.give, 7)
    finish(handle)
    return handle


def looks():
    """Return True if a lookout of this process waits."""
    return any(
        one.has_waiters for of_loop in list(polling._of_loop.values()) for one in of_loop.values()
    )


@pytest.fixture
def lookouts_session(monkeypatch):
    """The session of the lookout that looks, as the driver has it; None at first."""
    found = []
    ends_of = polling.task_states.ends_of

    def noted(alias, ids):
        try:
            return ends_of(alias, ids)
        finally:
            found.append(connections[alias].connection)

    monkeypatch.setattr(polling.task_states, "ends_of", noted)
    return found


def test_pages_of_an_asgi_site_go_on_after_all_sessions_were_cut(settings):
    settings.ROOT_URLCONF = __name__
    handle, application = succeeded(), get_asgi_application()

    async def visit():
        for _ in range(3):
            assert await get(application, f"/wait/{handle.id}/") == (200, {"result": 7})
            await asyncio.to_thread(closing_after, cut)

    asyncio.run(visit())


def test_no_session_is_left_where_nobody_waits(settings):
    settings.ROOT_URLCONF = __name__
    handle, application = succeeded(), get_asgi_application()

    def seen():
        return closing_after(lambda: set(sessions()))

    async def visit():
        before = await asyncio.to_thread(seen)
        assert await get(application, f"/wait/{handle.id}/") == (200, {"result": 7})
        await asyncio.to_thread(helpers.wait_until, lambda: seen() <= before)

    asyncio.run(visit())


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_who_waits_goes_on_when_sessions_are_cut(kind, lookouts_session):
    """Each of three looks finds that its session was cut; SQLite has none that could be."""
    handle, found = enqueue_task(tasks.give, 7), []

    def wait_for_it():
        try:
            found.append(
                handle.result(60) if kind == "sync" else asyncio.run(closing(handle.aresult(60)))
            )
        except Exception as error:
            found.append(error)
        finally:
            connection.close()

    waiter = threading.Thread(target=wait_for_it)
    waiter.start()
    for _ in range(3):
        seen = len(lookouts_session)
        helpers.wait_until(lambda seen=seen: len(lookouts_session) > seen)
        cut()
    finish(handle)
    waiter.join(60)
    assert found == [7]


async def closing(coroutine):
    try:
        return await coroutine
    finally:
        await sync_to_async(connections.close_all)()


@on_postgres
@pytest.mark.usefixtures("pool")
def test_a_request_that_holds_the_last_connection_of_the_pool_gets_its_result():
    handle = succeeded()
    connection.close()

    async def visit():
        await sync_to_async(handle.status)()
        return await closing(handle.aresult(timeout=10))

    assert asyncio.run(visit()) == 7


@contextmanager
def through_proxy():
    """A proxy on the way to the database, for sessions that other threads open inside the block."""
    entry = connections.settings["default"]
    way = entry["HOST"], entry["PORT"]
    with Proxy(entry["HOST"], int(entry["PORT"])) as proxy:
        entry.update(HOST="127.0.0.1", PORT=str(proxy.port))
        try:
            yield proxy
        finally:
            entry["HOST"], entry["PORT"] = way


@has_server
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_who_waits_in_vain_hears_that_the_database_was_away(kind):
    handle = enqueue_task(tasks.give, 7)
    found, looked = [], threading.Event()

    async def look():
        waiter = asyncio.create_task(handle.aresult(8))
        while not looks():
            await asyncio.sleep(0.01)
        looked.set()
        try:
            return await waiter
        finally:
            await sync_to_async(connections.close_all)()

    def wait_for_it():
        try:
            connection.ensure_connection()
            looked.set() if kind == "sync" else None
            handle.result(8) if kind == "sync" else asyncio.run(look())
        except Exception as error:
            found.append(error)
        finally:
            connection.close()

    with through_proxy() as proxy:
        waiter = threading.Thread(target=wait_for_it)
        waiter.start()
        assert looked.wait(60)
        proxy.cut(away=60)
        waiter.join(60)
    assert [type(one) for one in found] == [ResultTimeout]
    assert "the database 'default' could not be asked last" in str(found[0])
    assert isinstance(found[0].__cause__, Exception)


@has_server
def test_a_connection_that_was_dropped_without_a_word_keeps_nobody_waiting(
    monkeypatch, lookouts_session
):
    """New ones work: the wait goes on in one of them."""
    monkeypatch.setattr(polling, "ANSWER_SECONDS", 0.5)
    handle, found = enqueue_task(tasks.give, 7), []

    def wait_for_it():
        found.append(asyncio.run(closing(handle.aresult(60))))

    with through_proxy() as proxy:
        waiter = threading.Thread(target=wait_for_it)
        waiter.start()
        helpers.wait_until(lambda: lookouts_session)
        for pair in list(proxy._pairs):
            pair.up = lambda data: True  # and passes nothing on
        finish(handle)
        waiter.join(60)
    assert found == [7]


WAIT = """
import asyncio, sys, uuid
import django
django.setup()
from django.db import connections
from django_txtasks import ResultTimeout, aget_handle
from django_txtasks.features.results import polling
polling.ANSWER_SECONDS = 0.5
connections.settings["default"].update(HOST="127.0.0.1", PORT=sys.argv[1])
looked, ends_of = [], polling.task_states.ends_of
def look(*args):
    try:
        return ends_of(*args)
    finally:
        looked.append(args)
polling.task_states.ends_of = look
async def wait():
    waiter = asyncio.create_task((await aget_handle(uuid.UUID(sys.argv[2]))).aresult(timeout=3))
    while not looked:
        await asyncio.sleep(0.01)
    print("looks", flush=True)
    try:
        await waiter
    except ResultTimeout:
        print("ends", flush=True)
asyncio.run(wait())
"""


@has_server
def test_a_connection_that_was_dropped_without_a_word_keeps_no_process_from_its_end(processes):
    """A server that was stopped would otherwise stay until TCP gives the connection up."""
    handle = enqueue_task(tasks.give, 7)
    with through_proxy() as proxy:
        command = [sys.executable, "-c", WAIT, str(proxy.port), str(handle.id)]
        with subprocess.Popen(
            command, env=processes._environment(), stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout.readline() == "looks\n"
                for pair in list(proxy._pairs):
                    pair.up = lambda data: True  # and passes nothing on
                assert process.stdout.readline() == "ends\n"
                assert process.wait(60) == 0
            finally:
                process.kill()
