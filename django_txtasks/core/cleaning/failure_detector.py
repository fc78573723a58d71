"""The decision that a worker is lost, from what this cleaner has seen, by its own clock.

Silence for a whole lease is enough. Two signs together prove a crash sooner. The first sign is one of
these:

* on the cleaner's machine: the worker's process has ended
* with a broker: RabbitMQ has delivered the worker's last will
* on another machine, without a broker or for a worker without a connection to it: the worker does not beat

The second sign: the database has ended the worker's session. Where the database cannot tell, two beats of
silence count instead.

One sign alone is only a suspicion, because a link may have been cut. Both links may be cut at once, so a
grace period follows; it is long if both signs come from the worker's connection to the database. Two
signs that arrive through links, which one proxy may carry, are not a proof: then a worker with a claim
that would become dead or compensated is lost only when its lease ends.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from django_txtasks import signals
from django_txtasks.core.cleaning.second_sign import SecondSign
from django_txtasks.core.cleaning.seen_beats import SeenBeats
from django_txtasks.core.cleaning.suspicion import (
    GAP_SECONDS,
    GRACE_AT_HOME_SECONDS,
    GRACE_SECONDS,
    FirstSign,
    Suspicion,
)
from django_txtasks.core.ground.config import CoreConfig
from django_txtasks.core.rows import cleaning
from django_txtasks.core.rows.cleaning import LivingWorker
from django_txtasks.core.rows.workers import host_name
from django_txtasks.database import processes
from django_txtasks.database.transactions import own_transaction


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
        """A number that changes with each new connection; 0 = not connected."""

    def take(self) -> Sequence[DeliveredWill]:
        """Return the last wills since the last call."""


def lives_here(worker: LivingWorker) -> bool | None:
    """Return whether the worker's process is alive; None = it runs on another host, or is unknown."""
    if worker.host != host_name():
        return None
    return processes.is_there(worker.pid, worker.process)


class FailureDetector:
    """Decides from the beats that one cleaner has seen, and from its suspicions, which workers are lost.

    Args:
        wills: None = there is no broker.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        config: CoreConfig,
        alias: str,
        wills: LastWills | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config, self.alias, self.wills, self.clock = config, alias, wills, clock
        self._seen = SeenBeats(config, alias, self.clock())
        self._suspicions: dict[uuid.UUID, Suspicion] = {}
        self._delivered: list[DeliveredWill] = []
        self._second = SecondSign(config, alias)

    def lost(self) -> Iterator[tuple[LivingWorker, str]]:
        """Yield the workers that should be declared lost now, with the reason."""
        self._write_suspicions_down()
        unbroken = self.wills.unbroken if self.wills is not None else 0
        living = cleaning.living_workers(self.alias)
        now = self.clock()
        if self._seen.look(living, now, unbroken):
            self._suspicions.clear()
        self._forget_the_others(living)
        for worker in living:
            silence = self._seen.silence(worker, now)
            if silence >= worker.lease:
                yield worker, f"this cleaner has seen no beat for {silence:.1f} s"
            elif (sign := self._two_signs(worker, silence, now)) is not None:
                yield worker, sign.value

    @property
    def looked_for(self) -> float:
        """Seconds for which this detector has looked without a gap."""
        return self.clock() - self._seen.began

    def pause(self, usual: float) -> float:
        """Return the seconds until the next look."""
        now, lease = self.clock(), self.config.lease.total_seconds()
        suspects = [one for one in self._suspicions.values() if now - one.since < lease]
        return min([usual, *(one.pause(now) for one in suspects)])

    def _write_suspicions_down(self) -> None:
        """Write each will to its worker's row, then acknowledge it: a crash of the cleaner must not lose it."""
        if self.wills is not None:
            self._delivered += self.wills.take()
        for will in list(self._delivered):
            with own_transaction(self.alias, limit=self.config.lease / 2):
                written = cleaning.suspect(self.alias, will.worker, will.number)
            if written is None:
                continue  # its row is locked: try again at the next look
            self._delivered.remove(will)
            will.settle()
            if written:
                signals.worker_suspected.emit(worker=will.worker)

    def _forget_the_others(self, living: list[LivingWorker]) -> None:
        ids = {worker.id for worker in living}
        self._seen.forget_others(ids)
        for worker_id in set(self._suspicions) - ids:
            del self._suspicions[worker_id]
        self._second.forget_others(ids)

    def _two_signs(self, worker: LivingWorker, silence: float, now: float) -> FirstSign | None:
        """Return the first sign if the second one has been there for long enough without a beat; else None."""
        is_there = lives_here(worker)
        sign = self._first_sign(worker, is_there, silence)
        # The failure that cut this cleaner's links may have cut the worker's. The end of a process needs no
        # link.
        is_unproven = sign is not FirstSign.PROCESS and not self._seen.has_beaten(worker)
        if sign is None or is_unproven:
            self._suspicions.pop(worker.id, None)
            return None
        suspicion = self._suspicion(worker, sign, now)
        is_gone = not is_there and self._second.is_seen(worker, sign, silence, link=self._seen.link)
        suspicion.look(now, has_second_sign=is_gone)
        if sign is FirstSign.SILENCE and self._are_many_cut_off():
            return None
        if not suspicion.is_proven(now):
            return None
        suspicion.waits = sign is not FirstSign.PROCESS and self._holds_final_claims(worker)
        return None if suspicion.waits else sign

    def _holds_final_claims(self, worker: LivingWorker) -> bool:
        """Return True if the worker holds a claim whose recovery could not be undone if the worker is alive.

        A proxy that restarts cuts both links of all workers behind it; a task that became dead would still
        run. The claims are read after the beat, and ``lose`` compares this beat, so a later claim makes the
        decision void.
        """
        lease = self.config.lease
        with own_transaction(self.alias, limit=lease / 2, in_order=True):
            return cleaning.holds_final_claims(self.alias, worker.id, lease)

    def _first_sign(
        self, worker: LivingWorker, is_there: bool | None, silence: float
    ) -> FirstSign | None:
        if is_there is False:
            return FirstSign.PROCESS
        if worker.suspected:
            return FirstSign.WILL
        is_reported = self.wills is not None and worker.has_hints  # by the broker
        return None if is_reported or silence < self._beats(2) else FirstSign.SILENCE

    def _suspicion(self, worker: LivingWorker, sign: FirstSign, now: float) -> Suspicion:
        """Return the suspicion at this beat; a new one if the last look was too long ago."""
        known = self._suspicions.get(worker.id)
        grace = self._grace(worker, sign)
        if (
            known is None
            or known.beat != worker.beat
            or now - known.looked_at > max(GAP_SECONDS, self._beats(2))
        ):
            since = now if known is None else known.since
            known = Suspicion(worker.beat, sign, grace, since, looked_at=now)
            self._suspicions[worker.id] = known
        known.sign, known.grace = sign, grace
        return known

    def _grace(self, worker: LivingWorker, sign: FirstSign) -> float:
        """Return the seconds in which a living worker would have beaten.

        A worker that lost its connection to the database tries again after at most a fifth of its lease,
        and looking up the server's address may take 5 s. So the grace is half a lease if silence is the only sign.
        """
        if sign is FirstSign.PROCESS:
            return GRACE_AT_HOME_SECONDS
        if sign is FirstSign.WILL:
            return GRACE_SECONDS
        return max(self._beats(3), worker.lease / 2)

    def _are_many_cut_off(self) -> bool:
        """Return True if several workers lost their sessions at once: a network failure, not a crash."""
        silent = [one for one in self._suspicions.values() if one.sign is FirstSign.SILENCE]
        return sum(one.gone is not None for one in silent) > 1

    def _beats(self, count: int) -> float:
        return count * self.config.heartbeat_interval.total_seconds()
