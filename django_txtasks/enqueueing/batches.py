"""batch(): tasks that are enqueued together, and what is enqueued when the last of them has ended."""

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
from django_txtasks.declarations.hooks import spec_of_hook
from django_txtasks.declarations.registry import text_of_hooks
from django_txtasks.enqueueing import warn_if_apart
from django_txtasks.enqueueing.commit_hints import notify_on_commit
from django_txtasks.enqueueing.handles import Enqueueable
from django_txtasks.exceptions import InvalidArguments, InvalidDeclaration, InvalidOption
from django_txtasks.lifecycle import open_batches
from django_txtasks.lifecycle.attempts import Attempt
from django_txtasks.lifecycle.enqueueing import new_id

MOST_COUNTED = 10_000
"""Members of each kind that ``status()`` counts."""
LONGEST_NAME = 200


@dataclass(frozen=True)
class BatchStatus:
    """How things are in a batch. Numbers end at 10,000: more are as many or more.

    Attributes:
        waiting: members that wait, or are held by a person.
        running: members that a worker has.
        succeeded: those whose finished rows are still kept; None = no history is kept. One that was merged into
            another one by its unique key is not counted.
        failed: members that are dead, expired, cancelled or discarded.
        finished_at: when its end was seen, by the database's clock; None = it goes on.
        has_failed: whether a member had failed then; None = it goes on.
    """

    waiting: int
    running: int
    succeeded: int | None
    failed: int
    finished_at: datetime | None
    has_failed: bool | None


@dataclass(frozen=True, slots=True)
class BatchHandle:
    """A reference to a batch: it is in the table once the transaction commits."""

    id: uuid.UUID
    name: str
    using: str

    def status(self) -> BatchStatus:
        """Count its members, as this connection sees them now.

        Raises:
            LookupError: there is no such batch: it was rolled back, or ended longer ago than it is kept.
        """
        from django_txtasks.lifecycle import batches
        from django_txtasks.models import Batch

        rows = Batch.objects.using(self.using).filter(pk=self.id)
        for finished_at, failed in rows.values_list("finished_at", "failed"):
            counts = batches.counts(self.using, self.id, MOST_COUNTED)
            keeps = get_config().keeps_finished
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
    """Return the handle of a batch, in another process than that which made it.

    Args:
        batch_id: that of a ``BatchHandle``, or of the event that its hooks get.
        using: the database alias in which the batch is.

    Raises:
        InvalidArguments: that is no id.
        LookupError: there is no such batch.
    """
    from django_txtasks.models import Batch

    try:
        wanted = batch_id if isinstance(batch_id, uuid.UUID) else uuid.UUID(batch_id)
    except (ValueError, AttributeError, TypeError):
        raise InvalidArguments(
            f"get_batch() got {batch_id!r}; pass the id of a BatchHandle, or the batch_id of its hook's event."
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
    """Make what is enqueued inside the block members of a batch, whose end enqueues something.

    The block is a transaction, or a savepoint of the open one: if it raises, there is neither batch nor member.
    The batch ends when no member waits, runs or is held any more; one without members at the end of the block.

    Args:
        name: for people and for the hooks; printable text of at most 200 characters.
        on_finish: a task function, enqueued when the batch has ended.
        on_success: the same, if all members have succeeded.
        on_failure: the same, if one of them is dead, expired, cancelled or discarded.
        using: the database alias whose transaction the batch belongs to.

    Raises:
        InvalidOption: before any SQL: a hook that is none, a name that cannot be stored, or another batch is open.
    """
    from django_txtasks.lifecycle import batches

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
    """Make what is enqueued inside the block members of the batch of an attempt's task; see ``TaskContext``."""
    from django_txtasks.lifecycle import batches

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
                "gets an event. Name the function alone."
            )
        try:
            specs[option] = spec_of_hook("A batch", option, hook)
        except InvalidDeclaration as error:
            raise InvalidOption(str(error)) from None
    return text_of_hooks(specs)
