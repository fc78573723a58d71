"""Tasks with a unique key: a claim takes the first due row of a key and merges the other due rows into it.

Enqueueing decides nothing, so no caller waits for another caller or fails because of one. Only rows that have not
begun are merged: a row that waits for a retry runs alone, because it has failures and may have done part of its
work. A merged row was committed before the claim, so its request is served by a run that begins later.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from django_txtasks.core.declaring import registry
from django_txtasks.core.rows import statements
from django_txtasks.core.rows.attempts import Attempt
from django_txtasks.core.rows.claim_parts import Picked
from django_txtasks.core.rows.history import COPY_MERGED
from django_txtasks.core.rows.turn import Candidate, Subscription
from django_txtasks.database.execute import as_uuid, execute, fetch, fetch_as, fetch_column
from django_txtasks.exceptions import ClaimLost

MOST_KEYS = 20
"""Number of keys that one claim handles: each key takes several statements, and may absorb many rows."""
MOST_MERGED = 500
"""Number of rows that one claim absorbs at most, so that a turn stays short: the first rows. The next claims merge
the others, so the last run has the newest arguments."""

# TRIM() hides the column from the planner, so it cannot choose the index of all pending rows.
_OF_KEY = """
       AND {t}attempt = 0 AND {t}failures < 2147483647 AND {t}crashes < 2147483647
       AND TRIM({t}status) = 'pending' AND {t}run_after <= {now}
       AND ({t}expires_at IS NULL OR {t}expires_at > {now})
"""
FIRST_OF_KEY = (
    "SELECT id FROM txtasks_task"
    " WHERE unique_key = %(key)s AND task_name = %(task_name)s AND queue_name = %(queue_name)s {sound_id}"
    + _OF_KEY.replace("{t}", "")
    + "ORDER BY priority DESC, run_after, id LIMIT 1"
)
# The rows that the winner's run serves too: rows with the same limits and hooks (the hooks fire once) that expire
# no later than the winner. A row that another transaction has locked is left out and runs alone.
TWINS = (
    """
    SELECT t.id FROM txtasks_task t, txtasks_task w
     WHERE w.id = %(winner)s AND t.unique_key = %(key)s AND t.id <> w.id
"""
    + _OF_KEY.replace("{t}", "t.")
    + """
       AND w.task_name = t.task_name AND w.queue_name = t.queue_name
       AND NOT EXISTS (SELECT 1 FROM txtasks_finishedtask f WHERE f.id = t.id)
       AND w.on_crash = t.on_crash AND w.max_attempts = t.max_attempts AND w.max_crashes = t.max_crashes
       AND COALESCE(w.timeout, -1) = COALESCE(t.timeout, -1) AND w.hooks = t.hooks
       AND (w.batch = t.batch OR w.batch IS NULL AND t.batch IS NULL)
       AND (w.expires_at IS NULL OR t.expires_at <= w.expires_at)
     ORDER BY t.priority DESC, t.run_after, t.id LIMIT %(most)s {skip_locked}
"""
)
# A row that was enqueued later than now was committed before the database's clock was set back, so it is older
# than each row that was enqueued before now. If it was due when it was enqueued, it is merged before its time
# comes again: alone, it would run after the newer requests with older arguments.
NEWEST_TWINS = TWINS.replace(
    "AND t.run_after <= {now}",
    "AND (t.run_after <= {now} OR t.enqueued_at > {now} AND t.run_after <= t.enqueued_at)",
)
# This statement locks, because a plain read may have an older snapshot than the statement that has locked the
# rows.
NEWEST_ARGUMENTS = """
    SELECT args, kwargs FROM txtasks_task
     WHERE id {in_ids} ORDER BY enqueued_at > {now}, enqueued_at DESC, id DESC LIMIT 1 {skip_locked}
"""
SET_ARGUMENTS = """
    UPDATE txtasks_task SET args = {json}%(args)s{end_json}, kwargs = {json}%(kwargs)s{end_json} WHERE id = %(id)s
"""
NOTE_ABSORBED = "UPDATE txtasks_task SET absorbed = absorbed + %(count)s WHERE id = %(id)s"


def pick(subscription: Subscription, candidates: Sequence[Candidate]) -> tuple[list[Picked], int]:
    """Lock and return the rows to claim: for the first candidate of each key, the first row of that key.

    If another transaction has locked the first row of a key, the key is left out: that transaction claims the row
    or releases it soon.

    Returns:
        Also the number of candidates that were handled.
    """
    picked: list[Picked] = []
    seen: set[Any] = set()
    for place, one in enumerate(candidates):
        if one.merge_key is None:
            picked.append(Picked(one, place))
        elif one.merge_key not in seen:
            if len(seen) == MOST_KEYS:
                return picked, place
            seen.add(one.merge_key)
            first = _lock_first(subscription, one)
            if first is not None:
                picked.append(Picked(first, place))
    return picked, len(candidates)


def first_of_key(alias: str, key: Any, task_name: str, queue_name: str) -> uuid.UUID | None:
    """Return the id of the first due row of a key; None = no row of the key is due."""
    sql = FIRST_OF_KEY
    rows = fetch(alias, sql, key=key, task_name=task_name, queue_name=queue_name)
    return as_uuid(rows[0][0]) if rows else None


def _lock_first(subscription: Subscription, one: Candidate) -> Candidate | None:
    """Lock the first row of a candidate's key; None = it is gone, or another transaction has locked it."""
    alias, key = subscription.alias, one.merge_key
    first = first_of_key(alias, key, one.task_name, one.queue_name)
    if first is None:
        return None
    rows = fetch_as(
        Candidate,
        alias,
        subscription.claiming(statements.CHOOSE_BY_ID),
        ids=[first],
        queues=subscription.queues,
        **subscription.claimable,
    )
    return next((one for one in rows if one.merge_key == key and one.wait <= 0), None)


def absorb(
    alias: str, to_claim: Iterable[Attempt], keys: dict[uuid.UUID, Any]
) -> tuple[list[Attempt], set[uuid.UUID]]:
    """Merge the other due rows of its key into each row that is about to be claimed, in the same transaction.

    Args:
        keys: the unique key by id, for the rows that have one.

    Returns:
        The attempts with their rows' new arguments, and the ids of the merged rows.
    """
    attempts, merged = [], set()
    for attempt in to_claim:
        key = keys.get(attempt.task_id)
        if key is None or attempt.has_ended:  # an ended task does not run again for others
            attempts.append(attempt)
            continue
        winner, others = _absorb(alias, attempt, key)
        attempts.append(winner)
        merged |= others
    return attempts, merged


def _absorb(alias: str, winner: Attempt, key: Any) -> tuple[Attempt, set[uuid.UUID]]:
    asked = {"winner": winner.task_id, "key": key, "most": MOST_MERGED}
    declaration = registry.find(winner.task_name)
    takes_newest = declaration is None or declaration.keep == "newest"
    twins = NEWEST_TWINS if takes_newest else TWINS
    ids = sorted(as_uuid(one) for one in fetch_column(alias, twins, **asked))
    if not ids:
        return winner, set()
    if takes_newest:
        winner = _with_newest_arguments(alias, winner, ids)
    execute(alias, COPY_MERGED, winner=winner.task_id, ids=ids)
    count = execute(alias, statements.DELETE_TASKS, ids=ids, status="pending")
    if count != len(ids):
        raise ClaimLost(
            f"rows that were locked: {len(ids)}, of which still there: {count}. Nothing was merged"
        )
    execute(alias, NOTE_ABSORBED, id=winner.task_id, count=count)
    return winner, set(ids)


def _with_newest_arguments(alias: str, winner: Attempt, merged: Sequence[uuid.UUID]) -> Attempt:
    ids = sorted([winner.task_id, *merged])
    ((args, kwargs),) = fetch(alias, NEWEST_ARGUMENTS, ids=ids)
    if (args, kwargs) != (winner.args, winner.kwargs):
        execute(alias, SET_ARGUMENTS, id=winner.task_id, args=args, kwargs=kwargs)
    return winner._replace(args=args, kwargs=kwargs)
