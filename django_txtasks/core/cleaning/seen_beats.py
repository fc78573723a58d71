"""The beats of workers as one cleaner has seen them, by its own clock."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from django.db import connections

from django_txtasks.core.ground.config import CoreConfig
from django_txtasks.core.rows.cleaning import LivingWorker


@dataclass
class _Observation:
    """A beat, and the time since which this cleaner has seen no other."""

    beat: int
    since: float


class SeenBeats:
    """The last beat of each living worker. Times are from the cleaner's clock.

    Attributes:
        began: time since which this cleaner has looked without a gap.
    """

    def __init__(self, config: CoreConfig, alias: str, now: float) -> None:
        self._config, self._alias = config, alias
        self._sights: dict[uuid.UUID, _Observation] = {}
        self._links: tuple[Any, int] = (None, 0)
        self._first_beats: dict[uuid.UUID, int] = {}
        self._looked_at: float | None = None
        self.began = now

    @property
    def link(self) -> int:
        """The cleaner's connection to RabbitMQ at the last look; 0 = none."""
        return self._links[1]

    def look(self, living: list[LivingWorker], now: float, unbroken: int) -> bool:
        """Note the beats; return True if suspicions from before do not count any more.

        Time in which this cleaner did not look does not count. After an outage, a pause of this process or a new
        database session, silence is counted anew. Otherwise the cleaner would declare all workers lost because of
        beats that it could not see. Two signs that arrive through links count only for workers that have beaten
        since both of the cleaner's own links were made: the failure that cut those links may have cut all others.

        Args:
            unbroken: number of the cleaner's connection to RabbitMQ; 0 = none.
        """
        session = connections[self._alias].connection
        shortest = min([self._config.lease.total_seconds(), *(worker.lease for worker in living)])
        rhythm = max(shortest / 2, 3 * self._config.heartbeat_interval.total_seconds())
        slept, is_new = self._looked_at is not None and now - self._looked_at > rhythm, False
        if slept or session is not self._links[0]:
            self._sights.clear()
            self.began = now
        if slept or (session, unbroken) != self._links:
            self._first_beats = {worker.id: worker.beat for worker in living}
            is_new = True
        self._looked_at, self._links = now, (session, unbroken)
        for worker in living:
            sight = self._sights.get(worker.id)
            if sight is None or sight.beat != worker.beat:
                self._sights[worker.id] = _Observation(worker.beat, now)
        return is_new

    def silence(self, worker: LivingWorker, now: float) -> float:
        """Return the seconds since this cleaner saw the worker's last beat."""
        return now - self._sights[worker.id].since

    def has_beaten(self, worker: LivingWorker) -> bool:
        """Return True if the worker has beaten since both of the cleaner's links were made."""
        return worker.beat > self._first_beats.get(worker.id, -1)

    def forget_others(self, ids: set[uuid.UUID]) -> None:
        """Forget all workers but these."""
        for known in (self._sights, self._first_beats):
            for worker_id in set(known) - ids:
                del known[worker_id]
