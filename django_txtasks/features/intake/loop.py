"""The loop of an intake: it takes messages, writes their tasks, and acknowledges them after the COMMIT."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

from django.db import DatabaseError, InterfaceError, connections, reset_queries

from django_txtasks import signals
from django_txtasks.conf import Config
from django_txtasks.core.ground.retry import backoff
from django_txtasks.core.ground.surroundings import SignsOfLife
from django_txtasks.database import sessions
from django_txtasks.database.errors import is_refusal, text_of, took_too_long
from django_txtasks.features.intake.reading import MessageCall, Refused, read
from django_txtasks.features.intake.writing import write
from django_txtasks.hints.broker.dead_letters import DeadLetterPublisher, DeadLetters
from django_txtasks.hints.broker.incoming import IncomingMessage, MessageConsumer
from django_txtasks.signals.outage import Outage

MOST_TOGETHER = 1000
"""Largest number of messages in one transaction. After a transaction that took too long, the next one has half."""
IDLE_SECONDS = 1.0
"""Longest time between two turns, so that probes see a living loop."""


class Intake:
    """Turns messages of one queue into tasks.

    A message stays unacknowledged until its task is committed, or until it is in the place for refused messages.

    Args:
        alias: the database of the tasks.
        source: receives the messages. ``run`` starts and stops it.
        liveness: receives the signs of life.
    """

    def __init__(
        self,
        config: Config,
        alias: str,
        source: MessageConsumer,
        dead_letters: DeadLetters,
        liveness: SignsOfLife | None = None,
    ) -> None:
        self._config, self._alias = config, alias
        self._source, self._dead_letters, self._liveness = (
            source,
            dead_letters,
            liveness or SignsOfLife(),
        )
        self._letters = DeadLetterPublisher(config, dead_letters)
        self._waiting: list[tuple[IncomingMessage, MessageCall]] = []
        self._refused: list[tuple[IncomingMessage, str]] = []
        self._failures = self._unsent = 0
        self._most = MOST_TOGETHER
        self._write_at = self._send_at = 0.0
        self._outage = Outage(alias, lambda: f"Intake of {dead_letters.queue!r}")

    def run(self, wait: Callable[[float], bool]) -> None:
        """Take messages until ``wait(seconds)`` returns True. Then the present turn has ended."""
        sessions.leave_pool(self._alias)
        self._source.start()
        signals.intake_started.emit(
            queue=self._dead_letters.queue, database=self._alias, broker=self._config.broker_address
        )
        try:
            stopped = False
            while not stopped:
                self.turn()
                reset_queries()  # with DEBUG, Django keeps all queries
                stopped = wait(self._pause())
        finally:
            self._source.stop()
            self._letters.close()
            connections[self._alias].close()
        signals.intake_stopped.emit(queue=self._dead_letters.queue)

    def turn(self) -> None:
        """Read the messages that have come, write their tasks, and send refused messages away."""
        for message in self._source.take():
            try:
                self._waiting.append((message, read(self._alias, message)))
            except Refused as error:
                self._refused.append((message, str(error)))
        is_held = self._source.is_held
        self._waiting = [one for one in self._waiting if is_held(one[0])]
        self._refused = [one for one in self._refused if is_held(one[0])]
        now = time.monotonic()
        if self._waiting and now >= self._write_at:
            self._write()
        if self._refused and now >= self._send_at:
            self._send_away()
        self._liveness.turned()
        if self._source.connected and not (self._waiting and self._failures):
            self._liveness.wrote()

    def _pause(self) -> float:
        """Return the seconds until the next turn; a message ends the pause."""
        times = [self._write_at] * bool(self._waiting) + [self._send_at] * bool(self._refused)
        return max(0.0, min([IDLE_SECONDS, *(one - time.monotonic() for one in times)]))

    def _write(self) -> None:
        some = self._waiting[: self._most]
        try:
            found = write(self._alias, [call for _, call in some], self._config.lease / 2)
        except (DatabaseError, InterfaceError) as error:
            self._most = max(1, len(some) // 2) if took_too_long(error) else self._most
            self._put_off(error)
            return
        self._refused += [(some[place][0], reason) for place, reason in found.refused.items()]
        self._source.acknowledge(some[place][0] for place in found.committed)
        settled = {*found.committed, *found.refused}
        left = [one for place, one in enumerate(some) if place not in settled]
        self._waiting = left + self._waiting[len(some) :]
        if found.committed:
            signals.messages_taken.emit(
                queue=self._dead_letters.queue, database=self._alias,
                count=len(found.committed), new=found.new,
            )  # fmt: skip
        if found.error is not None:
            self._put_off(found.error)
            return
        self._failures, self._most = 0, min(2 * self._most, MOST_TOGETHER)
        self._outage.succeeded()
        self._liveness.ended(refused=False)

    def _put_off(self, error: DatabaseError | InterfaceError) -> None:
        """Wait before the next write; a message that comes meanwhile waits, too."""
        if not took_too_long(error):
            connections[self._alias].close()  # after a failover an old session may be read-only
        self._failures += 1
        pause = _pause_after(self._failures)
        self._write_at = time.monotonic() + pause
        self._outage.failed(text_of(error), pause)
        self._liveness.ended(refused=is_refusal(error))

    def _send_away(self) -> None:
        """Send refused messages to their place. If RabbitMQ does not confirm one, keep it and those behind it."""
        queue, place = self._dead_letters.queue, self._dead_letters.place
        count, trouble = self._letters.send(self._refused)
        sent, self._refused = self._refused[:count], self._refused[count:]
        self._source.acknowledge(message for message, _ in sent)
        if sent:
            signals.messages_refused.emit(
                queue=queue, count=count, place=place, reason=sent[0][1].rstrip(".")
            )
        if not trouble:
            self._unsent = 0
            return
        self._unsent += 1
        pause = _pause_after(self._unsent)
        self._send_at = time.monotonic() + pause
        if self._unsent == 1:
            signals.refusals_unsent.emit(
                queue=queue, count=len(self._refused), place=place, error=trouble
            )


def _pause_after(failures: int) -> float:
    base, ceiling = timedelta(seconds=0.5), timedelta(seconds=5)
    return backoff(failures, base=base, ceiling=ceiling).total_seconds()
