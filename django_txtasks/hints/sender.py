"""Sends hints by PostgreSQL's NOTIFY, after the commit, in a session of its own.

They are not sent in the transaction that enqueues, because transactions that notify commit one after the other.
The thread that has committed gives the hint to the socket, and does not wait for the answer. The sender's thread
opens the session, reads the answers, and sends waiting hints. Each hint is followed by a rest, which is longer the
more tasks come (see ``hints.sending.rest``). Hints that come meanwhile are packed together, and the process and
the database keep nearly all of their time for other work.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

import psycopg  # this module is imported only for PostgreSQL

from django_txtasks.hints import channel
from django_txtasks.hints.failures import Failures
from django_txtasks.hints.sending.buffer import Packed
from django_txtasks.hints.sending.sender import HintSender, SendersOfProcess
from django_txtasks.hints.session import close, open_session

IDLE_SECONDS = 60.0
"""Seconds without a hint after which the session is closed."""
LOOK_SECONDS = 5.0
"""Seconds between two looks of a thread that was not woken."""


def of_process(alias: str) -> NotifySender:
    """Return this process's sender. The first call creates it; each forked child creates its own."""
    return _senders.get(alias, NotifySender, alias)


class NotifySender(HintSender):
    """Sends hints of one database in a session of its own."""

    is_answered = True

    def __init__(self, alias: str) -> None:
        super().__init__("txtasks-hints", LOOK_SECONDS, channel.IDS_PER_HINT)
        self._alias = alias
        self._session: Any = None
        self._unanswered: Packed | None = None
        self._used_at = 0.0
        self._failures = Failures("Sender of hints", alias)

    def _may_give(self, queue: str) -> bool:
        is_free = self._session is not None and self._unanswered is None
        return is_free and not self._has_ended()

    def _give(self, packed: Packed) -> bool:
        self._unanswered = packed
        # If the session has ended, the thread notices, and sends the hint again.
        with contextlib.suppress(psycopg.Error):
            channel.send_at_once(self._session.connection, packed.queue, packed.message())
        return True

    def _has_to_do(self) -> bool:
        return self._unanswered is not None or bool(self._buffer)

    def _send_what_waits(self) -> None:
        self._open()
        self._read_answer()
        if self._buffer:
            begin = time.monotonic()
            self._rest.begin(begin, self._send())
        self._used_at = time.monotonic()

    def _look_after(self) -> None:
        is_idle = time.monotonic() >= self._used_at + IDLE_SECONDS
        if self._has_ended() or (is_idle and self._unanswered is None):
            self._close()

    def _has_ended(self) -> bool:
        """Return True if the session has ended while idle, as servers and firewalls end idle sessions."""
        if self._session is None or self._unanswered is not None:
            return False
        return channel.has_ended(self._session.connection)

    def _failed(self, error: Exception) -> float:
        self._close()
        return self._failures.failed(error)

    def _open(self) -> None:
        if self._has_ended():
            self._close()
        if self._session is None:
            self._session = open_session(self._alias)
            channel.may_send_at_once(self._session.connection)
            self._failures.is_ready()

    def _read_answer(self) -> None:
        """Wait for the answer to a hint that was sent at once, if the answer has not come yet."""
        if self._unanswered is not None:
            channel.read_answer(self._session.connection)
            self._unanswered = None

    def _send(self) -> int:
        """Send the waiting ids, in as few messages for each queue as possible. Return their number."""
        number = 0
        for queue in self._buffer.queues():
            for _ in range(self._buffer.hints(queue)):
                self._unanswered = packed = self._buffer.pack(queue)
                channel.send(self._session.connection, queue, packed.message())
                self._unanswered = None
                number += len(packed.ids)
        return number

    def _close(self) -> None:
        """End the session. Hints without an answer wait again."""
        packed, self._unanswered = self._unanswered, None
        if packed is not None:
            self._buffer.put_back(packed)
        session, self._session = self._session, None
        if session is not None:
            close(session)


_senders: SendersOfProcess[NotifySender] = SendersOfProcess()
close_all = _senders.close_all
