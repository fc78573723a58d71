"""Batches that were never ended, and tasks that were never woken. Reads in pages, for at most 10 s each."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from django.db import connections

from django_txtasks.conf import Config
from django_txtasks.database.transactions import own_transaction
from django_txtasks.features.batches import rows as batches
from django_txtasks.insight.finding import MAX_COUNTED_ROWS
from django_txtasks.models import Batch, FinishedTask, Status, Task, Wait

MOST = MAX_COUNTED_ROWS + 1
PATIENCE = 4
"""Clean intervals after which an open batch, or a sleeping task, counts as forgotten."""
LOOK_SECONDS = 10.0
"""Longest time for each of the two questions."""
LATELY_ENDED = 10_000
"""Highest number of recently finished members that are read."""
TASKS_PER_PAGE = 500
SECOND_LOOK_SECONDS = 1.0
FAR = timedelta(days=18262)
"""A time from now that no back-off reaches; a wait without a time limit sets ``run_after`` beyond it."""

Page = Callable[[uuid.UUID], tuple[list[Any], uuid.UUID | None]]


def unended_batches(alias: str, config: Config, now: datetime) -> list[str]:
    """Return open batches that have had no live member for long, oldest first."""
    since = now - PATIENCE * config.clean_interval
    with _in_order(alias):
        found = _unended(alias, since)
        # without history the end of the last member is unknown
        if found and not config.keeps("succeeded"):
            time.sleep(SECOND_LOOK_SECONDS)
            found = _unended(alias, since)
    return [f"{one.pk} ({one.name!r} of {_time(one.created_at)})" for one in found[:MOST]]


def _unended(alias: str, since: datetime) -> list[Batch]:
    ids = list(_read(lambda after: batches.without_live_member(alias, after)))
    rows = Batch.objects.using(alias).filter(pk__in=ids, finished_at=None, created_at__lt=since)
    found = list(rows.order_by("created_at"))
    if not found:
        return []
    ended = FinishedTask.objects.using(alias).filter(batch__in=[batch.pk for batch in found])
    recent = ended.filter(finished_at__gte=since).order_by("-finished_at")
    lately = set(recent.values_list("batch", flat=True)[:LATELY_ENDED])
    return [batch for batch in found if batch.pk not in lately]


def unwoken_tasks(alias: str, config: Config, now: datetime) -> list[str]:
    """Return tasks that still wait although their value has come or their sleep is over, oldest first."""
    since = now - PATIENCE * config.clean_interval
    with _in_order(alias):
        found = list(_read(lambda after: _unwoken(alias, after, now, since)))
    return [
        f"{wait.task_id} ({wait.name!r} since {_time(_end(wait))})"
        for wait in sorted(found, key=_end)[:MOST]
    ]


def _unwoken(
    alias: str, after: uuid.UUID, now: datetime, since: datetime
) -> tuple[list[Wait], uuid.UUID | None]:
    """Look at the next page of tasks with waits; return the last wait of each task that was not woken."""
    all_waits = Wait.objects.using(alias)
    page = all_waits.filter(task_id__gt=after).order_by("task_id").values_list("task_id", flat=True)
    ids = list(page.distinct()[:TASKS_PER_PAGE])
    tasks = Task.objects.using(alias).filter(
        pk__in=ids, status=Status.PENDING, run_after__gt=now, attempt__gt=0
    )
    asleep = {task.pk: task for task in tasks.only("run_after", "failures", "crashes", "snoozes")}
    waits = all_waits.filter(task_id__in=list(asleep)).defer("value").order_by("task_id")
    found = []
    for task_id, group in groupby(waits, key=lambda wait: wait.task_id):
        last = _last(list(group), now)
        if last and _end(last) < since and not _is_put_off(asleep[task_id], last, now):
            found.append(last)
    return found, ids[-1] if len(ids) == TASKS_PER_PAGE else None


def _last(waits: Sequence[Wait], now: datetime) -> Wait | None:
    """Return the wait that ended last; None if one still goes on, because the task waits for that one."""
    if any(wait.ended_at is None and (wait.until is None or wait.until > now) for wait in waits):
        return None
    return max(waits, key=_end)


def _end(wait: Wait) -> Any:
    return wait.ended_at or wait.until


def _is_put_off(task: Task, wait: Wait, now: datetime) -> bool:
    """Return True if a failure, a crash or a snooze explains the later due time, and not the wait."""
    is_of_wait = task.run_after == wait.until or task.run_after > now + FAR
    return not is_of_wait and bool(task.failures or task.crashes or task.snoozes)


def _read(page: Page) -> Iterator[Any]:
    """Yield the findings of all pages: at most ``MOST``, for at most ``LOOK_SECONDS``."""
    end, count, after = time.monotonic() + LOOK_SECONDS, 0, batches.FIRST_ID
    while True:
        found, last = page(after)
        yield from found
        count += len(found)
        if last is None or count >= MOST or time.monotonic() >= end:
            return
        after = last


def _in_order(alias: str) -> AbstractContextManager[None]:
    """Follow indexes on PostgreSQL, whatever its statistics. Elsewhere a transaction may block others."""
    if connections[alias].vendor != "postgresql":
        return nullcontext()
    return own_transaction(alias, limit=timedelta(seconds=2 * LOOK_SECONDS), in_order=True)


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
