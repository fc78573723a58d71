"""The answers of the readers. All times are in seconds, all moments in UTC."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import accumulate
from typing import Any

from django_txtasks.features.figures.histogram import BOUNDS


class _AsJson:
    """An answer that machines can read."""

    def as_json(self) -> dict[str, Any]:
        """Return the answer as values that JSON has. Moments are texts of ISO 8601."""
        return asdict(self, dict_factory=_plain)  # type: ignore[call-overload, no-any-return]


def _plain(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {
        name: value.isoformat() if isinstance(value, datetime) else value for name, value in pairs
    }


@dataclass(frozen=True)
class Histogram(_AsJson):
    """Numbers of attempts by time.

    Attributes:
        counts: number of attempts in each bucket. A bucket ends at the bound of the same place in
            ``django_txtasks.features.figures.histogram.BOUNDS``; the last bucket has no end.
    """

    counts: tuple[int, ...]

    @property
    def count(self) -> int:
        """Number of all attempts."""
        return sum(self.counts)

    def quantile(self, share: float) -> float | None:
        """Return the seconds within which this share of the attempts lies, such as 0.95, as the end of a bucket.

        None = there is no attempt. ``math.inf`` = more than the last bound; how much more is not known.
        """
        if not self.count:
            return None
        wanted = share * self.count
        sums = accumulate(self.counts)
        place = next(place for place, so_far in enumerate(sums) if so_far >= wanted)
        return BOUNDS[place] if place < len(BOUNDS) else math.inf


@dataclass(frozen=True)
class FunctionStats(_AsJson):
    """Ended attempts of one task function in one queue.

    Attributes:
        failed: attempts that failed, after which the task runs again.
        died: attempts that left their task dead.
        other: attempts that were snoozed, suspended or cancelled, and tasks that ended before their first attempt.
        run_seconds: seconds of all attempts together.
        wait: times from due to claim.
        run: times of the attempts.
    """

    queue: str
    task: str
    succeeded: int
    failed: int
    died: int
    other: int
    run_seconds: float
    wait: Histogram
    run: Histogram

    @property
    def mean_seconds(self) -> float | None:
        """The mean time of an attempt; None = no time was counted."""
        return self.run_seconds / self.run.count if self.run.count else None


@dataclass(frozen=True)
class Functions(_AsJson):
    """Figures of task functions, the function with the most run time first.

    Attributes:
        is_behind: True = no cleaner adds up, and more rows wait than a reader adds, so figures are missing.
    """

    functions: tuple[FunctionStats, ...]
    is_behind: bool


@dataclass(frozen=True)
class QueueTimes(_AsJson):
    """Times of all attempts of one queue: see ``FunctionStats``."""

    queue: str
    run_seconds: float
    wait: Histogram
    run: Histogram


@dataclass(frozen=True)
class Totals(_AsJson):
    """Figures since the first attempt, as counters. They never fall while ``is_behind`` is False.

    Attributes:
        is_behind: see ``Functions``. A monitor leaves the counters out then.
        transactions, rows_written: what workers, cleaners and drains cost the database. The INSERT of a task is
            not among them.
    """

    functions: tuple[FunctionStats, ...]
    queues: tuple[QueueTimes, ...]
    is_behind: bool
    transactions: int = 0
    rows_written: int = 0


@dataclass(frozen=True)
class Sums(_AsJson):
    """Figures of all tasks together.

    Attributes:
        seconds: the time in which they were counted: the span, or less if the first count came later.
        succeeded, died, other: see ``FunctionStats``.
        transactions, rows_written: see ``Totals``.
    """

    seconds: float
    succeeded: float = 0.0
    died: float = 0.0
    other: float = 0.0
    transactions: float = 0.0
    rows_written: float = 0.0

    @property
    def ended(self) -> float:
        """Number of tasks that have ended."""
        return self.succeeded + self.died + self.other


@dataclass(frozen=True)
class Point(_AsJson):
    """Figures of one step of a chart.

    Attributes:
        due: due tasks at its end, at most 10,000 for each queue; None = not noted.
        oldest: seconds for which the oldest due task had waited; None = not noted.
    """

    starts_at: datetime
    succeeded: int = 0
    failed: int = 0
    died: int = 0
    other: int = 0
    due: int | None = None
    oldest: float | None = None


@dataclass(frozen=True)
class Chart(_AsJson):
    """Figures of a queue over time, the oldest first, without gaps.

    Attributes:
        queue: None = all queues together.
        step: seconds of each point. The last one is not over yet.
        is_behind: see ``Functions``.
    """

    queue: str | None
    step: int
    points: tuple[Point, ...]
    is_behind: bool


@dataclass(frozen=True)
class Deploy(_AsJson):
    """A release of the project's code, and the first start of a worker with it that is remembered."""

    release: str
    first_seen: datetime
