"""The reads of one overview, each bounded, on PostgreSQL in one transaction that only reads."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from django_txtasks import stats
from django_txtasks.conf import get_config
from django_txtasks.database.execute import fetch_value
from django_txtasks.database.transactions import only_reading
from django_txtasks.features.lanes.buckets import BUCKETS_OF_LANE, LaneBucket, buckets_of
from django_txtasks.features.lanes.status import status_of_lanes
from django_txtasks.features.reports import names
from django_txtasks.features.schedules.statements import NOW_IN_UTC
from django_txtasks.features.schedules.status import (
    ScheduleStatus,
    status_of_rows,
    with_authors,
)
from django_txtasks.features.schedules.ticks import moment_of
from django_txtasks.insight.cost import database_cost
from django_txtasks.insight.deaths import deaths
from django_txtasks.insight.held_threads import held_threads
from django_txtasks.insight.no_writes import no_writes
from django_txtasks.models import DatabaseNow, Lane, PausedQueue, Schedule
from django_txtasks.overview import counting
from django_txtasks.overview.counting import NONE, Cell, Count, Counts
from django_txtasks.overview.figures import (
    MOST_FUNCTIONS,
    NO_FIGURES,
    Figures,
    FullLane,
    LateSchedule,
    Overview,
    Pause,
    QueueFigures,
)
from django_txtasks.overview.problems import problems_of
from django_txtasks.overview.running import (
    MOST_WORKERS,
    Running,
    WorkerFigures,
    away,
    cleaners_of,
    running,
    workers,
)
from django_txtasks.overview.spans import with_releases
from django_txtasks.stats import Point
from django_txtasks.stats.by_cause import queues_of

STATEMENT_TIMEOUT = timedelta(seconds=1)
"""Limit of each statement on PostgreSQL, besides the shorter one of the counts."""
SPAN = timedelta(hours=1)
MOST_QUEUES = 50
MOST_BUCKETS = BUCKETS_OF_LANE
"""Number of pairs of queue and priority with waiting tasks that are read, by the queues' names."""
MOST_SECONDS = 3e9
"""Longest wait that is shown, in seconds: about a hundred years."""
MOST_LANES = 10
MOST_CAUSES = 20
MOST_SCHEDULES = 200
"""Number of schedules whose status is read."""


def gather(alias: str, before: Counts, *, with_figures: bool = True) -> tuple[Overview, Counts]:
    """Read an overview.

    Args:
        before: the last counts, with their ages. A count that the database does not answer in time is taken from
            here.
        with_figures: False = leave out what workers have counted in the last hour.

    Returns:
        Also the counts.

    Raises:
        DatabaseError: the database cannot be reached, or another read took too long.
    """
    # before the transaction: PostgreSQL ends an idle one, and on a busy machine Python adds up for a second
    figures, minutes = _figures(alias) if with_figures else (NO_FIGURES, {})
    cost = database_cost(alias)
    with only_reading(alias, STATEMENT_TIMEOUT):
        found_workers = workers(alias)
        processes = found_workers[:MOST_WORKERS]
        claimed = running(alias, processes)
        processes = [replace(one, claimed=claimed.by_worker[one.id]) for one in processes]
        causes = stats.causes(MOST_CAUSES, alias)
        buckets = buckets_of(alias, "", MOST_BUCKETS)
        queues, more_queues, counts = _queues(alias, processes, claimed, before, buckets)
        queues = tuple(replace(one, minutes=minutes.get(one.name, ())) for one in queues)
        rows = list(
            Schedule.objects.using(alias)
            .annotate(now=DatabaseNow())
            .order_by("pk")[: MOST_SCHEDULES + 1]
        )
        statuses = status_of_rows(alias, rows[:MOST_SCHEDULES])
        cleaners = cleaners_of(alias)
        is_alive = cleaners.at_work > 0 or any(one.is_alive for one in processes)
        refusal = no_writes(alias, is_anyone_alive=lambda: is_alive)
        found = Overview(
            database=alias,
            at=moment_of(fetch_value(alias, NOW_IN_UTC)),
            problems=(),
            queues=queues,
            more_queues=more_queues,
            has_more_queues=_is_cut(buckets),
            running=claimed.longest,
            running_total=claimed.total,
            workers=tuple(processes),
            has_more_workers=len(found_workers) > MOST_WORKERS,
            cleaners=cleaners,
            lanes=_full_lanes(alias, claimed),
            schedules=(),
            schedules_total=len(rows),
            causes=causes.causes,
            has_more_causes=causes.is_cut,
            figures=figures,
            deaths=deaths(alias),
            held_threads=held_threads(
                alias, [one.id for one in processes if one.is_loop and one.is_alive]
            ),
            cost=cost,
        )
    found = replace(found, schedules=_in_need(statuses))
    return replace(found, problems=problems_of(found, refusal)), counts


def _queues(
    alias: str,
    processes: list[WorkerFigures],
    claimed: Running,
    before: Counts,
    buckets: list[LaneBucket],
) -> tuple[tuple[QueueFigures, ...], int, Counts]:
    """Return the queues, the longest waiting first, at most ``MOST_QUEUES``, and the number of others."""
    alive = [one for one in processes if one.is_alive]
    pauses = {
        row.pk: Pause(row.paused_by, row.reason, _since(row))
        for row in PausedQueue.objects.using(alias).annotate(now=DatabaseNow())
    }
    in_lanes, _ = counting.in_lanes(alias)
    oldest: dict[str, float] = {name: one.oldest for name, one in in_lanes.items()}
    for one in buckets:
        wait = min(MOST_SECONDS, -one.wait)  # a time written by hand may be -infinity
        oldest[one.queue_name] = max(oldest.get(one.queue_name, 0.0), wait)
    every = {*get_config().queues, *pauses, *oldest, *claimed.by_queue}
    every |= {queue for worker in alive for queue in worker.queues}
    every |= {queue for _status, queue in queues_of(alias)[0]}
    chosen = sorted(every, key=lambda name: (-max(0.0, oldest.get(name, 0.0)), name))
    chosen = chosen[:MOST_QUEUES]
    heads = [(one.queue_name, one.priority) for one in buckets]
    at_heads = names.at_heads(alias, chosen, heads)
    counts = counting.counts(alias, chosen, buckets, before)
    reasons = away(alias, processes)
    # buckets come in the order of the queues' names, so a cut hides the rest of the last queue and all behind it
    whole = {one.queue_name for one in buckets} - {one.queue_name for one in buckets[-1:]}
    figures = []
    for name in chosen:
        serving = [one for one in alive if name in one.queues]
        lanes = in_lanes.get(name, counting.InLanes(NONE, NONE, 0.0))
        number = {state: counts.get(Cell(name, state), NONE) for state in counting.STATES}
        if _is_cut(buckets) and name not in whole:
            for state in (counting.DUE, counting.LATER):
                number[state] = replace(number[state], is_capped=True)
        figures.append(
            QueueFigures(
                name=name,
                due=number[counting.DUE] + lanes.due,
                later=number[counting.LATER] + lanes.later,
                in_lanes=lanes.due + lanes.later,
                retrying=number[counting.RETRYING],
                dead=number[counting.DEAD],
                held=number[counting.HELD],
                running=claimed.by_queue.get(name, 0),
                oldest=max(0.0, oldest.get(name, 0.0)),
                workers=len(serving),
                slots=sum(one.slots for one in serving),
                pause=pauses.get(name),
                undeclared=at_heads.undeclared.get(name),
                elsewhere=at_heads.elsewhere(name),
                only_expired=name in at_heads.expired,
                away=reasons.get(name, ""),
            )
        )
    return tuple(figures), len(every) - len(chosen), counts


def _is_cut(buckets: list[LaneBucket]) -> bool:
    """Return True if there may be more buckets than were read."""
    return len(buckets) >= MOST_BUCKETS


def _since(row: Any) -> float:
    """Return the seconds since the pause; 0 if the time in the row cannot be read."""
    seconds: float = (row.now - (row.paused_at or row.now)).total_seconds()
    return max(0.0, seconds)


def _figures(alias: str) -> tuple[Figures, dict[str | None, tuple[Point, ...]]]:
    """Return the counts of the last hour, and the minutes of each queue."""
    if not get_config().stats:
        return NO_FIGURES, {}
    charts = stats.charts(SPAN, alias)
    functions = stats.functions(SPAN, alias).functions[:MOST_FUNCTIONS]
    figures = replace(with_releases(charts[None], alias), functions=functions)
    return figures, {queue: chart.points for queue, chart in charts.items()}


def _full_lanes(alias: str, claimed: Running) -> tuple[FullLane, ...]:
    """Return lanes that run as many tasks as they may while others wait, and paused ones in which tasks wait."""
    rules = get_config().lanes
    if not rules and not claimed.by_lane:
        return ()
    busiest = [name for name, _ in claimed.by_lane.most_common(MOST_LANES)]
    paused = Lane.objects.using(alias).filter(paused_at__isnull=False).order_by("pk")
    wanted = [*busiest, *paused.values_list("pk", flat=True)[:MOST_LANES]]
    return tuple(
        FullLane(
            one.name, one.limits, one.running, Count(one.waiting, one.may_have_more),
            one.paused_at is not None, claimed.longest_of_lane.get(one.name),
        )
        for one in status_of_lanes(alias, wanted)
        if one.waiting and (one.is_full or one.paused_at is not None)
    )  # fmt: skip


def _in_need(statuses: list[ScheduleStatus]) -> tuple[LateSchedule, ...]:
    """Return the schedules that need attention. It reads the admin's log, which may be in another database."""
    found = [one for one in statuses if not one.is_well or one.is_off_for_long]
    return tuple(
        LateSchedule(
            one.row.pk,
            one.late,
            one.problem,
            one.state,
            one.unready,
            function=one.row.task_name if one.lacks_function else "",
            off=one.off.total_seconds() if one.off is not None and one.is_well else 0.0,
            author=one.author,
            last_at=one.row.last_at,
        )
        for one in with_authors(found)
    )
