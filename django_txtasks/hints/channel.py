"""The channel of PostgreSQL's NOTIFY through which hints go: everything that two sides must agree on.

A channel belongs to one database, and its name to one table there: sites that share a database, each in a schema
of its own, do not hear each other.
"""

from __future__ import annotations

import json
import selectors
import time
import uuid
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from django.db import OperationalError
from psycopg.pq import ExecStatus  # this module is imported where there is PostgreSQL

IDS_PER_HINT = 200
"""Ids in one message, with which a queue's name of 100 characters still has room: it may have 7,999 bytes."""
ANSWER_SECONDS = 10.0
"""Seconds after which a session that does not answer is given up."""
_NAME = "'txtasks_' || COALESCE(to_regclass('txtasks_task')::oid, 0)"
_SELECT_NAME = f"SELECT {_NAME}"
# A hint need not outlive a crash of the server: without this its commit would wait for the disk. For this
# transaction alone: behind a pooler the session is somebody else's in a moment.
_NOTIFY = f"SELECT set_config('synchronous_commit', 'off', true), pg_notify({_NAME}, $1)"
_LISTEN = 'LISTEN "{name}"'
_Selector = getattr(selectors, "PollSelector", selectors.DefaultSelector)
"""Looks once at one socket with the fewest calls of the system."""
_DONE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


class Message(NamedTuple):
    """What was received.

    Attributes:
        queue: of the tasks; empty = it is a test, or not of our queues.
        more: other tasks of this queue wait, which no hint names.
        test: what the test's sender has put into it.
    """

    queue: str = ""
    ids: Sequence[uuid.UUID] = ()
    more: bool = False
    test: str = ""


def encode_hint(queue: str, ids: Sequence[uuid.UUID], *, more: bool = False) -> str:
    """Return the text of a hint: ``{"queue": "mail", "ids": ["…", …], "more": true}``."""
    listed = ", ".join([f'"{one.hex}"' for one in ids])
    end = ', "more": true' if more else ""
    return f'{{"queue": {json.dumps(queue, ensure_ascii=False)}, "ids": [{listed}]{end}}}'


def encode_test(text: str) -> str:
    """Return the text by which a listener finds out whether it hears anything."""
    return json.dumps({"test": text})


def decode(text: str, queues: Collection[str]) -> Message:
    """Return what a message says. Anybody who may connect to the database can have sent it.

    Args:
        queues: ours. Every listener gets all hints, and most of the work is to read the ids.

    Raises:
        ValueError: it is no message of ours.
    """
    try:
        said = json.loads(text)
        if "test" in said:
            return Message(test=str(said["test"]))
        queue = str(said["queue"])
        if queue not in queues:
            return Message()
        ids = [uuid.UUID(task_id) for task_id in said["ids"]]
        return Message(queue, ids, said.get("more") is True)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def send(session: Any, text: str) -> None:
    """Send a message to all who listen. It is no transaction of the caller's.

    Raises:
        DatabaseError: it was not sent.
    """
    _ask(session, _NOTIFY, text)


def send_at_once(session: Any, text: str) -> None:
    """Give a message to the socket of a session: see ``may_send_at_once``, and do not wait for the answer.

    Raises:
        psycopg.Error: the session has ended.
    """
    session.pgconn.send_query_params(_NOTIFY.encode(), [text.encode()])
    session.pgconn.flush()


def may_send_at_once(session: Any) -> None:
    """Have this session's ``send_at_once`` never wait for the socket."""
    session.pgconn.nonblocking = 1


def read_answer(session: Any) -> Any:
    """Wait for the answer to what was sent, and return its last result.

    Other threads run meanwhile, which libpq's own wait keeps from it.

    Raises:
        DatabaseError: the message was not sent, or nobody answers.
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
    """Say whether the server has said something to a session that awaits no answer: that it ends."""
    with _Selector() as selector:
        selector.register(session.pgconn.socket, selectors.EVENT_READ)
        return bool(selector.select(0))


def _wait_for_result(pgconn: Any, end: float) -> None:
    """Return when ``get_result`` would not wait."""
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


def listen(session: Any) -> str:
    """Receive messages in this session from now on; return the channel's name."""
    name = _ask(session, _SELECT_NAME)
    _ask(session, _LISTEN.format(name=name))
    return name


def received(session: Any) -> list[str]:
    """Return the messages that have come. It never waits.

    Raises:
        psycopg.Error: the session has ended.
    """
    pgconn = session.pgconn
    pgconn.consume_input()
    return [one.extra.decode(errors="replace") for one in iter(pgconn.notifies, None)]


def _ask(session: Any, sql: str, *values: str) -> str:
    """Run one statement the short way; a cursor takes several times as long, and waits for the answer for ever."""
    session.pgconn.send_query_params(sql.encode(), [value.encode() for value in values])
    result = read_answer(session)
    return (result.get_value(0, 0) or b"").decode() if result.ntuples else ""


def _check(result: Any) -> None:
    if result.status not in _DONE:
        raise OperationalError(result.error_message.decode(errors="replace").strip())
