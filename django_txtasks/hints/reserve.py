"""Hints by PostgreSQL's NOTIFY for a site with RabbitMQ, while RabbitMQ is away.

Each process decides by its own connection to RabbitMQ. A sender sends each hint one way, never both. A worker
continues to listen to PostgreSQL for some time after RabbitMQ is back, because senders reconnect at other times.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from django_txtasks.hints.broker.consumer import HintConsumer
from django_txtasks.hints.listener import HintListener

KEEP_SECONDS = 60.0
"""Seconds that a worker listens to PostgreSQL once RabbitMQ is back: twice the longest pause of a sender between
two tries to reach RabbitMQ.
"""


class WithReserve:
    """A source of hints from RabbitMQ, and also from PostgreSQL while RabbitMQ is away.

    Args:
        make_reserve: creates the source that is used meanwhile, each time a new one.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        first: HintConsumer,
        make_reserve: Callable[[], HintListener],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._first, self._make_reserve, self._clock = first, make_reserve, clock
        self._reserve: HintListener | None = None
        self._away_at = 0.0
        self._listens, self._is_stopped = True, False
        first.on_link = self._follow

    @property
    def connected(self) -> bool:
        """True if hints can arrive."""
        reserve = self._reserve
        return self._first.connected or (reserve is not None and reserve.connected)

    @property
    def follows_commits(self) -> bool:
        """True if hints reach all workers after the commit, so that a hinted row that is absent has run."""
        return not self._first.connected

    def start(self) -> None:
        """Start to connect. Returns at once."""
        self._first.start()

    def stop(self) -> None:
        """End the sessions."""
        self._is_stopped = True
        self._first.stop()
        self._end_reserve(2.0)

    def listen(self, on: bool) -> None:
        """Take hints from now on, or leave them to others. Returns at once."""
        self._listens = on
        self._first.listen(on)
        if (reserve := self._reserve) is not None:
            reserve.listen(on)

    def _follow(self, is_there: bool) -> None:
        """Start or end the reserve, in the thread of the first source: after each try, and every few seconds."""
        now = self._clock()
        if not is_there:
            self._away_at = now
            if self._reserve is None and not self._is_stopped:
                self._reserve = self._make_reserve()
                self._reserve.start()
                self._reserve.listen(self._listens)
        elif now - self._away_at > KEEP_SECONDS:
            self._end_reserve(0.0)

    def _end_reserve(self, seconds: float) -> None:
        reserve, self._reserve = self._reserve, None
        if reserve is not None:
            reserve.stop(seconds)
