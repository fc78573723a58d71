"""Counts of the arrows that rows take: a worker's in memory, others in the transaction of the arrow.

A worker's loops compare the name with the one before: faster than a call and the hash of two texts for each task.
"""

from __future__ import annotations

from collections.abc import Iterable

from django_txtasks.conf import get_config
from django_txtasks.core.rows.attempts import Arrow, Counted, Ended
from django_txtasks.features.figures.appending import append
from django_txtasks.features.figures.tally import Tally


def count_ends(tally: Tally, ended: Iterable[Ended]) -> None:
    """Count the recorded ends of attempts. A release counts as nothing: the attempt had not begun."""
    counts = queue = name = None
    for one in ended:
        attempt, arrow = one.attempt, one.arrow
        if arrow is Arrow.RELEASE:
            continue
        if counts is None or attempt.task_name != name or attempt.queue_name != queue:
            queue, name = attempt.queue_name, attempt.task_name
            counts = tally.of(queue, name)
        if arrow is Arrow.FINISH:
            counts.succeeded += 1
        elif arrow is Arrow.BURY:
            counts.died += 1
        elif arrow is Arrow.RETRY and one.counted is not Counted.NOTHING:
            counts.failed += 1
        else:
            counts.other += 1


def count_times(tally: Tally, ended: Iterable[tuple[Ended, float]]) -> None:
    """Count the times of attempts that have ended here, whether or not their ends are recorded yet.

    Args:
        ended: each attempt with its seconds.
    """
    counts = queue = name = None
    for one, seconds in ended:
        if one.arrow is Arrow.RELEASE:
            continue
        attempt = one.attempt
        if counts is None or attempt.task_name != name or attempt.queue_name != queue:
            queue, name = attempt.queue_name, attempt.task_name
            counts = tally.of(queue, name)
        counts.took(-attempt.wait, seconds)


def append_ends(alias: str, ended: Iterable[Ended]) -> None:
    """Append the counts of attempts that the open transaction ends for their worker, without their times."""
    tally = Tally()
    count_ends(tally, ended)
    _append(alias, tally)


def append_others(alias: str, names: Iterable[tuple[str, str]]) -> None:
    """Append one ``other`` for each task that the open transaction ends before its start.

    Args:
        names: (queue, task function) of each task.
    """
    tally = Tally()
    for queue, task in names:
        tally.of(queue, task).other += 1
    _append(alias, tally)


def _append(alias: str, tally: Tally) -> None:
    if get_config().stats:
        append(alias, tally)
