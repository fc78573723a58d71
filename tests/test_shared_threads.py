"""Sync calls of many attempts on one event loop share a few threads; no attempt finds what another one has left.

Each test runs its attempts on a loop of its own, as the loop process does: see ``attempts``.
"""

import asyncio
import contextlib
import contextvars
import gc
import inspect
import itertools
import logging
import os
import subprocess
import sys
import threading
import time
import uuid
import weakref

import helpers
import pytest
from asgiref.local import Local
from asgiref.sync import ThreadSensitiveContext, async_to_sync, sync_to_async
from django.db import DatabaseError, IntegrityError, connection, connections, transaction
from django.utils import timezone, translation
from probe import sessions
from probe.models import Run
from test_sessions_of_slots import LEFT, MINE, has_sessions, on_postgres

from django_txtasks.core.rows.attempts import Attempt
from django_txtasks.database import sessions as database_sessions
from django_txtasks.features.async_loop import executors, held_threads
from django_txtasks.features.async_loop.default_executor import DefaultExecutor
from django_txtasks.features.async_loop.shared_threads import SharedThreads
from django_txtasks.features.progress.notes import ProgressNotes
from django_txtasks.signals.logs import current

pytestmark = pytest.mark.usefixtures("rows")
THREADS = 4
BENDING = 40
CLEAN = 100
# A value of the session, by which attempts can be told apart: how it is set, and how it is read.
SET, GET = {
    "postgresql": ("SET search_path = public, s{}", "SHOW search_path"),
    "mysql": ("SET @tenant = 's{}'", "SELECT @tenant"),
    "sqlite": ("CREATE TEMP TABLE s{} (id int)", "SELECT max(name) FROM sqlite_temp_master"),
}[connection.vendor]
tenant = contextvars.ContextVar("tenant", default="nobody")
do, see = sync_to_async(sessions.do.function), sync_to_async(sessions.see.function)
get_ident = sync_to_async(threading.get_ident)


async def get_ident_later():
    return bool(await get_ident())


class Attempts:
    """Attempts on one event loop, each with an executor, as the loop process runs them.

    Attributes:
        noted: (thread, alias) of each connection that the shared threads have opened.
    """

    def __init__(self, size):
        self.noted = []
        self._others = set(threading.enumerate())
        self.threads = SharedThreads(
            size, note_session=lambda alias: self.noted.append((threading.get_ident(), alias))
        )

    def run(self, *bodies):
        """Run coroutine functions, each as an attempt, and return their results; an error is a result, too."""
        return asyncio.run(self._all(bodies))

    async def _all(self, bodies):
        asyncio.get_running_loop().set_default_executor(DefaultExecutor())
        return await asyncio.gather(*map(self.start, bodies), return_exceptions=True)

    def start(self, body):
        attempt = Attempt(uuid.uuid4(), 1, uuid.uuid4(), task_name=f"probe.{body.__name__}")
        context = contextvars.Context()
        return context.run(asyncio.get_running_loop().create_task, self._one(attempt, body))

    async def _one(self, attempt, body):
        current.set(attempt.facts)
        error = None
        with self.threads.for_attempt(attempt) as executor:
            try:
                return await body()
            except BaseException as raised:
                error = raised
                raise
            finally:
                if executor.used:
                    await asyncio.shield(executor.ended(failed=error is not None, error=error))

    def idents(self):
        """Return the idents of the shared threads."""
        new = set(threading.enumerate()) - self._others
        return {one.ident for one in new if one.name.startswith("txtasks-shared")}


@pytest.fixture
def attempts(rows):
    """Make attempts that share this number of threads; they end with the test."""
    made = []

    def make(size=THREADS):
        made.append(Attempts(size))
        return made[-1]

    yield make
    for one in made:
        one.threads.close()


def mixed(bending, clean):
    """Return the bodies with the clean ones among and after the others."""
    half = len(clean) // 2
    pairs = itertools.zip_longest(bending, clean[:half])
    return [one for pair in pairs for one in pair if one is not None] + clean[half:]


async def read():
    return await see(GET)


# -- what an attempt has set, it finds again, and no other attempt does ----------------------------


def test_a_setting_stays_for_the_next_call_and_for_no_other_attempt(attempts):
    """40 attempts set a value of the session in one call and read it in another, with 100 others among them."""
    [[[before]]] = attempts(1).run(read)

    def bend(number):
        async def body():
            await do(SET.format(number))
            await asyncio.sleep(0.001)
            return number, await read()

        return body

    found = attempts().run(*mixed([bend(number) for number in range(BENDING)], [read] * CLEAN))
    right = [one for one in found if isinstance(one, tuple)]
    clean = [one for one in found if isinstance(one, list)]
    assert len(right) == BENDING
    assert [one for one in right if not one[1][0][0].endswith(f"s{one[0]}")] == []
    assert clean == [[[before]]] * CLEAN


@pytest.mark.parametrize(("sql", "asked"), LEFT, ids=[sql for sql, _ in LEFT])
def test_what_an_attempt_leaves_in_its_session_no_later_one_finds(attempts, sql, asked):
    """Locks, temporary tables, roles, transactions: two attempts leave them in two threads."""
    run = attempts(2).run

    async def ask():
        return await see(asked)

    async def bend():
        await do(sql)
        return await ask()

    before = run(ask)
    bent, _ = run(bend, bend) if "LOCK" not in sql.upper() else run(bend, ask)
    assert run(*[ask] * CLEAN) == before * CLEAN
    cannot_be_seen = "LOCK TABLES", "CREATE TEMPORARY"
    assert sql.startswith(cannot_be_seen) or bent != before[0]


def test_a_temporary_table_is_its_attempt_s_own(attempts):
    async def bend():
        await do("CREATE TEMPORARY TABLE mine (id int)")
        await do("INSERT INTO mine VALUES (1)")
        return await see("SELECT count(*) FROM mine")

    async def ask():
        with contextlib.suppress(DatabaseError):
            return await see("SELECT count(*) FROM mine")
        return None

    found = attempts().run(*mixed([bend] * BENDING, [ask] * CLEAN))
    assert found.count([["1"]]) == BENDING
    assert found.count(None) == CLEAN


@has_sessions
def test_a_lock_of_the_session_is_held_over_calls_and_ends_with_its_attempt(attempts):
    """Attempts that wait for the lock keep the other threads busy; the one that has it keeps its own."""
    lock = {
        "postgresql": "SELECT pg_advisory_lock(42)",
        "mysql": "SELECT GET_LOCK('mine', 60)",
    }[connection.vendor]
    inside = set()

    def body(number):
        async def work():
            await do(lock)
            inside.add(number)
            await asyncio.sleep(0.001)
            await get_ident()
            assert inside == {number}
            inside.discard(number)

        return work

    assert attempts().run(*map(body, range(BENDING))) == [None] * BENDING


@pytest.mark.parametrize(
    "how", [one for one in sessions.BENT if one not in ("close", "log", "wrapper")]
)
def test_what_an_attempt_sets_on_a_connection_object_no_later_one_finds(attempts, how):
    run = attempts(2).run

    async def ask():
        return await sync_to_async(sessions.see_connection.function)()

    async def bend():
        await sync_to_async(sessions.bend_connection.function)(how)

    before = run(ask)
    run(bend, bend)
    assert run(*[ask] * 10) == before * 10


def test_the_tenant_of_an_attempt_is_there_in_its_next_call(attempts):
    """As django-tenants keeps it: in an attribute of the connection object."""

    def bend(number):
        async def body():
            await sync_to_async(lambda: setattr(connections["default"], "tenant", number))()
            await asyncio.sleep(0.001)
            return await sync_to_async(lambda: connections["default"].tenant)()

        return body

    async def ask():
        return await sync_to_async(lambda: getattr(connections["default"], "tenant", None))()

    found = attempts().run(*mixed([bend(number) for number in range(BENDING)], [ask] * CLEAN))
    assert [one for one in found if one is not None] == list(range(BENDING))


def test_a_transaction_over_two_calls_is_its_attempt_s_own(attempts):
    """40 transactions are opened in one call and closed in another; 40 are left open."""

    def enter():
        transaction.atomic().__enter__()

    def leave(raised):
        block = transaction.atomic()
        block.__exit__(type(raised) if raised else None, raised, None)

    def body(number, end):
        async def work():
            await sync_to_async(enter)()
            await Run.objects.acreate(key=f"{end} {number}")
            await asyncio.sleep(0.001)
            assert await Run.objects.filter(key=f"{end} {number}").acount() == 1
            if end == "commit":
                await sync_to_async(leave)(None)
            elif end == "undo":
                await sync_to_async(leave)(ValueError())

        return work

    async def clean():
        return await sync_to_async(lambda: connection.in_atomic_block)()

    closed = [body(n, end) for n in range(BENDING // 2) for end in ("commit", "undo")]
    left = [body(number, "left") for number in range(BENDING)]
    if connection.vendor == "sqlite":  # one writer at a time
        closed, left = closed[:4], left[:4]
    make = attempts if connection.vendor != "sqlite" else (lambda: attempts(1))
    found = make().run(*mixed(closed + left, [clean] * CLEAN))
    assert [one for one in found if one] == []
    keys = list(Run.objects.values_list("key", flat=True))
    assert sorted(keys) == sorted(f"commit {n}" for n in range(len(closed) // 2))


@pytest.mark.skipif(connection.vendor == "mysql", reason="there its statement is noticed: see LEFT")
def test_a_transaction_begun_by_hand_is_its_attempt_s_own(attempts):
    """Through Django's cursor, so that only the driver knows of the transaction."""

    def body(number, end):
        async def work():
            await do("BEGIN")
            await Run.objects.acreate(key=f"{end} {number}")
            await asyncio.sleep(0.001)
            assert await Run.objects.filter(key=f"{end} {number}").acount() == 1
            await do(end)

        return work

    bodies = [body(number, end) for number in range(10) for end in ("COMMIT", "ROLLBACK")]
    if connection.vendor == "sqlite":  # one writer at a time
        assert attempts(1).run(*bodies) == [None] * 20
    else:
        assert attempts().run(*bodies) == [None] * 20
    assert sorted(Run.objects.values_list("key", flat=True)) == [f"COMMIT {n}" for n in range(10)]


def test_an_attempt_that_fails_leaves_no_transaction(attempts):
    run = attempts(1).run

    async def fail():
        await sync_to_async(lambda: transaction.atomic().__enter__())()
        await Run.objects.acreate(key="undone")
        raise ValueError("after its query")

    async def clean():
        await Run.objects.acreate(key="clean")

    run(fail, clean)
    assert [one.key for one in Run.objects.all()] == ["clean"]


def test_nested_async_to_sync_stays_in_its_call_s_thread_and_transaction(attempts):
    """A sync call runs a coroutine on the loop, whose own sync calls come back to the waiting thread."""

    def body(number):
        async def inner():
            ident = await get_ident()
            await Run.objects.acreate(key=f"nested {number}")
            return ident

        def outer():
            with transaction.atomic():
                assert async_to_sync(inner)() == threading.get_ident()
                assert Run.objects.filter(key=f"nested {number}").count() == 1
                transaction.set_rollback(number % 2 == 1)
            return threading.get_ident()

        async def work():
            return await sync_to_async(outer)()

        return work

    one = attempts()
    found = one.run(*map(body, range(BENDING)))
    assert set(found) <= one.idents()
    assert Run.objects.count() == BENDING // 2


def test_an_open_iterator_is_read_to_its_end_by_its_attempt_alone(attempts):
    """aiterator() reads each chunk in a call of its own. Others meanwhile end sessions and roll back."""
    Run.objects.bulk_create([Run(key=f"row {number:03}") for number in range(50)])

    async def iterate():
        keys = []
        async for one in Run.objects.order_by("key").aiterator(chunk_size=5):
            keys.append(one.key)
            await asyncio.sleep(0)
        return keys, await get_ident()

    async def bend():
        await do(SET.format(1))
        await asyncio.sleep(0)

    run = attempts(2).run
    found = run(*mixed([iterate] * 10, [bend] * 20))
    read = [one[0] for one in found if isinstance(one, tuple)]
    assert read == [[f"row {number:03}" for number in range(50)]] * 10
    assert [one for one in found if isinstance(one, Exception)] == []


def test_an_iterator_at_its_end_pins_no_attempt(attempts):
    Run.objects.bulk_create([Run(key=f"row {number}") for number in range(5)])
    one = attempts(1)

    async def work():
        rows = await sync_to_async(lambda: list(Run.objects.iterator(chunk_size=2)))()
        return len(rows), len(one.threads.pinned)

    assert one.run(work) == [(5, 0)]


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # SQLite: it is closed
@pytest.mark.skipif(connection.vendor == "mysql", reason="its driver reads all rows at once")
def test_an_iterator_that_is_left_open_ends_its_session_with_its_attempt(attempts):
    """Its generator may live on, and close the cursor in the middle of another attempt's query."""
    Run.objects.bulk_create([Run(key=f"row {number}") for number in range(5)])
    one, left = attempts(1), []

    async def see_session():
        return await sync_to_async(lambda: connection.connection)(), len(one.threads.pinned)

    async def leave():
        left.append(Run.objects.aiterator(chunk_size=2))
        await anext(left[0])
        return await see_session()

    async def both():
        found = [await one.start(leave), await one.start(see_session)]
        await left.pop().aclose()
        return found

    (first, pinned), (second, pinned_then) = asyncio.run(both())
    gc.collect()
    assert (pinned, pinned_then) == (1, 0)
    assert first is not None
    assert first is not second


# -- what does not pin an attempt -----------------------------------------------------------------


def test_calls_that_leave_nothing_use_every_thread_in_turn(attempts, monkeypatch):
    """200 attempts with a row each need no more sessions than threads."""
    monkeypatch.setattr(database_sessions, "LEAST_AGE_SECONDS", 600)
    one = attempts()

    async def work():
        await Run.objects.acreate(key="row")
        await asyncio.sleep(0.001)
        return (await see(MINE))[0][0], len(one.threads.pinned)

    found = one.run(*[work] * 200)
    assert Run.objects.count() == 200
    assert {pinned for _, pinned in found} == {0}
    assert {alias for _, alias in one.noted} == {"default"}
    assert {thread for thread, _ in one.noted} <= one.idents()
    assert len(one.idents()) <= THREADS
    if connection.vendor != "sqlite":
        assert len({session for session, _ in found}) <= THREADS


@has_sessions
def test_an_error_of_the_database_ends_the_session_and_pins_nothing(attempts):
    """One call is refused; the next call has another session, and so has the next attempt."""
    one = attempts(1)

    async def work():
        first = await see(MINE)
        with contextlib.suppress(DatabaseError):
            await do("SELECT nothing FROM nowhere")
        assert not one.threads.pinned
        return first, await see(MINE)

    [(first, second)] = one.run(work)
    assert first != second


@has_sessions
def test_a_refused_row_ends_no_session(attempts, monkeypatch):
    """A duplicate key is an answer of the database, as any other."""
    monkeypatch.setattr(database_sessions, "LEAST_AGE_SECONDS", 600)
    row = Run.objects.create(key="first")

    async def work():
        first = await see(MINE)
        with pytest.raises(IntegrityError):
            await Run.objects.acreate(pk=row.pk, key="second")
        return first, await see(MINE)

    [(first, second)] = attempts(1).run(work)
    assert first == second


@has_sessions
@pytest.mark.parametrize(("age", "kept"), [(None, True), (60, True), (0.000001, False), (0, True)])
def test_a_session_lives_as_long_as_conn_max_age_says(attempts, age, kept, monkeypatch):
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", age)

    async def work():
        return await see(MINE), await see(MINE)

    [(first, second)] = attempts(1).run(work)
    assert (first == second) is kept


@has_sessions
def test_an_idle_thread_closes_a_session_whose_age_is_over(attempts, monkeypatch):
    monkeypatch.setattr(database_sessions, "LEAST_AGE_SECONDS", 0.05)
    listed = {
        "postgresql": "SELECT 1 FROM pg_stat_activity WHERE pid = %s",
        "mysql": "SELECT 1 FROM information_schema.processlist WHERE id = %s",
    }[connection.vendor]

    async def work():
        return await see(MINE)

    [[[number]]] = attempts(1).run(work)
    helpers.wait_until(lambda: not helpers.execute(listed, int(number)))


@has_sessions
def test_a_session_that_died_meanwhile_costs_no_call(attempts):
    """The thread was idle for longer than FRESH_SECONDS, so it looks at its session before the next call."""
    end = {"postgresql": "SELECT pg_terminate_backend(%s, 5000)", "mysql": "KILL %s"}
    run = attempts(1).run

    async def work():
        return (await see(MINE))[0][0]

    [first] = run(work)
    helpers.execute(end[connection.vendor], int(first))
    threading.Event().wait(0.2)
    [second] = run(work)
    assert isinstance(second, str)
    assert second != first


@pytest.fixture
def pool_of_two(rows, monkeypatch):
    """Django's own pool, of two connections."""
    connection.close()
    with monkeypatch.context() as patch:
        patch.setitem(connection.settings_dict["OPTIONS"], "pool", {"max_size": 2, "min_size": 1})
        yield
        connection.close()
        connection.close_pool()


@on_postgres
def test_a_pool_of_two_serves_two_threads(pool_of_two, attempts):
    """No session with a changed setting, and none in a transaction, comes back to the pool."""
    one = attempts(2)

    async def bend():
        await do("SET search_path = public, elsewhere")
        await sync_to_async(lambda: transaction.atomic().__enter__())()
        await Run.objects.acreate(key="undone")
        return await see("SHOW search_path")

    async def clean():
        await Run.objects.acreate(key="clean")
        return await see("SHOW search_path")

    found = one.run(*mixed([bend] * 10, [clean] * 40))
    assert found.count([["public, elsewhere"]]) == 10
    assert found.count(found[-1]) == 40
    assert list(Run.objects.values_list("key", flat=True).distinct()) == ["clean"]
    one.threads.close()


@on_postgres
def test_the_default_executor_puts_no_changed_session_back_into_a_pool(pool_of_two, attempts):
    async def work():
        before = await asyncio.to_thread(sessions.see.function, "SHOW search_path")
        await asyncio.to_thread(sessions.do.function, "SET search_path = public, elsewhere")
        return before == await asyncio.to_thread(sessions.see.function, "SHOW search_path")

    assert attempts(2).run(work) == [True]


# -- the threads ----------------------------------------------------------------------------------


def test_a_thread_is_started_when_the_others_are_busy(attempts):
    one = attempts(3)

    async def work():
        for _ in range(5):
            await get_ident()

    async def idle():
        pass

    one.run(idle)
    assert len(one.idents()) == 0
    one.run(work)
    assert len(one.idents()) == 1
    barrier = threading.Barrier(3)

    async def meet():
        await sync_to_async(barrier.wait)(60)
        return True

    assert one.run(*[meet] * 3) == [True] * 3
    assert len(one.idents()) == 3


def test_the_calls_of_one_attempt_run_one_at_a_time_in_their_order(attempts):
    """Though the attempt makes them all at once, and other threads are free."""
    running, order = set(), []

    def call(number):
        running.add(number)
        assert running == {number}
        order.append(number)
        running.discard(number)
        return number

    async def work():
        await asyncio.gather(*[sync_to_async(call)(number) for number in range(50)])

    assert attempts().run(work) == [None]
    assert order == list(range(50))


def test_attempts_take_turns(attempts):
    """With one thread, an attempt with many calls does not keep the others waiting until its last one."""
    order, is_open = [], threading.Event()

    def body(name, calls):
        async def work():
            await asyncio.gather(*[sync_to_async(order.append)(name) for _ in range(calls)])

        return work

    async def block():
        await sync_to_async(is_open.wait)(60)

    async def release():
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        is_open.set()

    attempts(1).run(block, body("a", 4), body("b", 2), body("c", 1), release)
    assert order == ["a", "b", "c", "a", "b", "a", "a"]


def test_a_pinned_attempt_never_waits_and_others_wait_until_it_ends(attempts):
    one = attempts(1)
    order = []

    async def pinned():
        await do(SET.format(1))
        other = one.start(clean)
        for _ in range(20):
            await asyncio.sleep(0)
            assert one.threads.waiting == 1
            order.append("pinned")
            await get_ident()
        return other

    async def clean():
        order.append("waits")
        await get_ident()
        order.append("clean")

    async def both():
        await (await one.start(pinned))

    asyncio.run(both())
    assert order == ["waits", *["pinned"] * 20, "clean"]
    assert not one.threads.pinned


def test_long_waits_are_logged_once_a_minute(attempts, monkeypatch, caplog):
    caplog.set_level(logging.WARNING, "django_txtasks")
    one, is_open = attempts(1), threading.Event()
    said = (
        "Async tasks that wait for a thread for a query or for sync code: 2, the first of them for"
    )

    notes = held_threads.WaitNotes(ProgressNotes())

    def tell():
        now = time.monotonic()
        notes.tell(one.threads.waits(now), now)

    async def block():
        await sync_to_async(is_open.wait)(60)

    async def look():
        while one.threads.waiting < 2:
            await asyncio.sleep(0)
        tell()
        assert said not in caplog.text
        monkeypatch.setattr(held_threads, "LONG_SECONDS", 0.0)
        for _ in range(3):
            tell()
        is_open.set()

    async def wait():
        await get_ident()

    assert one.run(block, wait, wait, look) == [None] * 4
    assert caplog.text.count(said) == 1
    assert "Threads: 1. Number of these that stay with one task until it ends" in caplog.text
    assert "Functions whose tasks have a thread: probe.block (1)" in caplog.text
    assert "Functions whose tasks wait: probe.wait (2)" in caplog.text
    monkeypatch.setattr(held_threads, "LONG_SECONDS", 5.0)
    tell()
    assert caplog.text.count(said) == 1


def test_threads_that_change_their_attempts_are_not_held(attempts):
    """One thread stays with its attempt; the other one serves the others, of which one always waits."""
    one, doors, found = attempts(2), [threading.Event() for _ in range(3)], []

    async def pin():
        await do(SET.format(1))
        await sync_to_async(doors[2].wait)(60)

    async def block():
        await sync_to_async(doors[0].wait)(60)

    async def block_later():
        await sync_to_async(doors[1].wait)(60)

    async def look():
        while one.threads.waiting < 2 or not one.threads.pinned:
            await asyncio.sleep(0)
        doors[0].set()
        while one.threads.waiting == 2:
            await asyncio.sleep(0)
        found.append(one.threads.waits(time.monotonic()))
        for door in doors:
            door.set()

    assert one.run(pin, block, block_later, get_ident_later, look) == [None] * 3 + [True, None]
    assert sorted(found[0].holding) == ["probe.block_later", "probe.pin"]
    assert found[0].waiting == ["probe.get_ident_later"]
    assert 0 < found[0].held < found[0].seconds


def test_the_language_and_context_variables_are_kept_over_calls(attempts):
    local = Local()

    def bend():
        translation.activate("fr")
        timezone.activate("Asia/Tokyo")
        tenant.set("acme")
        local.value = "kept"

    def look():
        return [
            translation.get_language(), timezone.get_current_timezone_name(), tenant.get(),
            getattr(local, "value", None),
        ]  # fmt: skip

    async def work():
        await sync_to_async(bend)()
        return await sync_to_async(look)()

    async def ask():
        return await sync_to_async(look)()

    run = attempts(1).run
    assert run(work, ask) == [
        ["fr", "Asia/Tokyo", "acme", "kept"],
        ["en-us", "UTC", "nobody", None],
    ]


@pytest.mark.skipif(
    "executor" not in inspect.signature(ThreadSensitiveContext).parameters,
    reason="an older asgiref",
)
def test_without_its_table_asgiref_takes_the_executor_as_a_parameter(attempts, monkeypatch):
    monkeypatch.setattr(executors, "_HAS_TABLE", False)
    one = attempts(1)

    async def work():
        return await get_ident()

    assert set(one.run(work, work)) == one.idents()


# -- the end of an attempt ------------------------------------------------------------------------


@pytest.mark.parametrize("first", [True, False], ids=["after a call", "without one"])
def test_a_coroutine_that_outlives_its_attempt_writes_no_row(attempts, first):
    one, ended = attempts(), []

    async def late(is_over):
        await is_over.wait()
        await Run.objects.acreate(key="late")

    async def leave():
        if first:
            await Run.objects.acreate(key="in time")
        is_over = asyncio.Event()
        ended.append((is_over, asyncio.create_task(late(is_over))))

    async def both():
        await one.start(leave)
        is_over, task = ended.pop()
        is_over.set()
        with pytest.raises(RuntimeError, match=r"Attempt 1 of probe\.leave has ended"):
            await task
        return True

    assert asyncio.run(both())
    assert [run.key for run in Run.objects.all()] == ["in time"] * first


@pytest.mark.parametrize("is_pinned", [False, True])
def test_the_end_waits_for_a_running_call_and_cancels_waiting_ones(attempts, is_pinned):
    """The function returns, and leaves asyncio tasks behind."""
    one, is_open, begun = attempts(1), threading.Event(), threading.Event()
    done = []

    def call():
        begun.set()
        is_open.wait(60)
        done.append("running call")

    async def work():
        if is_pinned:
            await do(SET.format(1))
        waiting = [sync_to_async(done.append)("waiting call") for _ in range(3)]
        left = [asyncio.ensure_future(one) for one in [sync_to_async(call)(), *waiting]]
        while not begun.is_set():
            await asyncio.sleep(0)
        return left

    async def both():
        task = one.start(work)
        while not begun.is_set():
            await asyncio.sleep(0)
        for _ in range(10):  # the function returns, and its end begins
            await asyncio.sleep(0)
        assert not task.done()
        is_open.set()
        left = await task
        assert done == ["running call"]
        await asyncio.wait(left, timeout=60)
        return [one.cancelled() for one in left]

    assert asyncio.run(both()) == [False, True, True, True]
    assert done == ["running call"]
    assert not one.threads.pinned


def test_a_cancelled_end_leaves_the_thread_usable(attempts):
    """The process ends, or a time limit strikes, while the end waits for a call."""
    one, is_open, begun = attempts(1), threading.Event(), threading.Event()
    attempt = Attempt(uuid.uuid4(), 1, uuid.uuid4())

    def call():
        begun.set()
        is_open.wait(60)

    async def work():
        executor = one.threads.for_attempt(attempt)
        future = executor.submit(call)
        while not begun.is_set():
            await asyncio.sleep(0)
        end = asyncio.ensure_future(executor.ended(failed=True, error=None))
        await asyncio.sleep(0)
        end.cancel()
        is_open.set()
        await asyncio.wrap_future(future)

    async def clean():
        await get_ident()
        return True

    assert one.run(work, clean) == [None, True]


def test_a_call_that_was_cancelled_before_it_began_changes_nothing(attempts):
    one = attempts(1)

    async def work():
        is_open = threading.Event()
        first = asyncio.ensure_future(sync_to_async(is_open.wait)(60))
        second = asyncio.ensure_future(do(SET.format(1)))
        await asyncio.sleep(0)
        second.cancel()
        is_open.set()
        await first
        with pytest.raises(asyncio.CancelledError):
            await second
        return (await read()), len(one.threads.pinned)

    async def ask():
        return await read(), 0

    first, second = one.run(work, ask)
    assert first == second


def test_an_error_of_a_call_comes_to_its_attempt(attempts):
    class Odd(BaseException):
        pass

    def fail():
        raise Odd("from a thread")

    async def work():
        with pytest.raises(Odd, match="from a thread"):
            await sync_to_async(fail)()
        return await get_ident()

    one = attempts(1)
    assert set(one.run(work)) == one.idents()


def test_a_thread_keeps_neither_a_result_nor_an_error(attempts):
    """Without the executor: asgiref's own frames keep an error until the garbage collector runs."""

    class Big:
        pass

    threads, seen = attempts(1).threads, []
    attempt = Attempt(uuid.uuid4(), 1, uuid.uuid4())

    def make():
        big = Big()
        seen.append(weakref.ref(big))
        return big

    def fail():
        big = make()
        raise ValueError(str(big))

    def work(*calls):
        executor = threads.for_attempt(attempt)
        for call in calls:
            with contextlib.suppress(ValueError):
                executor.submit(call).result(60)
            helpers.wait_until(lambda: seen[-1:] == [] or seen[-1]() is None)
        asyncio.run(executor.ended(failed=False, error=None))

    gc.disable()
    try:
        work(make, fail)
        work(lambda: sessions.do.function(SET.format(1)), make, fail)
    finally:
        gc.enable()
    assert len(seen) == 4


# -- the loop's default executor ------------------------------------------------------------------


def test_a_thread_of_the_default_executor_keeps_no_connection(attempts):
    """asyncio.to_thread, and sync_to_async outside of the thread-sensitive mode."""
    objects, names = [], set()

    def bend():
        sessions.do.function(SET.format(1))
        connections["default"].tenant = "acme"
        transaction.atomic().__enter__()
        Run.objects.create(key="undone")
        objects.append(connections["default"])
        names.add(threading.current_thread().name.rpartition("_")[0])

    def ask():
        initialized = connections.all(initialized_only=True)
        return initialized, sessions.see.function(GET), getattr(connections["default"], "tenant", 0)

    async def work():
        before = await asyncio.to_thread(ask)
        for _ in range(3):
            await asyncio.to_thread(bend)
            await sync_to_async(bend, thread_sensitive=False)()
            assert before == await asyncio.to_thread(ask)
        return before

    [before] = attempts(1).run(work)
    assert before[0] == []
    assert names == {"txtasks-default"}
    assert [one for one in objects if one.connection and not one.closed_in_transaction] == []
    assert Run.objects.count() == 0


def test_the_default_executor_has_as_many_threads_as_python_s_own():
    from concurrent.futures import ThreadPoolExecutor

    ours, usual = DefaultExecutor(), ThreadPoolExecutor()
    assert ours._max_workers == usual._max_workers
    assert isinstance(ours, ThreadPoolExecutor)


def test_an_attempt_without_calls_starts_no_thread(attempts):
    one = attempts()

    async def work():
        await asyncio.sleep(0)

    one.run(*[work] * 10)
    assert one.idents() == set()
    assert one.threads.waiting == 0


FORKS = """
import asyncio, os, sys, uuid
import django
django.setup()
from asgiref.sync import sync_to_async
from django.db import transaction
from django_txtasks.core.rows.attempts import Attempt
from django_txtasks.features.async_loop.default_executor import DefaultExecutor
from django_txtasks.features.async_loop.shared_threads import SharedThreads
from probe.models import Run

def call():
    with transaction.atomic():
        Run.objects.create(key="before")
        child = os.fork()
        if not child:
            sys.exit(7)
        print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        Run.objects.create(key="after")

async def work():
    asyncio.get_running_loop().set_default_executor(DefaultExecutor())
    threads = SharedThreads(1, note_session=str)
    with threads.for_attempt(Attempt(uuid.uuid4(), 1, uuid.uuid4())) as executor:
        await sync_to_async(call, thread_sensitive={thread_sensitive})()
        await executor.ended(failed=False, error=None)

asyncio.run(work())
print("end of", os.getpid())
"""


@pytest.mark.parametrize("thread_sensitive", [True, False], ids=["shared", "default"])
def test_a_child_that_a_call_forks_ends_with_the_call(rows, thread_sensitive):
    """It is a copy of the thread, in the transaction of its parent."""
    process = subprocess.Popen(
        [sys.executable, "-c", FORKS.format(thread_sensitive=thread_sensitive)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "DJANGO_SETTINGS_MODULE": "settings_for_tests",
            "TXTASKS_IN_TEST_DATABASE": str(connection.settings_dict["NAME"]),
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        said, _ = process.communicate(timeout=helpers.PATIENCE)
    finally:
        process.kill()
    assert said.split("\n")[:-1] == ["child 7", f"end of {process.pid}"]
    assert sorted(Run.objects.values_list("key", flat=True)) == ["after", "before"]
