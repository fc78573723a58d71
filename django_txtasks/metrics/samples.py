"""The values of the metrics of one database. Each read is bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import accumulate
from math import inf
from typing import NamedTuple

from django_txtasks import stats
from django_txtasks.conf import get_config
from django_txtasks.database.transactions import only_reading
from django_txtasks.features.figures.histogram import BOUNDS
from django_txtasks.features.lanes.buckets import look
from django_txtasks.features.lanes.status import waiting_in
from django_txtasks.overview import Count, LateSchedule, Overview, QueueFigures
from django_txtasks.overview.gathering import STATEMENT_TIMEOUT, gather

LANE_SECONDS = 0.05
"""Seconds that the search for lanes may take. With very many lanes, it finds only the first ones by name."""
MOST_LANES = 50
MOST_WAITING = 200
"""Number of waiting tasks that are counted in one lane."""
OUTCOMES = ("succeeded", "failed", "died", "other")
STATES = ("alive", "suspected", "silent", "lost")


class Sample(NamedTuple):
    """A value of a metric. ``suffix``: the part of a histogram, such as ``_bucket``."""

    metric: str
    value: float
    labels: Mapping[str, str]
    suffix: str = ""


def samples_of(alias: str) -> Iterator[Sample]:
    """Read the values anew.

    Raises:
        DatabaseError: the database cannot be reached, or did not answer in time.
    """
    found, _ = gather(alias, {}, with_figures=False)
    with only_reading(alias, STATEMENT_TIMEOUT):
        lanes = _lanes(alias)
    # outside, because PostgreSQL ends a session whose transaction waits while Python adds up many rows
    totals = stats.totals(alias) if get_config().stats else None
    yield from (one for queue in found.queues for one in _of_queue(queue))
    yield from _of_processes(found)
    yield from lanes
    yield from (_of_schedule(one) for one in found.schedules)
    yield from _of_cost(found)
    for problem, number in sorted(Counter(one.name for one in found.problems).items()):
        yield Sample("txtasks_problems", number, {"problem": problem})
    if totals is not None:
        yield from _counters(totals)


def _of_queue(queue: QueueFigures) -> Iterator[Sample]:
    labels = {"queue": queue.name}
    counts = {
        "due": queue.due, "later": queue.later, "retrying": queue.retrying, "dead": queue.dead, "held": queue.held,
    }  # fmt: skip
    for state, count in counts.items():
        if _was_read(count):
            yield Sample(f"txtasks_{state}", count.number, labels)
    yield Sample("txtasks_due_is_capped", queue.due.is_capped, labels)
    yield Sample("txtasks_oldest_seconds", queue.oldest, labels)
    yield Sample("txtasks_running", queue.running, labels)
    yield Sample("txtasks_paused", queue.pause is not None, labels)


def _was_read(count: Count) -> bool:
    """Return False if the database did not answer in time, and the count is an older one or missing."""
    return not count.age and (count.number > 0 or not count.is_capped)


def _of_processes(found: Overview) -> Iterator[Sample]:
    states = Counter(one.state for one in found.workers)
    for state in STATES:
        yield Sample("txtasks_workers", states[state], {"state": state})
    if found.deaths is not None:
        for how, number in found.deaths.hows.items():
            yield Sample("txtasks_worker_deaths", number, {"how": how})
        for one in found.deaths.suspects:
            yield Sample("txtasks_suspect_deaths", one.ran_in, {"task": one.function})
    yield Sample("txtasks_slots", found.slots, {})
    yield Sample("txtasks_cleaners", found.cleaners.at_work, {})
    if found.cleaners.last_pass is not None:
        yield Sample("txtasks_cleaner_pass_age_seconds", found.cleaners.last_pass, {})


def _of_cost(found: Overview) -> Iterator[Sample]:
    if found.cost.sessions is not None:
        yield Sample("txtasks_sessions", found.cost.sessions, {})
    if found.cost.history_mb_per_day is not None:
        yield Sample("txtasks_history_bytes_per_day", 1e6 * found.cost.history_mb_per_day, {})


def _lanes(alias: str) -> list[Sample]:
    """Return the lanes whose oldest tasks wait longest."""
    wait: dict[str, float] = {}
    for one in look(alias, "", LANE_SECONDS)[0]:
        wait[one.lane] = min(one.wait, wait.get(one.lane, inf))
    names = sorted(wait, key=lambda lane: (wait[lane], lane))[:MOST_LANES]
    return [
        Sample("txtasks_lane_waiting", number, {"lane": lane})
        for lane, number in waiting_in(alias, names, MOST_WAITING).items()
    ]


def _of_schedule(schedule: LateSchedule) -> Sample:
    reason = "not_ready" if schedule.unready is not None else "late"
    if schedule.problem:
        reason = "broken"
    elif schedule.off:
        reason = "off"
    labels = {"schedule": schedule.name, "reason": reason}
    return Sample("txtasks_schedule_late", 1, labels)


def _counters(totals: stats.Totals) -> Iterator[Sample]:
    yield Sample("txtasks_counters_are_behind", totals.is_behind, {})
    if totals.is_behind:
        return  # some rows were not read, so a counter could fall
    yield Sample("txtasks_transactions_total", totals.transactions, {})
    yield Sample("txtasks_rows_written_total", totals.rows_written, {})
    for one in totals.functions:
        labels = {"queue": one.queue, "task": one.task}
        for outcome in OUTCOMES:
            number = getattr(one, outcome)
            yield Sample("txtasks_attempts_total", number, {**labels, "outcome": outcome})
        yield Sample("txtasks_attempt_seconds_total", one.run_seconds, labels)
    for queue in totals.queues:
        labels = {"queue": queue.queue}
        yield from _histogram("txtasks_wait_seconds", queue.wait, labels)
        yield from _histogram("txtasks_run_seconds", queue.run, labels)
        yield Sample("txtasks_run_seconds", queue.run_seconds, labels, "_sum")


def _histogram(
    metric: str, histogram: stats.Histogram, labels: Mapping[str, str]
) -> Iterator[Sample]:
    """Yield the buckets. Each one counts all attempts up to its end."""
    ends = [*(f"{bound:g}" for bound in BOUNDS), "+Inf"]
    for end, number in zip(ends, accumulate(histogram.counts), strict=True):
        yield Sample(metric, number, {**labels, "le": end}, "_bucket")
    yield Sample(metric, histogram.count, labels, "_count")
