"""A cleaner adds up the appended rows of counts: into minutes, hours and days, and into one row for all time."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from django.db import connections

from django_txtasks.counts.tally import Columns, Counts, Name
from django_txtasks.database.execute import execute
from django_txtasks.models import DatabaseNow, RawStat, Stat

MINUTE, TEN_MINUTES, HOUR, DAY = 60, 600, 3600, 86_400
EVER = 0
"""Width of the rows that count since the first attempt."""
KEPT = {
    MINUTE: timedelta(days=2),
    TEN_MINUTES: timedelta(days=1),
    HOUR: timedelta(days=8),
    DAY: timedelta(days=400),
}
"""Age up to which the rows of each width are kept."""
OF_QUEUES, OF_FUNCTIONS = (MINUTE, HOUR, DAY), (TEN_MINUTES, HOUR, DAY, EVER)
"""Widths of the rows of whole queues, and of the rows of each task function."""
MAX_ROWS, MAX_SQLITE_ROWS = 5000, 1000
"""Rows that one transaction adds up. On SQLite it keeps every other writer waiting."""
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
COUNTS = Columns._fields
_KEY = ("width", "starts_at", "queue_name", "task_name")
_GATE = {"width": EVER, "starts_at": EPOCH, "queue_name": "", "task_name": ""}

# A worker inserts its rows of one number together and never again, and higher numbers later. So the rows up to the
# last number that was read are exactly the rows that were read.
TAKE = "DELETE FROM txtasks_rawstat WHERE worker {in_workers} AND seq <= %(seq)s"
FORGET = "DELETE FROM txtasks_stat WHERE width = %(width)s AND starts_at < {ago}"


class Span(NamedTuple):
    """The key of a row of ``Stat``."""

    width: int
    starts_at: datetime
    queue: str
    task: str


class _Raw(NamedTuple):
    worker: uuid.UUID
    seq: int
    at: datetime
    name: Name
    counts: Columns


def enter(alias: str) -> bool:
    """Lock the row that only one cleaner has at a time, in the open transaction. False = another cleaner has it.

    The first cleaner creates the row.
    """
    gate = Stat.objects.using(alias).filter(pk=tuple(_GATE.values()))
    if gate.select_for_update(skip_locked=True).values_list("width"):
        return True
    if gate.exists():
        return False
    _upsert(alias, [Stat(**_GATE)], ["other"])  # if another cleaner creates it, this one waits
    return True


def add_up(alias: str) -> bool:
    """Add up the next appended rows, and delete them, in the open transaction behind ``enter``.

    Returns:
        True: there may be more rows.
    """
    most = MAX_SQLITE_ROWS if connections[alias].vendor == "sqlite" else MAX_ROWS
    rows = _read(alias, most)
    has_more = len(rows) == most
    if has_more:
        rows = _whole(alias, rows)
    for seq, workers in _last_seqs(rows).items():
        execute(alias, TAKE, workers=sorted(workers), seq=seq)
    _add(alias, _sums(rows))
    return has_more


def note_backlog(alias: str, backlog: Mapping[str, tuple[int, float]]) -> None:
    """Note for this minute the number of due tasks of each queue, and the seconds that the oldest has waited."""
    if backlog:
        minute = _start(MINUTE, _now(alias))
        notes = [
            Stat(width=MINUTE, starts_at=minute, queue_name=queue, due=due, oldest=oldest)
            for queue, (due, oldest) in sorted(backlog.items())
        ]
        _upsert(alias, notes, ["due", "oldest"])


def forget_old(alias: str) -> None:
    """Delete the rows of each width that are older than ``KEPT``."""
    for width, age in KEPT.items():
        execute(alias, FORGET, width=width, age=age.total_seconds())


def _read(alias: str, most: int | None, **only: Any) -> list[_Raw]:
    rows = RawStat.objects.using(alias).filter(**only).order_by("worker", "seq")
    columns = ("worker", "seq", "at", "queue_name", "task_name", *COUNTS)
    return [
        _Raw(worker, seq, at or _now(alias), Name(queue, task), Columns(*counts))
        for worker, seq, at, queue, task, *counts in rows.values_list(*columns)[:most]
    ]


def _whole(alias: str, rows: list[_Raw]) -> list[_Raw]:
    """Return whole numbers only: without the last one, which was cut off; if it is alone, with all of its rows."""
    last = rows[-1]
    whole = [one for one in rows if (one.worker, one.seq) != (last.worker, last.seq)]
    return whole or _read(alias, None, worker=last.worker, seq=last.seq)


def _last_seqs(rows: Iterable[_Raw]) -> dict[int, set[uuid.UUID]]:
    """Return the workers by the last number of theirs that was read."""
    last = {one.worker: one.seq for one in rows}
    found: dict[int, set[uuid.UUID]] = defaultdict(set)
    for worker, seq in last.items():
        found[seq].add(worker)
    return found


def _sums(rows: Iterable[_Raw]) -> dict[Span, Counts]:
    sums: dict[Span, Counts] = defaultdict(Counts)
    for row in rows:
        for span in _spans(row.at, row.name):
            sums[span].add(row.counts)
    return sums


def _spans(at: datetime, name: Name) -> Iterator[Span]:
    """Yield the keys of all rows that count a row of this time and name."""
    yield from (Span(width, _start(width, at), name.queue, "") for width in OF_QUEUES)
    yield from (Span(width, _start(width, at), *name) for width in OF_FUNCTIONS)


def _start(width: int, at: datetime) -> datetime:
    """Return the start of the span of this width in which the time lies."""
    seconds = int((at - EPOCH).total_seconds())
    return EPOCH + timedelta(seconds=seconds // width * width) if width else EPOCH


def _now(alias: str) -> datetime:
    return Stat.objects.using(alias).filter(**_GATE).values_list(DatabaseNow(), flat=True).get()  # type: ignore[no-any-return]


def _add(alias: str, sums: Mapping[Span, Counts]) -> None:
    """Add to the rows, in the order of their keys. Only the cleaner behind ``enter`` changes them."""
    starts = defaultdict(set)
    for span in sums:
        starts[span.width].add(span.starts_at)
    for width, times in starts.items():
        there = Stat.objects.using(alias).filter(width=width, starts_at__in=sorted(times))
        for starts_at, queue, task, *counts in there.values_list(*_KEY[1:], *COUNTS):
            if (one := sums.get(Span(width, starts_at, queue, task))) is not None:
                one.add(Columns(*counts))
    rows = [
        Stat(**dict(zip(_KEY, span, strict=True)), **counts.columns()._asdict())
        for span, counts in sorted(sums.items(), key=lambda pair: pair[0])
    ]
    if rows:
        _upsert(alias, rows, COUNTS)


def _upsert(alias: str, rows: Sequence[Stat], columns: Sequence[str]) -> None:
    has_target = connections[alias].features.supports_update_conflicts_with_target
    Stat.objects.using(alias).bulk_create(
        rows,
        update_conflicts=True,
        update_fields=columns,
        unique_fields=_KEY if has_target else None,
    )
