"""A worker's look for those of its tasks that were asked to stop: once a second, for those that run longer."""

from __future__ import annotations

import time

from django_txtasks.cancel_requests import CancelRequests
from django_txtasks.results.cancelling import asked_to_stop
from django_txtasks.worker.registration import Registration
from django_txtasks.worker.running.limits import NEVER
from django_txtasks.worker.running.slots import Slots

LOOK_SECONDS = 1.0
"""Seconds between two looks. What takes less than that is not looked for at all."""


class CancelLook:
    """Looks by itself, beside the turns: one short statement, with the ids of what runs long.

    Args:
        requests: gets what it finds; slots read it.
    """

    def __init__(
        self, alias: str, registration: Registration, slots: Slots, requests: CancelRequests
    ) -> None:
        self._alias, self._registration = alias, registration
        self._slots, self._requests = slots, requests
        self._next = time.monotonic() + LOOK_SECONDS

    @property
    def next(self) -> float:
        """When to look, by ``time.monotonic()``."""
        return self._next if self._slots.running else NEVER

    def look(self) -> bool:
        """Ask the database, if something runs for so long. Return False: it finds no work.

        Raises:
            DatabaseError, InterfaceError: it is asked again a second later.
        """
        now, worker = time.monotonic(), self._registration.id
        self._next = now + LOOK_SECONDS
        long = self._slots.running_since(now - LOOK_SECONDS)
        if long and worker is not None:
            ids = sorted({attempt.task_id for attempt in long})
            asked = asked_to_stop(self._alias, worker, ids)
            keys = [(attempt.task_id, attempt.number) for attempt in long]
            self._requests.update(asked.intersection(keys), keys)
        return False
