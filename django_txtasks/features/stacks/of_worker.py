"""The worker looks for tasks that were asked to stop, and for questions where its tasks are."""

from __future__ import annotations

from collections.abc import Iterable

from django_txtasks.core.working.parts import Part, WorkerContext
from django_txtasks.features.results.cancel_look import CancelLook


def parts(context: WorkerContext) -> Iterable[Part]:
    """Return the part for one worker. One statement reads both."""
    return [CancelLook(context.alias, context.registration, context.requests)]
