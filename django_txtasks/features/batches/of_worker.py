"""The worker looks at batches of which it has ended members."""

from __future__ import annotations

from collections.abc import Iterable

from django_txtasks.worker.looks.batch_look import BatchLook
from django_txtasks.worker.parts import Part, WorkerContext


def parts(context: WorkerContext) -> Iterable[Part]:
    """Return the part for one worker."""
    return [BatchLook(context.alias)]
