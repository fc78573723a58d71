"""The context of each attempt: nothing of an attempt before it, or of its thread, is in there."""

from __future__ import annotations

import contextlib
import contextvars
import threading

from django.core.cache import caches


class _Thread(threading.local):
    base: contextvars.Context | None = None


_thread = _Thread()


def context_of_attempt() -> contextvars.Context:
    """Return a context for one attempt: empty, but for the caches of this thread.

    A copy of the thread's own context would share values that can be changed in place, such as the scope that
    Sentry gives to each thread. The caches are made before, because Django keeps them in contexts: the
    connections of caches that an attempt made would end with it.
    """
    if _thread.base is None:
        _thread.base = contextvars.Context()
        _thread.base.run(_make_caches)
    return _thread.base.copy()


def _make_caches() -> None:
    for alias in caches:
        with contextlib.suppress(Exception):  # the task that uses it gets the error
            caches[alias]
