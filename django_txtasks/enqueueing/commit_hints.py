"""Hints that are sent when the caller's transaction commits."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_txtasks import hints, signals
from django_txtasks.conf import Config, get_config
from django_txtasks.exceptions import INTERRUPTIONS
from django_txtasks.sending.sender import BUFFER_IDS


def notify_on_commit(alias: str, tasks: Iterable[tuple[uuid.UUID, str]]) -> None:
    """Have hints of (id, queue) pairs sent when the current transaction commits.

    One hook per alias and savepoint stack, which holds its ids itself: a savepoint that is
    rolled back takes its own along, and nothing outlives the transaction. It is short, as every commit runs it: in
    a process that waits for its database meanwhile, Python takes several times as long for it as in a loop.
    """
    connection, config = connections[alias], get_config()
    if not hints.can_notify(config, connection.vendor):
        return
    if not connection.in_atomic_block and not connection.get_autocommit():
        return  # the end of a transaction by hand is not told to anybody; workers scan
    open_hook = _open_hook(connection)
    hook = open_hook or CommitHook(alias, config)
    hook.add(tasks)
    if open_hook is None and hook.of_queue:
        connection.on_commit(hook.send_hints)


def notify_now(config: Config, alias: str, tasks: Iterable[tuple[uuid.UUID, str]]) -> None:
    """Send hints of (id, queue) pairs that are committed, where ``hints.can_notify``."""
    hook = CommitHook(alias, config)
    hook.add(tasks)
    hook.send_hints()


class CommitHook:
    """Runs after the commit, in the request's thread: a buffer append, no wait, no error.

    Attributes:
        of_queue: ids of those to notify workers about, by queue: one more than hints will name, at most.
    """

    def __init__(self, alias: str, config: Config) -> None:
        self._alias, self._config = alias, config
        self.of_queue: dict[str, list[uuid.UUID]] = {}

    def add(self, tasks: Iterable[tuple[uuid.UUID, str]]) -> None:
        """Keep what hints will name; the first one beyond them says that there are more."""
        of_queue = self.of_queue
        for task_id, queue in tasks:
            ids = of_queue.get(queue)
            if ids is None:
                of_queue[queue] = [task_id]
            elif len(ids) <= BUFFER_IDS:
                ids.append(task_id)

    def send_hints(self) -> None:
        """Send them; what goes wrong is told in the log, as what was committed is committed.

        Not so what ends the task that has enqueued: Django's own ``robust`` would keep that from it.
        """
        try:
            hints.notify(self._config, self._alias, self.of_queue)
        except INTERRUPTIONS:
            raise
        except Exception as error:
            signals.hints_unsent.emit(database=self._alias, exception=error)


def hooks_in(registered: Sequence[Any]) -> Iterator[tuple[set[str], CommitHook]]:
    """Yield our hooks of Django's ``run_on_commit``, or of a part of it, last one first, with savepoints."""
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
