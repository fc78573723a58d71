"""The worker looks for tasks that were asked to stop, and for questions where its tasks are."""

from __future__ import annotations

from collections.abc import Iterable

from django_txtasks.worker.looks.cancelling import CancelLook
from django_txtasks.worker.parts import Part, WorkerContext


def parts(context: WorkerContext) -> Iterable[Part]:
    """Return the part for one worker. One statement reads both."""
    return [CancelLook(context.alias, context.registration, context.requests)]
