"""The arrows that a pass takes: PENDING -> finished as handed over, PENDING again later, PENDING -> DEAD."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db import connections

from django_txtasks import signals
from django_txtasks.conf import Config
from django_txtasks.core.ground.causes import cause_of_class
from django_txtasks.core.ground.payload import clean_text
from django_txtasks.core.rows.attempts import Arrow, Attempt, Counted, Ended, FollowUps, errors_text
from django_txtasks.core.rows.attempts import read_entries as entries_of
from django_txtasks.core.rows.follow_ups import follow
from django_txtasks.core.rows.history import copying
from django_txtasks.core.rows.outcomes import now_text
from django_txtasks.database.execute import execute
from django_txtasks.exceptions import AlreadyRun, ClaimLost, Refused, class_path
from django_txtasks.features.figures.of_arrows import append_ends, append_others
from django_txtasks.features.hand_over import statements
from django_txtasks.features.hand_over.rows import Row
from django_txtasks.features.hand_over.target import Postponed
from django_txtasks.models import Outcome, Status

POSTPONED = Postponed.__name__
"""Type of the entry in ``errors`` of a row that was postponed; the row has one such entry at most."""
MOST_DELAY_SECONDS = 60
NOBODY = uuid.UUID(int=0)
"""The worker in signals about a row that no worker has claimed."""


def finish(alias: str, rows: Sequence[Row], config: Config) -> None:
    """PENDING -> finished, for rows that the other system has. They must be locked, except on SQLite.

    Raises:
        ClaimLost: a row was not there any more. The transaction must roll back.
    """
    if not rows:
        return
    ids = sorted(row.id for row in rows)
    outcome, status = Outcome.HANDED.value, Status.PENDING.value
    if config.keeps(outcome) and connections[alias].vendor == "postgresql":
        count = execute(alias, statements.HAND_OVER_AND_KEEP, ids=ids, outcome=outcome)
    else:
        if config.keeps(outcome):
            sql, params = copying(Outcome.HANDED, {})
            execute(alias, sql, ids=ids, status=status, **params)
        count = execute(alias, statements.HAND_OVER, ids=ids)
    if count != len(ids):
        raise ClaimLost(f"rows that were locked: {len(ids)}, of which still there: {count}")
    append_others(alias, [(row.queue_name, row.task_name) for row in rows])


def postpone(alias: str, rows: Iterable[tuple[Row, str]]) -> None:
    """Let rows stay PENDING, and be due later: the longer, the more often this happens.

    They have a cause from then on, as tasks that have failed and are retried.
    """
    alike: dict[tuple[str, int, str, str], list[uuid.UUID]] = defaultdict(list)
    for row, reason in rows:
        alike[row.task_name, min(row.snoozes, 6), row.errors_text, reason].append(row.id)
    for (name, snoozes, errors, reason), ids in sorted(alike.items()):
        delay = min(2**snoozes, MOST_DELAY_SECONDS)
        kept = [one for one in entries_of(errors) if one.get("type") != POSTPONED]
        text = errors_text([*kept, _entry(alias, Postponed, reason)])
        cause = cause_of_class(name, Postponed)
        execute(alias, statements.POSTPONE, ids=sorted(ids), delay=delay, errors=text, cause=cause)


def bury(alias: str, rows: Iterable[tuple[Row, str]], config: Config) -> FollowUps:
    """PENDING -> DEAD, for rows that the other system can never take. Return the notices of it."""
    ended = []
    for row, reason in rows:
        kind = _kind(row)
        error = _entry(alias, kind, reason)
        errors = errors_text([*entries_of(row.errors_text), error])
        cause = cause_of_class(row.task_name, kind)
        if execute(alias, statements.BURY, id=row.id, errors=errors, cause=cause):
            ended.append(_ended(row, error))
    append_ends(alias, ended)
    return follow(alias, ended, config)


def tell(rows: Mapping[uuid.UUID, Row], refused: Mapping[uuid.UUID, str]) -> None:
    """Emit the signals about rows that are dead, once this is committed."""
    for task_id, reason in refused.items():
        facts = _ended(rows[task_id], {}).attempt.facts
        signals.task_died.emit(**facts, error=f"{_kind(rows[task_id]).__name__}: {reason}")


def _kind(row: Row) -> type[Exception]:
    return AlreadyRun if row.has_ended else Refused


def _entry(alias: str, kind: type[Exception], reason: str) -> dict[str, Any]:
    message = clean_text(reason, 1000)
    names = {"type": kind.__name__, "class": class_path(kind)}
    return {"attempt": 0, **names, "message": message, "at": now_text(alias)}


def _ended(row: Row, error: Mapping[str, Any]) -> Ended:
    attempt = Attempt(
        task_id=row.id,
        number=0,
        worker=NOBODY,
        task_name=row.task_name,
        queue_name=row.queue_name,
        args=row.args_text,
        kwargs=row.kwargs_text,
    )
    return Ended(attempt, Arrow.BURY, error=error, counted=Counted.NOTHING)
