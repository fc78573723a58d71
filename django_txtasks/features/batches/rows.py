"""Batches: tasks with a common end, which enqueues hooks. No counter is kept; no member writes the batch's row.

A batch and its first members are written in one transaction, so a session that sees the batch sees them too. A
process that has ended a member looks, after its COMMIT, for a live member. If it finds none, it locks the batch,
looks again, and ends it. If the process dies before it has looked, a cleaner looks.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from django.db import connections

from django_txtasks.conf import get_config
from django_txtasks.core.ground import payload
from django_txtasks.core.rows.attempts import Attempt, FollowUps
from django_txtasks.core.rows.enqueueing import insert
from django_txtasks.core.rows.follow_ups import follow_up, read_hooks
from django_txtasks.database.execute import as_uuid, execute, fetch, fetch_column, is_uuid
from django_txtasks.database.transactions import own_transaction
from django_txtasks.exceptions import BatchEnded, ClaimLost, NotInBatch
from django_txtasks.features.batches import statements
from django_txtasks.models import Outcome, Status

BATCHES_PER_LOOK = 500
HOOKS = ("on_finish", "on_success", "on_failure")
FIRST_ID = uuid.UUID(int=0)
SUCCEEDED = (Outcome.SUCCEEDED.value,)
FAILED = (Outcome.CANCELLED.value, Outcome.DISCARDED.value, Outcome.EXPIRED.value)
"""Outcomes that count as failures. A dead member is a failure, too."""


class Looked(NamedTuple):
    """The result of a look at a batch.

    Attributes:
        member: a live member; None = the batch has ended.
        follow_ups: the tasks that the end of the batch has enqueued.
    """

    member: uuid.UUID | None
    follow_ups: FollowUps


def create(
    alias: str, batch: uuid.UUID, name: str, hooks: str, opener: Attempt | None = None
) -> FollowUps:
    """Write a batch, in the transaction that has written its members. Without a live member, it ends at once.

    Args:
        opener: the task that opens it; None = no task opens it.

    Returns:
        The tasks that the end of the batch has enqueued.
    """
    facts: dict[str, Any] = {"batch": batch, "name": name, "hooks": hooks}
    if opener is None:
        execute(alias, statements.INSERT_BATCH, **facts)
    else:
        parent = as_uuid(opener.batch) if is_uuid(opener.batch) else None
        execute(
            alias, statements.INSERT_OPENED_BATCH, opener=opener.task_id, parent=parent, **facts
        )
    return [] if live_member(alias, batch) else end(alias, batch)


def live_member(alias: str, batch: uuid.UUID) -> uuid.UUID | None:
    """Return the id of a member that waits, runs or is held; None = there is no such member."""
    found = fetch_column(alias, statements.LIVE_MEMBER, batch=batch)
    return None if found[0] is None else as_uuid(found[0])


def which_are_live(alias: str, ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, str]:
    """Return the states, by id, of the given tasks that wait, run or are held."""
    wanted = sorted(set(ids))
    found = fetch(alias, statements.ARE_LIVE, ids=wanted) if wanted else []
    return {as_uuid(task_id): status for task_id, status in found}


def look(alias: str, batch: uuid.UUID, *, own_session: bool = True) -> Looked:
    """Look for a live member of a batch, after the COMMIT that has ended one. If no member is live, end the batch.

    It opens its own transaction; in a test that runs in a transaction, it uses that.

    Args:
        own_session: whether this is a session of a worker or cleaner. On MariaDB, limits stay with the session.
    """
    connection = connections[alias]
    is_apart = not connection.in_atomic_block
    may_limit = is_apart and (own_session or connection.vendor != "mysql")
    limit = get_config().lease / 2 if may_limit else None
    with own_transaction(alias, limit=limit, in_order=True, read_committed=is_apart):
        member = live_member(alias, batch)
        return Looked(member, [] if member else end(alias, batch))


def end(alias: str, batch: uuid.UUID) -> FollowUps:
    """End a batch without a live member, in the open transaction, and enqueue its hooks once.

    Returns:
        The tasks that were enqueued; none if the batch has ended already.
    """
    for name, hooks in fetch(alias, statements.LOCK_BATCH, batch=batch):
        ((live, dead, failure),) = fetch(alias, statements.STATE_OF_BATCH, batch=batch)
        if live is not None:
            break
        failed = dead is not None or failure is not None
        specs = read_hooks(hooks)
        wanted = ("on_finish", "on_failure" if failed else "on_success")
        tasks = {
            hook: follow_up(specs[hook], args=_hook_data(hook, batch, name, failed=failed))
            for hook in wanted
            if hook in specs
        }
        ids = _text_of_ids({hook: task.task_id for hook, task in tasks.items()})
        if not execute(alias, statements.END_BATCH, batch=batch, failed=failed, ids=ids):
            break
        insert(connections[alias], list(tasks.values()))
        return [task.hint for task in tasks.values()]
    return []


def _text_of_ids(ids: Mapping[str, uuid.UUID]) -> str | None:
    return json.dumps({hook: str(one) for hook, one in ids.items()}) if ids else None


def hook_tasks_of(text: str | None) -> dict[str, uuid.UUID]:
    """Return the ids of the tasks that the end of a batch has enqueued, by hook, from the text in its row."""
    try:
        found = json.loads(text or "{}").items()
    except (ValueError, AttributeError, RecursionError):  # a row written by hand
        return {}
    return {hook: as_uuid(one) for hook, one in found if hook in HOOKS and is_uuid(one)}


def _hook_data(hook: str, batch: uuid.UUID, name: str, *, failed: bool) -> str:
    """Return the arguments of a hook: one object, the hook data."""
    data = {"event": hook[3:], "batch_id": str(batch), "name": name, "failed": failed}
    return payload.write([data])


def batches_of(alias: str, ids: Sequence[uuid.UUID]) -> list[Any]:
    """Return the batches that have some of these tasks as members."""
    return fetch_column(alias, statements.BATCHES_OF, ids=ids) if ids else []


def readable(batches: Iterable[Any]) -> set[uuid.UUID]:
    """Return the ids from the database that are valid; rows written by hand may have others."""
    return {as_uuid(one) for one in batches if is_uuid(one)}


def without_live_member(alias: str, after: uuid.UUID) -> tuple[list[uuid.UUID], uuid.UUID | None]:
    """Return the ids of open batches without a live member, in the open transaction, page by page.

    Args:
        after: the last batch of the page before.

    Returns:
        Also the last batch of this page; None = there are no more.
    """
    page = fetch_column(alias, statements.OPEN_BATCHES, after=after, limit=BATCHES_PER_LOOK)
    # in the database's order, because MariaDB sorts ids differently
    ids = [as_uuid(one) for one in page if is_uuid(one)]
    if not ids:
        return [], None
    over = fetch_column(alias, statements.WITHOUT_LIVE_MEMBER, ids=ids)
    last = ids[-1] if len(page) == BATCHES_PER_LOOK else None
    return sorted(as_uuid(one) for one in over), last


def sweep(alias: str) -> FollowUps:
    """End all batches without a live member; return the tasks that were enqueued."""
    follow_ups: FollowUps = []
    after: uuid.UUID | None = FIRST_ID
    while after is not None:
        over, after = without_live_member(alias, after)
        for batch in over:
            follow_ups += look(alias, batch).follow_ups
    return follow_ups


def forget(alias: str, seconds: float) -> int:
    """Delete some batches that ended more than ``seconds`` ago, in the open transaction; return their number."""
    found = fetch_column(alias, statements.OLD_BATCHES, age=seconds, limit=BATCHES_PER_LOOK)
    ids = sorted(readable(found))
    return execute(alias, statements.FORGET_BATCHES, ids=ids) if ids else 0


def batch_of_member(alias: str, attempt: Attempt) -> tuple[uuid.UUID, str]:
    """Lock the row of an attempt until the open transaction ends; return the id and the name of its batch.

    While it is locked, the batch cannot end.

    Raises:
        ClaimLost: the attempt no longer holds its row.
        NotInBatch: its task is in no batch.
        BatchEnded: the task was revived after the end of its batch.
    """
    task_id, number, worker = attempt.fence
    rows = fetch(alias, statements.LOCK_MEMBER, id=task_id, attempt=number, worker=worker)
    if not rows:
        raise ClaimLost(f"attempt {number} of task {task_id} no longer holds its row")
    if rows[0][0] is None:
        raise NotInBatch(
            f"Task {task_id} ({attempt.task_name}) is in no batch. Enqueue it inside `with batch():`, or leave "
            "out ctx.batch()."
        )
    batch = as_uuid(rows[0][0])
    names = fetch_column(alias, statements.BATCH_IS_OPEN, batch=batch)
    if not names:
        raise BatchEnded(
            f"Task {task_id} ({attempt.task_name}) was revived after the end of its batch {batch}, which takes no "
            "more members. Open a batch of its own: `with batch():`."
        )
    return batch, names[0]


def counts(alias: str, batch: uuid.UUID, most: int) -> Counter[str]:
    """Count the members of a batch by ``waiting``, ``running``, ``succeeded`` and ``failed``.

    Args:
        most: largest number of rows to count in each of four groups: waiting, running, succeeded and failed.
    """
    found: Counter[str] = Counter()
    for state, count in fetch(alias, statements.COUNTS_OF_BATCH, batch=batch, limit=most):
        found[_KIND.get(state, state)] += count
    return found


_KIND = {
    Status.PENDING.value: "waiting",
    Status.HELD.value: "waiting",
    Status.CLAIMED.value: "running",
    Status.DEAD.value: "failed",
}
