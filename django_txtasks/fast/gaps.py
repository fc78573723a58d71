"""The priorities that a sweep has not searched yet."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from typing import NamedTuple

from django_txtasks.core.rows.turn import Bucket, Subscription
from django_txtasks.fast import ranges


class Gap(NamedTuple):
    """The priorities of a queue between two others, both excluded."""

    queue: str
    low: int
    high: int

    @property
    def is_empty(self) -> bool:
        return self.high - self.low <= 1


class Searched(NamedTuple):
    """The result of the search of one gap.

    Attributes:
        bucket: a bucket to read in parts; None = the gap has no rows.
        seconds: the duration of the search.
        took_too_long: True if the database ended the search, because the gap has dead rows.
    """

    bucket: Bucket | None
    seconds: float
    took_too_long: bool = False


class Gaps:
    """The priorities between the known buckets. They may have rows, too."""

    def __init__(self, subscription: Subscription, buckets: Collection[Bucket]) -> None:
        self._alias = subscription.alias
        self._left: list[Gap] = []
        for queue in subscription.queues:
            self._add(_gaps_of(queue, buckets))

    @property
    def are_over(self) -> bool:
        """True if all gaps were searched."""
        return not self._left

    def search(self, limit: float) -> Searched:
        """Search one gap, for at most ``limit`` seconds. If this takes too long, its middle is read in parts."""
        queue, low, high = gap = self._left.pop()
        found, seconds = ranges.priority_between(self._alias, queue, low, high, seconds=limit)
        if found == []:
            return Searched(None, seconds)
        priority = (low + high) // 2
        for (lowest,) in found or []:
            priority = lowest
        self._add([gap._replace(high=priority), gap._replace(low=priority)])
        return Searched(Bucket(priority, queue), seconds, took_too_long=found is None)

    def _add(self, gaps: Iterable[Gap]) -> None:
        self._left += [gap for gap in gaps if not gap.is_empty]


def _gaps_of(queue: str, buckets: Collection[Bucket]) -> list[Gap]:
    known = sorted(priority for priority, of in buckets if of == queue)
    edges = [ranges.LOWEST - 1, *known, ranges.HIGHEST + 1]
    return [Gap(queue, *pair) for pair in itertools.pairwise(edges)]
