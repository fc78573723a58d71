"""Async task functions for an event loop: what they may do to it, to each other and to their sessions."""

import asyncio
import os
import signal
import socket
import sys
import threading
import time
from contextvars import ContextVar
from typing import ClassVar

from asgiref.sync import async_to_sync, sync_to_async
from django.core.cache import caches
from django.core.cache.backends.base import BaseCache
from django.db import connection, connections, transaction

from django_txtasks import Retry, TaskContext, task
from probe.models import Run

entered: set[str] = set()
"""Keys of the tasks that have begun in this process."""
seen: dict[str, object] = {}
"""What tasks of this process have seen, by key."""
doors: dict[str, asyncio.Event] = {}
LEFT: ContextVar[str] = ContextVar("left", default="")


def _ran(key, attempt=0):
    Run.objects.create(key=key, attempt=attempt, pid=os.getpid())


ran = sync_to_async(_ran)


@task(idempotent=True)
async def nap(seconds=0.0):
    """Wait, and touch no database."""
    await asyncio.sleep(seconds)


@task(idempotent=True)
async def nap_and_note(key, seconds=0.0):
    await asyncio.sleep(seconds)
    await ran(key)


async def _wait_inside():
    await doors["stack"].wait()


@task(idempotent=True)
async def wait_in_parts(*, spins=0.0):
    """Wait in an await, in a child, and in two kinds of threads, until the door is open."""
    doors["stack"] = asyncio.Event()
    hold = threading.Event()
    seen["loop"] = asyncio.get_running_loop(), doors["stack"], hold
    entered.add("stack")
    if spins:
        time.sleep(spins)
        return
    child = asyncio.create_task(_wait_inside(), name="<child>")
    in_thread = asyncio.create_task(asyncio.to_thread(_wait_in_thread, hold))
    in_shared = asyncio.create_task(sync_to_async(_wait_in_shared_thread)(hold))
    await _wait_inside()
    await asyncio.gather(child, in_thread, in_shared)


def _wait_in_thread(hold):
    hold.wait(60)


def _wait_in_shared_thread(hold):
    hold.wait(60)


def open_door():
    """Let ``wait_in_parts`` end. From any thread."""
    loop, door, hold = seen["loop"]
    hold.set()
    loop.call_soon_threadsafe(door.set)


@task(idempotent=True)
async def note_and_nap(key, seconds=60.0):
    """Note the run first, then wait for longer than a test."""
    entered.add(key)
    await ran(key)
    await asyncio.sleep(seconds)


@task
async def note_and_nap_once(key, seconds=60.0):
    """The same under the default policy."""
    entered.add(key)
    await ran(key)
    await asyncio.sleep(seconds)


@task(idempotent=True)
async def write_thrice(key):
    """Write rows by the async ORM, in a transaction, and in a thread of Python's own."""
    await Run.objects.acreate(key=f"{key} orm", pid=os.getpid())
    await sync_to_async(transaction.atomic(_ran))(f"{key} transaction")
    await asyncio.to_thread(_ran, f"{key} thread")


class Noted(Exception):
    """An error that notes the round of the event loop in which it is formatted."""

    rounds = 0
    told: ClassVar[list[int]] = []
    count = 0

    def __init__(self):
        self.is_told = False

    def __str__(self):
        if not self.is_told:
            self.is_told = True
            time.sleep(0.004)  # as long as an error with a long traceback takes
            Noted.told.append(Noted.rounds)
        return "noted"


def _count_rounds(loop):
    Noted.rounds += 1
    if len(Noted.told) < Noted.count:
        loop.call_soon(_count_rounds, loop)


@task(idempotent=True, max_attempts=1)
async def fail_together(number, count):
    """Wait until so many tasks are here, then fail in the same round of the loop."""
    Noted.count = count
    door = doors.setdefault("together", asyncio.Event())
    entered.add(f"together {number}")
    if len(entered) == count:
        _count_rounds(asyncio.get_running_loop())
        door.set()
    await door.wait()
    raise Noted


def _cancel_soon():
    """Cancel the asyncio task of the attempt when the function has ended, as a timer that it has left would."""
    asyncio.get_running_loop().call_soon(asyncio.current_task().cancel)


@task(idempotent=True, max_attempts=2)
async def fail_and_be_cancelled(*, pinned):
    if pinned:
        await sync_to_async(transaction.set_autocommit)(False)
        await ran("pinned")
    _cancel_soon()
    raise ValueError("own error")


@task(idempotent=True, max_attempts=1)
async def fail_beside_child(key, others):
    """Fail together with others, whose errors take longer than a child of this attempt."""

    async def note_later():
        await asyncio.sleep(0.1)
        await ran(key)

    Noted.count = others
    while len(entered) < others:
        await asyncio.sleep(0.01)
    doors["child"] = asyncio.ensure_future(note_later())
    raise ValueError("own error")


class _Broken(asyncio.Future):
    """A future whose first cancel raises an error."""

    is_broken = True

    def cancel(self, msg=None):
        if self.is_broken:
            self.is_broken = False
            raise RuntimeError("no cancel today")
        return super().cancel(msg)


@task(idempotent=True, timeout=0.2, max_attempts=1)
async def wait_without_cancel():
    entered.add("without cancel")
    await _Broken()


class NotedCache(BaseCache):
    """A cache that notes which of its objects were used, and which were closed."""

    used: ClassVar[list[object]] = []
    closed: ClassVar[list[object]] = []

    def __init__(self, _name, params):
        super().__init__(params)

    def get(self, key, default=None, version=None):
        self.used.append(self)
        return default

    def close(self, **_):
        self.closed.append(self)


@task(idempotent=True)
async def use_cache():
    await caches["noted"].aget("key")


@task(idempotent=True, max_crashes=2)
async def poison(key="poison"):
    """End the process, unless its event loop has no other task: then the test sees that a thread ran it."""
    await ran(key)
    os._exit(66)


@task(idempotent=True, max_crashes=2)
async def neighbour(key, seconds=0.3):
    await asyncio.sleep(seconds)
    await ran(key)


@task(idempotent=True)
async def poison_of_many(key="poison"):
    """End the process while others run."""
    await ran(key)
    await asyncio.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)


@task(idempotent=True)
async def neighbour_of_many(key, seconds=1.0):
    await asyncio.sleep(seconds)
    await ran(key)


@task(idempotent=True, timeout=0.5)
async def answer(seconds):
    """Write nothing: the database may take longer than the rest of the timeout."""
    await asyncio.sleep(seconds)


@task(idempotent=True)
async def block(seconds, key="block"):
    """Block the event loop."""
    entered.add(key)
    time.sleep(seconds)


@task(idempotent=True)
async def block_in_callback():
    """Block the event loop by code of no task."""
    asyncio.get_running_loop().call_later(0.1, time.sleep, 600)
    await asyncio.sleep(600)


@task(idempotent=True, timeout=0.2, max_attempts=1)
async def ignore_cancel(key):
    entered.add(key)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen[key] = "cancelled"


@task(idempotent=True)
async def leave_child(key):
    """Leave an asyncio task that would write later."""

    async def write_later():
        try:
            await asyncio.sleep(0.3)
            await ran(f"{key} child")
        except asyncio.CancelledError:
            seen[key] = "cancelled"
            raise

    seen[f"{key} task"] = asyncio.ensure_future(write_later())
    await asyncio.sleep(0)


@task(idempotent=True)
async def exit_in_child(key):
    """Leave run_forever, as sys.exit() in an asyncio task does."""

    async def end():
        sys.exit(3)

    child = asyncio.ensure_future(end())
    await asyncio.sleep(0.05)
    seen[key] = child.done()


@task(idempotent=True)
async def clean_up(key, seconds):
    """Take some time for ``finally``."""
    entered.add(key)
    try:
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(seconds)
        await ran(f"{key} finally")


@task(idempotent=True, takes_context=True)
async def wait_to_be_cancelled(ctx: TaskContext, key):
    entered.add(key)
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        seen[key] = ctx.cancelled
        raise


@task(idempotent=True, takes_context=True)
async def step_in_group(ctx: TaskContext, key):
    """Begin several steps at once."""
    running: list[str] = []

    def step(name):
        running.append(name)
        most = len(running)
        time.sleep(0.02)
        running.remove(name)
        return most

    results = await asyncio.gather(*(ctx.astep(f"s{n}", step, f"s{n}") for n in range(4)))
    seen[key] = max(results)


@task(idempotent=True)
async def see_context(key):
    """Return what an earlier attempt has left in the context."""
    seen[key] = LEFT.get()
    LEFT.set(key)


@task(idempotent=True, takes_context=True)
async def report(ctx: TaskContext, key):
    entered.add(key)
    ctx.progress(1, 2, f"note of {key}")
    await asyncio.sleep(60)


@task(idempotent=True, max_attempts=3)
async def retry_once(key):
    await ran(key)
    if await sync_to_async(Run.objects.filter(key=key).count)() == 1:
        raise Retry(after=0)


@task(idempotent=True)
async def sync_inside(key):
    """Call async code from sync code of an async task."""

    async def inner():
        await asyncio.sleep(0.01)
        return await sync_to_async(lambda: connection.alias)()

    seen[key] = await sync_to_async(async_to_sync(inner))()


@task(idempotent=True)
async def count_sessions(key):
    """Use the ORM, and say which session it was."""

    def pid():
        with connections["default"].cursor() as cursor:
            cursor.execute("SELECT 1")
        return id(connections["default"].connection)

    seen[key] = await sync_to_async(pid)()


@task(idempotent=True)
async def big(key, text):
    await asyncio.sleep(0)


def _hang(hold):
    (hold or threading.Event()).wait(600)


@task(idempotent=True, timeout=1, max_attempts=1)
async def slow_in_thread(key, seconds):
    """Leave a call that ends by itself."""
    await asyncio.to_thread(time.sleep, seconds)


@task(idempotent=True, timeout=1, max_attempts=1)
async def hang_in_thread(key, how="to_thread"):
    """Wait in a thread of the default executor, for longer than the attempt and any test."""
    entered.add(key)
    hold = doors.get("hold")
    if how == "insensitive":
        await sync_to_async(_hang, thread_sensitive=False)(hold)
    elif how == "executor":
        await asyncio.get_running_loop().run_in_executor(None, _hang, hold)
    else:
        await asyncio.to_thread(_hang, hold)


@task(idempotent=True, timeout=20, max_attempts=1)
async def look_up(key):
    """Ask for an address and for a name; neither needs a network. Return the process id."""
    loop = asyncio.get_running_loop()
    await loop.getaddrinfo("localhost", 80)
    await loop.getnameinfo(("127.0.0.1", 80), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)
    await ran(key)
    return os.getpid()


@task(idempotent=True)
async def call_in_thread(key):
    """Call a function in a thread, after tasks that were claimed together with this one."""
    await asyncio.sleep(0.2)
    await asyncio.to_thread(_ran, key)


_holding: set[str] = set()
_asking: set[str] = set()


def _semaphore():
    loop = asyncio.get_running_loop()
    return seen.setdefault(f"semaphore {id(loop)}", asyncio.Semaphore(2))


def _set_tenant(key):
    connections["default"].tenant = key


def _set(key):
    with connections["default"].cursor() as cursor:
        cursor.execute("SET application_name = 'held'")


def _lock(key):
    connections["default"].set_autocommit(False)
    _holding.add(key)
    Run.objects.select_for_update().get(key="locked")  # the first one gets the row


BENDS = {"tenant": _set_tenant, "SET": _set, "lock": _lock}


@task(idempotent=True)
async def hold_thread(key, how="iterator"):
    """Keep a thread, and wait for the semaphore that ``ask_with_semaphore`` has. Two of them take two threads."""
    rows = Run.objects.filter(key="seed").order_by("pk").aiterator(chunk_size=2)
    if how == "iterator":
        await anext(rows)
    else:
        await sync_to_async(BENDS[how])(key)
    _holding.add(key)
    while not _asking:
        await asyncio.sleep(0.01)
    async with _semaphore():
        await ran(key)


@task(idempotent=True)
async def hold_extra_thread(key):
    """Do what ``hold_thread`` does, by a function that has not kept a thread before."""
    await hold_thread.function(key)


@task(idempotent=True)
async def hold_by_sync_code(key):
    """Wait for that semaphore in async code that sync code calls, in a shared thread."""
    await sync_to_async(async_to_sync(_wait_for_semaphore))(key)
    await ran(key)


async def _wait_for_semaphore(key):
    _holding.add(key)
    while not _asking:
        await asyncio.sleep(0.01)
    async with _semaphore():
        return


@task(idempotent=True)
async def ask_with_semaphore(key, kept=2):
    """Take the semaphore, and make a query when this number of threads is kept."""
    async with _semaphore():
        _asking.add(key)
        while len(_holding) < kept:
            await asyncio.sleep(0.01)
        await ran(key)
