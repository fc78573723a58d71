"""The arrows out of claimed. Each is fenced, so that only the attempt that holds a row moves it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import DatabaseError, DataError, InterfaceError, OperationalError, connections

from django_txtasks.core.ground.config import CoreConfig
from django_txtasks.core.rows import arrow_parts, statements
from django_txtasks.core.rows.attempts import (
    Arrow,
    Attempt,
    Counted,
    Ended,
    FollowUps,
    Recorded,
    capped,
    read_entries,
)
from django_txtasks.core.rows.follow_ups import follow
from django_txtasks.core.rows.history import (
    BUT_NOT_AGAIN,
    COPY_MEMBERS,
    COPY_TO_FINISHED,
    copying,
    finishing,
)
from django_txtasks.database.execute import as_uuid, execute, fetch, fetch_value
from django_txtasks.database.sessions import keeps_statements
from django_txtasks.database.transactions import can_commit_along, execute_and_commit
from django_txtasks.exceptions import ClaimLost
from django_txtasks.models import Outcome, Status

FOR_EVER = timedelta(days=36525)
"""Time until a task is due that waits for a value without a time limit."""
SOON_SECONDS = 60.0
"""Seconds. Workers get a hint of a suspended task that is due within this time, and set a timer for it."""


def record(alias: str, ended: Sequence[Ended], *, config: CoreConfig) -> Recorded:
    """Move CLAIMED -> finished, PENDING or DEAD, for each attempt that still holds its row."""
    recorded, keep = Recorded(), config.keeps(Outcome.SUCCEEDED)
    if connections[alias].vendor == "postgresql":
        ended = _finish_many(alias, ended, recorded, keep=keep)
    if ended:
        recorded += _record(alias, ended, keep=keep)
    recorded.to_notify += follow(alias, recorded.done, config)
    for one in recorded.done:
        if one.arrow is Arrow.RELEASE and not one.delay:
            recorded.to_notify.append(one.attempt.hint)
    suspended = [one.attempt.task_id for one in recorded.done if one.arrow is Arrow.SUSPEND]
    if suspended:  # it may be due already, or before workers look ahead again
        rows = fetch(alias, statements.DUE_SOON, ids=suspended, delay=SOON_SECONDS)
        due = {as_uuid(task_id) for task_id, _ in rows}
        recorded.to_notify += [
            one.attempt.hint for one in recorded.done if one.attempt.task_id in due
        ]
    return recorded


def weight(ended: Ended) -> int:
    """Return about how many bytes an outcome adds to the statements that record it and enqueue its hooks."""
    attempt, size = ended.attempt, len(ended.result or "")
    if attempt.hooks == "{}" and ended.arrow is Arrow.FINISH and not ended.error:
        return size
    entries = [*attempt.errors, ended.error]
    texts = sum(len(text) for entry in entries for text in entry.values() if isinstance(text, str))
    return 2 * size + texts + 2 * len(attempt.args) + 2 * len(attempt.kwargs) + len(attempt.hooks)


def is_too_much(alias: str, ended: Ended, error: Exception) -> bool:
    """Say whether the database has refused an outcome, written alone, because it is too big.

    MariaDB and MySQL send an error for it, or end the session while the statement is still being sent. In that
    case, the size of the outcome is compared with the server's limit. In a statement, each quote and backslash of
    JSON takes two bytes.
    """
    cause = error.__cause__
    code = getattr(cause, "sqlstate", None) or (cause.args[0] if cause and cause.args else None)
    if code in _SESSION_ENDED and connections[alias].vendor == "mysql":
        try:
            most = fetch_value(alias, _MYSQL_PACKET)
        except (DatabaseError, InterfaceError):
            return False
        return 2 * weight(ended) >= int(most)
    return code in _TOO_MUCH


# PostgreSQL: program_limit_exceeded; MariaDB and MySQL: net_packet_too_large, of the server and of the client
_TOO_MUCH = {"54000", 1153, 2020}
_SESSION_ENDED = {2006, 2013}
_MYSQL_PACKET = "SELECT @@max_allowed_packet"


def _finish_many(
    alias: str, ended: Sequence[Ended], recorded: Recorded, *, keep: bool
) -> Sequence[Ended]:
    """Move CLAIMED -> finished in one statement, for the finished attempts of one worker; return the others."""
    finished = [one for one in ended if one.arrow is Arrow.FINISH]
    if not finished:
        return ended
    worker = finished[0].attempt.worker
    finished = [one for one in finished if one.attempt.worker == worker]
    held = fetch(
        alias,
        statements.FINISH_AND_KEEP_MANY if keep else statements.FINISH_MANY,
        worker=worker,
        **finishing(finished),
    )
    if len(held) == len(finished) == len(ended):
        recorded.done += finished
        return []
    keys: set[Any] = set(held)
    others: list[Ended] = []
    for one in ended:
        done = one.arrow is Arrow.FINISH and (one.attempt.task_id, one.attempt.number) in keys
        (recorded.done if done else others).append(one)
    return others


def _record(alias: str, ended: Sequence[Ended], *, keep: bool) -> Recorded:
    """Lock the rows that the attempts still hold, then move them. This works for each arrow, on all databases."""
    recorded = Recorded()
    ids = sorted({one.attempt.task_id for one in ended})
    held = _fences(fetch(alias, statements.LOCK_CLAIMED, ids=ids))
    seen = held
    if len(held) < len(ids):
        seen = _fences(fetch(alias, statements.SEE_CLAIMED, ids=ids))
    for one in ended:
        fence = one.attempt.fence
        group = (
            recorded.done if fence in held else recorded.busy if fence in seen else recorded.lost
        )
        group.append(one)
    finished = [one for one in recorded.done if one.arrow is Arrow.FINISH]
    if finished:
        results = {one.attempt.task_id: one.result for one in finished if one.result is not None}
        finish_rows(alias, [one.attempt.task_id for one in finished], Status.CLAIMED,
                    Outcome.SUCCEEDED, keep=keep, results=results)  # fmt: skip
    for one in recorded.done:
        if one.arrow is Arrow.CANCEL:
            recorded.to_notify += _cancel(alias, one, keep=keep)
        elif one.arrow is not Arrow.FINISH:
            move(alias, one)
    return recorded


def _cancel(alias: str, ended: Ended, *, keep: bool) -> FollowUps:
    """Move CLAIMED -> finished as cancelled, because the attempt was asked to stop and has stopped."""
    if keep:
        errors = ended.attempt.errors_with({"at": now_text(alias), **ended.error})
        _hit(alias, statements.NOTE_ERRORS, ended.attempt, errors=errors)
    ids = [ended.attempt.task_id]
    return finish_rows(alias, ids, Status.CLAIMED, Outcome.CANCELLED, keep=keep)


def finish(alias: str, ended: Ended, *, config: CoreConfig) -> FollowUps:
    """Move CLAIMED -> finished, as the last statement in the transaction of the task's own effects.

    On PostgreSQL and MariaDB, the COMMIT is sent together with it.

    Returns:
        The tasks that were enqueued in the same transaction.

    Raises:
        ClaimLost: the row has moved on; the caller's transaction must roll back.
    """
    follow_ups = follow(alias, [ended], config)
    if can_commit_along(alias):
        _finish_and_commit(alias, ended, keep=config.keeps(Outcome.SUCCEEDED))
        return follow_ups
    attempt = ended.attempt
    if config.keeps(Outcome.SUCCEEDED):
        _copy(alias, [attempt.task_id], Status.CLAIMED, Outcome.SUCCEEDED, _result_of(ended))
    _hit(alias, statements.FINISH, attempt)
    return follow_ups


def _finish_and_commit(alias: str, ended: Ended, *, keep: bool) -> None:
    attempt = ended.attempt
    params: dict[str, Any] = {
        "id": attempt.task_id,
        "attempt": attempt.number,
        "worker": attempt.worker,
    }
    if connections[alias].vendor == "postgresql":
        sql = statements.FINISH_AND_KEEP_OR_FAIL if keep else statements.FINISH_OR_FAIL
        params.update({"outcome": Outcome.SUCCEEDED.value, "result": ended.result} if keep else {})
    else:
        copy = ""
        if keep:
            copy, more = copying(Outcome.SUCCEEDED, _result_of(ended))
            params.update(more, ids=[attempt.task_id], status=Status.CLAIMED.value)
        sql = statements.FINISH_IN_BLOCK.replace("{keep}", f"{copy};" if copy else "")
    try:
        execute_and_commit(alias, sql, prepares=keeps_statements(alias), **params)
    except (DataError, OperationalError) as error:
        if statements.NOT_HELD in str(error):
            raise _lost(attempt) from None
        raise


def _result_of(ended: Ended) -> dict[uuid.UUID, str]:
    return {} if ended.result is None else {ended.attempt.task_id: ended.result}


def finished_by(alias: str, attempt: Attempt) -> bool:
    """Say whether this attempt has finished the task, by a COMMIT whose answer was lost."""
    task_id, number, worker = attempt.fence
    return bool(fetch(alias, statements.FINISHED_BY, id=task_id, attempt=number, worker=worker))


def note_late_finish(alias: str, attempt: Attempt) -> None:
    """Note in a task's row that an attempt has finished although it was abandoned with its worker.

    Nothing else in the row changes. If the row is gone or locked, the note is left out.
    """
    for table in ("txtasks_task", "txtasks_finishedtask"):
        sql = statements.LATE_IN.replace("{table}", table)
        for _, late, errors in fetch(alias, sql, id=attempt.task_id):
            lost = [one for one in read_entries(errors) if one.get("attempt") == attempt.number]
            entry = {
                "attempt": attempt.number,
                "worker": str(attempt.worker),
                "abandoned_at": lost[-1].get("at") if lost else None,
                "finished_at": now_text(alias),
            }
            execute(
                alias,
                statements.NOTE_LATE_FINISH.replace("{table}", table),
                id=attempt.task_id,
                late=json.dumps(capped([*read_entries(late), entry])),
            )
            return


def note_hook_error(alias: str, ended: Ended) -> None:
    """Note in a finished task's row that a commit hook of its transaction has failed."""
    task_id, number, worker = ended.attempt.fence
    errors = ended.attempt.errors_with({"at": now_text(alias), "after_commit": True, **ended.error})
    execute(
        alias,
        statements.NOTE_HOOK_ERROR,
        id=task_id,
        attempt=number,
        worker=worker,
        errors=errors,
    )


def finish_rows(
    alias: str,
    ids: list[uuid.UUID],
    status: Status,
    outcome: Outcome,
    *,
    keep: bool,
    results: dict[uuid.UUID, str] | None = None,
) -> FollowUps:
    """Move rows that this transaction has locked out of the live table.

    Returns:
        The tasks that were enqueued for this.
    """
    ids = sorted(ids)
    told = arrow_parts.leaving(alias, ids, status, outcome)
    if keep or outcome is not Outcome.SUCCEEDED:
        of = COPY_TO_FINISHED if keep else COPY_MEMBERS
        if status is Status.DEAD:
            of += BUT_NOT_AGAIN
        sql, params = copying(outcome, results or {}, of=of)
        execute(alias, sql, ids=ids, status=status.value, **params)
    count = execute(alias, statements.DELETE_TASKS, ids=ids, status=status.value)
    if count != len(ids):
        raise ClaimLost(
            f"rows that were locked: {len(ids)}, of which still there: {count}. Nothing was recorded"
        )
    return told


def _copy(
    alias: str,
    ids: list[uuid.UUID],
    status: Status,
    outcome: Outcome,
    results: dict[uuid.UUID, str],
) -> None:
    """Write the finished rows."""
    sql, params = copying(outcome, results)
    execute(alias, sql, ids=ids, status=status.value, **params)


def move(alias: str, ended: Ended, *, crashes: int = 1) -> None:
    """Move CLAIMED -> PENDING or DEAD, for one attempt that did not finish its task.

    Args:
        crashes: number added to the row's crashes, if the attempt counts as a crash.

    Raises:
        ClaimLost: the row has moved on by itself.
    """
    attempt = ended.attempt
    if ended.arrow is Arrow.RELEASE and not ended.delay:
        _hit(alias, statements.RELEASE, attempt)
        return
    if ended.arrow is Arrow.SNOOZE:
        _hit(alias, statements.SNOOZE, attempt, delay=ended.delay.total_seconds())
        return
    if ended.arrow is Arrow.SUSPEND:
        _hit(alias, statements.SUSPEND, attempt, name=ended.awaited, delay=FOR_EVER.total_seconds())
        return
    changes: dict[str, Any] = {
        "failed": int(ended.counted is Counted.FAILURE),
        "crashed": crashes if ended.counted is Counted.CRASH else 0,
        "errors": attempt.errors_with({"at": now_text(alias), **ended.error}),
        "cause": ended.cause,
    }
    if ended.arrow is Arrow.BURY:
        _hit(alias, statements.BURY, attempt, **changes)
    else:  # RETRY, or RELEASE of a call that does not fit
        _hit(alias, statements.RETRY, attempt, delay=ended.delay.total_seconds(), **changes)


def retry_together(alias: str, ended: Sequence[Ended]) -> int:
    """Move CLAIMED -> PENDING for attempts of one number, error and cause that count as nothing. Return the count.

    None of them has an earlier error.
    """
    attempt, error = ended[0].attempt, ended[0].error
    return execute(
        alias,
        statements.RETRY_TOGETHER,
        ids=sorted(one.attempt.task_id for one in ended),
        attempt=attempt.number,
        worker=attempt.worker,
        errors=attempt.errors_with({"at": now_text(alias), **error}),
        cause=ended[0].cause,
    )


def now_text(alias: str) -> str:
    """Return the time of the database's clock as text. Microseconds may be missing."""
    now = fetch_value(alias, statements.NOW)
    if isinstance(now, datetime):  # SQLite has text, to the millisecond
        now = now.replace(tzinfo=None).isoformat(" ", "milliseconds")
    return f"{now}Z"


def _hit(alias: str, sql: str, attempt: Attempt, **changes: Any) -> None:
    count = execute(
        alias, sql, id=attempt.task_id, attempt=attempt.number, worker=attempt.worker, **changes
    )
    if not count:
        raise _lost(attempt)


def _lost(attempt: Attempt) -> ClaimLost:
    return ClaimLost(f"attempt {attempt.number} of task {attempt.task_id} no longer holds its row")


def _fences(rows: list[tuple[Any, ...]]) -> set[tuple[uuid.UUID, int, uuid.UUID]]:
    return {(as_uuid(task_id), number, as_uuid(worker)) for task_id, number, worker in rows}
