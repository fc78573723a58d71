"""One pass over a queue: choose rows, send them, and write the answers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import NamedTuple

from django.db import DatabaseError, connections

from django_txtasks.conf import Config
from django_txtasks.database import sessions
from django_txtasks.database.errors import is_in_the_way
from django_txtasks.database.execute import as_uuid, fetch_column
from django_txtasks.database.transactions import own_transaction
from django_txtasks.enqueueing.commit_hints import notify_now
from django_txtasks.exceptions import AlreadyRun
from django_txtasks.hand_over import moving, statements
from django_txtasks.hand_over.asking import ask
from django_txtasks.hand_over.choosing import Place, choose
from django_txtasks.hand_over.rows import Row
from django_txtasks.hand_over.target import Answers, Target
from django_txtasks.lifecycle.attempts import FollowUps

SEND_SECONDS = 10.0
"""Longest time for the target in one pass."""
SESSION_LIMIT = timedelta(seconds=15)
"""Time after which the server ends the session of a drain that is frozen inside a pass, and so frees its rows."""
WRITE_SECONDS = 10.0
"""Longest time to repeat the write of a pass on SQLite, while another process writes."""


class Passed(NamedTuple):
    """The result of a pass.

    Attributes:
        rows: number of rows that were chosen.
        answers: the answers to them.
        is_all: no other row was due.
        seconds: the time that the pass took.
    """

    rows: int
    answers: Answers
    is_all: bool
    seconds: float


class Passes:
    """The passes of one drain over one queue, in the thread that calls.

    Args:
        target: gets the rows.
    """

    def __init__(self, config: Config, alias: str, queue: str, target: Target) -> None:
        self._config, self._alias, self._queue, self._target = config, alias, queue, target
        self._is_ordered = config.hand_over[queue].ordered
        self._place = None if self._is_ordered else Place(config.poll_interval.total_seconds())

    def take(self, limit: int) -> Passed:
        """Hand over at most ``limit`` rows.

        Raises:
            DatabaseError, InterfaceError: nothing is written. Rows that were sent are sent again.
        """
        began = time.monotonic()
        sessions.dedicate(self._alias, SESSION_LIMIT)
        if connections[self._alias].vendor == "sqlite":
            rows, answers, is_all = self._without_locks(limit, began + SEND_SECONDS)
        else:
            with self._transaction():
                rows, is_all = choose(self._alias, self._queue, limit, self._place)
                answers = self._send(rows, began + SEND_SECONDS)
                follow_ups = self._write(rows, answers)
            self._tell(rows, answers, follow_ups)
        return Passed(len(rows), answers, is_all, time.monotonic() - began)

    def _without_locks(self, limit: int, until: float) -> tuple[Sequence[Row], Answers, bool]:
        """Make a pass on SQLite, whose only lock would keep the whole site from writing while rows are sent."""
        place = self._place or Place(0.0)
        rows, is_all = choose(self._alias, self._queue, limit, place)
        answers = self._send(rows, until)
        while True:
            try:
                with self._transaction():
                    pending = _pending(self._alias, rows)
                    there = [row for row in rows if row.id in pending]
                    follow_ups = self._write(there, answers)
                break
            except DatabaseError as error:
                if not is_in_the_way(error) or time.monotonic() >= until + WRITE_SECONDS:
                    raise
                time.sleep(0.05)
        self._tell(rows, answers, follow_ups)
        return rows, answers, is_all

    def _transaction(self) -> AbstractContextManager[None]:
        return own_transaction(self._alias, limit=SESSION_LIMIT, in_order=True, read_committed=True)

    def _send(self, rows: Sequence[Row], until: float) -> Answers:
        """Send the rows that were never sent before; the others are refused, as a worker refuses them."""
        ended = {row.id: str(AlreadyRun()) for row in rows if row.has_ended}
        new = [row for row in rows if row.id not in ended] if ended else rows
        answers = ask(self._target, new, until, ordered=self._is_ordered) if new else Answers()
        answers.refused.update(ended)
        return answers

    def _write(self, rows: Sequence[Row], answers: Answers) -> FollowUps:
        by_id = {row.id: row for row in rows}
        moving.finish(self._alias, [row for row in rows if row.id in answers.taken], self._config)
        moving.postpone(self._alias, _pairs(by_id, answers.postponed))
        return moving.bury(self._alias, _pairs(by_id, answers.refused), self._config)

    def _tell(self, rows: Sequence[Row], answers: Answers, follow_ups: FollowUps) -> None:
        moving.tell({row.id: row for row in rows}, answers.refused)
        if follow_ups:
            notify_now(self._config, self._alias, follow_ups)


def _pending(alias: str, rows: Sequence[Row]) -> set[uuid.UUID]:
    ids = [row.id for row in rows]
    return (
        set(map(as_uuid, fetch_column(alias, statements.STILL_PENDING, ids=ids))) if ids else set()
    )


def _pairs(rows: dict[uuid.UUID, Row], reasons: dict[uuid.UUID, str]) -> list[tuple[Row, str]]:
    return [(rows[one], reason) for one, reason in reasons.items() if one in rows]
