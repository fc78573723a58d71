"""Tracers surround each attempt."""

from __future__ import annotations

from collections.abc import Iterable

from django_txtasks.core.rows.attempts import Arrow, Ended
from django_txtasks.core.rows.running import AttemptRun
from django_txtasks.core.working.parts import Part, WorkerContext
from django_txtasks.features.traces import tracing


class Traces(Part):
    """Lets the tracers surround attempts. The tasks that the end of an attempt enqueues get their headers."""

    def begin(self, run: AttemptRun) -> None:
        """Enter the tracers."""
        if tracing.tracers and (traced := tracing.begin(run.attempt)) is not None:
            run.attempt = run.attempt._replace(headers=traced.headers)
            run.keep(self, traced)

    def end(self, run: AttemptRun, ended: Ended | None) -> None:
        """Tell the tracers the outcome, and leave them."""
        if run.kept is None:
            return
        traced: tracing.TracedRun | None = run.kept.pop(self, None)
        if traced is None:
            return
        if ended is None:
            traced.end("", {})
        else:
            traced.end(ended.arrow.value, {} if ended.arrow is Arrow.FINISH else ended.error)


def parts(context: WorkerContext) -> Iterable[Part]:
    """Return the part for one worker."""
    return [Traces()]
