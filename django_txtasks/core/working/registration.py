"""The worker's row in the database: registration, beats and removal."""

from __future__ import annotations

import threading
import uuid
from typing import Any, Protocol

from django.db import DatabaseError, InterfaceError, connections

from django_txtasks import signals
from django_txtasks.core.ground import payload
from django_txtasks.core.ground.config import CoreConfig
from django_txtasks.core.rows import workers
from django_txtasks.core.rows.turn import Subscription
from django_txtasks.core.rows.workers import IN_ORDER
from django_txtasks.database import sessions
from django_txtasks.database.errors import text_of
from django_txtasks.database.transactions import own_transaction
from django_txtasks.models import Worker

MAX_RELEASE: int = Worker._meta.get_field("release").max_length  # type: ignore[assignment]


class DeclaredLost(Exception):
    """This worker's row says that it is lost."""


class LastWill(Protocol):
    """The last will: a message that RabbitMQ gives to the cleaners when this process is gone."""

    def number_for(self, worker: uuid.UUID) -> int:
        """Return the number of the will that RabbitMQ holds for this worker; 0 = none yet."""

    def renew(self) -> None:
        """Replace the will by one with a new number."""


class Registration:
    """This process as a worker. After it was declared lost it registers under a new id.

    Args:
        last_will: None = there is no broker.

    Attributes:
        id: the worker's id; None = not registered. Written by the loop.
        end: how this process will have ended when it leaves.
        slot_sessions: the database session of each slot's thread. Written by slots, read by the loop.
        can_beat: False if even the beat failed after the last failed turn.
    """

    def __init__(
        self,
        config: CoreConfig,
        subscription: Subscription,
        threads: int,
        last_will: LastWill | None,
    ) -> None:
        self._config, self._subscription, self._threads = config, subscription, threads
        self._alias, self.last_will = subscription.alias, last_will
        self.id: uuid.UUID | None = None
        self.slot_sessions: dict[int, str] = {}
        self._seen_will = 0
        self.can_beat = True
        self.end = IN_ORDER

    @property
    def me(self) -> uuid.UUID:
        """The worker's id, which a turn needs.

        Raises:
            DeclaredLost: the worker is not registered.
        """
        if self.id is None:
            raise DeclaredLost
        return self.id

    @property
    def name(self) -> uuid.UUID | str:
        """The worker's id; before registration, a text for the log."""
        return self.id or "(not registered yet)"

    def note_session(self, session: str) -> None:
        """Note the database session of the calling slot thread."""
        self.slot_sessions[threading.get_ident()] = session

    def sees_another_will(self) -> bool:
        """Return True once after each change of the will, so that the worker beats.

        A lost connection looks like a lost worker.
        """
        before, self._seen_will = self._seen_will, self._will()
        return self._seen_will != before

    def ensure(self, connected: bool | None) -> bool:
        """Register, if the worker is not registered. Return True if it was not."""
        if self.id is not None:
            return False
        queues, names = sorted(self._subscription.queues), self._subscription.declared
        self.id = workers.register(
            self._alias,
            queues=queues,
            task_names=names,
            threads=self._threads,
            listening=connected,
            lease=self._config.lease,
            release=release_of(self._config),
        )
        signals.worker_started.emit(
            worker=self.id,
            queues=", ".join(queues),
            threads=self._threads,
            broker=self._config.broker_address,
        )
        return True

    def beat(self, running: int, connected: bool | None) -> None:
        """Renew the lease, in the open transaction.

        Raises:
            DeclaredLost: the caller must roll back.
        """
        beat = workers.beat(self._alias, self.me, **self._facts(running, connected))
        if beat is None:
            raise DeclaredLost
        self.heed(is_suspected=beat.is_suspected)

    def heed(self, *, is_suspected: bool) -> None:
        """If a beat finds this worker suspected, have a new will written.

        The worker lives, so the suspicion is false: the will was forged, or its connection was cut. A new number
        makes the old will void, and the next beat, which carries that number, ends the suspicion. Otherwise a
        later cut of the database session would pass for the worker's end, until the next regular renewal.
        """
        if is_suspected and self.last_will is not None:
            self.last_will.renew()

    def beat_alone(self) -> bool:
        """Beat outside a turn, so that a turn that keeps failing does not cost a living worker its lease.

        Returns:
            False if the worker cannot beat.
        """
        self.can_beat = False
        try:
            if self.id is not None:
                self.beat(0, None)
                self.can_beat = True
        except DeclaredLost:
            pass  # the next turn notices
        except (DatabaseError, InterfaceError):
            connections[self._alias].close()
        return self.can_beat

    def state(self, running: int, connected: bool | None) -> dict[str, Any]:
        """Return the values that a beat writes: see ``workers.state_of``."""
        return workers.state_of(self._alias, **self._facts(running, connected))

    def forget(self) -> None:
        """Forget the worker's id, which was declared lost. The next turn registers anew."""
        previous, self.id = self.id, None
        signals.worker_was_lost.emit(worker=previous)

    def leave(self) -> None:
        """Remove this worker's row. If the worker still holds claims, the row stays until the lease is over."""
        if self.id is not None:
            with own_transaction(self._alias, limit=self._config.lease / 2, in_order=True):
                workers.unregister(self._alias, self.id, self.end)
        sessions.close_dedicated(self._alias)

    def _facts(self, running: int, connected: bool | None) -> dict[str, Any]:
        return {
            "running": running,
            "listening": connected,
            "will": self._will(),
            "slot_sessions": [one for one in list(self.slot_sessions.values()) if one],
        }

    def _will(self) -> int:
        if self.last_will is None or self.id is None:
            return 0
        return self.last_will.number_for(self.id)


def release_of(config: CoreConfig) -> str:
    """Return the release of this process's code, as the settings name it, cut to the length of its column.

    If the project's function fails, the error is logged and the release is empty, so that the worker still runs.
    """
    try:
        release = config.release_now()
        if not isinstance(release, str):
            raise TypeError(f"it returned {release!r}, which is no text")
    except Exception as error:
        signals.release_unknown.emit(error=text_of(error))
        return ""
    return payload.storable(release)[:MAX_RELEASE]
