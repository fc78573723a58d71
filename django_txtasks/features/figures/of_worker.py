"""The worker counts the attempts that end, and appends the counts as rows."""

from __future__ import annotations

from collections.abc import Iterable

from django_txtasks.core.working.parts import Part, WorkerContext
from django_txtasks.features.figures.options import FigureConfig
from django_txtasks.features.figures.writer import FigureWriter


def parts(context: WorkerContext) -> Iterable[Part]:
    """Return the part for one worker, unless figures are off."""
    config = context.config.of(FigureConfig)
    return (
        [FigureWriter(context.alias, context.registration, config.lease / 2)]
        if config.stats
        else []
    )
