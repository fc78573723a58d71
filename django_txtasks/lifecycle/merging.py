"""Tasks with a unique key: the first of a key is claimed, and takes the place of the others that are due.

Nothing is decided when they are enqueued, so no caller waits for another one or fails for him. Only rows that
have not begun are merged: a row that waits for its next attempt runs by itself, with its failures and what it has
done. What is absorbed was committed before the claim, so its request is served by a run that begins after it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from django_txtasks.database.execute import as_uuid, execute, fetch, fetch_as, fetch_column
from django_txtasks.declarations import registry
from django_txtasks.exceptions import ClaimLost
from django_txtasks.lifecycle import statements
from django_txtasks.lifecycle.attempts import Attempt
from django_txtasks.lifecycle.history import COPY_MERGED
from django_txtasks.lifecycle.turn import Candidate, Subscription

MOST_KEYS = 20
"""Keys that are looked at in one go: each takes some statements, and may absorb many rows."""
MOST_MERGED = 500
"""Rows that one claim absorbs at most, so that a turn stays short: the first ones. The others are merged by the
next claims, so that the last run has the newest arguments."""

# TRIM(status) leads no planner to the index of all that waits.
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
# Only what the winner's run serves as well: the same limits and hooks, which fire once, and none that could still
# run when the winner has expired. What somebody else has locked is left out, and runs by itself.
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
# A row that was enqueued later than now was committed before the database's clock was set back. So that row is
# older than each one that was enqueued by now. If it was due when it was enqueued, it is merged before its time
# comes again: alone it would run after the newer requests, with older arguments.
NEWEST_TWINS = TWINS.replace(
    "AND t.run_after <= {now}",
    "AND (t.run_after <= {now} OR t.enqueued_at > {now} AND t.run_after <= t.enqueued_at)",
)
# It locks, since a plain read may be of an older snapshot than the one that has locked them.
NEWEST_ARGUMENTS = """
    SELECT args, kwargs FROM txtasks_task
     WHERE id {in_ids} ORDER BY enqueued_at > {now}, enqueued_at DESC, id DESC LIMIT 1 {skip_locked}
"""
SET_ARGUMENTS = """
    UPDATE txtasks_task SET args = {json}%(args)s{end_json}, kwargs = {json}%(kwargs)s{end_json} WHERE id = %(id)s
"""
NOTE_ABSORBED = "UPDATE txtasks_task SET absorbed = absorbed + %(count)s WHERE id = %(id)s"


class Picked(NamedTuple):
    """A row that is to be claimed.

    Attributes:
        place: that of the candidate for which it stands, in the order of the scan.
    """

    candidate: Candidate
    place: int


def pick(subscription: Subscription, candidates: Sequence[Candidate]) -> tuple[list[Picked], int]:
    """Return the rows to be claimed, locked: for the first candidate of each key the first row of that key.

    A key whose first row somebody else has locked is left out: he claims it, or is about to let it go.

    Returns:
        Also how many of the candidates were looked at.
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
    """Return the id of the row of a key that comes first of those that are due; None = there is none."""
    sql = FIRST_OF_KEY
    rows = fetch(alias, sql, key=key, task_name=task_name, queue_name=queue_name)
    return as_uuid(rows[0][0]) if rows else None


def _lock_first(subscription: Subscription, one: Candidate) -> Candidate | None:
    """Lock the first row of a candidate's key; None = it cannot be had now."""
    alias, key = subscription.alias, one.merge_key
    first = first_of_key(alias, key, one.task_name, one.queue_name)
    if first is None:
        return None
    rows = fetch_as(
        Candidate,
        alias,
        statements.CHOOSE_BY_ID,
        ids=[first],
        queues=subscription.queues,
        names=subscription.names,
    )
    return next((one for one in rows if one.merge_key == key and one.wait <= 0), None)


def absorb(
    alias: str, to_claim: Iterable[Attempt], keys: dict[uuid.UUID, Any]
) -> tuple[list[Attempt], set[uuid.UUID]]:
    """Merge into each row that is about to be claimed what waits under its key, in the same transaction.

    Args:
        keys: of those rows that have one.

    Returns:
        The attempts, with the arguments that their rows have now, and the ids of what was merged.
    """
    attempts, merged = [], set()
    for attempt in to_claim:
        key = keys.get(attempt.task_id)
        if key is None or attempt.has_ended:  # it does not run, so it serves no other request
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
