"""A function of the project as a target: it gets rows, and returns a reason for each row that it has not taken."""

from __future__ import annotations

import errno
import queue
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

from django.db import close_old_connections, connections

from django_txtasks.database.errors import text_of
from django_txtasks.database.execute import as_uuid, is_uuid
from django_txtasks.exceptions import Away, Refused
from django_txtasks.hand_over.rows import Row
from django_txtasks.hand_over.target import Answers

CALL_SECONDS = 10.0
"""Longest time of one call. The rows are locked meanwhile."""
OF_NETWORK = (ConnectionError, TimeoutError, socket.gaierror, ssl.SSLError)
NO_ROUTE = {errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH}
"""Numbers of an OSError that mean that no network leads to the other system."""


class FunctionTarget:
    """Calls a function with a list of rows, in a thread with database sessions of its own.

    What the function writes to a database is committed by the function, not by the drain.

    Args:
        function: takes a list of ``Row``, and returns None, or ``{id: reason}`` of the rows that it has not taken.
            The id may be text. A reason is text, or ``Refused`` for a row that it can never take.
    """

    def __init__(
        self, function: Callable[[list[Row]], Any], name: str, *, ordered: bool = False
    ) -> None:
        self._function, self._name, self.ordered = function, name, ordered
        self._caller: _Caller | None = None

    def look_after(self) -> None:
        """Refuse to call the function while an earlier call has not returned.

        Raises:
            Away: it has not.
        """
        if self._caller is not None and self._caller.is_busy:
            raise Away(f"the call of its function has not returned after {CALL_SECONDS:g} s")

    def send(self, rows: Sequence[Row], until: float) -> Answers:
        """Call the function with these rows; see ``Target``."""
        if self._caller is None:
            self._caller = _Caller(self._function, f"txtasks-hand-over-{self._name}")
        seconds = min(CALL_SECONDS, until - time.monotonic())
        try:
            said = self._caller.call(list(rows), seconds)
        except (
            _TooSlow
        ) as error:  # if one row alone takes too long, the others must not wait for it
            return Answers(broken=str(error)) if len(rows) == 1 else Answers(away=str(error))
        except Exception as error:
            if _is_of_network(error):
                return Answers(away=text_of(error))
            raise
        return _read(said, rows)

    def close(self) -> None:
        """End the thread, without waiting for a call that has not returned."""
        caller, self._caller = self._caller, None
        if caller is not None:
            caller.end()


class _TooSlow(Exception):
    """The function has not returned in time."""


def _is_of_network(error: BaseException) -> bool:
    """Return True if the network, or a time limit, is the cause of an error.

    Most errors of files and of HTTP are an OSError, too, and are the fault of one row. Libraries raise their own
    errors while they handle the one of the network.
    """
    return any(
        isinstance(one, OF_NETWORK) or (isinstance(one, OSError) and one.errno in NO_ROUTE)
        for one in _causes(error)
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and the errors behind it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _read(said: Any, rows: Sequence[Row]) -> Answers:
    """Return the answers in the value that the function has returned."""
    left = {} if said is None else said
    if not isinstance(left, Mapping):
        raise TypeError(f"the function returned {said!r:.200}; return None or {{id: reason}}")
    known = {row.id for row in rows}
    reasons = {_id_of(one, known): why for one, why in left.items()}
    refused = {one: str(why) for one, why in reasons.items() if isinstance(why, Refused)}
    postponed = {one: str(why) for one, why in reasons.items() if one not in refused}
    return Answers(taken=known - reasons.keys(), postponed=postponed, refused=refused)


def _id_of(said: Any, known: Set[uuid.UUID]) -> uuid.UUID:
    """Return the id that the function has returned, which may be text, as JSON has it."""
    if is_uuid(said) and (found := as_uuid(said)) in known:
        return found
    raise TypeError(f"the function returned {said!r:.200}, which is the id of no row")


class _Caller:
    """A thread that calls the function. It may be stuck in it, and then keeps no process from ending."""

    def __init__(self, function: Callable[[list[Row]], Any], name: str) -> None:
        self._function = function
        self._asked: queue.SimpleQueue[tuple[list[Row], queue.SimpleQueue[Any]] | None] = (
            queue.SimpleQueue()
        )
        self.is_busy = False
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def call(self, rows: list[Row], seconds: float) -> Any:
        """Return the value of the function, or raise its error.

        Raises:
            _TooSlow: it has not returned in time.
        """
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.is_busy = True
        self._asked.put((rows, answer))
        try:
            said, error = answer.get(timeout=max(0.0, seconds))
        except queue.Empty:
            raise _TooSlow(f"its function has not returned within {seconds:.1f} s") from None
        if error is not None and not isinstance(error, Exception):  # it must not end the drain
            raise RuntimeError(f"the function raised {text_of(error)}") from error
        if error is not None:
            raise error
        return said

    def end(self) -> None:
        """Let the thread end after its present call."""
        self._asked.put(None)

    def _run(self) -> None:
        while (asked := self._asked.get()) is not None:
            rows, answer = asked
            close_old_connections()
            result: tuple[Any, BaseException | None]
            try:
                result = self._function(rows), None
            except BaseException as error:
                result = (
                    None,
                    error,
                )  # also SystemExit: without this thread nothing would go
            self.is_busy = False
            answer.put(result)
        connections.close_all()
