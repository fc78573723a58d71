"""The second sign of a crash: the database has ended a worker's sessions."""

from __future__ import annotations

import uuid

from django_txtasks import signals
from django_txtasks.core.cleaning.suspicion import FirstSign
from django_txtasks.core.ground.config import CoreConfig
from django_txtasks.core.rows.cleaning import LivingWorker
from django_txtasks.database import sessions


class SecondSign:
    """Asks the database about the sessions of suspects, and reports once for each that it may not see them."""

    def __init__(self, config: CoreConfig, alias: str) -> None:
        self.alias = alias
        self._patience = 2 * config.heartbeat_interval.total_seconds()
        self._unseen: set[uuid.UUID] = set()

    def is_seen(self, worker: LivingWorker, sign: FirstSign, silence: float, *, link: int) -> bool:
        """Return True if the second sign is there; where the database cannot tell, after two beats of silence.

        Args:
            link: the cleaner's own connection to RabbitMQ; 0 = none.
        """
        if sign is FirstSign.SILENCE:
            are_gone = sessions.are_gone(self.alias, worker.sessions) is True
            # the cause that keeps the worker from reconnecting may affect this cleaner, too
            return are_gone and sessions.can_connect(self.alias)
        if sign is FirstSign.WILL and not link:
            return False
        return self._session_is_gone(worker, silence)

    def forget_others(self, ids: set[uuid.UUID]) -> None:
        """Forget all workers but these."""
        self._unseen &= ids

    def _session_is_gone(self, worker: LivingWorker, silence: float) -> bool:
        session = worker.sessions[0] if worker.sessions else ""
        gone = sessions.is_gone(self.alias, session)
        if gone is not None:
            return gone
        if session and worker.id not in self._unseen:
            self._unseen.add(worker.id)
            signals.session_unseen.emit(worker=worker.id)
        return silence >= self._patience
