"""The part of a worker in stack requests, and the removal of old ones."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import timedelta

from django_txtasks.database.execute import as_uuid, execute, fetch
from django_txtasks.database.transactions import own_transaction
from django_txtasks.features.results.cancelling import Key
from django_txtasks.features.stacks import statements

STATEMENT_TIMEOUT = timedelta(seconds=1)
KEEP = timedelta(hours=1)
"""Time for which requests and answers are kept."""


def stops_and_questions(
    alias: str, worker: uuid.UUID, ids: Sequence[uuid.UUID] | None
) -> tuple[set[Key], set[Key]]:
    """Return (id, attempt) of claims that were asked to stop, and of attempts whose stack a person wants to see.

    Args:
        ids: the tasks that may have been asked to stop; None = all claims of the worker.
    """
    if ids is None:
        rows = fetch(alias, statements.STOPS_OF_LOOP, worker=worker)
    else:
        rows = fetch(alias, statements.STOPS_AND_QUESTIONS, worker=worker, ids=ids)
    found: tuple[set[Key], set[Key]] = (set(), set())
    for task_id, number, kind in rows:
        found[kind].add((as_uuid(task_id), number))
    return found


def answer(alias: str, worker: uuid.UUID, key: Key, text: str) -> None:
    """Write the stack of an attempt as the answer to its question, if the question is still there."""
    question = {"id": key[0], "attempt": key[1], "worker": worker}
    with own_transaction(alias, limit=STATEMENT_TIMEOUT):
        # the transaction of a web request may hold the row: the next look tries again
        if fetch(alias, statements.LOCK_QUESTION, **question):
            execute(alias, statements.ANSWER, text=text, **question)


def forget(alias: str) -> None:
    """Delete requests that are older than ``KEEP``."""
    execute(alias, statements.FORGET, age=KEEP.total_seconds())
