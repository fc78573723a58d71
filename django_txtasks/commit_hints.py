"""Hints that are sent when the caller's transaction commits."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_txtasks import hints
from django_txtasks.conf import Config, get_config
from django_txtasks.hint_sender import BUFFER_IDS


def notify_on_commit(alias: str, tasks: Iterable[tuple[uuid.UUID, str]]) -> None:
    """Have hints of (id, queue) pairs sent when the current transaction commits.

    One hook per alias and savepoint stack, which holds its ids itself: a savepoint that is
    rolled back takes its own along, and nothing outlives the transaction.
    """
    connection, config = connections[alias], get_config()
    if not hints.can_notify(config, connection.vendor):
        return
    if not connection.in_atomic_block and not connection.get_autocommit():
        return  # the end of a transaction by hand is not told to anybody; workers scan
    hook = _open_hook(connection)
    if hook is not None:
        hook.add(tasks)
        return
    hook = _CommitHook(alias, config)
    hook.add(tasks)
    if hook.tasks:
        connection.on_commit(hook, robust=True)


class _CommitHook:
    """Runs after the commit, in the request's thread: a buffer append, no wait, no error.

    Attributes:
        tasks: (id, queue) of those to notify workers about: of each queue one more than hints will name, at most.
    """

    def __init__(self, alias: str, config: Config) -> None:
        self._alias, self._config = alias, config
        self.tasks: list[tuple[uuid.UUID, str]] = []
        self._numbers: dict[str, int] = {}
        self.__qualname__ = "django_txtasks hints"  # Django's log of a failed hook names it

    def add(self, tasks: Iterable[tuple[uuid.UUID, str]]) -> None:
        """Keep what hints will name; the first one beyond them says that there are more."""
        numbers = self._numbers
        for task in tasks:
            number = numbers.get(task[1], 0)
            if number <= BUFFER_IDS:
                numbers[task[1]] = number + 1
                self.tasks.append(task)

    def __call__(self) -> None:
        hints.notify(self._config, self._alias, self.tasks)


def _open_hook(connection: BaseDatabaseWrapper) -> _CommitHook | None:
    """Return this transaction's hook, if it was registered in the same savepoints."""
    if not connection.run_on_commit:
        return None
    savepoints = set(connection.savepoint_ids)
    for sids, hook, *_ in reversed(connection.run_on_commit[-50:]):
        if isinstance(hook, _CommitHook) and sids == savepoints:
            return hook
    return None
