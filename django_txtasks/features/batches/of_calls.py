"""Tasks that are enqueued while a batch is open become members of the batch."""

from __future__ import annotations

from collections.abc import Sequence

from django_txtasks.core.enqueueing import parts
from django_txtasks.core.enqueueing.calls import Call, changed
from django_txtasks.core.enqueueing.parts import Moment
from django_txtasks.features.batches import open as open_batches


class InOpenBatch(Moment):
    """Adds tasks to the batch that this thread has open."""

    def is_on(self) -> bool:
        return open_batches.is_any()

    def begin(self, calls: Sequence[Call]) -> tuple[Sequence[Call], None]:
        """Return these calls as members of the open batch, or unchanged without an open batch.

        Raises:
            InvalidOption: the open batch is in another database, or a queue is handed over.
        """
        batches = {alias: open_batches.batch_at(alias) for alias in {one[0].alias for one in calls}}
        # An open batch refuses tasks of other databases, so all calls are of its database.
        batch = next(iter(batches.values()), None)
        if batch is None:
            return calls, None
        members = changed(calls, batch=batch.hex)
        for bound, *_ in members:
            parts.check(bound)
        return members, None


PARTS = (InOpenBatch(),)
