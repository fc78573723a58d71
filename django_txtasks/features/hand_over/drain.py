"""The loop of one queue that is handed over: pass after pass, until it is told to stop."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Mapping
from datetime import timedelta

from django.db import DatabaseError, InterfaceError, connections, reset_queries

from django_txtasks import signals
from django_txtasks.conf import Config
from django_txtasks.core.ground.retry import backoff
from django_txtasks.core.working.hint_inbox import HintInbox
from django_txtasks.database import sessions
from django_txtasks.database.errors import is_in_the_way, is_repeatable, str_of, text_of
from django_txtasks.exceptions import Away
from django_txtasks.features.hand_over.passes import Passed, Passes
from django_txtasks.features.hand_over.target import NotReturned, Target
from django_txtasks.processes.probes import Liveness
from django_txtasks.processes.shutdown import Shutdown
from django_txtasks.signals.outage import Outage

MOST_ROWS = 500
"""Number of rows in one pass."""
LEAST_ROWS = 1
"""Number of rows in a pass after a failure: rows that were sent may have arrived, and arrive again each time."""
SLOW_SECONDS, QUICK_SECONDS = 1.0, 0.5
"""Seconds of a pass after which the next one has half as many rows, and below which it has twice as many."""
REST_SECONDS = 1.0
"""Pause after a pass that has handed over none of its rows."""
FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 1.0, 30.0
"""First and longest pause, in seconds, while the target cannot be reached."""
TELL_EVERY_SECONDS = 60.0
"""Seconds between two warnings about postponed rows."""
DATABASE_SECONDS = 5.0
"""Longest pause after a failure of the database."""
TRIES = 3
"""Number of tries in a row after which the row at the head may be the reason: from then on a drain also tries the
rows behind it. A drain that ends when nothing is due then gives its target up."""


class Drain:
    """Hands over the rows of one queue of one database.

    Args:
        target: gets the rows.
        stop: requests to stop.
        until_idle: end when nothing is due, or when the target cannot be reached for ``TRIES`` times in a row.

    Attributes:
        inbox: the loop waits on it. It may have a source of hints.
        liveness: the answers for probes. The drain is ready if a pass has ended lately.
        handed: number of rows that were handed over.
        left: the reason why due rows are left although it has ended by itself; empty: none are left.
        away: the reason why the target cannot be reached; empty: it can.
    """

    def __init__(
        self,
        config: Config,
        alias: str,
        queue: str,
        target: Target,
        *,
        stop: Shutdown,
        until_idle: bool = False,
    ) -> None:
        self._config, self.alias, self.queue, self._target = config, alias, queue, target
        self._stop, self._until_idle = stop, until_idle
        self._is_ordered = config.hand_over[queue].ordered
        self._passes = Passes(config, alias, queue, target)
        self.inbox = HintInbox()
        self.liveness = Liveness(
            config.lease, unready="no pass has ended for a lease; the log says why"
        )
        self._outage = Outage(alias, lambda: f"Drain of queue {queue}")
        self._size, self._failures = MOST_ROWS, 0
        self._last_rows, self._to_send_alone = 0, 0  # one row of a call that hangs is the reason
        self._away_since: float | None = None
        self._away_count, self._postponed = 0, _PostponedRows(queue)
        self._unheard = ""  # why the last rows that were sent had no answer
        self.handed = 0
        self.left = ""
        self.away = ""

    def run(self) -> None:
        """Hand over until told to stop; with ``until_idle``, see there."""
        pause: float | None = 0.0
        try:
            while pause is not None and not self._stop.asked:
                self.inbox.wait(pause)
                self.liveness.turned()
                if not self._stop.asked:
                    pause = self._turn()
                reset_queries()
        finally:
            self._target.close()
            sessions.close_dedicated(self.alias)
            connections.close_all()

    def _turn(self) -> float | None:
        """Make one pass. Return the seconds until the next one; None = it was the last one."""
        try:
            self._target.look_after()
        except NotReturned as error:
            self._to_send_alone = max(self._to_send_alone, self._last_rows)
            return self._is_away(str_of(error), longest=FIRST_DELAY_SECONDS)
        except Away as error:
            return self._is_away(str_of(error))
        try:
            passed = self._passes.take(self._size, blames=self._away_count >= TRIES - 1)
        except (DatabaseError, InterfaceError) as error:
            return self._has_failed(error)
        self._failures = 0
        self._outage.succeeded()
        self.liveness.wrote()
        self.inbox.scanned(filled=not passed.is_all)
        self._adapt(passed)
        return self._after(passed)

    def _after(self, passed: Passed) -> float | None:
        answers = passed.answers
        self.handed += len(answers.taken)
        self._last_rows = passed.rows
        if answers.taken:
            self._away_count = 0
            signals.tasks_handed.emit(
                count=len(answers.taken), queue=self.queue, seconds=passed.seconds
            )
        if passed.rows:
            self._unheard = answers.away
        if answers.away:
            return self._is_away(answers.away)
        if answers.postponed:
            self._postponed.tell(answers.postponed)
        if not self._unheard:
            self._is_back()
        if passed.rows:
            return 0.0 if answers.taken or answers.refused else REST_SECONDS
        if not passed.is_all:
            return 0.0
        if not self._until_idle:
            return self._config.poll_interval.total_seconds()
        self.left = self._unheard
        return None

    def _adapt(self, passed: Passed) -> None:
        if passed.seconds > SLOW_SECONDS:
            self._size = max(1, self._size // 2)
        elif self._to_send_alone:
            self._to_send_alone = max(0, self._to_send_alone - passed.rows)
        elif passed.seconds < QUICK_SECONDS and passed.rows:
            self._size = min(MOST_ROWS, self._size * 2)

    def _is_away(self, reason: str, *, longest: float = LONGEST_DELAY_SECONDS) -> float | None:
        """Tell once that the target cannot be reached. Return the seconds to wait; None = give it up."""
        self.away = reason
        self._away_count += 1
        self._size = LEAST_ROWS if self._to_send_alone else _size_after(self._away_count)
        if self._until_idle and self._away_count >= TRIES:
            self.left = reason if self._unheard or self._passes.has_due_rows() else ""
            return None
        delay = _delay(self._away_count, FIRST_DELAY_SECONDS, longest)
        is_news = self._away_since is None
        if self._away_since is None:
            self._away_since = time.monotonic()
        signals.target_away.emit(
            level=logging.WARNING if is_news else logging.DEBUG,
            queue=self.queue,
            error=reason,
            delay=delay,
        )
        return delay

    def _is_back(self) -> None:
        if self._away_since is not None:
            seconds = time.monotonic() - self._away_since
            signals.target_back.emit(queue=self.queue, seconds=seconds)
        self._away_since, self._away_count, self.away = None, 0, ""

    def _has_failed(self, error: Exception) -> float:
        if self._is_ordered and is_in_the_way(error):  # another drain is at work
            self.liveness.wrote()
            return 0.0
        self._failures += 1
        self._size = LEAST_ROWS
        delay = 0.0 if self._failures == 1 else _delay(self._failures, 0.1, DATABASE_SECONDS)
        self._outage.failed(text_of(error), delay)
        if not is_repeatable(error):
            sessions.close(connections[self.alias])
        return delay


class _PostponedRows:
    """Reports postponed rows, with a warning once in ``TELL_EVERY_SECONDS``."""

    def __init__(self, queue: str) -> None:
        self._queue, self._told_at = queue, float("-inf")

    def tell(self, postponed: Mapping[uuid.UUID, str]) -> None:
        """Report these rows, with the reason of one of them."""
        now = time.monotonic()
        is_news = now >= self._told_at + TELL_EVERY_SECONDS
        self._told_at = now if is_news else self._told_at
        task_id, reason = next(iter(postponed.items()))
        signals.tasks_postponed.emit(
            level=logging.WARNING if is_news else logging.DEBUG,
            count=len(postponed),
            queue=self._queue,
            task_id=task_id,
            error=reason,
        )


def _size_after(tries: int) -> int:
    """Return the number of rows to try next, after tries in a row that have not reached the target."""
    return min(MOST_ROWS, tries) if tries >= TRIES - 1 else LEAST_ROWS


def _delay(count: int, base: float, ceiling: float) -> float:
    return backoff(
        count, base=timedelta(seconds=base), ceiling=timedelta(seconds=ceiling)
    ).total_seconds()
