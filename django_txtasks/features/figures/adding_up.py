"""A cleaner adds up the appended rows of counts: into minutes, hours and days, and into one row for all time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from django.db import connections
from django.db.models import Value

from django_txtasks.conf import get_config
from django_txtasks.database.execute import execute, fetch
from django_txtasks.features.figures.places import Places
from django_txtasks.features.figures.tally import OF_PROCESSES, Columns, Counts, Name
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
MAX_ROWS = 200
"""Rows that one transaction adds up, in 0.1 to 0.3 s. On SQLite it keeps every other writer waiting."""
PER_STATEMENT = 500
"""Rows of sums in one statement, so that the transaction is not idle for long while Django builds a statement."""
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
COUNTS = Columns._fields
_KEY = ("width", "starts_at", "queue_name", "task_name")
_NOT_NOTED = {"due": Value(None), "oldest": Value(None)}
"""As expressions, because Django sends plain values in arrays, where PostgreSQL's ``array_nulls = off`` makes NULL
a text."""
_GATE = {"width": EVER, "starts_at": EPOCH, "queue_name": "", "task_name": ""}

READ = """
    SELECT worker, seq, queue_name, task_name, {seconds_of_at},
           succeeded, failed, died, other, run_ms, wait, run
      FROM txtasks_rawstat ORDER BY worker, seq, queue_name, task_name LIMIT %(most)s
"""
# A worker inserts its rows of one number together and never again, and higher numbers later. So the rows up to the
# last key that was read are exactly the rows that were read. Only the last number may have been read in part.
TAKE = "DELETE FROM txtasks_rawstat WHERE worker {in_workers} AND seq <= %(seq)s"
TAKE_LAST = """
    DELETE FROM txtasks_rawstat
     WHERE worker {in_worker} AND (seq < %(seq)s OR (seq = %(seq)s AND
           (queue_name < %(queue)s OR (queue_name = %(queue)s AND task_name <= %(task)s))))
"""
FORGET = "DELETE FROM txtasks_stat WHERE width = %(width)s AND starts_at < {ago}"


class Span(NamedTuple):
    """The key of a row of ``Stat``."""

    width: int
    starts_at: datetime
    queue: str
    task: str


class _Raw(NamedTuple):
    """A row as the database returns it. On SQLite, other programs may have put any value into a column."""

    worker: Any
    seq: Any
    queue: Any
    task: Any
    at: Any
    counts: Columns

    @property
    def is_valid(self) -> bool:
        """False for a row that no process of this package has written."""
        return isinstance(self.queue, str) and isinstance(self.task, str) and self.counts.are_valid

    @property
    def shown(self) -> str:
        """The row for people: its names, its writer and its number."""
        return f"{self.queue!r} {self.task!r} of {self.worker} (number {self.seq!r})"


class Added(NamedTuple):
    """Result of one slice.

    Attributes:
        has_more: there may be more rows.
        invalid: rows that were deleted and not counted, for people.
    """

    has_more: bool
    invalid: tuple[str, ...]


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


def has_rows(alias: str) -> bool:
    """Return True if there are appended rows."""
    return RawStat.objects.using(alias).exists()


def add_up(alias: str, most: int) -> Added:
    """Add up the next appended rows, and delete them, in the open transaction behind ``enter``.

    Args:
        most: number of rows.
    """
    found = fetch(alias, READ, most=most)
    rows = [
        _Raw(worker, seq, queue, task, at, Columns(*counts))
        for worker, seq, queue, task, at, *counts in found
    ]
    if rows:
        _take(alias, rows)
        _add(alias, _sums(alias, [one for one in rows if one.is_valid]))
    return Added(len(rows) == most, tuple(one.shown for one in rows if not one.is_valid))


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


def _take(alias: str, rows: list[_Raw]) -> None:
    """Delete the rows that were read."""
    *_, last = rows
    last_seqs = {one.worker: one.seq for one in rows}
    del last_seqs[last.worker]
    workers: dict[Any, list[Any]] = defaultdict(list)
    for worker, seq in last_seqs.items():
        workers[seq].append(worker)
    for seq, of_seq in workers.items():
        execute(alias, TAKE, workers=of_seq, seq=seq)
    execute(alias, TAKE_LAST, worker=[last.worker], seq=last.seq, queue=last.queue, task=last.task)


def _sums(alias: str, rows: Iterable[_Raw]) -> dict[Span, Counts]:
    sums: dict[Span, Counts] = defaultdict(Counts)
    places = Places(_names_since_ever(alias), get_config().queues_elsewhere)
    for row in rows:
        name = Name(row.queue, row.task)
        place = places.take(name)
        if places.is_elsewhere(name.queue):  # free names would fill the rows of each day
            name = place
        for span in _spans(_moment(row.at) or _now(alias), name, place):
            sums[span].add(row.counts)
    return sums


def _names_since_ever(alias: str) -> Iterator[Name]:
    ever = Stat.objects.using(alias).filter(width=EVER, starts_at=EPOCH, queue_name__gt="")
    pairs = ever.values_list("queue_name", "task_name")
    return (Name(*pair) for pair in sorted(pairs))


def _moment(seconds: Any) -> datetime | None:
    """Return a time; None if the column has no time, or a time that Python does not have."""
    try:
        return EPOCH + timedelta(seconds=float(seconds))
    except (TypeError, ValueError, OverflowError):
        return None


def _spans(at: datetime, name: Name, since_ever: Name) -> Iterator[Span]:
    """Yield the keys of all rows that count a row of this time and name, which has another name since ever."""
    if name.queue != OF_PROCESSES:
        yield from (Span(width, _start(width, at), name.queue, "") for width in OF_QUEUES)
    for width in OF_FUNCTIONS:
        yield Span(width, _start(width, at), *(since_ever if width == EVER else name))


def _start(width: int, at: datetime) -> datetime:
    """Return the start of the span of this width in which the time lies."""
    seconds = int((at - EPOCH).total_seconds())
    return EPOCH + timedelta(seconds=seconds // width * width) if width else EPOCH


def _now(alias: str) -> datetime:
    return Stat.objects.using(alias).filter(**_GATE).values_list(DatabaseNow(), flat=True).get()  # type: ignore[no-any-return]


def _add(alias: str, sums: Mapping[Span, Counts]) -> None:
    """Add to the rows, in the order of their keys. Only the cleaner behind ``enter`` changes them."""
    queues, tasks = {span.queue for span in sums}, {span.task for span in sums}
    starts = defaultdict(set)
    for span in sums:
        starts[span.width].add(span.starts_at)
    for width, times in starts.items():
        there = Stat.objects.using(alias).filter(
            width=width, starts_at__in=sorted(times), queue_name__in=queues, task_name__in=tasks
        )
        for starts_at, queue, task, *counts in there.values_list(*_KEY[1:], *COUNTS):
            if (one := sums.get(Span(width, starts_at, queue, task))) is not None:
                one.add(Columns(*counts))
    rows = [
        Stat(**dict(zip(_KEY, span, strict=True)), **counts.columns()._asdict(), **_NOT_NOTED)
        for span, counts in sorted(sums.items(), key=lambda pair: pair[0])
    ]
    if rows:
        _upsert(alias, rows, COUNTS)


def _upsert(alias: str, rows: Sequence[Stat], columns: Sequence[str]) -> None:
    has_target = connections[alias].features.supports_update_conflicts_with_target
    Stat.objects.using(alias).bulk_create(
        rows,
        batch_size=PER_STATEMENT,
        update_conflicts=True,
        update_fields=columns,
        unique_fields=_KEY if has_target else None,
    )
