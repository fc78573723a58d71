"""One pass over a queue: choose rows, send them, and write the answers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import NamedTuple

from django.db import DatabaseError, InterfaceError, connections

from django_txtasks.conf import Config
from django_txtasks.core.enqueueing.commit_hints import notify_now
from django_txtasks.core.rows.attempts import FollowUps
from django_txtasks.database import sessions
from django_txtasks.database.errors import is_in_the_way, is_timeout
from django_txtasks.database.execute import as_uuid, execute, fetch_column
from django_txtasks.database.transactions import own_transaction
from django_txtasks.exceptions import AlreadyRun
from django_txtasks.features.hand_over import moving, statements
from django_txtasks.features.hand_over.asking import ask
from django_txtasks.features.hand_over.choosing import Place, choose
from django_txtasks.features.hand_over.rows import Row
from django_txtasks.features.hand_over.target import Answers, Target
from django_txtasks.features.hand_over.writing import write

SEND_SECONDS = 10.0
"""Longest time for the target in one pass."""
SESSION_LIMIT = timedelta(seconds=15)
"""Time after which the server ends the session of a drain that is frozen inside a pass, and so frees its rows."""
WRITE_SECONDS = 10.0
"""Longest time to repeat the write of a pass on SQLite, while another process writes."""
MOST_REFUSALS = 8
"""Number of failed passes in a row, about 15 s, after which a row whose answer is refused alone is postponed."""
MOST_TRIES = 1000
"""Number of tries, about 17 hours, after which a row that was always postponed is dead, while other rows went."""
LATELY_SECONDS = 3600.0
"""Time for which a row that went shows that the target takes rows: far less than that of ``MOST_TRIES``."""


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
        self._place = Place(config.poll_interval.total_seconds(), is_ordered=self._is_ordered)
        self._writes_first = False
        self._refusals = 0
        self._took_at = float("-inf")

    def take(self, limit: int, *, blames: bool = False) -> Passed:
        """Hand over at most ``limit`` rows.

        After a failure, show that the database can be written before rows are sent.

        Args:
            blames: see ``ask``.

        Raises:
            DatabaseError, InterfaceError: nothing is written. Rows that were sent are sent again.
        """
        began = time.monotonic()
        sessions.dedicate(self._alias, SESSION_LIMIT)
        is_on_sqlite = connections[self._alias].vendor == "sqlite"
        take = self._without_locks if is_on_sqlite else self._with_locks
        try:
            rows, answers, is_all = take(limit, blames)
        except (DatabaseError, InterfaceError) as error:
            self._place.go_back(too_long=is_timeout(error))
            self._writes_first = True
            self._refusals += 1
            raise
        self._refusals = 0
        self._writes_first = self._writes_first and not rows  # without rows, nothing was written
        if len(answers.known) < len(rows):  # otherwise the next pass would find none of them
            self._place.go_back()
        return Passed(len(rows), answers, is_all, time.monotonic() - began)

    def _with_locks(self, limit: int, blames: bool) -> tuple[Sequence[Row], Answers, bool]:
        with self._transaction():
            rows, is_all = choose(self._alias, self._queue, limit, self._place)
            if self._writes_first:
                self._touch(rows)
            answers = self._send(rows, time.monotonic() + SEND_SECONDS, blames)
            follow_ups = self._write(rows, answers)
        self._tell(rows, answers, follow_ups)
        return rows, answers, is_all

    def has_due_rows(self) -> bool:
        """Say whether a row could be handed over now. If the database does not answer, this is assumed."""
        try:
            with self._transaction():
                return bool(choose(self._alias, self._queue, 1, Place(0.0)).rows)
        except (DatabaseError, InterfaceError):
            return True

    def _without_locks(self, limit: int, blames: bool) -> tuple[Sequence[Row], Answers, bool]:
        """Make a pass on SQLite, whose only lock would keep the whole site from writing while rows are sent."""
        until = time.monotonic() + SEND_SECONDS
        rows, is_all = choose(self._alias, self._queue, limit, self._place)
        if self._writes_first:
            with self._transaction():
                self._touch(rows)
        answers = self._send(rows, until, blames)
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

    def _touch(self, rows: Sequence[Row]) -> None:
        if ids := [row.id for row in rows]:
            execute(self._alias, statements.TOUCH, ids=ids)

    def _send(self, rows: Sequence[Row], until: float, blames: bool) -> Answers:
        """Send the rows that were never sent before; the others are refused, as a worker refuses them."""
        ended = {row.id: str(AlreadyRun()) for row in rows if row.has_ended}
        new = [row for row in rows if row.id not in ended] if ended else rows
        answers = Answers()
        if new:
            answers = ask(self._target, new, until, ordered=self._is_ordered, blames=blames)
        self._give_up(new, answers)
        answers.refused.update(ended)
        return answers

    def _give_up(self, rows: Sequence[Row], answers: Answers) -> None:
        """Refuse rows that were postponed too often, if the target has taken other rows lately."""
        now = time.monotonic()
        if answers.taken:
            self._took_at = now
        if now - self._took_at > LATELY_SECONDS:
            return
        for row in rows:
            if row.snoozes + 1 >= MOST_TRIES and row.id in answers.postponed:
                reason = answers.postponed.pop(row.id)
                answers.refused[row.id] = f"not taken in {row.snoozes + 1} tries: {reason}"

    def _write(self, rows: Sequence[Row], answers: Answers) -> FollowUps:
        blames = self._refusals >= MOST_REFUSALS
        return write(self._alias, rows, answers, self._config, blames=blames)

    def _tell(self, rows: Sequence[Row], answers: Answers, follow_ups: FollowUps) -> None:
        moving.tell({row.id: row for row in rows}, answers.refused)
        if follow_ups:
            notify_now(self._config, self._alias, follow_ups)


def _pending(alias: str, rows: Sequence[Row]) -> set[uuid.UUID]:
    ids = [row.id for row in rows]
    return (
        set(map(as_uuid, fetch_column(alias, statements.STILL_PENDING, ids=ids))) if ids else set()
    )
