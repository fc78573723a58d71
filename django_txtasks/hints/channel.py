"""The channels of PostgreSQL's NOTIFY that carry hints: everything on which two sides must agree.

Each queue has a channel, so that workers of other queues are not woken. A channel belongs to one database, and its
name to one table there: sites that share a database, each in a schema of its own, do not hear each other.
"""

from __future__ import annotations

import functools
import hashlib
import selectors
import time
from collections.abc import Iterable
from typing import Any

from django.db import OperationalError
from psycopg.pq import ExecStatus  # this module is imported only for PostgreSQL

IDS_PER_HINT = 200
"""Ids in one message, which may have 7,999 bytes."""
ANSWER_SECONDS = 10.0
"""Seconds without an answer after which a session is given up."""
DIGITS = 32
"""Hexadecimal digits of the SHA-256 of a queue's name in the name of its channel, which may have 63 bytes."""
_PREFIX = "'txtasks_' || COALESCE(to_regclass('txtasks_task')::oid, 0) || '_'"
_SELECT_PREFIX = f"SELECT {_PREFIX}"
# A hint need not survive a crash of the server; without this setting its commit would wait for the disk. The
# setting holds for this transaction only, because behind a pooler another client gets the session next. The query
# has parameters, because otherwise each NOTIFY would be a statement of its own in pg_stat_statements. The
# channel's name is computed for each message, because the table may be another one since.
_NOTIFY = f"SELECT set_config('synchronous_commit', 'off', true), pg_notify({_PREFIX} || $1, $2)"
_LISTEN, _UNLISTEN = 'LISTEN "{name}"', 'UNLISTEN "{name}"'
_STAY = "/* txtasks: LISTEN */ SET idle_session_timeout = 0"  # its last statement, as an administrator sees it
_Selector = getattr(selectors, "PollSelector", selectors.DefaultSelector)
"""Looks once at one socket with the fewest system calls."""
_DONE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


def send(session: Any, queue: str, message: bytes) -> None:
    """Send a message to all workers that serve this queue, outside the caller's transaction.

    Raises:
        DatabaseError: it was not sent.
    """
    _ask(session, _NOTIFY, _digits(queue), message)
    read_answer(session)


def send_at_once(session: Any, queue: str, message: bytes) -> None:
    """Give a message to the socket of a session, without waiting for the answer: see ``may_send_at_once``.

    Raises:
        psycopg.Error: the session has ended.
    """
    _ask(session, _NOTIFY, _digits(queue), message)
    session.pgconn.flush()


def may_send_at_once(session: Any) -> None:
    """Ensure that ``send_at_once`` never waits for the socket of this session."""
    session.pgconn.nonblocking = 1


def read_answer(session: Any) -> Any:
    """Wait for the answer to a sent message, and return its last result.

    Other threads run meanwhile; libpq's own wait would block them.

    Raises:
        DatabaseError: the message was not sent, or no answer comes.
        psycopg.Error: the session has ended.
    """
    pgconn, end = session.pgconn, time.monotonic() + ANSWER_SECONDS
    results = []
    while True:
        _wait_for_result(pgconn, end)
        result = pgconn.get_result()
        if result is None:
            break
        results.append(result)
    if not results:
        raise OperationalError("There is no answer.")
    for result in results:
        _check(result)
    return results[-1]


def has_ended(session: Any) -> bool:
    """Return True if the server has sent something to a session that awaits no answer: the session ends."""
    with _Selector() as selector:
        selector.register(session.pgconn.socket, selectors.EVENT_READ)
        return bool(selector.select(0))


def _wait_for_result(pgconn: Any, end: float) -> None:
    """Wait until ``get_result`` would not block."""
    unsent = pgconn.flush()
    pgconn.consume_input()
    while unsent or pgconn.is_busy():
        with _Selector() as selector:
            write = selectors.EVENT_WRITE if unsent else 0
            selector.register(pgconn.socket, selectors.EVENT_READ | write)
            if not selector.select(max(0.0, end - time.monotonic())):
                raise OperationalError(f"There is no answer after {ANSWER_SECONDS:g} s.")
        pgconn.consume_input()
        unsent = pgconn.flush()


def listen(session: Any, queues: Iterable[str]) -> None:
    """Receive the messages of these queues in this session from now on."""
    _for_each(session, _LISTEN, queues)


def unlisten(session: Any, queue: str) -> None:
    """Receive no more messages of this queue in this session."""
    _for_each(session, _UNLISTEN, [queue])


def _for_each(session: Any, sql: str, queues: Iterable[str]) -> None:
    _ask(session, _SELECT_PREFIX)
    prefix = read_answer(session).get_value(0, 0).decode()
    names = [prefix + _digits(queue).decode() for queue in queues]
    session.pgconn.send_query("; ".join([sql.format(name=name) for name in names]).encode())
    read_answer(session)


def stay(session: Any) -> None:
    """Let a session that no other client uses live on while it is idle, as a listening session is."""
    session.pgconn.send_query(_STAY.encode())
    read_answer(session)


def received(session: Any) -> list[tuple[str, bytes]]:
    """Return the received messages, each with the name of its channel. It never waits.

    Raises:
        psycopg.Error: the session has ended.
    """
    pgconn = session.pgconn
    pgconn.consume_input()
    return [(one.relname.decode(), one.extra) for one in iter(pgconn.notifies, None)]


@functools.lru_cache(maxsize=1000)
def _digits(queue: str) -> bytes:
    return hashlib.sha256(queue.encode()).hexdigest()[:DIGITS].encode()


def _ask(session: Any, sql: str, *values: bytes) -> None:
    """Start one statement. A cursor takes several times as long, and waits for the answer for ever."""
    session.pgconn.send_query_params(sql.encode(), values)


def _check(result: Any) -> None:
    if result.status not in _DONE:
        raise OperationalError(result.error_message.decode(errors="replace").strip())
