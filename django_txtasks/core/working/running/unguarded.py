"""The surroundings of a task's code without guards: a worker does as much as Django does around a request.

``guarded`` has the same functions. ``assembly`` chooses between the two.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn

from django.db import connections

from django_txtasks.database.errors import NoSession, text_of


class _Held(threading.local):
    """Aliases of connections that were in a transaction before the attempt, as in a test. They are left alone."""

    def __init__(self) -> None:
        self.aliases: set[str] = set()


_held = _Held()


def watch() -> None:
    """Watch the process from now on. Called by each worker."""


def before_turn(alias: str) -> None:
    """Look at the database, before a turn of the worker.

    Raises:
        OperationalError: it must not be written.
    """


def before_attempt(note: Callable[[str], None]) -> None:
    """Close sessions that are too old or broken.

    Args:
        note: called with the alias of each session that the thread opens; here it is not called.
    """
    _held.aliases = set()
    for one in connections.all(initialized_only=True):
        if one.in_atomic_block:
            _held.aliases.add(one.alias)
        else:
            one.close_if_unusable_or_obsolete()


def note_states() -> None:
    """Take the state of this thread's connection objects as their state before the attempt."""


def have_session(alias: str, *, wanted: bool) -> None:
    """Open this thread's session if it is wanted.

    Raises:
        NoSession: the database gives no session.
    """
    if wanted:
        try:
            connections[alias].ensure_connection()
        except Exception as error:  # also errors of a service that a project asks for its password
            raise NoSession(text_of(error)) from error


def after_attempt(*, failed: bool, errors: Iterable[BaseException | None] = ()) -> None:
    """Close the sessions that an attempt leaves in a transaction; after a failure, all sessions."""
    for one in connections.all(initialized_only=True):
        if one.alias not in _held.aliases and (failed or one.in_atomic_block):
            one.in_atomic_block = False  # otherwise it would not be closed
            one.close()


def close_old() -> float | None:
    """Close idle sessions that are too old. Return the seconds until the next look; None = no look."""
    for one in connections.all(initialized_only=True):
        if not one.in_atomic_block:
            one.close_if_unusable_or_obsolete()
    return None


def awaiting(alias: str) -> AbstractContextManager[None]:
    """Note that this thread waits for its session inside the block."""
    return nullcontext()


def forks_of_process() -> int:
    """Return a number that differs in a process that the code of a task has forked."""
    return 0


def end_child(error: BaseException | None = None) -> NoReturn:
    """End a process that the code of a task has forked."""
    raise SystemExit(1)


def call_in_this_process(call: Callable[[], Any]) -> Any:
    """Return what the call returns."""
    return call()


async def await_in_this_process(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Return what the coroutine returns."""
    return await coroutine


def watch_generators() -> Callable[[], Awaitable[None]]:
    """Return a function that closes the async generators which the running event loop begins from now on."""
    return _close_none


async def _close_none() -> None:
    return
