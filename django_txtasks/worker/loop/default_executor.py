"""The default executor of the event loop: for ``asyncio.to_thread``, ``thread_sensitive=False``, DNS look-ups."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from django.db import connections

from django_txtasks.database.sessions import is_pooled
from django_txtasks.signals.logs import current
from django_txtasks.signals.queue import close_session
from django_txtasks.worker.running import task_threads
from django_txtasks.worker.running.forked_task import call_in_this_process


class _DefaultExecutor(ThreadPoolExecutor):
    """Ends the database sessions that a call has opened, because the next call may be another attempt's."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See ``Executor.submit``."""
        return super().submit(_call, functools.partial(fn, *args, **kwargs), current.get())


def default_executor() -> ThreadPoolExecutor:
    """Return the default executor of an event loop, with as many threads as Python's own."""
    return _DefaultExecutor(thread_name_prefix="txtasks-default")


def _call(call: Callable[[], Any], facts: dict[str, Any] | None) -> Any:
    if facts is not None:
        task_threads.serve(facts)
    try:
        return call_in_this_process(call)
    finally:
        task_threads.serve_none()
        _forget_connections()


def _forget_connections() -> None:
    """End this thread's sessions, even of a pool, and drop its connection objects with all that a call has set."""
    for one in connections.all(initialized_only=True):
        if is_pooled(one) and one.connection is not None:
            with contextlib.suppress(Exception):  # the session is lost
                one.connection.close()
        close_session(one)
        del connections[one.alias]
