"""Tasks that have failed, by cause, from the index of causes.

A loose scan finds the causes: one probe of the index for each, however many tasks it has. Then each count reads at
most ``MOST`` entries.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import connections, transaction
from django.db.models import TextField
from django.db.models.functions import Cast

from django_txtasks.database.execute import as_uuid, fetch
from django_txtasks.database.transactions import own_transaction
from django_txtasks.exceptions import InvalidOption
from django_txtasks.lifecycle.attempts import read_entries
from django_txtasks.models import Status, Task
from django_txtasks.rules.payload import clean_text
from django_txtasks.stats import statements
from django_txtasks.stats.records import Deploy
from django_txtasks.stats.releases import deploys

MOST = 1_000
"""Highest number of tasks that one count of a cause has."""
MAX_PROBES = 200
STATEMENT_TIMEOUT = timedelta(seconds=20)
MAX_LINE_CHARACTERS = 300
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
STATES = (Status.DEAD, Status.HELD, Status.PENDING)
"""States in which a task has failed and does not run: a pending task with a cause is retried later."""


@dataclass(frozen=True)
class Cause:
    """The live tasks of one queue that failed by one cause.

    Attributes:
        fingerprint: the value of ``Task.cause``; None = tasks that died before causes were recorded.
        task: name of the task function.
        exception: class path of the newest error; empty = unknown.
        last_line: last line of the newest error.
        dead, retrying, held: numbers of tasks, each at most ``MOST``.
        is_capped: True = a number ended at ``MOST``.
        first, last: the earliest and the latest time at which one of these tasks was due.
        sample: id of the task that was due last.
        since: the release that was the newest at ``first``; empty = unknown.
    """

    fingerprint: int | None
    queue: str
    task: str
    exception: str
    last_line: str
    dead: int
    retrying: int
    held: int
    is_capped: bool
    first: datetime
    last: datetime
    sample: uuid.UUID
    since: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the fields as values that JSON has. JavaScript would round the fingerprint, so it is text."""
        return dataclasses.asdict(self) | {
            "fingerprint": None if self.fingerprint is None else str(self.fingerprint),
            "first": self.first.isoformat(),
            "last": self.last.isoformat(),
            "sample": str(self.sample),
        }


@dataclass(frozen=True)
class Causes:
    """Causes, the one with the most dead tasks first.

    Attributes:
        is_cut: True = there are more causes.
    """

    causes: tuple[Cause, ...]
    is_cut: bool

    def as_json(self) -> dict[str, Any]:
        """Return the answer as values that JSON has."""
        return {"causes": [one.as_json() for one in self.causes], "is_cut": self.is_cut}


class Place(NamedTuple):
    """A cause in the index: the tasks of one state, queue and fingerprint."""

    status: Status
    queue: str
    cause: int | None


@dataclass
class _Sizes:
    """The numbers of one cause by state, and the ids of the outer entries."""

    numbers: dict[Status, int] = dataclasses.field(default_factory=dict)
    ids: list[uuid.UUID] = dataclasses.field(default_factory=list)


def causes(limit: int = 50, using: str = "default") -> Causes:
    """Return why live tasks have failed: one entry for each cause and queue.

    It reads at most ``MAX_PROBES`` causes, and counts up to ``MOST`` tasks of each.

    Raises:
        InvalidOption: ``limit`` is below 1.
    """
    if limit < 1:
        raise InvalidOption(f"limit is {limit}: it is the number of causes, at least 1")
    with reading_causes(using):
        places, is_cut = places_of(using)
        sizes: dict[tuple[str, int | None], _Sizes] = {}
        for place in places:
            _measure(using, place, sizes)
        rows = _rows(using, [one for size in sizes.values() for one in size.ids])
        releases = deploys(using)
        found = [
            _cause(queue, fingerprint, size, rows, releases)
            for (queue, fingerprint), size in sizes.items()
            if all(one in rows for one in size.ids)  # else it was retried in the meantime
        ]
    found.sort(key=lambda one: (one.dead, one.retrying, one.held, one.last), reverse=True)
    return Causes(tuple(found[:limit]), is_cut or len(found) > limit)


@contextmanager
def reading_causes(alias: str) -> Iterator[None]:
    """Make PostgreSQL read in the order of the index, whatever its statistics; the setting ends with the block."""
    if connections[alias].vendor != "postgresql":
        yield
        return
    with own_transaction(alias, limit=STATEMENT_TIMEOUT, in_order=True):
        yield
        transaction.set_rollback(True, using=alias)  # the settings of a savepoint end with it


def numbers_of(cause: int, using: str = "default") -> dict[Status, int]:
    """Return the numbers of tasks of one cause by state, each at most ``MOST`` + 1; pending ones are retried."""
    with reading_causes(using):
        numbers = dict.fromkeys(STATES, 0)
        for place in places_of(using, cause)[0]:
            numbers[place.status] += size_of(using, place)[0]
    return {status: min(number, MOST + 1) for status, number in numbers.items()}


def queues_of(alias: str, status: Status) -> list[str]:
    """Return the queues that have failed tasks in a state, at most ``MAX_PROBES``."""
    probes, found = _Probes(alias), [""]
    while probes.are_left and (queue := probes.queue_after(status, found[-1])):
        found.append(queue)
    return found[1:]


def places_of(alias: str, cause: int | None = None) -> tuple[list[Place], bool]:
    """Return the places of all causes, or of one, by state, queue and cause, and whether there may be more.

    Held tasks without a cause have not failed, so they are left out.
    """
    probes = _Probes(alias)
    return [*_walk(probes, cause)], not probes.are_left


def _walk(probes: _Probes, cause: int | None) -> Iterator[Place]:
    for status in STATES:
        queue = ""
        while probes.are_left and (queue := probes.queue_after(status, queue)):
            if cause is not None:
                yield Place(status, queue, cause)
                continue
            found = probes.cause_from(status, queue, _LOWEST)
            while found is not None:
                yield Place(status, queue, found)
                is_over = found == _HIGHEST or not probes.are_left
                found = None if is_over else probes.cause_from(status, queue, found + 1)
            if status is Status.DEAD:
                yield Place(status, queue, None)


class _Probes:
    """Probes of the index, which are counted."""

    def __init__(self, alias: str) -> None:
        self._alias, self._number = alias, 0
        self._smallest = connections[alias].vendor == "mysql"

    @property
    def are_left(self) -> bool:
        return self._number < MAX_PROBES

    def queue_after(self, status: Status, queue: str) -> str:
        """Return the next queue with failed tasks of this state; empty = there are no more."""
        sql = statements.MIN_QUEUE if self._smallest else statements.NEXT_QUEUE
        found = self._probe(sql, status=status.value, queue=queue)
        return found[1] or "" if found and found[0] == status.value else ""

    def cause_from(self, status: Status, queue: str, cause: int) -> int | None:
        """Return the next cause of this state and queue, from this one on."""
        sql = statements.MIN_CAUSE if self._smallest else statements.NEXT_CAUSE
        found = self._probe(sql, status=status.value, queue=queue, cause=cause)
        return found[2] if found and found[:2] == (status.value, queue) else None

    def _probe(self, sql: str, **params: Any) -> tuple[Any, ...]:
        self._number += 1
        rows = fetch(self._alias, sql, **params)
        return rows[0] if rows else ()


def _measure(alias: str, place: Place, sizes: dict[tuple[str, int | None], _Sizes]) -> None:
    number, first, last = size_of(alias, place)
    if number:
        size = sizes.setdefault((place.queue, place.cause), _Sizes())
        size.numbers[place.status] = number
        size.ids += [as_uuid(first), as_uuid(last)]


def size_of(alias: str, place: Place) -> tuple[int, Any, Any]:
    """Return the number of tasks at a place, at most ``MOST`` + 1, and the ids that were due first and last."""
    sql = statements.SIZE.replace("<is>", "IS NULL" if place.cause is None else "= %(cause)s")
    first, last = statements.ORDERS.get(connections[alias].vendor, statements.ORDER)
    sql = sql.replace("<first>", first).replace("<last>", last)
    params: dict[str, Any] = {} if place.cause is None else {"cause": place.cause}
    ((number, first, last),) = fetch(
        alias, sql, status=place.status.value, queue=place.queue, limit=MOST + 1, **params
    )
    return int(number), first, last


def _rows(alias: str, ids: list[uuid.UUID]) -> dict[uuid.UUID, Any]:
    rows = Task.objects.using(alias).filter(pk__in=ids).only("task_name", "run_after")
    return {row.pk: row for row in rows}


def _cause(
    queue: str,
    fingerprint: int | None,
    size: _Sizes,
    rows: dict[uuid.UUID, Any],
    releases: Sequence[Deploy],
) -> Cause:
    outer = sorted((rows[one] for one in size.ids), key=lambda row: (row.run_after, row.pk))
    newest = outer[-1]
    exception, last_line = _last_error(newest)
    numbers = [size.numbers.get(one, 0) for one in (Status.DEAD, Status.PENDING, Status.HELD)]
    dead, retrying, held = (min(number, MOST) for number in numbers)
    return Cause(
        fingerprint, queue, newest.task_name, exception, last_line, dead, retrying, held,
        max(numbers) > MOST, outer[0].run_after, newest.run_after, newest.pk,
        since=next((one.release for one in reversed(releases) if one.first_seen <= outer[0].run_after), ""),
    )  # fmt: skip


def _last_error(row: Any) -> tuple[str, str]:
    """Return the class path of a row's newest error, and its last line."""
    texts = Task.objects.using(row._state.db).filter(pk=row.pk)
    text = texts.values_list(Cast("errors", TextField()), flat=True).first()
    entries = read_entries(text or "[]")
    if not entries:
        return "", ""
    entry = {name: value for name, value in entries[-1].items() if isinstance(value, str)}
    lines = (entry.get("traceback") or entry.get("message") or "").strip().splitlines()
    return (
        clean_text(entry.get("class") or entry.get("type") or "", MAX_LINE_CHARACTERS),
        clean_text(lines[-1], MAX_LINE_CHARACTERS) if lines else "",
    )
