"""A worker's turn in one statement, on PostgreSQL: it beats, finishes ended attempts, and claims due rows.

Each statement costs a round trip, after which a busy loop waits for Python, and each task takes part in two turns.
Other statements record unusual ends: a retry, a hook, an attempt that no longer holds its row. Then the statement
of a turn claims without its beat.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from django.db import OperationalError

from django_txtasks.core.rows import statements
from django_txtasks.core.rows.attempts import Ended, Recorded
from django_txtasks.core.rows.history import finishing
from django_txtasks.core.rows.turn import (
    Candidate,
    Scan,
    Subscription,
    TurnOrder,
    TurnRequest,
    TurnResult,
)
from django_txtasks.database import cost
from django_txtasks.database.dialect import DIALECTS
from django_txtasks.database.execute import fetch
from django_txtasks.database.transactions import can_use_one_statement, fetch_in_one_statement
from django_txtasks.fast import found

VENDOR = "postgresql"
"""The databases for which it does turns, as Django names them."""


def fits(alias: str, worker: uuid.UUID, ended: Sequence[Ended]) -> bool:
    """Say whether ``turn`` can record these attempts: each has finished, each task once, without hooks."""
    return can_use_one_statement(alias) and found.is_usual(worker, ended)


def turn(order: TurnOrder) -> TurnResult | None:
    """Beat, CLAIMED -> finished, PENDING -> claimed, and commit. Attempts whose row was not finished are busy.

    Returns:
        None: the worker was declared lost, and nothing was written.
    """
    ended, request = order.ended, order.request
    sql = statement_of_turn(
        finish=bool(ended), keep=order.keep and bool(ended), **_asks_for(request)
    )
    rows = fetch_in_one_statement(
        order.subscription.alias,
        order.subscription.claiming(sql),
        limit=order.limit,
        worker=order.worker,
        **order.state,
        **(finishing(ended) if ended else {}),
        **_params(order.subscription, request),
    )
    if not rows:
        return None
    result = _read(rows, order.worker, request, ended)
    found.count_rows(order, result)
    return result


def claim(subscription: Subscription, worker: uuid.UUID, request: TurnRequest) -> TurnResult:
    """Move PENDING -> claimed, in a transaction that began with the worker's beat."""
    if request.scan is None and not request.hinted:
        return TurnResult(request.capacity)
    sql = statement_of_turn(beats=False, **_asks_for(request))
    sql = subscription.claiming(sql)
    rows = fetch(subscription.alias, sql, worker=worker, **_params(subscription, request))
    result = _read(rows, worker, request, [])
    cost.of(subscription.alias).rows += len(result.claimed) - len(rows)  # it has read the others
    return result


# -- parameters ---------------------------------------------------------------------------------


def _asks_for(request: TurnRequest) -> dict[str, bool]:
    scan = request.scan
    return {
        "scan": scan is not None,
        "recent": scan is not None and scan.recent is not None,
        "hints": bool(request.hinted),
    }


def _params(subscription: Subscription, request: TurnRequest) -> dict[str, Any]:
    capacity, scan = request.capacity, request.scan
    if scan is None and not request.hinted:
        return {}
    params: dict[str, Any] = {
        "queues": subscription.queues if scan is None else scan.queues,
        **subscription.claimable,
        "short": tuple(capacity.short_names),
        "alone": capacity.dedicated,
        "ahead": capacity.prefetch,
        "most": capacity.limit,
    }
    if request.hinted:
        params["hinted"] = request.hinted
    if scan is not None:
        params.update(_where(scan), width=capacity.width)
    return params


def _where(scan: Scan) -> dict[str, Any]:
    places = {
        "mark_queues": [bucket.queue_name for bucket in scan.cursors],
        "mark_priorities": [bucket.priority for bucket in scan.cursors],
        "mark_times": [cursor.due_at for cursor in scan.cursors.values()],
        "mark_ids": [cursor.task_id for cursor in scan.cursors.values()],
    }
    if scan.recent is None:
        return places
    return {
        **places,
        "head_queues": [bucket.queue_name for bucket in scan.recent.buckets],
        "head_priorities": [bucket.priority for bucket in scan.recent.buckets],
        "age": scan.recent.seconds,
    }


# -- the result ------------------------------------------------------------------------------


def _read(
    rows: Sequence[tuple[Any, ...]],
    worker: uuid.UUID,
    request: TurnRequest,
    ended: Sequence[Ended],
) -> TurnResult:
    """Read the rows of ``statement_of_turn``."""
    (finished, attempts, known, past, is_suspected, *_), *_ = rows
    rows_found = _found(rows, past or ())
    ready = [one.candidate for one in rows_found if one.candidate.wait <= 0]
    due = [one.attempt_of(worker) for one in ready if one.merge_key is None and not one.lane]
    admission = request.capacity.admit(due)
    taken = [one.candidate.id for one in rows_found if one.is_taken]
    if taken != [attempt.task_id for attempt in admission.attempts]:
        raise OperationalError(
            f"rows claimed: {len(taken)}, where {len(admission.attempts)} should be: repeat the turn"
        )
    return found.result(
        request,
        rows_found,
        admission,
        recorded=_recorded(ended, finished or [], attempts or []),
        known={*(known or ()), *(past or ())},
        has_keys=len(due) < len(ready) and any(one.has_key for one in ready),
        is_suspected=bool(is_suspected),
    )


def _found(rows: Iterable[tuple[Any, ...]], past: Collection[uuid.UUID]) -> list[found.Found]:
    looked_at = [
        found.Found(is_taken=row[5], priority=row[7], candidate=Candidate(*row[8:]))
        for row in rows
        if len(row) > 6 and row[6] is not None  # its place
    ]
    if not past:  # the usual case
        return looked_at
    return [
        one._replace(candidate=one.candidate._replace(has_ended=True))
        if one.candidate.id in past
        else one
        for one in looked_at
    ]


def _recorded(
    ended: Sequence[Ended], ids: Sequence[uuid.UUID], attempts: Sequence[int]
) -> Recorded:
    if len(ids) == len(ended):
        return Recorded(done=list(ended))
    recorded, finished = Recorded(), set(zip(ids, attempts, strict=True))
    for one in ended:
        held = (one.attempt.task_id, one.attempt.number) in finished
        (recorded.done if held else recorded.busy).append(one)
    return recorded


# -- the statement --------------------------------------------------------------------------------

# If the beat finds no row, nothing is finished or claimed; the lock of that row is held until the commit. In this
# SQL, a bucket is called a head, and a cursor a mark.
_OF_PENDING = DIALECTS["postgresql"]
_PRIORITIES = (
    statements.PENDING_PRIORITIES.replace("{to_queue}", _OF_PENDING.to_queue)
    .replace("{below_priority}", _OF_PENDING.below_priority)
    .replace("%(queue)s", "asked.queue")
)
_DUE_OF_HEAD = (
    statements.CHOOSE_DUE.replace(
        "{after}", "AND (run_after, id) > (heads.mark_time, heads.mark_id)"
    )
    .replace("%(queue)s", "heads.queue")
    .replace("%(priority)s", "heads.priority")
    .replace("%(limit)s", "%(width)s")
)
_IS_NOT_PAUSED = f"asked.queue NOT IN ({statements.PAUSED_QUEUES})"
_PENDING_HEADS = f"""(
        SELECT asked.queue, asked.place, head.priority
          FROM unnest(CAST(%(queues)s AS text[])) WITH ORDINALITY AS asked(queue, place)
         CROSS JOIN LATERAL ({_PRIORITIES}) AS head
         WHERE {_IS_NOT_PAUSED}) AS head"""
_RECENT_HEADS = f"""(
        SELECT asked.queue, asked.priority, asked.place
          FROM unnest(CAST(%(head_queues)s AS text[]), CAST(%(head_priorities)s AS int[]))
               WITH ORDINALITY AS asked(queue, priority, place)
         WHERE {_IS_NOT_PAUSED}) AS head"""
_DUE = f""",
    heads AS (
        SELECT head.queue, head.priority, COALESCE(mark.run_after, {{begin}}) AS mark_time,
               COALESCE(mark.id, '00000000-0000-0000-0000-000000000000') AS mark_id
          FROM {{heads}}
          LEFT JOIN unnest(CAST(%(mark_queues)s AS text[]), CAST(%(mark_priorities)s AS int[]),
                           CAST(%(mark_times)s AS timestamptz[]), CAST(%(mark_ids)s AS uuid[]))
               AS mark(queue, priority, run_after, id) USING (queue, priority)
         ORDER BY head.priority DESC, head.place
    ),
    due AS (
        SELECT heads.priority AS head, found.*
          FROM heads CROSS JOIN LATERAL ({_DUE_OF_HEAD}) AS found
         LIMIT %(width)s
    )"""
# ``_PAST`` reads once which hinted ids are in history: planning the same subquery here would take 30 us.
_CHOOSE_HINTED = statements.CHOOSE_BY_ID.replace("{in_ids}", "{in_hinted}").replace(
    statements.HAS_ENDED, "CAST(NULL AS boolean)"
)
_HINTED = f""",
    hinted AS ({_CHOOSE_HINTED})"""
# As in ``Capacity.admit``: short tasks may wait for a slot, each other task must find a free slot, and no task
# overtakes a task without a slot. Rows with a unique key are left to ``portable``, which merges them, and rows of
# lanes to ``features.lanes.claiming``.
_CLAIM = f""",
    fitting AS (
        SELECT id, place,
               count(*) FILTER (WHERE NOT is_short) OVER above AS others,
               count(*) FILTER (WHERE is_short) OVER above AS short
          FROM (SELECT id, place, may_share AND task_name {{in_short}} AS is_short
                  FROM chosen WHERE wait <= 0 AND merge_key IS NULL AND lane = '') AS found
        WINDOW above AS (ORDER BY place)
    ),
    taken AS (
        UPDATE txtasks_task {statements.TO_CLAIMED}
         WHERE id = ANY(ARRAY(SELECT fitting.id FROM beat, fitting
                               WHERE others + GREATEST(short - %(ahead)s, 0) <= %(alone)s
                                 AND others + short <= %(most)s))
           AND TRIM(status) = 'pending'
        RETURNING id
    )"""
_OF_BEAT = f"id, {statements.IS_SUSPECTED} AS is_suspected"
_HAS_BEATEN = f"SELECT {_OF_BEAT} FROM txtasks_worker WHERE id = %(worker)s AND NOT lost"


@functools.cache
def statement_of_turn(
    *,
    beats: bool = True,
    finish: bool = False,
    keep: bool = False,
    scan: bool = False,
    recent: bool = False,
    hints: bool = False,
) -> str:
    """Return the statement of a turn.

    The first columns of its first row are: the finished ids, their attempts, the hinted ids that have a live row,
    the hinted ids in history, and whether the worker is suspected. The other columns of each row are those of one
    row that was read: whether it was claimed, its place, the priority of its bucket if a scan found it, and the
    columns of a ``Candidate``. The rows of the scan come first, in its order.

    Args:
        beats: False = an earlier statement of the same transaction has beaten.
    """
    beat = f"{statements.BEAT} RETURNING {_OF_BEAT}" if beats else _HAS_BEATEN
    with_ = [f"WITH beat AS ({beat})"]
    if finish:
        with_.append(_finishing(keep=keep))
    ids, attempts = (_GONE_IDS, _GONE_ATTEMPTS) if finish else ("NULL", "NULL")
    known, past = (_KNOWN, _PAST) if hints else ("NULL", "NULL")
    once = [ids, attempts, known, past, "is_suspected"]
    if not (scan or hints):
        return " ".join([*with_, "SELECT", ", ".join(once), "FROM beat"])
    with_.append(_choosing(scan=scan, recent=recent, hints=hints))
    answer = [f"CASE WHEN COALESCE(place, 1) = 1 THEN {value} END" for value in once]
    answer += ["chosen.id IN (SELECT taken.id FROM taken)", "chosen.*"]
    source = "FROM beat LEFT JOIN chosen ON TRUE ORDER BY place"
    return " ".join([*with_, "SELECT", ", ".join(answer), source])


_GONE_IDS = "ARRAY(SELECT id FROM gone ORDER BY id)"
_GONE_ATTEMPTS = "ARRAY(SELECT attempt FROM gone ORDER BY id)"
_KNOWN = f"ARRAY({statements.LIVE_IDS.replace('{in_ids}', '{in_hinted}')})"
_PAST = f"ARRAY({statements.PAST_IDS.replace('{in_ids}', '{in_hinted}')})"


def _finishing(*, keep: bool) -> str:
    """Return the parts that move the rows of ended attempts out of the table."""
    held = statements.HELD.format(only_if="EXISTS (SELECT FROM beat) AND")
    kept = f" , kept AS ({statements.KEEP_GONE})" if keep else ""
    return f", {held}, gone AS ({statements.GONE} *){kept}"


def _choosing(*, scan: bool, recent: bool, hints: bool) -> str:
    """Return the parts that read, choose and claim rows."""
    parts, chosen = [], []
    if scan:
        heads, begin = (_RECENT_HEADS, "{ago}") if recent else (_PENDING_HEADS, "'-infinity'")
        parts.append(_DUE.replace("{heads}", heads).replace("{begin}", begin))
        chosen.append("SELECT * FROM due")
    if hints:
        parts.append(_HINTED)
        also = "WHERE id <> ALL(ARRAY(SELECT id FROM due))" if scan else ""
        chosen.append(f"SELECT CAST(NULL AS int) AS head, hinted.* FROM hinted {also}")
    rows = " UNION ALL ".join(chosen)
    parts.append(
        f", chosen AS (SELECT row_number() OVER () AS place, * FROM ({rows}) AS all_of_them)"
    )
    return " ".join([*parts, _CLAIM])
