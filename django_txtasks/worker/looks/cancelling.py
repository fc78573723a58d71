"""A worker's look for its tasks that were asked to stop: once a second, for attempts that run longer than that."""

from __future__ import annotations

import time
import uuid

from django_txtasks.cancel_requests import CancelRequests
from django_txtasks.lifecycle.attempts import Attempt
from django_txtasks.results.cancelling import Key, asked_to_stop
from django_txtasks.worker.registration import Registration
from django_txtasks.worker.running.limits import NEVER
from django_txtasks.worker.running.slot_pool import SlotPool

LOOK_SECONDS = 1.0
"""Seconds between two looks. Attempts that take less than that are not looked for."""


class CancelLook:
    """Looks in a statement of its own, separate from the turns, with the ids of attempts that run long.

    Args:
        requests: the stop requests that it finds; slots read them.
    """

    def __init__(
        self, alias: str, registration: Registration, slots: SlotPool, requests: CancelRequests
    ) -> None:
        self._alias, self._registration = alias, registration
        self._slots, self._requests = slots, requests
        self._next = time.monotonic() + LOOK_SECONDS

    @property
    def next(self) -> float:
        """When to look, by ``time.monotonic()``."""
        return self._next if self._slots.running else NEVER

    def look(self) -> bool:
        """Ask the database if an attempt runs longer than ``LOOK_SECONDS``. Return False: it finds no work.

        Raises:
            DatabaseError, InterfaceError: the next look is a second later.
        """
        now, worker = time.monotonic(), self._registration.id
        self._next = now + LOOK_SECONDS
        long = self._slots.running_since(now - LOOK_SECONDS)
        if long and worker is not None:
            self._requests.update(*self._asked(worker, long))
        return False

    def _asked(self, worker: uuid.UUID, long: list[Attempt]) -> tuple[set[Key], set[Key]]:
        """Return (id, attempt) of attempts that were asked to stop, and of all that were looked for."""
        ids = sorted({attempt.task_id for attempt in long})
        keys = {(attempt.task_id, attempt.number) for attempt in long}
        return asked_to_stop(self._alias, worker, ids) & keys, keys
