"""Hints that are sent when the caller's transaction commits."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_txtasks import signals
from django_txtasks.core.ground.config import CoreConfig, get_config
from django_txtasks.core.ground.seams import HINTS
from django_txtasks.exceptions import INTERRUPTIONS


def notify_on_commit(alias: str, tasks: Iterable[tuple[uuid.UUID, str]]) -> None:
    """Register hints of (id, queue) pairs, to be sent when the current transaction commits.

    Each alias and each stack of savepoints has one hook, which holds its ids. So a savepoint that is rolled back
    drops its ids, and no ids outlive the transaction. The code is short, because every commit runs it, and after a
    wait for the database Python runs it several times slower than in a loop.
    """
    connection, config = connections[alias], get_config()
    if not HINTS.whole.can_notify(config, connection.vendor):
        return
    if not connection.in_atomic_block and not connection.get_autocommit():
        return  # Django runs no hooks after a transaction with autocommit off; workers find its tasks by a scan
    open_hook = _open_hook(connection)
    hook = open_hook or CommitHook(alias, config)
    hook.add(tasks)
    if open_hook is None and hook.of_queue:
        connection.on_commit(hook.send_hints)


def notify_now(config: CoreConfig, alias: str, tasks: Iterable[tuple[uuid.UUID, str]]) -> None:
    """Send hints of (id, queue) pairs of committed tasks, if their transport can."""
    hook = CommitHook(alias, config)
    hook.add(tasks)
    hook.send_hints()


class CommitHook:
    """A hook that runs after the commit, in the thread of the request: it appends to a buffer and never waits.

    Attributes:
        of_queue: ids of committed tasks, by queue: at most one more than hints name.
    """

    def __init__(self, alias: str, config: CoreConfig) -> None:
        self._alias, self._config = alias, config
        self.of_queue: dict[str, list[uuid.UUID]] = {}

    def add(self, tasks: Iterable[tuple[uuid.UUID, str]]) -> None:
        """Keep the ids that hints will name, and one more, which shows that the list is incomplete."""
        of_queue, most = self.of_queue, HINTS.whole.BUFFER_IDS
        for task_id, queue in tasks:
            ids = of_queue.get(queue)
            if ids is None:
                of_queue[queue] = [task_id]
            elif len(ids) <= most:
                ids.append(task_id)

    def send_hints(self) -> None:
        """Send the hints. An error is logged, because the tasks are committed already.

        Exceptions that end the enqueueing task (time limit, cancel) are raised. Django's own ``robust=True`` would
        swallow them.
        """
        try:
            HINTS.whole.notify(self._config, self._alias, self.of_queue)
        except INTERRUPTIONS:
            raise
        except Exception as error:
            signals.hints_unsent.emit(database=self._alias, exception=error)


def hooks_in(registered: Sequence[Any]) -> Iterator[tuple[set[str], CommitHook]]:
    """Yield our hooks in Django's ``run_on_commit`` or a part of it, the last first, each with its savepoints."""
    for savepoints, function, *_ in reversed(registered):
        hook = getattr(function, "__self__", None)
        if isinstance(hook, CommitHook):
            yield savepoints, hook


def _open_hook(connection: BaseDatabaseWrapper) -> CommitHook | None:
    """Return this transaction's hook, if it was registered in the same savepoints."""
    if not connection.run_on_commit:
        return None
    savepoints = set(connection.savepoint_ids)
    return next(
        (hook for its, hook in hooks_in(connection.run_on_commit[-50:]) if its == savepoints), None
    )
