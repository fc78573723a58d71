"""Counts of the arrows that rows take: a worker's in memory, others in the transaction of the arrow."""

from __future__ import annotations

from collections.abc import Iterable

from django_txtasks.conf import get_config
from django_txtasks.counts.appending import append
from django_txtasks.counts.tally import Tally
from django_txtasks.lifecycle.attempts import Arrow, Counted, Ended


def count_end(tally: Tally, ended: Ended) -> None:
    """Count the recorded end of an attempt. A release counts as nothing: the attempt had not begun."""
    attempt, arrow = ended.attempt, ended.arrow
    if arrow is Arrow.RELEASE:
        return
    counts = tally.of(attempt.queue_name, attempt.task_name)
    if arrow is Arrow.FINISH:
        counts.succeeded += 1
    elif arrow is Arrow.BURY:
        counts.died += 1
    elif arrow is Arrow.RETRY and ended.counted is not Counted.NOTHING:
        counts.failed += 1
    else:
        counts.other += 1


def count_time(tally: Tally, ended: Ended, seconds: float) -> None:
    """Count the times of an attempt that has ended here, whether or not its end is recorded yet."""
    if ended.arrow is not Arrow.RELEASE:
        attempt = ended.attempt
        tally.of(attempt.queue_name, attempt.task_name).took(-float(attempt.wait), seconds)


def append_ends(alias: str, ended: Iterable[Ended]) -> None:
    """Append the counts of attempts that the open transaction ends for their worker, without their times."""
    tally = Tally()
    for one in ended:
        count_end(tally, one)
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
