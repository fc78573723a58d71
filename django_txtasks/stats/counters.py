"""All figures since the first attempt, as counters for a monitor."""

from __future__ import annotations

from django_txtasks.counts.adding_up import EVER
from django_txtasks.counts.places import Places
from django_txtasks.counts.tally import Counts, Name
from django_txtasks.stats.reading import Row, by_name, function_stats, rows
from django_txtasks.stats.records import Histogram, QueueTimes, Totals


def totals(using: str = "default") -> Totals:
    """Return the figures of each task function, and the times of each queue, since the first attempt.

    The first 1,000 pairs of queue and function, in the first 100 queues, are counted apart, all others as
    ``(others)``, so that the answer stays short whatever names the code makes.
    """
    found, is_behind = rows(using, added_up="", raw="", width=EVER)
    sums = by_name(found, _places(found).take)
    queues: dict[str, Counts] = {}
    for name, counts in sorted(sums.items()):
        queues.setdefault(name.queue, Counts()).add(counts.columns())
    return Totals(
        functions=tuple(function_stats(name, counts) for name, counts in sorted(sums.items())),
        queues=tuple(_times(queue, counts) for queue, counts in queues.items()),
        is_behind=is_behind,
    )


def _places(found: list[Row]) -> Places:
    """Give places to the names that a cleaner has added up, and then to the new ones, in each process the same."""
    named = sorted((one.is_raw, one.queue, one.task) for one in found if one.queue)
    return Places(Name(queue, task) for _is_raw, queue, task in named)


def _times(queue: str, counts: Counts) -> QueueTimes:
    return QueueTimes(
        queue=queue,
        run_seconds=counts.run_ms / 1000.0,
        wait=Histogram(tuple(counts.wait)),
        run=Histogram(tuple(counts.run)),
    )
