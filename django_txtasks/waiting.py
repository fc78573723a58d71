"""Waiting for the end of a task, by looking: often at first, and less often the longer it takes.

Nobody is told of an end: that would cost each task, and would leave something behind where the one who waits dies.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
import uuid
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

from asgiref.sync import sync_to_async
from django.db import connections

from django_txtasks.conf import get_config
from django_txtasks.exceptions import ResultTimeout, ResultUnavailable, TaskFailed
from django_txtasks.lifecycle import standing
from django_txtasks.lifecycle.standing import End
from django_txtasks.logs import current
from django_txtasks.models import Outcome

FIRST_SECONDS = 0.002
LONGEST_SECONDS = 0.25
SHARE = 0.1
"""Of the time that was waited so far: the pause until the next look."""


def result_of(alias: str, task_id: uuid.UUID, timeout: float | None) -> Any:
    """Return the result of a task, once it has succeeded; see ``TaskHandle.result``."""
    _refuse_what_cannot_end(alias)
    began = time.monotonic()
    while True:
        end = standing.ends_of(alias, [task_id]).get(task_id)
        if end is not None:
            return _result(task_id, end)
        waited = time.monotonic() - began
        if timeout is not None and waited >= timeout:
            raise _too_long(task_id, timeout)
        time.sleep(min(_pause(waited), LONGEST_SECONDS if timeout is None else timeout - waited))


async def aresult_of(alias: str, task_id: uuid.UUID, timeout: float | None) -> Any:
    """Like ``result_of``, from async code; one statement looks for all tasks for which an event loop waits."""
    await sync_to_async(_refuse_what_cannot_end)(alias)
    waiters = _of_loop.setdefault(asyncio.get_running_loop(), {})
    lookout = waiters.setdefault(alias, _Lookout(alias))
    try:
        return _result(task_id, await asyncio.wait_for(lookout.end_of(task_id), timeout))
    except asyncio.TimeoutError as error:
        raise _too_long(task_id, timeout) from error
    finally:
        if not lookout.has_waiters and waiters.get(alias) is lookout:
            del waiters[alias]  # it would keep its event loop


class _Lookout:
    """Looks for the ends of all tasks for which an event loop waits, while there are any."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._waiting: dict[asyncio.Future[End], tuple[uuid.UUID, float]] = {}
        self._is_new = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    @property
    def has_waiters(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting)

    async def end_of(self, task_id: uuid.UUID) -> End:
        """Wait for the end of a task."""
        future: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        self._waiting[future] = task_id, time.monotonic()
        self._is_new.set()
        if self._looking is None or self._looking.done():
            # not in the context of the first one who waits: a request, say, whose thread ends with it
            self._looking = contextvars.Context().run(asyncio.create_task, self._look())
        try:
            return await future
        finally:
            self._waiting.pop(future, None)

    async def _look(self) -> None:
        while self._waiting:
            self._is_new.clear()
            ids = sorted({task_id for task_id, _ in self._waiting.values()})
            try:
                ends = await sync_to_async(standing.ends_of)(self._alias, ids)
            except Exception as error:  # whatever the database says: those who wait hear of it
                self._fail(error)
                break
            for future, (task_id, _) in list(self._waiting.items()):
                if task_id in ends and not future.done():
                    future.set_result(ends[task_id])
                    del self._waiting[future]
            if self._waiting:
                now = time.monotonic()
                latest = max(since for _, since in self._waiting.values())
                await self._rest(_pause(now - latest))

    async def _rest(self, seconds: float) -> None:
        """Wait, but not if somebody else waits for a task meanwhile."""
        try:
            await asyncio.wait_for(self._is_new.wait(), seconds)
        except asyncio.TimeoutError:
            return

    def _fail(self, error: Exception) -> None:
        for future in list(self._waiting):
            if not future.done():
                future.set_exception(error)


_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Lookout]] = WeakKeyDictionary()


def _pause(waited: float) -> float:
    return min(LONGEST_SECONDS, max(FIRST_SECONDS, SHARE * waited))


def _refuse_what_cannot_end(alias: str) -> None:
    """Raise where the end cannot come, or will not be seen."""
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
    if not get_config().keeps_finished:
        raise ResultUnavailable(
            "TXTASKS['keep_finished'] is 0: finished tasks are not kept, and neither are their results. Keep them "
            "for as long as somebody may wait."
        )


def _result(task_id: uuid.UUID, end: End) -> Any:
    if end.state == Outcome.SUCCEEDED:
        return end.result
    _raise(task_id, end)


def _raise(task_id: uuid.UUID, end: End) -> NoReturn:
    if end.state == standing.GONE:
        raise no_row(task_id)
    last = end.errors[-1] if end.errors else {}
    why = f": {last.get('type')}: {last.get('message')}" if last else ""
    raise TaskFailed(f"Task {task_id} is {end.state}{why}", state=end.state, errors=end.errors)


def no_row(task_id: uuid.UUID) -> ResultUnavailable:
    """Return the error for a task that has no row."""
    return ResultUnavailable(
        f"Task {task_id} has no row: its transaction was rolled back or has not committed, or it has finished "
        "and is not kept any more (TXTASKS['keep_finished'])."
    )


def _too_long(task_id: uuid.UUID, timeout: float | None) -> ResultTimeout:
    return ResultTimeout(f"Task {task_id} has not ended within {timeout:g} s. It goes on.")
