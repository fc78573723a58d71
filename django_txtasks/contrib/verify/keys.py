"""Keys of a storm's tasks, grouped by promise and by observation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from django_txtasks.contrib.verify.evidence import Evidence, Row
from django_txtasks.contrib.verify.plan import TICK_SECONDS
from django_txtasks.contrib.verify.project import key_of_tick
from django_txtasks.features.schedules.rules import ON_TIME


class Keys:
    """Keys, grouped by promise and by place of observation.

    Attributes:
        ticks: keys of ticks that must have a task.
        passed_ticks: number of ticks that need none.
        unserved: keys merged into a task that has not ended.
        records: number of rows of each key.
    """

    def __init__(self, evidence: Evidence) -> None:
        promises = evidence.promises
        self.ticks, self.passed_ticks = _ticks(evidence)
        self.committed = _flat(promises.committed) | self.ticks
        self.refused = _flat(promises.refused)
        self.unknown = _flat(promises.unknown)
        self.started = Counter(start.key for start in evidence.runs.starts)
        self.effects = Counter(key for key, _ in evidence.effects)
        self.dead = set(evidence.dead)
        self.merged = set(evidence.merged)
        ended = set(evidence.finished) | self.dead
        self.unserved = {key for key, winner in evidence.merged.items() if winner not in ended}
        self.finished = set(evidence.finished) | self.merged - self.unserved
        self.left = {key for key, _ in evidence.left}
        self.dequeued = set(self.started) | set(self.effects) | self.finished
        self.there = self.dequeued | self.dead | self.left | self.merged
        self.rows: dict[str, Row] = {
            key: rows[0] for key, rows in [*evidence.dead.items(), *evidence.finished.items()]
        }
        self.records = Counter(key for key, _ in evidence.left) + Counter(
            key for ended in (evidence.dead, evidence.finished) for key in ended for _ in ended[key]
        )


def _ticks(evidence: Evidence) -> tuple[set[str], int]:
    """Return the keys of ticks that must have a task, and the number of ticks that need none.

    A schedule passes ticks on purpose if the task of its previous tick has waited at each moment of a time that is
    longer than ON_TIME.
    """
    wanted, passed, since, until = set(), 0, 0.0, 0.0
    next_tick = evidence.next_tick
    for tick in range(evidence.promises.first_tick or next_tick, next_tick, TICK_SECONDS):
        begun = evidence.tick_begun.get(tick)
        if begun is not None:
            since, until = since if tick < until else tick, begun
        elif tick < until and until - since > ON_TIME.total_seconds():
            passed += 1
            continue
        wanted.add(key_of_tick(tick))
    return wanted, passed


def _flat(groups: Iterable[Iterable[str]]) -> set[str]:
    return {key for group in groups for key in group}
