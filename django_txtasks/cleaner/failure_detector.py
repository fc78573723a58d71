"""The decision that a worker is lost, by what this cleaner itself has seen and by its own clock.

Silence for a whole lease is enough. Where there is a broker it goes quicker, but it takes two signals:
RabbitMQ has delivered the worker's last will, and the database has ended its session (or, where the
database cannot tell, it was silent for two beats). Either alone is a suspicion: a link that was cut.
Both may be cut at once, hence the grace, and the look at the process itself where it is near.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from django.db import connections

from django_txtasks import signals
from django_txtasks.conf import Config
from django_txtasks.lifecycle import cleaning, sessions
from django_txtasks.lifecycle.cleaning import LivingWorker
from django_txtasks.lifecycle.transactions import own_transaction
from django_txtasks.lifecycle.workers import host_name

LOOKS = (0.01, 0.02, 0.05, 0.1)
"""Seconds between looks at a suspect; the last one is repeated until its lease is over."""
GRACE_SECONDS = 0.5
"""Seconds that a worker has to beat after the second signal: both of its links may just have been cut."""
GRACE_AT_HOME_SECONDS = 0.1
"""Seconds, instead, if the worker is of this machine and its process is gone, too."""


class DeliveredWill(Protocol):
    """A last will that RabbitMQ has delivered."""

    @property
    def worker(self) -> uuid.UUID: ...
    @property
    def number(self) -> int: ...
    @property
    def settle(self) -> Callable[[], None]: ...


class LastWills(Protocol):
    """A source of last wills."""

    @property
    def unbroken(self) -> int:
        """A number that changes whenever the connection does; 0 = there is none."""

    def take(self) -> Sequence[DeliveredWill]:
        """Return what has come since the last call."""


def lives_here(worker: LivingWorker) -> bool:
    """Say whether the worker's process is seen on this machine. False = it has ended, or runs elsewhere."""
    if worker.host != host_name():
        return False
    try:
        os.kill(worker.pid, 0)
        stat = Path(f"/proc/{worker.pid}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except PermissionError:
        return True
    except OSError:
        return False


@dataclass
class _Observation:
    """A beat, and since when this cleaner has seen no other."""

    beat: int
    since: float


@dataclass
class _Suspicion:
    """A suspect at one beat.

    Attributes:
        grace: seconds from the second signal to the verdict.
        gone: since when that one has been there, too.
    """

    beat: int
    since: float
    grace: float
    looks: int = 0
    gone: float | None = None

    def pause(self, now: float) -> float:
        """Return the seconds until the next look."""
        if self.gone is not None:
            return max(0.001, self.gone + self.grace - now)
        return LOOKS[min(self.looks, len(LOOKS) - 1)]


class FailureDetector:
    """The observations of one cleaner: which workers have beaten, and since when others have not.

    Args:
        wills: None = there is no broker.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        config: Config,
        alias: str,
        wills: LastWills | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config, self.alias, self.wills, self.clock = config, alias, wills, clock
        self._sights: dict[uuid.UUID, _Observation] = {}
        self._suspicions: dict[uuid.UUID, _Suspicion] = {}
        self._delivered: list[DeliveredWill] = []
        self._links: tuple[Any, int] = (None, 0)
        self._first_beats: dict[uuid.UUID, int] = {}
        self._unseen: set[uuid.UUID] = set()
        self._looked_at: float | None = None
        self._began = self.clock()

    def lost(self) -> Iterator[tuple[LivingWorker, str]]:
        """Yield the workers that should be declared lost now, and why."""
        self._write_suspicions_down()
        unbroken = self.wills.unbroken if self.wills is not None else 0
        living = cleaning.living_workers(self.alias)
        now = self.clock()
        self._mind_gaps(living, now, unbroken)
        self._forget_the_others(living)
        for worker in living:
            sight = self._sights[worker.id]
            silence = now - sight.since
            if silence >= worker.lease:
                yield worker, f"no beat for {silence:.1f} s"
            elif worker.suspected and self._two_signals(worker, silence, now):
                yield worker, "its connection to RabbitMQ and its database session are gone"

    @property
    def looked_for(self) -> float:
        """For how many seconds this detector has looked without a gap."""
        return self.clock() - self._began

    def pause(self, usual: float) -> float:
        """Return the seconds until the next look."""
        now, lease = self.clock(), self.config.lease.total_seconds()
        suspects = [one for one in self._suspicions.values() if now - one.since < lease]
        return min([usual, *(one.pause(now) for one in suspects)])

    def _write_suspicions_down(self) -> None:
        """First into the row, so that no cleaner's death loses it; then RabbitMQ may forget the will."""
        if self.wills is not None:
            self._delivered += self.wills.take()
        for will in list(self._delivered):
            with own_transaction(self.alias, limit=self.config.lease / 2):
                written = cleaning.suspect(self.alias, will.worker, will.number)
            if written is None:
                continue  # its row is locked: at the next look
            self._delivered.remove(will)
            will.settle()
            if written:
                signals.worker_suspected.emit(worker=will.worker)

    def _mind_gaps(self, living: list[LivingWorker], now: float, unbroken: int) -> None:
        """Time in which this cleaner did not look does not count.

        After an outage, a pause of this process or a new database session silence is counted anew, so
        that the fleet is not condemned for what the cleaner missed. Two signals count only for workers that
        have been seen to beat since both of the cleaner's own links were there: what cut those may
        have cut all others.
        """
        session = connections[self.alias].connection
        shortest = min([self.config.lease.total_seconds(), *(worker.lease for worker in living)])
        rhythm = max(shortest / 2, 3 * self.config.heartbeat_interval.total_seconds())
        slept = self._looked_at is not None and now - self._looked_at > rhythm
        if slept or session is not self._links[0]:
            self._sights.clear()
            self._began = now
        if slept or (session, unbroken) != self._links:
            self._first_beats = {worker.id: worker.beat for worker in living}
            self._suspicions.clear()
        self._looked_at, self._links = now, (session, unbroken)
        for worker in living:
            sight = self._sights.get(worker.id)
            if sight is None or sight.beat != worker.beat:
                self._sights[worker.id] = _Observation(worker.beat, now)

    def _forget_the_others(self, living: list[LivingWorker]) -> None:
        ids = {worker.id for worker in living}
        suspects = {worker.id for worker in living if worker.suspected}
        for known, kept in (
            (self._sights, ids),
            (self._first_beats, ids),
            (self._suspicions, suspects),
        ):
            for worker_id in set(known) - kept:
                del known[worker_id]
        self._unseen &= ids

    def _two_signals(self, worker: LivingWorker, silence: float, now: float) -> bool:
        """Say whether the second signal has been there for long enough, with no beat since."""
        suspicion = self._suspicions.get(worker.id)
        if suspicion is None or suspicion.beat != worker.beat:
            since = now if suspicion is None else suspicion.since
            grace = GRACE_AT_HOME_SECONDS if worker.host == host_name() else GRACE_SECONDS
            suspicion = self._suspicions[worker.id] = _Suspicion(worker.beat, since, grace)
        suspicion.looks += 1
        if not self._links[1] or worker.beat <= self._first_beats.get(worker.id, -1):
            return False
        if not self._session_is_gone(worker, silence) or lives_here(worker):
            suspicion.gone = None
        elif suspicion.gone is None:
            suspicion.gone = now
        return suspicion.gone is not None and now - suspicion.gone >= suspicion.grace

    def _session_is_gone(self, worker: LivingWorker, silence: float) -> bool:
        session = worker.sessions[0] if worker.sessions else ""
        gone = sessions.is_gone(self.alias, session)
        if gone is not None:
            return gone
        if session and worker.id not in self._unseen:
            self._unseen.add(worker.id)
            signals.session_unseen.emit(worker=worker.id)
        return silence >= 2 * self.config.heartbeat_interval.total_seconds()
