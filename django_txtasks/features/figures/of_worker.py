"""The worker counts the attempts that end, and appends the counts as rows."""

from __future__ import annotations

from collections.abc import Iterable

from django_txtasks.worker.looks.figures import FigureWriter
from django_txtasks.worker.parts import Part, WorkerContext


def parts(context: WorkerContext) -> Iterable[Part]:
    """Return the part for one worker, unless figures are off."""
    config = context.config
    return (
        [FigureWriter(context.alias, context.registration, config.lease / 2)]
        if config.stats
        else []
    )
