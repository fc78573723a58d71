"""Polls for the end of a task: often at first, and less often the longer the wait.

No process notifies the waiting code: a notification would add a cost to each task, and would leave rows behind
if the waiting process dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import queue
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from asgiref.sync import sync_to_async
from django.db import InterfaceError, OperationalError, connections

from django_txtasks.conf import get_config
from django_txtasks.database import sessions
from django_txtasks.database.errors import text_of
from django_txtasks.exceptions import (
    HandedOver,
    ResultTimeout,
    ResultUnavailable,
    TaskFailed,
)
from django_txtasks.features.results import task_states
from django_txtasks.features.results.task_states import End
from django_txtasks.models import GONE, Outcome
from django_txtasks.signals.logs import current
from django_txtasks.signals.outage import Outage
from django_txtasks.signals.queue import close_connections

FIRST_SECONDS = 0.002
LONGEST_SECONDS = 0.25
SHARE = 0.1
"""Pause until the next poll, as a share of the time waited so far."""
ANSWER_SECONDS = 10.0
"""Longest time for a poll, because a connection that was silently dropped would block it for up to two hours."""
AWAY_SECONDS = 1.0
"""Pause after the second failed poll in a row. The first failed poll is repeated at once, in a new session."""


def result_of(alias: str, task_id: uuid.UUID, timeout: float | None) -> Any:
    """Wait for a task and return its result; see ``TaskHandle.result``."""
    _refuse_what_cannot_end(alias)
    began, polls = time.monotonic(), _Polls(alias)
    while True:
        ends = polls.ends_of([task_id])
        if task_id in ends:
            return _result(task_id, ends[task_id])
        waited = time.monotonic() - began
        if timeout is not None and waited >= timeout:
            raise _too_long(task_id, timeout, polls) from polls.problem
        pause = _pause(waited) if polls.problem is None else polls.pause
        time.sleep(pause if timeout is None else min(pause, timeout - waited))


async def aresult_of(alias: str, task_id: uuid.UUID, timeout: float | None) -> Any:
    """Like ``result_of``, from async code. One statement serves all waits of an event loop."""
    await sync_to_async(_refuse_what_cannot_end)(alias)
    waiters = _of_loop.setdefault(asyncio.get_running_loop(), {})
    poller = waiters.setdefault(alias, _Poller(alias))
    try:
        return _result(task_id, await asyncio.wait_for(poller.end_of(task_id), timeout))
    except asyncio.TimeoutError as error:
        raise _too_long(task_id, timeout, poller.polls) from poller.polls.problem or error
    finally:
        if not poller.has_waiters and waiters.get(alias) is poller:
            del waiters[alias]  # because the poller refers to its event loop


class _Polls:
    """Polls in the session of one thread, with the state of the last poll.

    A broken session is replaced. No transaction is lost by this, because ``_refuse_what_cannot_end`` refuses to
    wait in a transaction.

    Attributes:
        problem: the error of the last poll; None: the database has answered.
        pause: seconds until a failed poll is repeated.
    """

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self._outage = Outage(alias, lambda: "Waiting for results")
        self.problem: Exception | None = None
        self.pause = 0.0

    def ends_of(self, ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, End]:
        """Return the ends of the tasks that have ended; an empty dict if the database does not answer."""
        try:
            ends = task_states.ends_of(self.alias, ids)
        except (OperationalError, InterfaceError) as error:
            self.failed(error)
            sessions.close(connections[self.alias])
            return {}
        if self.problem is not None:
            self._outage.succeeded()
        self.problem = None
        return ends

    def failed(self, error: Exception) -> None:
        """Record that the database has not answered."""
        self.pause = 0.0 if self.problem is None else AWAY_SECONDS
        self.problem = error
        self._outage.failed(text_of(error), self.pause)


class _Poller:
    """Polls for the ends of all tasks for which an event loop waits, as long as there are any.

    Attributes:
        polls: the polls, with the state of the last one.
    """

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._waiting: dict[asyncio.Future[End], tuple[uuid.UUID, float]] = {}
        self._is_new = asyncio.Event()
        self._polling: asyncio.Task[None] | None = None
        self.polls = _Polls(alias)

    @property
    def has_waiters(self) -> bool:
        """True while a coroutine waits for a task."""
        return bool(self._waiting)

    async def end_of(self, task_id: uuid.UUID) -> End:
        """Wait for the end of a task."""
        future: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        self._waiting[future] = task_id, time.monotonic()
        self._is_new.set()
        if self._polling is None or self._polling.done():
            # In a new context, because the context of the first waiter may be a request, whose thread ends with
            # it.
            self._polling = contextvars.Context().run(asyncio.create_task, self._poll())
        try:
            return await future
        finally:
            self._waiting.pop(future, None)

    async def _poll(self) -> None:
        thread = _Thread(self._alias, self.polls)
        try:
            while self._waiting:
                if thread.is_stuck:
                    thread = _Thread(self._alias, self.polls)
                await self._poll_once(thread)
        except (
            Exception
        ) as error:  # another poll would raise the same error, so the waiting code gets it
            self._fail(error)
        finally:
            thread.end()

    async def _poll_once(self, thread: _Thread) -> None:
        self._is_new.clear()
        ends = await thread.ends_of(sorted({task_id for task_id, _ in self._waiting.values()}))
        for future, (task_id, _) in list(self._waiting.items()):
            if task_id in ends and not future.done():
                future.set_result(ends[task_id])
                del self._waiting[future]
        if self._waiting and self.polls.problem is not None:
            await asyncio.sleep(self.polls.pause)
        elif self._waiting:
            latest = max(since for _, since in self._waiting.values())
            await self._rest(_pause(time.monotonic() - latest))

    async def _rest(self, seconds: float) -> None:
        """Wait for that time, or until a new wait begins."""
        try:
            await asyncio.wait_for(self._is_new.wait(), seconds)
        except asyncio.TimeoutError:
            return

    def _fail(self, error: Exception) -> None:
        for future in list(self._waiting):
            if not future.done():
                future.set_exception(error)


class _Thread:
    """The thread of a poller, with its own session. It ends with the poller.

    It is not a thread of Django or asgiref: their threads for requests end with the requests, and no code closes
    or checks the session of their thread for other code. It is not a thread of an executor either, because
    Python waits for such threads when a process ends, and this thread may be stuck.

    Attributes:
        is_stuck: True: a poll took too long. The thread ends when that poll ends.
    """

    def __init__(self, alias: str, polls: _Polls) -> None:
        self._alias, self._polls = alias, polls
        self._loop = asyncio.get_running_loop()
        self._asked: queue.SimpleQueue[_Question | None] = queue.SimpleQueue()
        self.is_stuck = False
        threading.Thread(target=self._run, name="txtasks-results", daemon=True).start()

    async def ends_of(self, ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, End]:
        """Poll in the thread; see ``_Polls.ends_of``."""
        answer: asyncio.Future[dict[uuid.UUID, End]] = self._loop.create_future()
        self._asked.put((ids, answer))
        try:
            return await asyncio.wait_for(answer, ANSWER_SECONDS)
        except asyncio.TimeoutError:
            self.is_stuck = True
            self.end()
            self._polls.failed(OperationalError(f"no answer within {ANSWER_SECONDS:g} s"))
            return {}

    def end(self) -> None:
        """Let the thread close its session and end, without waiting for it."""
        self._asked.put(None)

    def _run(self) -> None:
        while (asked := self._asked.get()) is not None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                self._loop.call_soon_threadsafe(self._found(*asked))
        close_connections()

    def _found(self, ids: Sequence[uuid.UUID], answer: asyncio.Future[Any]) -> Callable[[], None]:
        """Poll, and return a function that gives the answer to its future in the event loop."""
        try:
            ends = self._poll(ids)
        except Exception as error:
            return functools.partial(_give, answer, answer.set_exception, error)
        return functools.partial(_give, answer, answer.set_result, ends)

    def _poll(self, ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, End]:
        # Requests that wait for this poll may hold all connections of the pool.
        sessions.leave_pool(self._alias)
        session = connections[self._alias]
        if session.connection is not None and time.monotonic() >= sessions.end_of_age(session):
            sessions.close(session)
        return self._polls.ends_of(ids)


_Question = tuple[Sequence[uuid.UUID], "asyncio.Future[dict[uuid.UUID, End]]"]
"""The tasks to poll for, and the future for their ends."""


def _give(answer: asyncio.Future[Any], give: Callable[[Any], None], what: Any) -> None:
    if not answer.done():  # the caller has given up
        give(what)


_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Poller]] = WeakKeyDictionary()


def _pause(waited: float) -> float:
    return min(LONGEST_SECONDS, max(FIRST_SECONDS, SHARE * waited))


def _refuse_what_cannot_end(alias: str) -> None:
    """Raise ResultUnavailable if the task cannot end during the wait, or if its end would not be visible."""
    if current.get() is not None:
        raise ResultUnavailable(
            "result() was called in a task: it would keep a slot from others, and perhaps from the task that it "
            "waits for. Enqueue what comes next with on_success."
        )
    connection = connections[alias]
    if connection.in_atomic_block or not connection.get_autocommit():
        raise ResultUnavailable(
            f"result() was called in a transaction of the database {alias!r}: what was enqueued in it starts "
            "after its COMMIT, and what ends meanwhile may not be seen. Wait after it; in a view with "
            "ATOMIC_REQUESTS use @transaction.non_atomic_requests."
        )
    if not get_config().keeps(Outcome.SUCCEEDED):
        raise ResultUnavailable(
            "TXTASKS['keep_finished'] is 0: finished tasks are not kept, and neither are their results. Keep them "
            "for as long as somebody may wait."
        )


def _result(task_id: uuid.UUID, end: End) -> Any:
    if end.state == Outcome.SUCCEEDED:
        return end.result
    if end.state == GONE:
        raise no_row(task_id)
    if end.state == Outcome.HANDED:
        raise HandedOver(
            f"Task {task_id} was handed over to another system (TXTASKS['hand_over']), which has its result."
        )
    last = end.errors[-1] if end.errors else {}
    why = f": {last.get('type')}: {last.get('message')}" if last else ""
    raise TaskFailed(f"Task {task_id} is {end.state}{why}", state=end.state, errors=end.errors)


def no_row(task_id: uuid.UUID) -> ResultUnavailable:
    """Return the error for a task that has no row."""
    return ResultUnavailable(
        f"Task {task_id} has no row: its transaction was rolled back or has not committed, or it has finished "
        "and is not kept any more (TXTASKS['keep_finished'])."
    )


def _too_long(task_id: uuid.UUID, timeout: float | None, polls: _Polls) -> ResultTimeout:
    if polls.problem is None:
        return ResultTimeout(f"Task {task_id} has not ended within {timeout:g} s. It goes on.")
    return ResultTimeout(
        f"Task {task_id} was not seen to end within {timeout:g} s: the database {polls.alias!r} could not be "
        f"asked last ({text_of(polls.problem)}). The task goes on, or has ended meanwhile: ask again."
    )
