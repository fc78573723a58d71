"""A worker's look for requests to its tasks: to stop, or to show their stack. Once a second, for long tasks."""

from __future__ import annotations

import time
import uuid

from django_txtasks.core.ground.cancel_requests import CancelRequests
from django_txtasks.core.rows.attempts import Attempt
from django_txtasks.core.working.parts import Part
from django_txtasks.core.working.registration import Registration
from django_txtasks.core.working.running.limits import NEVER
from django_txtasks.core.working.running.slot_pool import SlotPool
from django_txtasks.features.results.cancelling import Key
from django_txtasks.features.stacks import of_attempt as attempt_stack
from django_txtasks.features.stacks.answers import answer, stops_and_questions

LOOK_SECONDS = 1.0
"""Seconds between two looks. Attempts that take less than that are not looked for."""
MAX_ANSWERS = 10
"""Number of stacks that one look writes. The next look writes the others."""


class CancelLook(Part):
    """Looks in a statement of its own, separate from the turns, with the ids of attempts that run long.

    Args:
        requests: the stop requests that it finds; slots read them.
    """

    def __init__(self, alias: str, registration: Registration, requests: CancelRequests) -> None:
        self._alias, self._registration, self._requests = alias, registration, requests
        self._next = time.monotonic() + LOOK_SECONDS
        self.looks = (self,)

    def started(self, slots: SlotPool) -> None:
        """Take the slots whose attempts are looked for."""
        self._slots = slots

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
            asked, looked_for, questions = self._asked(worker, long)
            self._requests.update(asked, looked_for)
            for key in sorted(questions & self._slots.holds())[:MAX_ANSWERS]:
                self._answer(worker, key)
        return False

    def _asked(self, worker: uuid.UUID, long: list[Attempt]) -> tuple[set[Key], set[Key], set[Key]]:
        """Return (id, attempt) of attempts that were asked to stop, of all that were looked for, and of attempts
        whose stack a person wants to see.
        """
        if self._slots.asks_by_worker:
            stops, questions = stops_and_questions(self._alias, worker, None)
            return stops, stops, questions
        ids = sorted({attempt.task_id for attempt in long})
        keys = {(attempt.task_id, attempt.number) for attempt in long}
        stops, questions = stops_and_questions(self._alias, worker, ids)
        return stops & keys, keys, questions

    def _answer(self, worker: uuid.UUID, key: Key) -> None:
        """Write the stack of an attempt, unless the attempt has ended: then its row changes in a moment."""
        text = attempt_stack.text_of(self._slots, key)
        if not text and key in self._slots.holds():
            text = attempt_stack.NOT_BEGUN
        if text:
            answer(self._alias, worker, key, text)
