"""The figures of workers are added up."""

from __future__ import annotations

from collections.abc import Iterable

from django_txtasks.core.cleaning.parts import Place, StepContext
from django_txtasks.core.cleaning.passes import Step
from django_txtasks.features.figures.cleaning import Figures
from django_txtasks.features.figures.options import FigureConfig


def steps(context: StepContext) -> Iterable[tuple[Place, Step]]:
    """Return the step that adds up. If the database ends its session, no other step is left out."""
    figures = Figures(
        context.config.of(FigureConfig), context.alias, emit=context.emit, clock=context.clock
    )
    return [(Place.LAST, figures.add_up)]
