"""The plan of a storm: its tasks and its faults. It is a pure function of the seed, so it can be replayed.

Timing depends on the servers and the machine: the same plan does not meet the same races.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

KINDS = {
    **{"plain": 13, "flaky": 5, "doomed": 2, "idempotent": 6, "unique": 8, "laned": 5},
    **{"stepped": 5, "sleeping": 2, "waiting": 4},
    **{"atomic": 30, "increment": 20},
}
"""Percent of the tasks. The last two kinds, half of all tasks, are atomic."""
SIZES = {1: 50, 4: 30, 12: 15, 60: 5}
"""Largest number of tasks in a transaction, with the percentage of transactions."""
ROLLED_BACK_SHARE = 0.1
"""Share of the transactions that are rolled back."""
BATCH_SHARE = 0.3
"""Share of the transactions whose tasks form a batch."""
END = "-end"
"""Last part of the key of the task that the end of a batch enqueues."""
STEPS = ("first", "second", "third")
"""Names of the steps of a stepped task."""
NAP_SECONDS = 0.5
TICK_SECONDS = 1
"""Interval of the schedule."""
SHORTEST_SECONDS, LONGEST_SECONDS = 0.1, 0.8
"""Duration of a slow task, so that faults hit it half-way."""
MAX_SLOW_SHARE = 0.25
"""Largest share of slow tasks."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One planned task."""

    key: str
    kind: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Transaction:
    """Tasks that are enqueued together.

    Attributes:
        commit: False = the transaction is rolled back.
        end: key of the task that the end of their batch enqueues; empty = no batch.
    """

    number: int
    tasks: tuple[Planned, ...]
    commit: bool
    end: str

    @property
    def keys(self) -> list[str]:
        """Keys of all tasks that it creates."""
        return [*(task.key for task in self.tasks), *([self.end] if self.end else [])]


@dataclass(frozen=True)
class Kind:
    """A kind of fault, with the shortest and the longest pause between two of them, in seconds."""

    name: str
    shortest: float
    longest: float


@dataclass(frozen=True)
class Fault:
    """A planned fault.

    Attributes:
        at: seconds from the beginning of the storm; it may come later, never earlier.
        pick: number from 0 to 1 that selects the target.
    """

    at: float
    name: str
    pick: float


def transactions(
    seed: int,
    producer: str,
    tasks: int,
    *,
    rolled_back: float = ROLLED_BACK_SHARE,
    slow: float = 0.0,
) -> Iterator[Transaction]:
    """Yield the transactions of one producer, with ``tasks`` tasks in total.

    Args:
        rolled_back: share of transactions that are rolled back.
        slow: share of slow tasks.
    """
    dice = random.Random(f"{seed} {producer}")  # noqa: S311 -- a plan, not a secret
    number = 0
    while tasks > 0:
        longest = dice.choices([*SIZES], [*SIZES.values()])[0]
        size = min(dice.randint(1, longest), tasks)
        planned = tuple(_task(dice, f"{producer}-{number}-{index}", slow) for index in range(size))
        commit, is_batch = dice.random() >= rolled_back, dice.random() < BATCH_SHARE
        yield Transaction(number, planned, commit, f"{producer}-{number}{END}" if is_batch else "")
        number, tasks = number + 1, tasks - size


def schedule(seed: int, kinds: Iterable[Kind], seconds: float) -> list[Fault]:
    """Return the faults of a storm in order. Each kind occurs at least once."""
    return sorted(
        (fault for kind in kinds for fault in _stream(seed, kind, seconds)),
        key=lambda fault: (fault.at, fault.name),
    )


def answer_to(key: str) -> str:
    """Return the value that is sent to a waiting task."""
    return f"for {key}"


def share(total: int, parts: int) -> list[int]:
    """Divide a number as evenly as possible."""
    return [total // parts + (index < total % parts) for index in range(parts)]


def slow_share(tasks: int, seconds: float, slots: int) -> float:
    """Return the share of slow tasks that keeps half of all slots busy."""
    return min(
        MAX_SLOW_SHARE, 0.5 * slots * seconds / (tasks * (SHORTEST_SECONDS + LONGEST_SECONDS) / 2)
    )


def _task(dice: random.Random, key: str, slow: float) -> Planned:
    kind = dice.choices([*KINDS], [*KINDS.values()])[0]
    is_slow = dice.random() < slow and kind != "increment"
    return Planned(
        key, kind, round(dice.uniform(SHORTEST_SECONDS, LONGEST_SECONDS), 3) if is_slow else 0.0
    )


def _stream(seed: int, kind: Kind, seconds: float) -> Iterator[Fault]:
    dice = random.Random(f"{seed} {kind.name}")  # noqa: S311 -- a plan, not a secret
    at = dice.uniform(0, min(kind.longest, seconds))
    while True:
        yield Fault(round(at, 3), kind.name, dice.random())
        at += dice.uniform(kind.shortest, kind.longest)
        if at >= seconds:
            return
