"""Tracers surround each enqueueing, and send headers along with the tasks."""

from __future__ import annotations

from collections.abc import Sequence

from django_txtasks.core.enqueueing.calls import Call, changed
from django_txtasks.core.enqueueing.handles import CoreHandle
from django_txtasks.core.enqueueing.parts import Moment
from django_txtasks.features.traces import tracing
from django_txtasks.features.traces.tracing import TracedCall


class TracedCalls(Moment):
    """The tracers around one enqueueing."""

    def is_on(self) -> bool:
        return bool(tracing.tracers)

    def begin(self, calls: Sequence[Call]) -> tuple[Sequence[Call], TracedCall]:
        names = [(bound.defaults.task_name, bound.defaults.queue_name) for bound, *_ in calls]
        traced = TracedCall(names)
        return _with_headers(calls, traced.headers), traced

    def end(
        self, kept: TracedCall, handles: Sequence[CoreHandle], error: BaseException | None
    ) -> None:
        kept.end(handles, error)


def _with_headers(calls: Sequence[Call], headers: str | None) -> Sequence[Call]:
    """Return these calls with the headers of tracers, beside the headers that a call has already."""
    if headers is None:
        return calls
    if all(bound.defaults.headers is None for bound, *_ in calls):
        return changed(calls, headers=headers)
    return [
        one
        for call in calls
        for one in changed([call], headers=_joined(call[0].defaults.headers, headers))
    ]


def _joined(own: str | None, headers: str) -> str:
    return headers if own is None else f"{own[:-1]},{headers[1:]}"


PARTS = (TracedCalls(),)
