"""The worker looks at batches of which it has ended members."""

from __future__ import annotations

from collections.abc import Iterable

from django_txtasks.core.working.parts import Part, WorkerContext
from django_txtasks.features.batches.look import BatchLook


def parts(context: WorkerContext) -> Iterable[Part]:
    """Return the part for one worker."""
    return [BatchLook(context.alias)]
