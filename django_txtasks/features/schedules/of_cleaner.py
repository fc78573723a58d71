"""Reports on schedules."""

from __future__ import annotations

from collections.abc import Iterable

from django_txtasks.cleaner.parts import Place, StepContext
from django_txtasks.cleaner.passes import Step
from django_txtasks.cleaner.schedule_reports import ScheduleReports


def steps(context: StepContext) -> Iterable[tuple[Place, Step]]:
    """Return the steps that report late daily tasks, and schedules that differ from the code."""
    reports = ScheduleReports(context.alias, emit=context.emit, clock=context.clock)
    return [(Place.SOON, reports.tell_of_unready), (Place.SOON, reports.tell_of_differences)]
