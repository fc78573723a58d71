"""``batch()``: tasks that are enqueued together, and hooks that are enqueued after the last of them has ended."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from asgiref.sync import sync_to_async
from django.db import transaction

from django_txtasks.conf import get_config
from django_txtasks.core.declaring.hooks import spec_of_hook
from django_txtasks.core.declaring.registry import text_of_hooks
from django_txtasks.core.enqueueing import warn_if_apart
from django_txtasks.core.enqueueing.commit_hints import notify_on_commit
from django_txtasks.core.enqueueing.handles import Enqueueable
from django_txtasks.core.rows.attempts import Attempt
from django_txtasks.core.rows.enqueueing import new_id
from django_txtasks.exceptions import InvalidArguments, InvalidDeclaration, InvalidOption
from django_txtasks.features.batches import open as open_batches

MOST_COUNTED = 10_000
"""Number up to which ``status()`` counts the members of each kind."""
LONGEST_NAME = 200


@dataclass(frozen=True)
class BatchStatus:
    """Status of a batch. Counting stops at 10,000: that number means 10,000 or more.

    Attributes:
        waiting: number of members that are pending or held.
        running: number of members that a worker has claimed.
        succeeded: number of succeeded members whose finished rows are still kept, without members that were merged
            into another task; None: no history is kept.
        failed: number of members that are dead, expired, cancelled or discarded.
        finished_at: time at which the end of the batch was noticed, by the database's clock; None: not ended.
        has_failed: True if a member had failed by then; None: not ended.
    """

    waiting: int
    running: int
    succeeded: int | None
    failed: int
    finished_at: datetime | None
    has_failed: bool | None


@dataclass(frozen=True, slots=True)
class BatchHandle:
    """A reference to a batch, which is in the table once the transaction has committed."""

    id: uuid.UUID
    name: str
    using: str

    def status(self) -> BatchStatus:
        """Count the members, as this connection sees them now.

        Raises:
            LookupError: no such batch: it was rolled back, or it ended and is not kept any longer.
        """
        from django_txtasks.features.batches import rows as batches
        from django_txtasks.models import Batch

        rows = Batch.objects.using(self.using).filter(pk=self.id)
        for finished_at, failed in rows.values_list("finished_at", "failed"):
            counts = batches.counts(self.using, self.id, MOST_COUNTED)
            keeps = get_config().keeps("succeeded")
            return BatchStatus(
                waiting=min(counts["waiting"], MOST_COUNTED),
                running=min(counts["running"], MOST_COUNTED),
                succeeded=min(counts["succeeded"], MOST_COUNTED) if keeps else None,
                failed=min(counts["failed"], MOST_COUNTED),
                finished_at=finished_at,
                has_failed=failed,
            )
        raise LookupError(
            f"There is no batch {self.id} in the database {self.using!r}: its transaction has not committed, or "
            "has rolled back, or it ended longer ago than it is kept."
        )

    async def astatus(self) -> BatchStatus:
        """Like ``status``, from async code."""
        return await sync_to_async(self.status, thread_sensitive=True)()


def get_batch(batch_id: uuid.UUID | str, *, using: str = "default") -> BatchHandle:
    """Return the handle of a batch by its id, for example in another process.

    Args:
        batch_id: the id of a ``BatchHandle``, or the batch_id of the data that the hooks get.
        using: alias of the database that has the batch.

    Raises:
        InvalidArguments: not an id.
        LookupError: no such batch.
    """
    from django_txtasks.models import Batch

    try:
        wanted = batch_id if isinstance(batch_id, uuid.UUID) else uuid.UUID(batch_id)
    except (ValueError, AttributeError, TypeError):
        raise InvalidArguments(
            f"get_batch() got {batch_id!r}; pass the id of a BatchHandle, or the batch_id of its hook's data."
        ) from None
    for name in Batch.objects.using(using).filter(pk=wanted).values_list("name", flat=True):
        return BatchHandle(wanted, name, using)
    raise LookupError(
        f"There is no batch {wanted} in the database {using!r}: it was rolled back, or ended longer ago than it "
        "is kept."
    )


async def aget_batch(batch_id: uuid.UUID | str, *, using: str = "default") -> BatchHandle:
    """Like ``get_batch``, from async code."""
    return await sync_to_async(get_batch, thread_sensitive=True)(batch_id, using=using)


@contextmanager
def batch(
    *,
    name: str = "",
    on_finish: Enqueueable[...] | None = None,
    on_success: Enqueueable[...] | None = None,
    on_failure: Enqueueable[...] | None = None,
    using: str = "default",
) -> Iterator[BatchHandle]:
    """Make the tasks that are enqueued in the block members of a batch, and enqueue hooks when the batch ends.

    The block is a transaction, or a savepoint of the open one. If the block raises, neither the batch nor a member
    is written. The batch ends when no member is pending, claimed or held. A batch without members ends with the
    block.

    Args:
        name: shown to people and passed to the hooks: printable text of at most 200 characters.
        on_finish: a task function that is enqueued when the batch has ended.
        on_success: a task function that is enqueued when the batch has ended and all members have succeeded.
        on_failure: a task function that is enqueued when the batch has ended and a member is dead, expired,
            cancelled or discarded.
        using: alias of the database whose transaction the batch belongs to.

    Raises:
        InvalidOption: before any SQL: an invalid hook, a name that cannot be stored, or another batch is open.
    """
    from django_txtasks.features.batches import rows as batches

    open_batches.refuse_second()
    hooks = _hooks(on_finish=on_finish, on_success=on_success, on_failure=on_failure)
    _check_name(name)
    warn_if_apart(using)
    handle = BatchHandle(new_id(), name, using)
    with transaction.atomic(using=using):
        with open_batches.opened(using, handle.id):
            yield handle
        opener = open_batches.opener_at(using)
        notify_on_commit(using, batches.create(using, handle.id, name, hooks, opener))


@contextmanager
def of_member(alias: str, attempt: Attempt) -> Iterator[BatchHandle]:
    """Make the tasks that are enqueued in the block members of a task's batch; see ``TaskContext.batch``."""
    from django_txtasks.features.batches import rows as batches

    open_batches.refuse_second()
    with transaction.atomic(using=alias):
        batch_id, name = batches.batch_of_member(alias, attempt)
        with open_batches.opened(alias, batch_id):
            yield BatchHandle(batch_id, name, alias)


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or len(name) > LONGEST_NAME or not name.isprintable():
        raise InvalidOption(
            f"A batch has name={name!r}; use printable text of at most {LONGEST_NAME} characters."
        )


def _hooks(**asked: Any) -> str:
    """Return hooks as the JSON text of a row."""
    specs: dict[str, Any] = {}
    for option, hook in asked.items():
        if hook is None:
            continue
        if getattr(hook, "gets_result", False):
            raise InvalidOption(
                f"A batch has {option}={hook.declaration.name}.with_result(), but a batch has no result: its hook "
                "gets hook data. Name the function alone."
            )
        try:
            specs[option] = spec_of_hook("A batch", option, hook)
        except InvalidDeclaration as error:
            raise InvalidOption(str(error)) from None
    return text_of_hooks(specs)
