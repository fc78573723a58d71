"""Sends hints by PostgreSQL's NOTIFY, after the commit, in a session of its own.

They are not sent in the transaction that enqueues, because transactions that notify commit one after the other. If
nothing is in the way, the thread that has committed gives the hint to the socket, and does not wait for the
answer: if another thread had to be woken first, the task would start later. That other thread opens the session,
reads the answers, and sends waiting hints. Each hint is followed by a rest, which is longer the more tasks come
(see ``sending.rest``). Hints that come meanwhile are packed together, and the process and the database keep nearly
all of their time for other work.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import psycopg  # this module is imported only for PostgreSQL

from django_txtasks.hints import channel
from django_txtasks.hints.failures import Failures
from django_txtasks.hints.session import close, open_session
from django_txtasks.sending import message as hint_message
from django_txtasks.sending.sender import HintSender, SendersOfProcess

IDLE_SECONDS = 60.0
"""Seconds without a hint after which the session is closed."""
LOOK_SECONDS = 5.0
"""Seconds between two looks of a thread that was not woken."""


def of_process(alias: str) -> Sender:
    """Return this process's sender. The first call creates it; each forked child creates its own."""
    return _senders.get(alias, Sender, alias)


class _Packed(NamedTuple):
    """A hint, with the news whether more tasks wait than the buffer took."""

    queue: str
    ids: list[uuid.UUID]
    more: bool

    def message(self) -> bytes:
        return hint_message.encode(self.ids, more=self.more)


class Sender(HintSender):
    """Sends hints of one database in a session of its own."""

    def __init__(self, alias: str) -> None:
        super().__init__("txtasks-hints", LOOK_SECONDS)
        self._alias = alias
        self._session: Any = None
        self._unanswered: _Packed | None = None
        self._used_at = 0.0
        self._failures = Failures("Sender of hints", alias)

    def notify(self, of_queue: Mapping[str, Sequence[uuid.UUID]]) -> None:
        """Send hints of these ids, by queue, now, or let the thread do it."""
        for queue, ids in of_queue.items():
            self._keep(queue, ids)
        try:
            if self._rest.is_over():
                self._send_at_once()
        finally:  # even if a time limit interrupts this thread
            self._have_it_sent()

    def _send_at_once(self) -> None:
        """Give the waiting ids to the socket, if one hint has room for them and nothing is in the way.

        The thread handles the answer.
        """
        lock = self._in_use.take_at_once()
        if lock is None:
            return
        try:
            queue = self._only_queue()
            is_free = self._session is not None and self._unanswered is None
            if queue is not None and is_free and not self._has_ended():
                begin, packed = time.monotonic(), self._pack(queue)
                self._unanswered = packed
                channel.send_at_once(self._session.connection, queue, packed.message())
                self._rest.begin(begin, len(packed.ids), counts=False)
        except psycopg.Error:  # the session has ended: the thread notices, and sends the hint again
            return
        finally:
            lock.release()

    def _only_queue(self) -> str | None:
        """Return the queue of all waiting ids, if there is only one queue and one hint has room for them."""
        names = [queue for queue, ids in list(self._waiting.items()) if ids]
        if len(names) != 1 or self._more or len(self._waiting[names[0]]) > channel.IDS_PER_HINT:
            return None
        return names[0]

    def _has_to_do(self) -> bool:
        return self._unanswered is not None or self._something_waits()

    def _send_what_waits(self) -> None:
        self._open()
        self._read_answer()
        if self._something_waits():
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
        for queue, ids in list(self._waiting.items()):
            for _ in range(-(-len(ids) // channel.IDS_PER_HINT) or int(queue in self._more)):
                self._unanswered = packed = self._pack(queue)
                channel.send(self._session.connection, queue, packed.message())
                self._unanswered = None
                number += len(packed.ids)
        return number

    def _pack(self, queue: str) -> _Packed:
        """Take the waiting ids of a queue, as many as fit into a hint."""
        ids, more = self._waiting[queue], queue in self._more
        packed = [ids.popleft() for _ in range(min(len(ids), channel.IDS_PER_HINT))]
        if not ids:
            self._more.discard(queue)
        return _Packed(queue, packed, more)

    def _close(self) -> None:
        """End the session. Hints without an answer wait again."""
        packed, self._unanswered = self._unanswered, None
        if packed is not None:
            self._waiting[packed.queue].extendleft(reversed(packed.ids))
            if packed.more:
                self._more.add(packed.queue)
        session, self._session = self._session, None
        if session is not None:
            close(session)


_senders: SendersOfProcess[Sender] = SendersOfProcess()
close_all = _senders.close_all
