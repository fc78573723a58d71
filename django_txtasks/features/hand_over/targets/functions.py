"""A function of the project as a target: it gets rows, and returns a reason for each row that it has not taken."""

from __future__ import annotations

import errno
import socket
import ssl
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

from django_txtasks.database.errors import str_of, text_of
from django_txtasks.database.execute import as_uuid, is_uuid
from django_txtasks.exceptions import Refused
from django_txtasks.features.hand_over.rows import Row
from django_txtasks.features.hand_over.target import Answers

OF_NETWORK = (ConnectionError, TimeoutError, socket.gaierror, ssl.SSLError)
NO_ROUTE = {errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH}
"""Numbers of an OSError that mean that no network leads to the other system."""


class FunctionTarget:
    """Calls a function with a list of rows.

    What the function writes to a database is committed by the function, not by the drain.

    Args:
        function: takes a list of ``Row``, and returns None, or ``{id: reason}`` of the rows that it has not taken.
            The id may be text. A reason is text, or ``Refused`` for a row that it can never take.
    """

    def __init__(self, function: Callable[[list[Row]], Any]) -> None:
        self._function = function

    def look_after(self) -> None:
        """Do nothing: the function has its own connections."""

    def send(self, rows: Sequence[Row], until: float) -> Answers:
        """Call the function with these rows; see ``Target``."""
        try:
            said = self._function(list(rows))
        except Exception as error:
            if _is_of_network(error):
                return Answers(away=text_of(error))
            raise
        return _read(said, rows)

    def close(self) -> None:
        """Do nothing."""


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
    refused = {one: str_of(why) for one, why in reasons.items() if isinstance(why, Refused)}
    postponed = {one: str_of(why) for one, why in reasons.items() if one not in refused}
    return Answers(taken=known - reasons.keys(), postponed=postponed, refused=refused)


def _id_of(said: Any, known: Set[uuid.UUID]) -> uuid.UUID:
    """Return the id that the function has returned, which may be text, as JSON has it."""
    if is_uuid(said) and (found := as_uuid(said)) in known:
        return found
    raise TypeError(f"the function returned {said!r:.200}, which is the id of no row")
