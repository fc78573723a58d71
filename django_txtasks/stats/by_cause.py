"""Tasks that have failed, by cause, from the index of causes.

A loose scan finds the causes: one probe of the index for each, however many tasks it has. Then each count reads at
most ``MOST`` entries.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from django.db import connections
from django.db.models import TextField
from django.db.models.functions import Cast
from django.utils.translation import gettext as _

from django_txtasks.core.ground.payload import clean_text
from django_txtasks.core.rows.attempts import read_entries
from django_txtasks.core.rows.buckets import failed_queue_after
from django_txtasks.database.execute import as_uuid, fetch
from django_txtasks.database.places import asking, in_chunks
from django_txtasks.database.transactions import only_reading
from django_txtasks.exceptions import InvalidOption
from django_txtasks.models import Status, Task
from django_txtasks.stats import statements
from django_txtasks.stats.records import Deploy
from django_txtasks.stats.releases import deploys

MOST, MOST_ENTRIES = 1_000, 10_000
"""Highest number of tasks that one count of a cause has, and of index entries that all counts together read. With
many causes each count ends earlier."""
MAX_PROBES = 200
STATEMENT_TIMEOUT = timedelta(seconds=20)
MAX_LINE_CHARACTERS = 300
_TYPES = {"cause": "bigint"}
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
LONG_AGO = datetime.min.replace(tzinfo=timezone.utc)
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
        dead, retrying, held: numbers of tasks, each up to a limit: see ``MOST``.
        is_capped: True = a number ended at its limit.
        first, last: the earliest and the latest time at which one of these tasks was due; None = Python cannot
            read it.
        sample: id of the task that was due last.
        since: the release that was the newest when the last attempt of the task that was due ``first`` began;
            ``before``: the release before it. Empty = unknown.
        oldest: id of the task that was due first; None = unknown.
        differs: True = the newest error of that task has another last line.
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
    first: datetime | None
    last: datetime | None
    sample: uuid.UUID
    since: str = ""
    before: str = ""
    oldest: uuid.UUID | None = None
    differs: bool = False

    @property
    def error(self) -> str:
        """The newest error with its message, such as ``KeyError: 'rye bread'``; empty = unknown.

        If the tasks have different messages, ``KeyError (the newest: 'rye bread')``.
        """
        name = self.exception.removeprefix("builtins.")
        names = (name, name.rpartition(".")[2])
        label = next((one for one in names if self.last_line.startswith(one)), "")
        if self.differs and name:
            message = self.last_line.removeprefix(label).removeprefix(": ")
            error = label or name
            return _("%(error)s (the newest: %(message)s)") % {"error": error, "message": message}
        return self.last_line if label else ": ".join(filter(None, (name, self.last_line)))

    def as_json(self) -> dict[str, Any]:
        """Return the fields as values that JSON has. JavaScript would round the fingerprint, so it is text."""
        return dataclasses.asdict(self) | {
            "fingerprint": None if self.fingerprint is None else str(self.fingerprint),
            "first": self.first and self.first.isoformat(),
            "last": self.last and self.last.isoformat(),
            "sample": str(self.sample),
            "oldest": self.oldest and str(self.oldest),
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


class Size(NamedTuple):
    """The number of tasks at a place, and the tasks that were due first and last.

    Attributes:
        is_capped: True = the place has more tasks than ``number``.
    """

    place: Place
    number: int
    is_capped: bool
    first: uuid.UUID
    last: uuid.UUID


def causes(limit: int = 50, using: str = "default") -> Causes:
    """Return why live tasks have failed: one entry for each cause and queue.

    It reads at most ``MAX_PROBES`` causes, and counts up to ``MOST`` tasks of each.

    Raises:
        InvalidOption: ``limit`` is below 1.
    """
    if limit < 1:
        raise InvalidOption(f"limit is {limit}: it is the number of causes, at least 1")
    with only_reading(using, STATEMENT_TIMEOUT):
        places, is_cut = places_of(using)
        every = _measured(using, sizes_of(using, places))
        found = _with_errors(using, every[:limit])
    return Causes(found, is_cut or len(every) > limit)


def cause_of(fingerprint: int, using: str = "default") -> Cause | None:
    """Return the cause with this fingerprint, in the queue with the most dead tasks; None = no task has it."""
    with only_reading(using, STATEMENT_TIMEOUT):
        places = [Place(*one, fingerprint) for one in queues_of(using)[0]]
        found = _with_errors(using, _measured(using, sizes_of(using, places))[:1])
    return found[0] if found else None


def numbers_of(cause: int, using: str = "default") -> dict[Status, tuple[int, bool]]:
    """Return by state the number of tasks of one cause, and whether there are more; pending tasks are retried."""
    with only_reading(using, STATEMENT_TIMEOUT):
        queues, is_cut = queues_of(using)
        numbers = dict.fromkeys(STATES, (0, is_cut))
        for size in sizes_of(using, [Place(*one, cause) for one in queues]):
            number, is_capped = numbers[size.place.status]
            numbers[size.place.status] = (number + size.number, is_capped or size.is_capped)
    return numbers


def queues_of(alias: str, first: Status = Status.DEAD) -> tuple[list[tuple[Status, str]], bool]:
    """Return the states and queues that have failed tasks, at most ``MAX_PROBES``, and whether there may be more.

    They begin with the state ``first``, in the order of ``STATES``.
    """
    if connections[alias].vendor == "postgresql":
        found = fetch(alias, statements.ALL_QUEUES, most=MAX_PROBES, first=first.value)
        return [(Status(status), queue) for status, queue in found], len(found) == MAX_PROBES
    probes = _Probes(alias)
    return [*_queues(probes, first)], not probes.are_left


def places_of(alias: str, first: Status = Status.DEAD) -> tuple[list[Place], bool]:
    """Return the places of all causes, by state, queue and cause, and whether there may be more.

    The places begin with the state ``first``, in the order of ``STATES``. Held tasks without a cause have not
    failed, so they are left out.
    """
    if connections[alias].vendor == "postgresql":
        found = fetch(alias, statements.ALL_CAUSES, most=MAX_PROBES, first=first.value)
        return [*_places(found)], len(found) == MAX_PROBES
    probes = _Probes(alias)
    return [*_walk(probes, first)], not probes.are_left


def _places(rows: Iterable[tuple[str, str, int | None]]) -> Iterator[Place]:
    """Yield the places of a loose scan, and for each queue with dead tasks also those without a cause."""
    queues: dict[str, None] = {}
    for status, queue, cause in rows:
        if cause is not None:
            yield Place(Status(status), queue, cause)
        if status == Status.DEAD:
            queues[queue] = None
    yield from (Place(Status.DEAD, queue, None) for queue in queues)


def _queues(probes: _Probes, first: Status) -> Iterator[tuple[Status, str]]:
    for status in STATES[STATES.index(first) :]:
        queue = ""
        while probes.are_left and (queue := probes.queue_after(status, queue)):
            yield status, queue


def _walk(probes: _Probes, first: Status) -> Iterator[Place]:
    for status, queue in _queues(probes, first):
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

    @property
    def are_left(self) -> bool:
        return self._number < MAX_PROBES

    def queue_after(self, status: Status, queue: str) -> str:
        """Return the next queue with failed tasks of this state; empty = there are no more."""
        self._number += 1
        return failed_queue_after(self._alias, status, queue)

    def cause_from(self, status: Status, queue: str, cause: int) -> int | None:
        """Return the next cause of this state and queue, from this one on."""
        self._number += 1
        sql = statements.NEXT_CAUSE
        rows = fetch(self._alias, sql, status=status.value, queue=queue, cause=cause)
        return rows[0][0] if rows else None


def sizes_of(alias: str, places: Sequence[Place]) -> Iterator[Size]:
    """Yield the sizes of places that have tasks; one statement reads many of them."""
    most = min(MOST, max(1, MOST_ENTRIES // max(1, len(places)) - 1))
    first, last = statements.ORDERS.get(connections[alias].vendor, statements.ORDER)
    question = statements.SIZE.replace("<first>", first).replace("<last>", last)
    for has_cause in (True, False):
        asked = question.replace("<is>", "= <cause>" if has_cause else "IS NULL")
        kind = [one for one in places if (one.cause is not None) == has_cause]
        for chunk in in_chunks(alias, kind):
            sql, params = asking(alias, asked, [_values(one) for one in chunk], _TYPES)
            for number, count, oldest, newest in fetch(alias, sql, limit=most + 1, **params):
                if count:
                    is_capped = int(count) > most
                    ids = as_uuid(oldest), as_uuid(newest)
                    yield Size(chunk[number], min(int(count), most), is_capped, *ids)


def _values(place: Place) -> dict[str, Any]:
    values = {"status": place.status.value, "queue": place.queue, "cause": place.cause}
    return {name: value for name, value in values.items() if value is not None}


def _measured(alias: str, sizes: Iterable[Size]) -> list[Cause]:
    """Return the causes without their errors, the one with the most dead tasks first."""
    by_cause: dict[tuple[str, int | None], list[Size]] = {}
    for size in sizes:
        by_cause.setdefault((size.place.queue, size.place.cause), []).append(size)
    every = {
        one for found in by_cause.values() for size in found for one in (size.first, size.last)
    }
    tasks = (
        Task.objects.using(alias).filter(pk__in=every).only("task_name", "run_after", "started_at")
    )
    rows = {row.pk: row for row in tasks}
    releases, measured = deploys(alias), []
    for found in by_cause.values():
        ids = {one for size in found for one in (size.first, size.last)}
        outer = [rows[one] for one in ids & rows.keys()]  # a task may have ended in the meantime
        if outer:
            measured.append(_cause(found, outer, releases))
    return sorted(measured, key=_rank, reverse=True)


def _cause(found: Sequence[Size], outer: list[Any], releases: Sequence[Deploy]) -> Cause:
    """Return a cause without its error, from its places and from the rows that were due first and last there."""
    outer.sort(key=lambda row: (row.run_after or LONG_AGO, row.pk))
    oldest, newest, place = outer[0], outer[-1], found[0].place
    counts = {size.place.status: size.number for size in found}
    dead, held, retrying = (counts.get(status, 0) for status in STATES)
    begin = oldest.started_at or oldest.run_after or LONG_AGO
    before, since = ["", "", *(one.release for one in releases if one.first_seen <= begin)][-2:]
    return Cause(
        place.cause, place.queue, newest.task_name, "", "", dead, retrying, held,
        any(size.is_capped for size in found), oldest.run_after, newest.run_after, newest.pk,
        since=since, before=before, oldest=oldest.pk,
    )  # fmt: skip


def _rank(one: Cause) -> tuple[Any, ...]:
    """Return the place of a cause; higher = it is shown before others."""
    return one.dead, one.retrying, one.held, one.last or LONG_AGO


def _with_errors(alias: str, measured: Sequence[Cause]) -> tuple[Cause, ...]:
    unknown = ("", "")
    errors = _last_errors(
        alias, {row for one in measured for row in (one.sample, one.oldest) if row}
    )
    found = [
        (one, *errors.get(one.sample, unknown), errors.get(one.oldest, unknown)[1])
        for one in measured
    ]
    return tuple(
        dataclasses.replace(one, exception=name, last_line=line, differs=line not in (oldest, ""))
        for one, name, line, oldest in found
    )


def _last_errors(alias: str, ids: Iterable[uuid.UUID]) -> dict[uuid.UUID | None, tuple[str, str]]:
    """Return the class path of the newest error of rows, and its last line, by id."""
    texts = (
        Task.objects.using(alias).filter(pk__in=ids).values_list("pk", Cast("errors", TextField()))
    )
    return {pk: _last_error(text) for pk, text in texts}


def _last_error(text: str) -> tuple[str, str]:
    entries = read_entries(text or "[]")
    if not entries:
        return "", ""
    entry = {name: value for name, value in entries[-1].items() if isinstance(value, str)}
    lines = (entry.get("traceback") or entry.get("message") or "").strip().splitlines()
    return (
        clean_text(entry.get("class") or entry.get("type") or "", MAX_LINE_CHARACTERS),
        clean_text(lines[-1], MAX_LINE_CHARACTERS) if lines else "",
    )
