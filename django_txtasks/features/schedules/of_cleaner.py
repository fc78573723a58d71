"""Ticks of schedules, and reports on schedules."""

from __future__ import annotations

from collections.abc import Iterable

from django_txtasks.conf import Config
from django_txtasks.core.cleaning.parts import Beside, Place, StepContext
from django_txtasks.core.cleaning.passes import Step
from django_txtasks.features.schedules.reports import ScheduleReports
from django_txtasks.features.schedules.ticker import Ticker


def steps(context: StepContext) -> Iterable[tuple[Place, Step] | Beside]:
    """Return what writes ticks, and the steps that report late daily tasks and schedules unlike the code's."""
    reports = ScheduleReports(context.alias, emit=context.emit, clock=context.clock)
    ticker = Ticker(
        context.config.of(Config),
        context.alias,
        notify=context.notify,
        emit=context.emit,
        clock=context.clock,
    )
    return [
        ticker,
        (Place.SOON, reports.tell_of_unready),
        (Place.SOON, reports.tell_of_differences),
    ]
