"""The worker writes the progress of its tasks into its own row."""

from __future__ import annotations

from collections.abc import Iterable

from django_txtasks.core.rows.attempts import Ended
from django_txtasks.core.rows.running import AttemptRun
from django_txtasks.core.working.parts import Part, WorkerContext
from django_txtasks.features.progress.notes import ProgressNotes
from django_txtasks.features.progress.writer import ProgressWriter


class ProgressOfTasks(Part):
    """Writes the progress, and forgets that of ended attempts."""

    def __init__(self, context: WorkerContext) -> None:
        self.notes = ProgressNotes()
        self.offers = {ProgressNotes: self.notes}
        self.looks = (ProgressWriter(context.alias, context.registration, self.notes),)

    def end(self, run: AttemptRun, ended: Ended | None) -> None:
        """Forget the progress of an attempt."""
        if run.attempt.task_id in self.notes.of_tasks:
            self.notes.forget(run.attempt.task_id)


def parts(context: WorkerContext) -> Iterable[Part]:
    """Return the part for one worker."""
    return [ProgressOfTasks(context)]
