"""Batches: tasks whose common end enqueues something. Nothing is counted; no member writes the batch's row.

A batch and its first members are written in one transaction, so whoever sees it sees them. Whoever has ended a
member looks after his COMMIT whether a live one is left; if not, he locks the batch, looks again, and ends it.
Where he dies before he has looked, a cleaner looks.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import DatabaseError, InterfaceError, connections, transaction

from django_txtasks.conf import get_config
from django_txtasks.database.execute import as_uuid, execute, fetch, fetch_column, is_uuid
from django_txtasks.database.transactions import own_transaction
from django_txtasks.exceptions import BatchEnded, ClaimLost, NotInBatch
from django_txtasks.lifecycle import batch_statements as statements
from django_txtasks.lifecycle.attempts import Attempt, FollowUps
from django_txtasks.lifecycle.enqueueing import insert
from django_txtasks.lifecycle.follow_ups import follow_up, read_hooks
from django_txtasks.lifecycle.open_batches import Opener
from django_txtasks.models import Outcome, Status
from django_txtasks.rules import payload

BATCHES_PER_LOOK = 500
HOOKS = ("on_finish", "on_success", "on_failure")
FIRST_ID = uuid.UUID(int=0)
SUCCEEDED = (Outcome.SUCCEEDED.value,)
FAILED = (Outcome.CANCELLED.value, Outcome.DISCARDED.value, Outcome.EXPIRED.value)
"""Ends that count as failures, as does a member that is dead."""
tell_workers: Callable[[str, FollowUps], None] | None = None
"""Sends hints of tasks that a look after a COMMIT has enqueued; ``apps`` sets it to ``notify_on_commit``."""


@dataclass(frozen=True)
class Looked:
    """The result of a look at a batch.

    Attributes:
        member: one that is live; None = there is none, and the batch has ended.
        follow_ups: the tasks that its end has enqueued.
    """

    member: uuid.UUID | None
    follow_ups: FollowUps


def create(
    alias: str, batch: uuid.UUID, name: str, hooks: str, opener: Opener | None = None
) -> FollowUps:
    """Write a batch, in the transaction that has written its members; without a live one it ends at once.

    Args:
        opener: the task that opens it; None = no task does.

    Returns:
        The tasks that its end has enqueued.
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
    """Return the id of a member that waits, runs, or is held; None = there is none."""
    found = fetch_column(alias, statements.LIVE_MEMBER, batch=batch)
    return None if found[0] is None else as_uuid(found[0])


def which_are_live(alias: str, ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, str]:
    """Return the states of those of these tasks that wait, run, or are held."""
    wanted = sorted(set(ids))
    found = fetch(alias, statements.ARE_LIVE, ids=wanted) if wanted else []
    return {as_uuid(task_id): status for task_id, status in found}


def look(alias: str, batch: uuid.UUID, *, own_session: bool = True) -> Looked:
    """Look whether a batch has a live member, after the COMMIT that has ended one; if not, end it.

    In a transaction of its own; in a test that runs in one, in that.

    Args:
        own_session: it is a worker's or a cleaner's; on MariaDB limits stay with a session.
    """
    connection = connections[alias]
    is_apart = not connection.in_atomic_block
    may_limit = is_apart and (own_session or connection.vendor != "mysql")
    limit = get_config().lease / 2 if may_limit else None
    with own_transaction(alias, limit=limit, in_order=True, read_committed=is_apart):
        member = live_member(alias, batch)
        return Looked(member, [] if member else end(alias, batch))


def end(alias: str, batch: uuid.UUID) -> FollowUps:
    """End a batch that has no live member, in the open transaction, and enqueue what it asks for, once.

    Returns:
        The tasks that were enqueued; none if it has ended already.
    """
    for name, hooks in fetch(alias, statements.LOCK_BATCH, batch=batch):
        ((live, dead, failure),) = fetch(alias, statements.STATE_OF_BATCH, batch=batch)
        if live is not None:
            break
        failed = dead is not None or failure is not None
        specs = read_hooks(hooks)
        wanted = ("on_finish", "on_failure" if failed else "on_success")
        tasks = {
            hook: follow_up(specs[hook], args=_event(hook, batch, name, failed=failed))
            for hook in wanted
            if hook in specs
        }
        ids = _text_of_ids({hook: task.task_id for hook, task in tasks.items()})
        if not execute(alias, statements.END_BATCH, batch=batch, failed=failed, ids=ids):
            break
        insert(connections[alias], list(tasks.values()))
        return [(task.task_id, task.defaults.queue_name) for task in tasks.values()]
    return []


def _text_of_ids(ids: Mapping[str, uuid.UUID]) -> str | None:
    return json.dumps({hook: str(one) for hook, one in ids.items()}) if ids else None


def hook_tasks_of(text: str | None) -> dict[str, uuid.UUID]:
    """Return the ids of the tasks that the end of a batch has enqueued, by hook, as its row has them."""
    try:
        found = json.loads(text or "{}").items()
    except (ValueError, AttributeError, RecursionError):  # somebody has written something else
        return {}
    return {hook: as_uuid(one) for hook, one in found if hook in HOOKS and is_uuid(one)}


def _event(hook: str, batch: uuid.UUID, name: str, *, failed: bool) -> str:
    """Return the arguments of a hook: one object that says what happened."""
    event = {"event": hook[3:], "batch_id": str(batch), "name": name, "failed": failed}
    return payload.write([event])


def batches_of(alias: str, ids: Sequence[uuid.UUID]) -> list[Any]:
    """Return the batches of which some of these tasks are members."""
    return fetch_column(alias, statements.BATCHES_OF, ids=ids) if ids else []


def look_on_commit(alias: str, batches: Iterable[Any]) -> None:
    """Look at these batches when the open transaction has committed.

    Where a look fails, a cleaner looks.
    """
    ids = readable(batches)
    if ids:
        transaction.on_commit(partial(_look_at_all, alias, sorted(ids)), using=alias, robust=True)


def readable(batches: Iterable[Any]) -> set[uuid.UUID]:
    """Return ids as they came from the database, without what somebody has written by hand and is none."""
    return {as_uuid(one) for one in batches if is_uuid(one)}


def _look_at_all(alias: str, ids: Sequence[uuid.UUID]) -> None:
    for batch in ids if connections[alias].get_autocommit() else ():
        with contextlib.suppress(DatabaseError, InterfaceError):
            follow_ups = look(alias, batch, own_session=False).follow_ups
            if follow_ups and tell_workers is not None:
                tell_workers(alias, follow_ups)


def without_live_member(alias: str, after: uuid.UUID) -> tuple[list[uuid.UUID], uuid.UUID | None]:
    """Return those of the next open batches that have no live member, in the open transaction.

    Args:
        after: the last one that was looked at.

    Returns:
        Also the last one of these; None = there are no more.
    """
    page = fetch_column(alias, statements.OPEN_BATCHES, after=after, limit=BATCHES_PER_LOOK)
    # in the database's order: MariaDB has one of its own
    ids = [as_uuid(one) for one in page if is_uuid(one)]
    if not ids:
        return [], None
    over = fetch_column(alias, statements.WITHOUT_LIVE_MEMBER, ids=ids)
    last = ids[-1] if len(page) == BATCHES_PER_LOOK else None
    return sorted(as_uuid(one) for one in over), last


def sweep(alias: str) -> FollowUps:
    """End all batches that have no live member; return the tasks that were enqueued."""
    follow_ups: FollowUps = []
    after: uuid.UUID | None = FIRST_ID
    while after is not None:
        over, after = without_live_member(alias, after)
        for batch in over:
            follow_ups += look(alias, batch).follow_ups
    return follow_ups


def forget(alias: str, seconds: float) -> int:
    """Delete some of the batches that ended longer ago than that, in the open transaction; return how many."""
    found = fetch_column(alias, statements.OLD_BATCHES, age=seconds, limit=BATCHES_PER_LOOK)
    ids = sorted(readable(found))
    return execute(alias, statements.FORGET_BATCHES, ids=ids) if ids else 0


def batch_of_member(alias: str, attempt: Attempt) -> tuple[uuid.UUID, str]:
    """Lock the row of an attempt until the open transaction ends; return the id and the name of its batch.

    While it is locked, the batch cannot end.

    Raises:
        ClaimLost: it is not this attempt's any more.
        NotInBatch: its task is in none.
        BatchEnded: the task was revived after its end.
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
        most: look at so many live ones, and at so many that succeeded and that failed.
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
