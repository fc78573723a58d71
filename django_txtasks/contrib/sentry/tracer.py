"""The tracer for Sentry."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import sentry_sdk

from django_txtasks.contrib.sentry.monitors import check_in, monitor_of
from django_txtasks.features.traces.tracing import Enqueueing, Headers, Run

PUBLISH, PROCESS = "queue.publish", "queue.process"
OF_DJANGO = "queue.submit.django"
"""The span that Sentry itself makes around ``enqueue`` of Django's Tasks."""
ORIGIN = "auto.queue.django_txtasks"
MESSAGE_ID = "messaging.message.id"
QUEUE = "messaging.destination.name"
SYSTEM = "messaging.system"
RETRIES = "messaging.message.retry.count"
LATENCY = "messaging.message.receive.latency"
MONITOR = "monitor"


class SentryTracer:
    """Spans ``queue.publish`` of enqueueings, transactions ``queue.process`` of attempts, and check-ins."""

    name = "sentry"

    def __init__(self, *, checks_in: bool) -> None:
        self._checks_in = checks_in

    @contextmanager
    def enqueueing(self, call: Enqueueing) -> Iterator[Headers]:
        """Record a span inside a transaction, and send the trace along in any case."""
        if not _is_on():
            yield {}
            return
        with _span_of(call) as span:
            yield _headers()
            if span is not None:
                queues = {queue for _, queue in call.tasks}
                span.set_data(SYSTEM, "django_txtasks")
                span.set_data(QUEUE, ", ".join(sorted(queues)))
                if len(call.handles) == 1:
                    span.set_data(MESSAGE_ID, str(call.handles[0].id))
                if call.error is not None:
                    span.set_status("internal_error")

    @contextmanager
    def running(self, run: Run, headers: Headers) -> Iterator[Headers]:
        """Record a transaction, which continues the trace of the enqueueing, and check in.

        The attempt's context has a scope of its own already, and keeps it for the log records about its end.
        """
        if not _is_on():
            yield {}
            return
        began = time.monotonic()
        monitor = headers.get(MONITOR) if self._checks_in else None
        transaction = sentry_sdk.continue_trace(
            {name: value for name, value in headers.items() if name != MONITOR},
            op=PROCESS,
            name=run.task_name,
            source="task",
            origin=ORIGIN,
        )
        with sentry_sdk.start_transaction(transaction):
            transaction.set_data(SYSTEM, "django_txtasks")
            transaction.set_data(MESSAGE_ID, str(run.task_id))
            transaction.set_data(QUEUE, run.queue_name)
            transaction.set_data(RETRIES, run.number - 1)
            transaction.set_data(LATENCY, round(run.waited * 1000, 3))
            if monitor is not None:
                check_in(monitor, run)
            yield _headers()
            transaction.set_data("txtasks.outcome", run.outcome or "given back")
            transaction.set_status("internal_error" if run.error else "ok")
        if monitor is not None:
            check_in(monitor, run, time.monotonic() - began)

    def tick(self, schedule: Any) -> Headers:
        """Send the monitor of the schedule along, so that the worker's check-ins need no query."""
        monitor = monitor_of(schedule) if self._checks_in and _is_on() else None
        return {} if monitor is None else {MONITOR: monitor}


def _is_on() -> bool:
    return sentry_sdk.get_client().is_active()


def _span_of(call: Enqueueing) -> AbstractContextManager[Any]:
    """Return a span of this call: Sentry's own if there is one, none outside a transaction."""
    present = sentry_sdk.get_current_span()
    if present is None:
        return nullcontext()
    if present.op == OF_DJANGO:
        return nullcontext(present)
    names = {name for name, _ in call.tasks}
    return sentry_sdk.start_span(
        op=PUBLISH, name=names.pop() if len(names) == 1 else "tasks", origin=ORIGIN
    )


def _headers() -> Headers:
    headers = {"sentry-trace": sentry_sdk.get_traceparent(), "baggage": sentry_sdk.get_baggage()}
    return {name: value for name, value in headers.items() if value}
