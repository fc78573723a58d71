"""The tracer for OpenTelemetry. It uses the API alone: without an SDK in the project, it records nothing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from django.db import transaction
from opentelemetry import context, metrics, propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

from django_txtasks.contrib.otel import names
from django_txtasks.exceptions import class_path
from django_txtasks.features.traces.tracing import Enqueueing, Headers, Run

_OF_ENQUEUEING: dict[str, Any] = {
    names.SYSTEM: names.DJANGO_TXTASKS,
    names.OPERATION_NAME: names.ENQUEUE,
    names.OPERATION_TYPE: names.SEND,
}
_OF_RUN: dict[str, Any] = {
    names.SYSTEM: names.DJANGO_TXTASKS,
    names.OPERATION_NAME: names.PROCESS,
    names.OPERATION_TYPE: names.PROCESS,
}


class OpenTelemetryTracer:
    """Spans ``send {queue}`` and ``process {queue}``, and counters of sent and consumed tasks."""

    name = "opentelemetry"

    def __init__(self, *, is_child: bool) -> None:
        self._is_child = is_child
        self._tracer = trace.get_tracer("django_txtasks")
        meter = metrics.get_meter("django_txtasks")
        self._sent = meter.create_counter(
            names.SENT, unit="{message}", description="Tasks that were enqueued and committed."
        )
        self._consumed = meter.create_counter(
            names.CONSUMED, unit="{message}", description="Attempts that have begun."
        )
        self._duration = meter.create_histogram(
            names.DURATION, unit="s", description="Duration of an attempt."
        )

    @contextmanager
    def enqueueing(self, call: Enqueueing) -> Iterator[Headers]:
        """Record the span ``send {queue}``. All tasks of the call have it as their creation context."""
        queues = {queue for _, queue in call.tasks}
        queue = queues.pop() if len(queues) == 1 else ""
        attributes = dict(_OF_ENQUEUEING)
        if queue:
            attributes[names.QUEUE] = queue
        if len(call.tasks) == 1:
            attributes[names.TASK] = call.tasks[0][0]
        else:
            attributes[names.COUNT] = len(call.tasks)
        title = f"{names.SEND} {queue}".rstrip()
        with self._tracer.start_as_current_span(
            title, kind=SpanKind.PRODUCER, attributes=attributes
        ) as span:
            yield _headers(span)
            if call.error is not None:
                _fail(span, class_path(type(call.error)))
            elif len(call.tasks) == 1 and call.handles:
                span.set_attribute(names.MESSAGE_ID, str(call.handles[0].id))
        if call.error is None:
            self._count(call)

    def _count(self, call: Enqueueing) -> None:
        """Count the tasks when their transaction commits: a task that was rolled back was never sent."""
        for (alias, queue), count in Counter(
            (one.using, one.queue_name) for one in call.handles
        ).items():
            attributes = {**_OF_ENQUEUEING, names.QUEUE: queue}
            transaction.on_commit(
                partial(self._sent.add, count, attributes), using=alias, robust=True
            )

    @contextmanager
    def running(self, run: Run, headers: Headers) -> Iterator[Headers]:
        """Record the span ``process {queue}``, with a link to the creation context, or as its child."""
        of_queue = {**_OF_RUN, names.QUEUE: run.queue_name}
        self._consumed.add(1, of_queue)
        began = time.perf_counter()
        attributes = {
            **of_queue,
            names.MESSAGE_ID: str(run.task_id),
            names.TASK: run.task_name,
            names.ATTEMPT: run.number,
        }
        around, links = self._parent(headers)
        token = context.attach(around)
        with self._tracer.start_as_current_span(
            f"{names.PROCESS} {run.queue_name}",
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=links,
        ) as span:
            yield _headers(span)
            span.set_attribute(names.OUTCOME, run.outcome or "given back")
            if run.error:
                _note_error(span, run.error)
        context.detach(token)
        if run.error:
            of_queue[names.ERROR_TYPE] = _error_type(run.error["class"])
        self._duration.record(time.perf_counter() - began, of_queue)

    def _parent(self, headers: Headers) -> tuple[Context, list[Link]]:
        """Return the context in which the span of an attempt begins, and its links.

        The baggage of the enqueueing comes along in both cases.
        """
        created = propagate.extract(headers, Context())
        if self._is_child:
            return created, []
        creator = trace.get_current_span(created).get_span_context()
        alone = trace.set_span_in_context(trace.INVALID_SPAN, created)
        return alone, [Link(creator)] if creator.is_valid else []

    def tick(self, schedule: Any) -> Headers:
        """Send nothing along: the attempt begins a trace of its own."""
        return {}


def _headers(span: Span) -> Headers:
    headers: dict[str, str] = {}
    if span.is_recording():
        propagate.inject(headers)
    return headers


def _note_error(span: Span, error: Mapping[str, Any]) -> None:
    """Note the error as the row keeps it: the traceback has no values of variables."""
    text = {
        names.EXCEPTION_TYPE: _error_type(error["class"]),
        names.EXCEPTION_MESSAGE: error["message"],
        names.EXCEPTION_STACKTRACE: error["traceback"],
    }
    span.add_event(names.EXCEPTION, text)
    _fail(span, error["class"])


def _fail(span: Span, path: str) -> None:
    span.set_attribute(names.ERROR_TYPE, _error_type(path))
    span.set_status(Status(StatusCode.ERROR))


def _error_type(path: str) -> str:
    """Return the path of a class as OpenTelemetry names it, such as ``ValueError``."""
    return path.removeprefix("builtins.")
