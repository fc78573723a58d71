"""Writes the answers of a pass: all of them together, or row by row if the database refuses one."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from django.db import DatabaseError, DataError, IntegrityError, transaction

from django_txtasks.conf import Config
from django_txtasks.core.rows.attempts import FollowUps
from django_txtasks.database.errors import is_in_the_way, is_refusal, is_timeout, message_of
from django_txtasks.features.hand_over import moving
from django_txtasks.features.hand_over.rows import Row
from django_txtasks.features.hand_over.target import Answers


def write(
    alias: str, rows: Sequence[Row], answers: Answers, config: Config, *, blames: bool
) -> FollowUps:
    """Write the answers to these rows, in the open transaction. Return the notices about dead rows.

    If the database refuses them together, each row is written alone, because one row may be the reason. A row
    that is refused while others are written gets another answer, which ``answers`` then has: it is dead, or is
    postponed if it was to be postponed.

    Args:
        blames: the database has refused several passes in a row. Then a row that is refused alone is postponed.

    Raises:
        DatabaseError: the database refuses all of them, or cannot be reached. The transaction must roll back.
    """
    try:
        with transaction.atomic(using=alias):
            return _write(alias, rows, answers, config)
    except DatabaseError as error:
        if not _may_be_of_one_row(error):
            raise
        refused = error
    return _one_by_one(alias, rows, answers, config, refused, blames=blames)


def _write(alias: str, rows: Sequence[Row], answers: Answers, config: Config) -> FollowUps:
    by_id = {row.id: row for row in rows}
    moving.finish(alias, [row for row in rows if row.id in answers.taken], config)
    moving.postpone(alias, _pairs(by_id, answers.postponed))
    return moving.bury(alias, _pairs(by_id, answers.refused), config)


def _one_by_one(
    alias: str,
    rows: Sequence[Row],
    answers: Answers,
    config: Config,
    error: DatabaseError,
    *,
    blames: bool,
) -> FollowUps:
    follow_ups: FollowUps = []
    refused: list[tuple[Row, DatabaseError]] = []
    known = [row for row in rows if row.id in answers.known]
    for row in known:
        try:
            with transaction.atomic(using=alias):
                follow_ups += _write(alias, [row], answers, config)
        except DatabaseError as problem:
            if not _may_be_of_one_row(problem):
                raise
            refused.append((row, problem))
    is_of_rows = len(refused) < len(known)
    if not (is_of_rows or blames):
        raise error
    for row, why in refused:
        _answer_anew(row, answers, message_of(why), may_end=is_of_rows)
        follow_ups += _write(alias, [row], answers, config)
    return follow_ups


def _answer_anew(row: Row, answers: Answers, problem: str, *, may_end: bool) -> None:
    """Replace the answer to a row that the database has refused to write."""
    said = "has this task" if row.id in answers.taken else "has answered"
    reason = f"The other system {said}, but the database refused to record that: {problem}"
    ends = may_end and row.id not in answers.postponed
    for one in (answers.postponed, answers.refused):
        one.pop(row.id, None)
    answers.taken.discard(row.id)
    (answers.refused if ends else answers.postponed)[row.id] = reason


def _may_be_of_one_row(error: DatabaseError) -> bool:
    is_of_others = is_in_the_way(error) or is_timeout(error)
    return not is_of_others and (
        isinstance(error, (DataError, IntegrityError)) or is_refusal(error)
    )


def _pairs(rows: dict[uuid.UUID, Row], reasons: dict[uuid.UUID, str]) -> list[tuple[Row, str]]:
    return [(rows[one], reason) for one, reason in reasons.items() if one in rows]
