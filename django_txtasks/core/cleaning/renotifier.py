"""Repeated hints for overdue tasks, whose first hints seem to be lost."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from django_txtasks.core.ground.config import CoreConfig
from django_txtasks.core.rows import overdue
from django_txtasks.core.rows.buckets import paused_queues
from django_txtasks.core.rows.cleaning import abilities
from django_txtasks.core.rows.overdue import Overdue
from django_txtasks.database.transactions import own_transaction

Notify = Callable[[Iterable[tuple[uuid.UUID, str]]], None]

MAX_RENOTIFIED_TASKS = 1000
"""Most tasks renotified per queue and pass. An idle worker's scan finds the others."""
MAX_SEEN_TASKS = 100_000
"""Most tasks read per queue and pass; the next pass continues behind them."""
ROWS_PER_PAGE = 1000


@dataclass(frozen=True)
class _Cursor:
    """The last task that was read in a queue."""

    priority: int
    task: Overdue


class Renotifier:
    """Sends hints again for tasks that have been due for two clean intervals, if a living worker can run them.

    A task whose name or queue no living worker serves gets no hint and no write: it waits for a deploy. A
    pass reads a part of a long backlog, and the next pass continues behind it.
    """

    def __init__(self, config: CoreConfig, alias: str, notify: Notify) -> None:
        self._config, self._alias, self._notify = config, alias, notify
        self._cursors: dict[str, _Cursor] = {}

    def pages(self) -> Iterator[int]:
        """Renotify page by page; yield the number of tasks in each page."""
        able, paused = abilities(self._alias), paused_queues(self._alias)
        for queue in self._config.queues:
            if queue in able and queue not in paused:
                yield from self._pages(queue, able[queue])

    def _pages(self, queue: str, names: set[str] | None) -> Iterator[int]:
        """Continue in one queue, until its end or a limit.

        Args:
            names: task functions that its workers declare; None = all.
        """
        looked, told = 0, 0
        cursor = self._cursors.pop(queue, None)
        for priority in self._priorities(queue):
            if cursor is not None and priority > cursor.priority:
                continue
            behind = cursor.task if cursor is not None and priority == cursor.priority else None
            while found := self._page(queue, priority, behind):
                behind = found[-1]
                wanted = [one for one in found if one.untold and _is_in(one.task_name, names)]
                wanted = wanted[: MAX_RENOTIFIED_TASKS - told]
                if len(wanted) == MAX_RENOTIFIED_TASKS - told:
                    behind = wanted[-1]
                count = self._tell(queue, wanted)
                yield count
                looked, told = looked + len(found), told + len(wanted)
                if looked >= MAX_SEEN_TASKS or told >= MAX_RENOTIFIED_TASKS:
                    self._cursors[queue] = _Cursor(priority, behind)
                    return
                if len(found) < ROWS_PER_PAGE:
                    break

    def _priorities(self, queue: str) -> list[int]:
        with self._transaction():
            return overdue.priorities(self._alias, queue)

    def _page(self, queue: str, priority: int, behind: Overdue | None) -> list[Overdue]:
        with self._transaction():
            return overdue.page(
                self._alias, queue, priority, 2 * self._config.clean_interval,
                behind=behind, limit=ROWS_PER_PAGE,
            )  # fmt: skip

    def _tell(self, queue: str, tasks: list[Overdue]) -> int:
        with self._transaction():
            ids = overdue.mark_notified(self._alias, [one.task_id for one in tasks])
        if ids:
            self._notify([(task_id, queue) for task_id in ids])
        return len(ids)

    def _transaction(self) -> AbstractContextManager[None]:
        return own_transaction(self._alias, limit=self._config.lease / 2, in_order=True)


def _is_in(name: str, names: set[str] | None) -> bool:
    return names is None or name in names
