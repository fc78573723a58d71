"""The context of each attempt, which has nothing of an earlier attempt or of its thread."""

from __future__ import annotations

import contextlib
import contextvars
import threading

from django.core.cache import caches


class _Thread(threading.local):
    base: contextvars.Context | None = None


_thread = _Thread()


def context_of_attempt() -> contextvars.Context:
    """Return a context for one attempt. It is empty except for the caches of this thread.

    A copy of the thread's own context would share mutable values, such as the scope that Sentry gives to each
    thread. The caches are made in advance, because Django keeps them in contexts: the connections of caches that
    an attempt made would end with the attempt.
    """
    if _thread.base is None:
        _thread.base = contextvars.Context()
        _thread.base.run(_make_caches)
    return _thread.base.copy()


def close_caches() -> None:
    """Close the connections of the caches that the present context has made, as Django does after a request."""
    for cache in caches.all(initialized_only=True):
        with contextlib.suppress(Exception):  # the server is gone
            cache.close()


def _make_caches() -> None:
    for alias in caches:
        with contextlib.suppress(Exception):  # the task that uses the cache gets the error
            caches[alias]
