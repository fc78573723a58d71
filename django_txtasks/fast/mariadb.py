"""A worker's turn in two round trips, on MariaDB.

The first block beats, locks the rows of ended attempts, and reads due rows. Then ``Capacity.admit`` decides which
rows fit. The second block writes and commits. In single statements, a turn takes nine round trips, and after each
one, a busy loop waits for Python. Unusual turns go that way: a retry, a hook, an attempt that no longer holds its
row (see ``portable``).
"""

from __future__ import annotations

import functools
import operator
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from django_txtasks.core.rows import statements
from django_txtasks.core.rows.attempts import Attempt, Ended, Recorded
from django_txtasks.core.rows.engines import portable
from django_txtasks.core.rows.history import copying
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
from django_txtasks.database.execute import as_uuid, fetch_results
from django_txtasks.database.transactions import can_use_blocks, rolled_back_on_error
from django_txtasks.fast import found
from django_txtasks.fast.found import Found
from django_txtasks.models import Outcome, Status

Rows = list[tuple[Any, ...]]
Seen = tuple[int | None, Candidate]
"""A row that was read, after the priority of its bucket if a scan found it; None = a hint named it."""
_INT = operator.attrgetter("int")  # comparing UUIDs is slow
VENDOR = "mysql"
"""The databases for which it does turns, as Django names them."""


def claim(subscription: Subscription, worker: uuid.UUID, request: TurnRequest) -> TurnResult:
    """Move PENDING -> claimed, in a transaction that began with the worker's beat."""
    return portable.claim(subscription, worker, request)


def fits(alias: str, worker: uuid.UUID, ended: Sequence[Ended]) -> bool:
    """Say whether ``turn`` can record these attempts: each has finished, each task once, without hooks."""
    return can_use_blocks(alias) and found.is_usual(worker, ended)


def turn(order: TurnOrder) -> TurnResult | None:
    """Beat, CLAIMED -> finished, PENDING -> claimed, and commit: see ``postgresql.turn``."""
    alias, worker = order.subscription.alias, order.worker
    request, ended = order.request, order.ended
    sql, params = _looking(order)
    cost.of(alias).transactions += 1
    with rolled_back_on_error(alias):
        ((is_alive, is_suspected),), *results = fetch_results(alias, sql, **params)
        if not is_alive:
            return None
        recorded = _recorded(ended, results.pop(0)) if ended else Recorded()
        hinted = results.pop() if request.hinted else []
        seen = list(_seen(results, hinted))
        admission = request.capacity.admit(
            one.attempt_of(worker)
            for _, one in seen
            if one.wait <= 0 and one.merge_key is None and not one.lane
        )
        known = {as_uuid(task_id) for task_id, *_ in hinted}
        missing = sorted(set(request.hinted) - known, key=_INT)
        if ended or seen or request.hinted:  # else it has committed
            sql, params = _writing(
                worker, recorded.done, admission.attempts, missing, keep=order.keep
            )
            for rows in fetch_results(alias, sql, **params):
                known |= {as_uuid(task_id) for (task_id,) in rows}
    taken = {attempt.task_id for attempt in admission.attempts}
    result = found.result(
        request,
        [Found(as_uuid(one.id) in taken, priority, one) for priority, one in seen],
        admission,
        recorded=recorded,
        known=known,
        has_keys=any(one.has_key and one.wait <= 0 for _, one in seen),
        is_filled=sum(map(len, results)) == request.capacity.width,
        is_suspected=bool(is_suspected),
    )
    found.count_rows(order, result)
    return result


# -- the first block ---------------------------------------------------------------------------------

_NO_PRIORITY = "-32769"
"""A number below all priorities that the column takes."""

# The beat comes first, as in each transaction that claims. Then come the reads of ``portable``, in the same order.
_LOOKING = f"""BEGIN NOT ATOMIC
    DECLARE is_alive, is_suspected, room, is_paused, head<heads> INT;
    DECLARE mark_time DATETIME(6);
    SET room = %(room)s;
    START TRANSACTION;
    {statements.BEAT};
    SET is_alive = ROW_COUNT();
    IF is_alive THEN {statements.SUSPECTED_WORKER.replace("FROM", "INTO is_suspected FROM", 1)}; END IF;
    SELECT is_alive, is_suspected;
    IF is_alive THEN <parts> ELSE ROLLBACK; END IF;
END"""
_CHOOSING = (
    statements.CHOOSE_DUE.replace("SELECT id,", "SELECT priority, id,", 1).replace(
        "%(limit)s", "room"
    )
    + "; SET room = room - FOUND_ROWS();"
)
_AFTER_CURSOR = statements.AFTER_CURSOR.format(**DIALECTS["mysql"]._asdict())
_IS_PAUSED = f"%(queue)s IN ({statements.PAUSED_QUEUES})"
# SELECT … INTO instead of SET, because above READ COMMITTED, SET locks the rows that it reads.
_HIGHEST = f"""SELECT IF({_IS_PAUSED}, {_NO_PRIORITY},
    COALESCE(({statements.HIGHEST_PRIORITY}), {_NO_PRIORITY})) INTO head_<n>;"""
_NEXT = f"SELECT COALESCE(({statements.NEXT_PRIORITY}), {_NO_PRIORITY}) INTO head_<n>;"


def _looking(order: TurnOrder) -> tuple[str, dict[str, Any]]:
    """Return the first block of a turn, and its parameters."""
    subscription, request, ended = order.subscription, order.request, order.ended
    room = request.capacity.width
    params: dict[str, Any] = {"worker": order.worker, "room": room, **order.state}
    parts, heads = [], 0
    if ended:
        parts.append(statements.LOCK_CLAIMED.replace("{in_ids}", "{in_ended}") + ";")
        params["ended"] = sorted((one.attempt.task_id for one in ended), key=_INT)
    if request.scan is not None:
        heads = len(request.scan.queues)
        scanning, places = _scanning(request.scan)
        parts.append(scanning)
        params.update(places, **subscription.claimable)
    if request.hinted:
        parts.append(statements.CHOOSE_BY_ID.replace("{in_ids}", "{in_hinted}") + ";")
        hinted = sorted(set(request.hinted), key=_INT)
        params.update(hinted=hinted, queues=subscription.queues, **subscription.claimable)
    if not (ended or request.hinted):  # if no row was found, there is nothing to write
        parts.append("IF room = %(room)s THEN COMMIT; END IF;")
    text = _LOOKING.replace("<heads>", "".join(f", head_{n}" for n in range(heads)))
    return text.replace("<parts>", subscription.claiming(" ".join(parts))), params


def _scanning(scan: Scan) -> tuple[str, dict[str, Any]]:
    """Return the part that chooses due rows, and its parameters except the names of tasks."""
    params: dict[str, Any] = {}
    for n, (bucket, cursor) in enumerate(scan.cursors.items()):
        params.update({f"priority_{n}": bucket.priority, f"mark_time_{n}": cursor.due_at})
        params[f"mark_id_{n}"] = cursor.task_id
    numbers = {bucket: n for n, bucket in enumerate(scan.cursors)}
    if scan.recent is not None:
        params["age"] = scan.recent.seconds
        parts = []
        for n, bucket in enumerate(scan.recent.buckets):
            params.update({f"queue_{n}": bucket.queue_name, f"bucket_{n}": bucket.priority})
            number = numbers.get(bucket)
            after = statements.LATELY if number is None else _numbered(_AFTER_CURSOR, number)
            choosing = _choosing(n, f"%(bucket_{n})s", after)
            asking = _of_queue(_IS_PAUSED, n)
            parts.append(f"SELECT {asking} INTO is_paused;")
            parts.append(f"IF room > 0 AND NOT is_paused THEN {choosing} END IF;")
        return " ".join(parts), params
    params.update({f"queue_{n}": queue for n, queue in enumerate(scan.queues)})
    cursors = [
        [numbers[one] for one in numbers if one.queue_name == queue] for queue in scan.queues
    ]
    return _scanning_all(tuple(map(tuple, cursors))), params


@functools.lru_cache(maxsize=200)
def _scanning_all(cursors: tuple[tuple[int, ...], ...]) -> str:
    """Return the part that goes through the buckets, highest priority first, until the room is filled.

    Args:
        cursors: for each queue, the numbers of its cursors.
    """
    heads = ", ".join([*(f"head_{n}" for n in range(len(cursors))), _NO_PRIORITY])
    first = " ".join(_of_queue(_HIGHEST, n) for n in range(len(cursors)))
    bodies = " ".join(
        f"""IF room > 0 AND head_{n} = head THEN
            {_choosing_behind(n, numbers)}
            IF room > 0 THEN {_of_queue(_NEXT, n)} END IF;
        END IF;"""
        for n, numbers in enumerate(cursors)
    )
    return f"""{first} SET head = GREATEST({heads});
        WHILE room > 0 AND head > {_NO_PRIORITY} DO {bodies} SET head = GREATEST({heads}); END WHILE;"""


def _of_queue(sql: str, n: int) -> str:
    """Return a statement about the queue with this number, whose current priority is ``head``."""
    return (
        sql.replace("%(queue)s", f"%(queue_{n})s")
        .replace("%(priority)s", "head")
        .replace("<n>", str(n))
    )


def _choosing_behind(n: int, cursors: Sequence[int]) -> str:
    """Return the statement that chooses from a bucket, behind the cursor if it has one."""
    if not cursors:
        return _choosing(n, "head", "")
    times = " ".join(f"WHEN %(priority_{one})s THEN %(mark_time_{one})s" for one in cursors)
    ids = " ".join(f"WHEN %(priority_{one})s THEN %(mark_id_{one})s" for one in cursors)
    mark_id = f"CASE head {ids} ELSE '{uuid.UUID(int=0).hex}' END"
    after = _AFTER_CURSOR.replace("%(mark_time)s", "mark_time").replace("%(mark_id)s", mark_id)
    set_time = f"SET mark_time = CASE head {times} ELSE '0001-01-01' END;"
    return f"{set_time} {_choosing(n, 'head', after)}"


def _choosing(n: int, priority: str, after: str) -> str:
    sql = _CHOOSING.replace("{after}", after).replace("%(queue)s", f"%(queue_{n})s")
    return sql.replace("%(priority)s", priority)


def _numbered(sql: str, n: int) -> str:
    return sql.replace("mark_time)", f"mark_time_{n})").replace("mark_id)", f"mark_id_{n})")


# -- the second block -------------------------------------------------------------------------------

# The turn has locked the rows that it writes. Another number of written rows is a defect, so the turn is rolled
# back.
_ALL_OF_THEM = """
    IF ROW_COUNT() <> %(<count>)s THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'rows that the turn has locked were not there';
    END IF;
"""


def _writing(
    worker: uuid.UUID,
    done: Sequence[Ended],
    claimed: Sequence[Attempt],
    missing: Sequence[uuid.UUID],
    *,
    keep: bool,
) -> tuple[str, dict[str, Any]]:
    """Return the second block of a turn, and its parameters."""
    parts: list[str] = []
    params: dict[str, Any] = {}
    if done:
        ids = sorted((one.attempt.task_id for one in done), key=_INT)
        params.update(done=ids, count_of_done=len(ids), status=Status.CLAIMED.value)
        if keep:
            results = {one.attempt.task_id: one.result for one in done if one.result is not None}
            sql, more = copying(Outcome.SUCCEEDED, results)
            parts.append(sql.replace("{in_ids}", "{in_done}") + ";")
            params.update(more)
        parts.append(statements.DELETE_TASKS.replace("{in_ids}", "{in_done}") + ";")
        parts.append(_ALL_OF_THEM.replace("<count>", "count_of_done"))
    if claimed:
        ids = sorted((attempt.task_id for attempt in claimed), key=_INT)
        params.update(worker=worker, claimed=ids, count_of_claimed=len(ids))
        parts.append(statements.CLAIM.replace("{in_ids}", "{in_claimed}") + ";")
        parts.append(_ALL_OF_THEM.replace("<count>", "count_of_claimed"))
    if missing:
        params["missing"] = missing
        parts.append(statements.KNOWN_IDS.replace("{in_ids}", "{in_missing}") + ";")
    return f"BEGIN NOT ATOMIC {' '.join(parts)} COMMIT; END", params


# -- the result ------------------------------------------------------------------------------


def _recorded(ended: Sequence[Ended], rows: Rows) -> Recorded:
    held = {(as_uuid(task_id), number, as_uuid(worker)) for task_id, number, worker in rows}
    recorded = Recorded()
    for one in ended:
        (recorded.done if one.attempt.fence in held else recorded.busy).append(one)
    return recorded


def _seen(results: Sequence[Rows], hinted: Rows) -> Iterator[Seen]:
    """Yield each row that was read once; the rows of the scan first.

    A hint may name a row that the scan has found. And if the table was converted to another collation (ALTER
    TABLE … CONVERT TO), MariaDB may read the same rows for two queues of a scan.
    """
    rows = [(priority, Candidate(*columns)) for one in results for priority, *columns in one]
    rows += [(None, Candidate(*columns)) for columns in hinted]
    seen = set()
    for priority, candidate in rows:
        if candidate.id not in seen:
            seen.add(candidate.id)
            yield priority, candidate
