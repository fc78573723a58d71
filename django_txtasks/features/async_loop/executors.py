"""The executor of each attempt on an event loop: its sync calls run one at a time, in order, in shared threads.

``sync_to_async``, and so every query of Django's async ORM, uses this executor. One call may run in another thread
than the next. So a thread may leave an attempt only if the attempt has changed nothing in the thread's database
connections. Otherwise the thread stays with the attempt until its end: the attempt is *pinned*.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Protocol

from asgiref.sync import SyncToAsync, ThreadSensitiveContext

from django_txtasks.core.rows.attempts import Attempt
from django_txtasks.features.async_loop import open_cursors
from django_txtasks.guards import task_threads
from django_txtasks.guards.connections import after_attempt, after_call, before_attempt
from django_txtasks.guards.forked_task import call_in_this_process
from django_txtasks.signals.logs import current


class Threads(Protocol):
    """The threads that an executor uses.

    Attributes:
        lock: guards the state of all their executors.
        note_session: see ``before_attempt``.
        pinned: executors with which a thread stays.
        pinners: functions of the attempts that were ever pinned.
    """

    lock: threading.Lock
    pinned: set[AttemptExecutor]
    pinners: set[str]
    note_session: Callable[[str], None]

    def enqueue(self, executor: AttemptExecutor) -> None:
        """Have the next free thread call ``executor.serve()``."""

    def note_free(self) -> None:
        """Count the calling thread as free; it will be in a moment."""


class AttemptExecutor(Executor):
    """The serial executor of one attempt. Used as a context manager, it becomes the executor of ``sync_to_async``.

    It stays this context's executor after the attempt. A coroutine that outlives the attempt, and copies the
    context, gets RuntimeError, because with another executor it would write rows after the end of its attempt.

    Attributes:
        used: True if a call was ever submitted.
        since: time by ``time.monotonic()`` since which its next call waits for a thread.
    """

    def __init__(self, threads: Threads, attempt: Attempt) -> None:
        self._threads, self._attempt = threads, attempt
        self.used = False
        self.since = 0.0
        self._calls: queue.SimpleQueue[_Call | None] | None = None  # None in it = the end
        self._is_active = False  # it waits for a thread, or has one
        self._has_thread = False
        self._has_ended = False
        self._end: Future[None] | None = None  # done when the thread has left the ended attempt
        self._failed = False
        self._error: BaseException | None = None

    def __enter__(self) -> AttemptExecutor:
        _use_in_this_context(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended = True

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a call in one of the threads, after the earlier calls of this attempt.

        Raises:
            RuntimeError: the attempt has ended.
        """
        call = _Call(fn, args, kwargs)
        future = call.future
        with self._threads.lock:
            if self._has_ended:
                raise RuntimeError(
                    f"Attempt {self._attempt.number} of {self._attempt.task_name} has ended, so this call of "
                    "sync_to_async() or of the ORM is refused. Await or cancel every asyncio task that the task "
                    "function starts before the function returns."
                )
            if self._calls is None:
                self._calls, self.used = queue.SimpleQueue(), True
            self._calls.put(call)
            was_active, self._is_active = self._is_active, True
        if not was_active:
            self._threads.enqueue(self)
        return future

    @property
    def function(self) -> str:
        """Name of the task function."""
        return self._attempt.task_name

    @property
    def is_waiting(self) -> bool:
        """True if a call waits for a thread."""
        return self._is_active and not self._has_thread and not self._has_ended

    async def ended(self, *, failed: bool, error: BaseException | None) -> None:
        """End the use of the threads: refuse new calls, cancel waiting calls, and wait for the running call.

        If the attempt is pinned, its thread ends the changed sessions meanwhile. Arguments as of
        ``after_attempt``.
        """
        cancelled: list[_Call] = []
        with self._threads.lock:
            self._has_ended = True
            self._failed, self._error = failed, error
            while (call := self._next_waiting()) is not None:
                cancelled.append(call)
            if self._has_thread:
                self._end = Future()
                self._end.set_running_or_notify_cancel()  # it cannot be cancelled any more
                if self._calls is not None:
                    self._calls.put(None)
        for call in cancelled:
            call.future.cancel()
        while self._end is not None and not self._end.done():
            with contextlib.suppress(asyncio.CancelledError):  # the sessions must end in any case
                await asyncio.wrap_future(self._end)

    # -- in a thread -------------------------------------------------------------------------------

    def serve(self) -> None:
        """Run the next call in this thread. If this pins the attempt, run all its calls, until it ends."""
        with self._threads.lock:
            call = self._next_waiting()
            self._is_active = self._has_thread = call is not None
        if call is None:  # the attempt has ended
            return
        facts = self._attempt.facts
        token = current.set(facts)
        task_threads.serve(facts)
        try:
            if call.run(before=lambda: before_attempt(self._threads.note_session)):
                is_free = call.leaves_nothing()
            else:
                is_free = True
            if is_free:
                self._leave_thread(call)
            else:
                self._stay(call)
        finally:
            task_threads.serve_none()
            current.reset(token)

    def _leave_thread(self, call: _Call) -> None:
        with self._threads.lock:
            self._has_thread = False
            has_more = self._calls is not None and not self._calls.empty()
            self._is_active = goes_on = has_more and not self._has_ended
            end = self._end
        if goes_on:
            self._threads.enqueue(self)
        self._threads.note_free()
        call.hand_over()
        if end is not None:
            end.set_result(None)

    def _stay(self, call: _Call | None) -> None:
        self._threads.pinned.add(self)
        self._threads.pinners.add(self.function)
        while call is not None:
            call.hand_over()
            del call  # while the thread waits, it keeps no argument and no result
            call = None if self._calls is None else self._calls.get()
            if call is not None:
                call.run()
        # The slot's runner would record such an error, which only a backend with a defect raises.
        with contextlib.suppress(BaseException):
            after_attempt(failed=open_cursors.forget() or self._failed, errors=[self._error])
        self._threads.pinned.discard(self)
        self._error = None
        self._threads.note_free()
        if self._end is not None:
            self._end.set_result(None)

    def _next_waiting(self) -> _Call | None:
        if self._calls is not None:
            with contextlib.suppress(queue.Empty):
                return self._calls.get_nowait()
        return None


class _Call:
    """One call of an attempt, with its future.

    It forgets its result when it hands it over. Otherwise a traceback, which refers to this object, would keep the
    arguments and the result until the garbage collector runs.
    """

    def __init__(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> None:
        self.future: Future[Any] = Future()
        self._call: Callable[[], Any] | None = functools.partial(fn, *args, **kwargs)
        self._value: Any = None
        self._error: BaseException | None = None

    def run(self, before: Callable[[], None] | None = None) -> bool:
        """Call ``before`` and the function. Never raises. Return False if the call was cancelled before."""
        call, self._call = self._call, None
        if call is None or not self.future.set_running_or_notify_cancel():
            return False
        try:
            if before is not None:
                before()
            self._value = call_in_this_process(call)
        except BaseException as error:
            self._error = error
        return True

    def leaves_nothing(self) -> bool:
        """Return True if the attempt's next call may run in another thread; then clean up after this one."""
        try:
            return not open_cursors.are_open() and after_call()
        except (
            BaseException
        ) as error:  # a backend with a defect; the sessions are given up in any case
            self._error = error
            return True

    def hand_over(self) -> None:
        """Give the result to the caller on the event loop."""
        future = self.future
        del self.future
        value, error, self._value, self._error = self._value, self._error, None, None
        if future.cancelled():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)


_HAS_TABLE = hasattr(SyncToAsync, "context_to_thread_executor")  # of asgiref 3.8.1 to 3.13.0


def _use_in_this_context(executor: Executor) -> None:
    """Have ``sync_to_async`` use this executor in the present context and in its copies.

    The parameter ``executor`` came with asgiref 3.13. It costs 7 microseconds and 370 bytes more for each attempt
    than an entry in asgiref's table, so it is used only if a newer asgiref has no such table.
    """
    if _HAS_TABLE:
        context = ThreadSensitiveContext()
        SyncToAsync.thread_sensitive_context.set(context)
        SyncToAsync.context_to_thread_executor[context] = executor
        return
    entering: Any = ThreadSensitiveContext(executor=executor).__aenter__()  # type: ignore[no-untyped-call]
    with contextlib.suppress(StopIteration):  # it awaits nothing
        entering.send(None)
