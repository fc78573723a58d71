"""Writes the tasks of many messages in one transaction, and finds the messages that the database refuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import NamedTuple

from django.db import DatabaseError

from django_txtasks.core.enqueueing import enqueue_many
from django_txtasks.database.errors import is_in_the_way, is_refusal, message_of, took_too_long
from django_txtasks.database.transactions import own_transaction, repeated
from django_txtasks.features.intake.reading import MessageCall


class Written(NamedTuple):
    """The results of some calls, by their places.

    Attributes:
        committed: their tasks are committed, or were before.
        new: number of tasks that this write has added.
        refused: the database refuses these; by place, with the reason.
        error: why the others could not be written; None: there are no others.
    """

    committed: list[int]
    new: int
    refused: dict[int, str]
    error: DatabaseError | None = None


def write(alias: str, calls: Sequence[MessageCall], limit: timedelta) -> Written:
    """Write the tasks of these calls in one transaction; or, if the database refuses that, each in its own.

    Args:
        limit: see ``own_transaction``.

    Raises:
        DatabaseError, InterfaceError: nothing was written, or some of it, as after a COMMIT whose answer was lost.
            A repetition does no harm, because the keys of committed tasks are taken.
    """

    def work() -> int:
        with own_transaction(alias, limit=limit, read_committed=True):
            return sum(handle.is_new for handle in enqueue_many(calls))

    try:
        return Written(list(range(len(calls))), repeated(alias, work), {})
    except DatabaseError as error:
        if len(calls) == 1 or not _may_be_of_a_call(error):
            raise
    return _write_each(calls, lambda call: write(alias, [call], limit).new)


def _write_each(calls: Sequence[MessageCall], write_one: Callable[[MessageCall], int]) -> Written:
    """Write each call in a transaction of its own.

    A call is refused only if a later one was written. Otherwise the database may refuse everything: it may be
    read-only, or lack a column.
    """
    committed: list[int] = []
    refused: dict[int, str] = {}
    failed: dict[int, str] = {}
    new, last = 0, None
    for place, call in enumerate(calls):
        try:
            new += write_one(call)
        except DatabaseError as error:
            if not is_refusal(error):
                return Written(committed, new, refused, error)
            last = error
            if _may_be_of_a_call(error):
                failed[place] = f"the database refuses its task: {message_of(error)}"
        else:
            committed.append(place)
            refused, failed = {**refused, **failed}, {}
    is_all = len(committed) + len(refused) == len(calls)
    return Written(committed, new, refused, None if is_all else last)


def _may_be_of_a_call(error: DatabaseError) -> bool:
    """Say whether the values of a call can be the cause: no lock, time limit or lost session is."""
    return is_refusal(error) and not (is_in_the_way(error) or took_too_long(error))
