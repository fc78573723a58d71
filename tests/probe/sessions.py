"""Task functions that change their session or their thread, and some that look for leftovers."""

import asyncio
import contextlib
import contextvars
import multiprocessing
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

from asgiref.sync import sync_to_async
from django.contrib.auth.models import Permission
from django.core.cache import caches
from django.db import DatabaseError, connections, transaction
from django.utils import timezone, translation

from django_txtasks import Retry, task
from django_txtasks.processes import orders
from probe.models import Run

tenant = ContextVar("tenant", default="nobody")


@task(max_attempts=1)
def do(*statements, alias="default"):
    """Run statements through Django's cursor."""
    with connections[alias].cursor() as cursor:
        for sql in statements:
            cursor.execute(sql)


@task
def do_in_transaction(*statements):
    with transaction.atomic():
        do(*statements)


@task
def do_beside_django(sql):
    """Through the driver's own cursor, of which Django knows nothing."""
    connections["default"].ensure_connection()
    connections["default"].connection.cursor().execute(sql)


@task
def see(sql, alias="default"):
    """Return what a statement finds: [row, …]."""
    with connections[alias].cursor() as cursor:
        cursor.execute(sql)
        return [[str(value) for value in row] for row in cursor.fetchall()]


@task(max_attempts=1)
def fail_after(sql):
    do(sql)
    raise ValueError("after its query")


@task
def swallow(sql):
    """Go on after what the database refuses."""
    try:
        with transaction.atomic():
            do(sql)
    except DatabaseError:
        pass


@task
def count_queries():
    """Return how many queries of earlier tasks the thread's log has."""
    before = len(connections["default"].queries_log)
    Run.objects.create(key="logged", pid=os.getpid())
    return before


def bend():
    translation.activate("fr")
    timezone.activate("Asia/Tokyo")
    tenant.set("somebody")


@task
def bend_thread():
    bend()


@task
async def bend_async():
    bend()


@task
async def bend_from_async():
    await sync_to_async(bend)()


@task(atomic=True)
def bend_at_commit():
    transaction.on_commit(bend)


@task(max_attempts=1)
def bend_and_fail():
    bend()
    raise ValueError("bent")


@task
def see_thread():
    return [translation.get_language(), timezone.get_current_timezone_name(), tenant.get()]


@task
async def see_async():
    return await sync_to_async(see_thread)()


@task
def hear_of_success(event):
    Run.objects.create(key=f"{event['event']} {event['args'][0]}")


@task(atomic=True, max_attempts=3, on_success=hear_of_success)
def fail_at_commit(key, error="ValueError"):
    """Do its work, and give the transaction three hooks, of which the second one fails."""

    def note(text):
        Run.objects.create(key=f"{key} {text}")

    def fail():
        note("second hook")
        raise {"ValueError": ValueError, "SystemExit": SystemExit}[error](f"{key} cannot be told")

    note("done")
    transaction.on_commit(lambda: note("first hook"))
    transaction.on_commit(fail)
    transaction.on_commit(lambda: note("third hook"))


@task
def lose_session():
    """End the session of this thread from another one, and still succeed."""
    mine = {"postgresql": "SELECT pg_backend_pid()", "mysql": "SELECT CONNECTION_ID()"}
    end = {"postgresql": "SELECT pg_terminate_backend(%s, 5000)", "mysql": "KILL %s"}
    [[number]] = see(mine[connections["default"].vendor])
    other = connections["default"].copy()
    try:
        with other.cursor() as cursor:
            cursor.execute(end[other.vendor], [int(number)])
    finally:
        other.close()


@task(max_attempts=1)
def do_and_copy(sql):
    """Run a statement, then open and close the session of a copy of the thread's connection object."""
    do.function(sql)
    copy_connection.function()


@task(max_attempts=1)
def copy_connection():
    """Query through an unused copy of the thread's connection object."""
    other = connections["default"].copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("SELECT 1")
    finally:
        other.close()


@task(atomic=True, max_attempts=1)
def break_at_commit(key):
    Run.objects.create(key=key)
    Permission.objects.create(name=key, codename=key, content_type_id=2_000_000_000)


@task
def leave_a_thread():
    """Leave a thread that Python waits for at its end, which is to have less time than usual."""
    orders.LOOP_END_SECONDS = 0.1
    ThreadPoolExecutor(1).submit(time.sleep, 3600)
    Run.objects.create(key="thread", pid=os.getpid())


@task
def meet_cache():
    """Return how many tasks have met this object of Django's cache."""
    cache = caches["default"]
    cache.met = getattr(cache, "met", 0) + 1
    return cache.met


@task(takes_context=True)
def retry_after_query(ctx, sql):
    """Ask for another attempt, which is no error; return what the statement finds in both."""
    found = see.function(sql)
    Run.objects.create(key=found[0][0], attempt=ctx.attempt, pid=os.getpid())
    if ctx.attempt == 1:
        raise Retry("later", after=0)


def count_statements(execute, sql, params, many, context):
    """Count the statements of a connection: an execute wrapper, as instrumentation has them."""
    connection = context["connection"]
    connection.counted = getattr(connection, "counted", 0) + 1
    return execute(sql, params, many, context)


def refuse_statements(execute, sql, params, many, context):
    """Refuse each statement: an execute wrapper that a task leaves behind."""
    raise ValueError("refused")


BENT = {
    "tenant": lambda one: setattr(one, "tenant", "acme"),
    "value": lambda one: setattr(one, "force_debug_cursor", True),
    "wrapper": lambda one: one.execute_wrappers.append(refuse_statements),
    "method": lambda one: setattr(one, "savepoint", refuse_statements),
    "deleted": lambda one: delattr(one, "execute_wrappers"),
    "settings": lambda one: setattr(one, "settings_dict", {**one.settings_dict, "HOST": "nowhere"}),
    "block": lambda one: transaction.atomic(using=one.alias).__enter__(),
    "object": lambda one: connections.__setitem__(one.alias, one.copy()),
    "log": lambda one: setattr(one, "queries_log", None),
    "gone": lambda one: delattr(one, "errors_occurred"),
    "age": lambda one: setattr(one, "close_at", "soon"),
    "close": lambda one: setattr(one, "close", refuse_statements),
}
"""Ways to change the connection object of a thread."""


@task(max_attempts=1)
def bend_connection(how, *, alias="default", first=False):
    """Change the thread's connection object and leave it so; first = before it has a session."""
    connection = connections[alias]
    if first:
        connection.close()
    else:
        connection.ensure_connection()
    BENT[how](connection)


@task(atomic=True, max_attempts=1)
def bend_connection_in_transaction(how):
    BENT[how](connections["default"])


@task
async def bend_connection_async(how):
    await sync_to_async(bend_connection.function)(how)


def seen_of(connection):
    """Return what can be seen of a connection object, as JSON takes it."""
    known = ("tenant", "force_debug_cursor", "savepoint", "in_atomic_block", "counted")
    seen = {name: repr(vars(connection).get(name)) for name in known}
    seen["wrappers"] = [one.__name__ for one in vars(connection).get("execute_wrappers", ())]
    seen["log"] = type(connection.queries_log).__name__
    seen["errors"] = type(vars(connection).get("errors_occurred")).__name__
    seen["age is a number"] = not isinstance(connection.close_at, str)
    return {**seen, "host": connection.settings_dict["HOST"]}


@task(max_attempts=1)
def see_connection(alias="default"):
    """Return what can be seen of the thread's connection object, once it has been used."""
    seen = seen_of(connections[alias])
    see.function("SELECT 1", alias)
    return seen


@task(max_attempts=1)
def refuse_and_fail():
    """Leave an execute wrapper that refuses each statement, and fail by it."""
    connections["default"].execute_wrappers.append(refuse_statements)
    Run.objects.count()


def pass_on(execute, sql, params, many, context):
    """Do nothing: an execute wrapper that a receiver of ``connection_created`` adds."""
    return execute(sql, params, many, context)


@task(max_attempts=1)
def commit_savepoint():
    with transaction.atomic(), transaction.atomic():
        Run.objects.count()


@task(max_attempts=1)
async def see_after(asked, *statements):
    """Run statements, each in a call of its own; then return what another one finds: [row, …]."""
    for sql in statements:
        await sync_to_async(do.function)(sql)
        await asyncio.sleep(0.001)
    return await sync_to_async(see.function)(asked)


@task(max_attempts=1)
async def leave_in_transaction(key):
    """Write a row in a transaction that stays open."""
    await sync_to_async(transaction.atomic().__enter__)()
    await Run.objects.acreate(key=key)


@task(max_attempts=1)
async def see_tenant(tenant=None):
    """Set the tenant of the connection object, if there is one; return what the next call finds."""
    if tenant is not None:
        await sync_to_async(lambda: setattr(connections["default"], "tenant", tenant))()
    return await sync_to_async(lambda: getattr(connections["default"], "tenant", None))()


THREADS = ThreadPoolExecutor(2)


def see_mine(sql):
    [[value]] = see.function(sql)
    return value


@task
def see_in_threads(sql, threads=3):
    """Return what a statement finds in each of some threads, which end before the task."""
    found = []
    barrier = threading.Barrier(threads)

    def ask():
        barrier.wait()
        found.append(see_mine(sql))

    with ThreadPoolExecutor(threads) as pool:
        for one in [pool.submit(ask) for _ in range(threads)]:
            one.result()
    return found


STAY_UNTIL = threading.Event()


@task
def see_in_thread_that_stays(sql):
    """Return what a statement finds in a new thread, which outlives the attempt."""
    found, is_found = [], threading.Event()

    def ask():
        found.append(see_mine(sql))
        is_found.set()
        STAY_UNTIL.wait(60)

    threading.Thread(target=ask, daemon=True).start()
    assert is_found.wait(60)
    return found


@task
def see_in_thread_of_thread(sql):
    found = []
    inner = threading.Thread(target=lambda: found.append(see_mine(sql)))
    outer = threading.Thread(target=lambda: (inner.start(), inner.join()))
    outer.start()
    outer.join()
    return found


@task
async def see_in_thread_of_loop(sql):
    return [await asyncio.to_thread(see_mine, sql)]


@task(max_attempts=1)
def see_in_thread_and_fail(sql):
    found = see_in_threads.function(sql, 1)
    Run.objects.create(key=f"session {found[0]}")
    raise ValueError("after its thread")


@task
def see_in_pool(sql, closes=False):
    """Return what a statement finds in a thread of this module, which lives on."""

    def ask():
        try:
            return see_mine(sql)
        finally:
            if closes:
                connections.close_all()

    return [THREADS.submit(ask).result()]


@task
def copy_in_pool(times):
    """Use new connection objects in a thread of this module, one after the other."""

    def ask():
        for _ in range(times):
            one = connections["default"].copy()
            one.ensure_connection()
            one.close()

    THREADS.submit(ask).result()


IS_LATER = threading.Event()


@task
def start_thread_later():
    """Start a thread in the context of this attempt, once ``IS_LATER`` is set, from a thread of this module."""

    def start():
        IS_LATER.wait(60)
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()

    THREADS.submit(contextvars.copy_context().run, start)


@task(max_attempts=1)
def fork_in_thread(sql):
    """Return what a statement finds in a new thread before and after that forks; the child has nothing to do."""
    found = []

    def ask():
        found.append(see_mine(sql))
        if child := os.fork():
            os.waitpid(child, 0)
            found.append(see_mine(sql))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return found


@task(max_attempts=1)
def fork_beside_thread(sql):
    """Return what a statement finds in a thread before and after another one forks a child that ends at once."""
    found, asked, forked = [], threading.Event(), threading.Event()

    def ask():
        found.append(see_mine(sql))
        asked.set()
        forked.wait(60)
        found.append(see_mine(sql))

    thread = threading.Thread(target=ask)
    thread.start()
    asked.wait(60)
    if not (child := os.fork()):
        os._exit(0)
    os.waitpid(child, 0)
    forked.set()
    thread.join()
    return found


@task(max_attempts=1)
def tag_for_sentry(name, *, fails=False, captures=False):
    """Tag Sentry's events from here on, as a site does for its tenants."""
    import sentry_sdk

    if name:
        sentry_sdk.set_tag("tenant", name)
        sentry_sdk.set_user({"id": name})
    if captures:
        sentry_sdk.capture_message(f"in the task of {name}")
    if fails:
        raise ValueError(f"failure of {name}")


@task(max_attempts=1)
async def tag_for_sentry_async(name, *, fails=False, captures=False):
    await sync_to_async(tag_for_sentry.function)(name, captures=captures)
    if fails:
        raise ValueError(f"failure of {name}")


def write_often(key):
    """Write rows in a process of its own, in transactions and outside of them."""
    for number in range(5):
        Run.objects.create(key=f"{key} {number}", pid=os.getpid())
        with transaction.atomic():
            Run.objects.create(key=f"{key} {number}", pid=os.getpid())


def start_writers(sql):
    """Have three forked processes write at the same time; return what a statement finds before and after that."""
    found = [see_mine(sql)]
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write_often, args=[f"writer {one}"]) for one in range(3)]
    for one in writers:
        one.start()
    for one in writers:
        one.join(60)
    found.append(see_mine(sql))
    return [found, [one.exitcode for one in writers]]


@task(max_attempts=1)
def start_processes(sql):
    return start_writers(sql)


@task(max_attempts=1, atomic=True)
def start_processes_in_transaction(sql):
    with transaction.atomic():
        return start_writers(sql)


@task(max_attempts=1)
def start_processes_in_thread(sql):
    found = []
    thread = threading.Thread(target=lambda: found.append(start_writers(sql)))
    thread.start()
    thread.join()
    return found[0]


@task(max_attempts=1)
def fork_and_leave_block(sql):
    """Return what a statement finds before and after a child has left the parent's blocks, and its exit code."""
    found = [see_mine(sql)]
    with transaction.atomic(), transaction.atomic():
        Run.objects.create(key="parent")
        child = os.fork()
        if not child:
            with contextlib.suppress(ZeroDivisionError), transaction.atomic(durable=True):
                Run.objects.create(key="undone")
                raise ZeroDivisionError
    if not child:
        with transaction.atomic(durable=True):
            Run.objects.create(key="child")
        sys.exit(0)
    status = os.waitpid(child, 0)[1]
    found.append(see_mine(sql))
    return [found, [os.waitstatus_to_exitcode(status)]]


@task(max_attempts=1, atomic=True)
def fork_at_commit():
    """Give the transaction a hook that forks, and whose child has nothing more to do."""

    def fork():
        if child := os.fork():
            status = os.waitpid(child, 0)[1]
            Run.objects.create(key=f"exit code {os.waitstatus_to_exitcode(status)}")

    transaction.on_commit(fork)


@task(max_attempts=1)
def enqueue_another():
    hear_of_success.enqueue({"event": "by a task", "args": [""]})


@task(max_attempts=1)
def enqueue_and_wait_for_sender():
    """Enqueue a task, and wait until the sender of hints, which the first one starts, has its session."""
    from django_txtasks.hints import sender

    enqueue_another.function()
    while sender.of_process("default")._session is None:
        time.sleep(0.01)


@task(max_attempts=1)
def set_tenant_and_fail(name):
    tenant.set(name)
    raise ValueError(name)


@task(max_attempts=1)
def tag_and_fail(customer):
    import sentry_sdk

    sentry_sdk.set_tag("customer", customer)
    raise ValueError(customer)
