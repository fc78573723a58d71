"""Spans and metrics of OpenTelemetry, with its real SDK, and a trace that a real OTLP receiver gets."""

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import helpers
import pytest
from django.db import transaction
from probe import on_loop, tasks
from test_sessions_of_slots import run_one_after_the_other

from django_txtasks import enqueue_many
from django_txtasks.features.traces import tracing
from django_txtasks.models import FinishedTask, Task

sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="opentelemetry-sdk is not installed")
from opentelemetry import baggage, context, metrics, trace  # noqa: E402
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (  # noqa: E402
    ExportTraceServiceRequest,
)
from opentelemetry.sdk.metrics import MeterProvider  # noqa: E402
from opentelemetry.sdk.metrics.export import InMemoryMetricReader  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF  # noqa: E402
from opentelemetry.trace import SpanKind, StatusCode  # noqa: E402

from django_txtasks.contrib.otel.apps import OpenTelemetry, OpenTelemetryInOneTrace  # noqa: E402

pytestmark = [pytest.mark.usefixtures("rows", "quick"), pytest.mark.once]


class Spans:
    """The ended spans, by name."""

    def __init__(self, exporter):
        self._exporter = exporter

    def named(self, name):
        return [one for one in self._exporter.get_finished_spans() if one.name == name]

    def one(self, name):
        (found,) = self.named(name)
        return found

    @property
    def names(self):
        return [one.name for one in self._exporter.get_finished_spans()]


@pytest.fixture(scope="module")
def providers():
    """A process has one provider of each kind, once and for all."""
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([reader]))
    return exporter, reader


@pytest.fixture
def on(providers):
    """Turns the app on."""

    def turn_on(app=OpenTelemetry):
        app.ready(app)

    yield turn_on
    tracing.tracers.clear()


@pytest.fixture
def spans(providers, on):
    exporter, _ = providers
    exporter.clear()
    on()
    return Spans(exporter)


@pytest.fixture
def counted(providers):
    """The values of a metric since the start of the test, by its attributes."""
    _, reader = providers

    def read(name):
        data = reader.get_metrics_data()
        found = {}
        for one in [] if data is None else data.resource_metrics[0].scope_metrics[0].metrics:
            if one.name == name:
                for point in one.data.data_points:
                    key = tuple(sorted(point.attributes.items()))
                    found[key] = getattr(point, "value", None) or getattr(point, "count", 0)
        return found

    names = [f"messaging.{one}" for one in
             ("client.sent.messages", "client.consumed.messages", "process.duration")]  # fmt: skip
    before = {name: read(name) for name in names}

    def since(name):
        old = before[name]
        rose = {key: value - old.get(key, 0) for key, value in read(name).items()}
        return {key: value for key, value in rose.items() if value}

    return since


SYSTEM = {"messaging.system": "django_txtasks", "messaging.destination.name": "default"}
OF_SEND = {
    **SYSTEM,
    "messaging.operation.name": "enqueue",
    "messaging.operation.type": "send",
}
OF_PROCESS = {
    **SYSTEM,
    "messaging.operation.name": "process",
    "messaging.operation.type": "process",
}


def key(attributes):
    return tuple(sorted(attributes.items()))


def test_an_enqueueing_is_a_span_whose_context_the_row_keeps(spans):
    with trace.get_tracer("site").start_as_current_span("GET /orders"):
        handle = tasks.note.enqueue()
    sent, request = spans.one("send default"), spans.one("GET /orders")
    assert sent.kind is SpanKind.PRODUCER
    assert sent.parent.span_id == request.context.span_id
    assert dict(sent.attributes) == {
        **OF_SEND,
        "messaging.message.id": str(handle.id),
        "txtasks.task": "probe.tasks.note",
    }
    kept = Task.objects.get(pk=handle.id).headers["opentelemetry"]
    version, trace_id, span_id, _ = kept["traceparent"].split("-")
    assert (version, int(trace_id, 16)) == ("00", sent.context.trace_id)
    assert int(span_id, 16) == sent.context.span_id


def test_many_tasks_are_one_span_with_their_number(spans):
    enqueue_many([(tasks.note, ())] * 30)
    sent = spans.one("send default")
    assert dict(sent.attributes) == {**OF_SEND, "messaging.batch.message_count": 30}
    enqueue_many([(tasks.note, ()), (tasks.mail, ())])
    assert "messaging.destination.name" not in spans.one("send").attributes


@pytest.mark.parametrize(
    ("function", "kind"), [(tasks.note, "every"), (on_loop.nap, "loop")], ids=["thread", "loop"]
)
def test_an_attempt_is_a_span_of_its_own_trace_with_a_link(spans, function, kind):
    handle = function.enqueue()
    options = {"kind": kind, "async_tasks": 5} if kind == "loop" else {}
    with helpers.working(**options):
        helpers.wait_until(FinishedTask.objects.exists)
    sent, done = spans.one("send default"), spans.one("process default")
    assert done.kind is SpanKind.CONSUMER
    assert done.parent is None
    assert done.context.trace_id != sent.context.trace_id
    (link,) = done.links
    assert (link.context.trace_id, link.context.span_id) == (
        sent.context.trace_id, sent.context.span_id,
    )  # fmt: skip
    assert dict(done.attributes) == {
        **OF_PROCESS,
        "messaging.message.id": str(handle.id),
        "txtasks.task": function.declaration.name,
        "txtasks.attempt": 1,
        "txtasks.outcome": "finish",
    }
    assert done.status.status_code is StatusCode.UNSET


def test_an_attempt_may_be_a_child_instead(spans, on):
    on(OpenTelemetryInOneTrace)
    run_one_after_the_other((tasks.note, "a"))
    sent, done = spans.one("send default"), spans.one("process default")
    assert done.parent.span_id == sent.context.span_id
    assert done.context.trace_id == sent.context.trace_id
    assert not done.links


def test_a_failed_attempt_notes_its_error_as_the_row_does(spans, counted):
    run_one_after_the_other((tasks.told, "no", 1))
    helpers.wait_until(lambda: helpers.runs("success told"))
    first, second = [
        one for one in spans.named("process default") if one.attributes["txtasks.task"].endswith("told")
    ]  # fmt: skip
    assert (first.attributes["txtasks.outcome"], first.attributes["error.type"]) == (
        "retry", "ValueError",
    )  # fmt: skip
    assert first.status.status_code is StatusCode.ERROR
    (event,) = first.events
    assert event.name == "exception"
    assert event.attributes["exception.type"] == "ValueError"
    assert event.attributes["exception.message"] == "no"
    assert "raise ValueError(value)" in event.attributes["exception.stacktrace"]
    assert (second.attributes["txtasks.attempt"], "error.type" in second.attributes) == (2, False)
    assert first.links[0].context.span_id == second.links[0].context.span_id
    assert (
        counted("messaging.process.duration")[key({**OF_PROCESS, "error.type": "ValueError"})] == 1
    )


def test_spans_and_baggage_of_the_site_reach_the_task(spans):
    token = context.attach(baggage.set_baggage("customer", "7"))
    try:
        handle = tasks.note.enqueue()
    finally:
        context.detach(token)
    assert Task.objects.get(pk=handle.id).headers["opentelemetry"]["baggage"] == "customer=7"
    seen = []

    def look(**facts):
        seen.append((baggage.get_baggage("customer"), trace.get_current_span().name))

    from django_txtasks.signals import attempt_starting

    attempt_starting.connect(look)
    try:
        run_one_after_the_other()
    finally:
        attempt_starting.disconnect(look)
    assert seen == [("7", "process default")]


def test_a_span_that_does_not_record_leaves_the_column_empty(providers, on):
    on()
    tracer = tracing.tracers[0]
    tracer._tracer = sdk.TracerProvider(sampler=ALWAYS_OFF).get_tracer("off")
    handle = tasks.note.enqueue()
    assert Task.objects.get(pk=handle.id).headers is None


def test_sent_tasks_are_counted_when_their_transaction_commits(spans, counted):
    with transaction.atomic():
        enqueue_many([(tasks.note, ())] * 3)
        assert counted("messaging.client.sent.messages") == {}
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        tasks.note.enqueue()
        raise ZeroDivisionError
    tasks.note.using(once="k").enqueue()
    tasks.note.using(once="k").enqueue()
    assert counted("messaging.client.sent.messages") == {key(OF_SEND): 4}
    assert len(spans.named("send default")) == 4


def test_attempts_are_counted_and_timed(spans, counted):
    run_one_after_the_other((tasks.note, "a"), (tasks.note, "b"))
    assert counted("messaging.client.consumed.messages") == {key(OF_PROCESS): 2}
    assert counted("messaging.process.duration") == {key(OF_PROCESS): 2}


# -- a real receiver ------------------------------------------------------------------------------

SETTINGS = """
from settings_for_tests import *
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

INSTALLED_APPS = [*INSTALLED_APPS, "django_txtasks.contrib.otel.apps.OpenTelemetryInOneTrace"]
provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
"""
REQUEST = """
import django
django.setup()
from opentelemetry import trace
from probe.tasks import told
with trace.get_tracer("site").start_as_current_span("GET /orders"):
    print(told.enqueue(7).id)
"""


class Receiver(ThreadingHTTPServer):
    """An OTLP receiver, which keeps (service, span) of each span."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.got = []


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            names = {one.key: one.value.string_value for one in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.server.got += [(names["service.name"], one) for one in scope.spans]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments):
        pass


@pytest.fixture
def receiver():
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def site(tmp_path, processes, receiver):
    (tmp_path / "traced_settings.py").write_text(SETTINGS)
    environment = processes._environment()
    return {
        **environment,
        "DJANGO_SETTINGS_MODULE": "traced_settings",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), environment["PYTHONPATH"]]),
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{receiver.server_port}",
    }


def test_a_receiver_gets_one_trace_of_request_task_and_follow_up(processes, site, receiver):
    done = subprocess.run(
        [sys.executable, "-c", REQUEST], env=site, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    workers = processes.start("runworkers", "--batch", "--threads=1", env=site)
    assert workers.wait(helpers.PATIENCE) == 0
    assert helpers.runs("success told") == 1
    assert {service for service, _ in receiver.got} == {"shop"}
    spans = [one for _, one in receiver.got]
    assert sorted(one.name for one in spans) == [
        "GET /orders", "process default", "process default", "send default",
    ]  # fmt: skip
    assert len({one.trace_id for one in spans}) == 1
    request = next(one for one in spans if one.name == "GET /orders")
    chain = [request]
    while below := [one for one in spans if one.parent_span_id == chain[-1].span_id]:
        chain += below
    read = [{each.key: each.value.string_value for each in one.attributes} for one in chain]
    assert [one.name for one in chain] == [
        "GET /orders", "send default", "process default", "process default",
    ]  # fmt: skip
    assert [one.kind for one in chain[1:]] == [4, 5, 5]  # PRODUCER, CONSUMER
    assert [one.get("txtasks.task") for one in read[1:]] == [
        "probe.tasks.told", "probe.tasks.told", "probe.tasks.tell",
    ]  # fmt: skip
    assert read[1]["messaging.message.id"] == read[2]["messaging.message.id"] == done.stdout.strip()
    assert all(one["messaging.system"] == "django_txtasks" for one in read[1:])
    assert [one.get("messaging.operation.type") for one in read[1:]] == [
        "send",
        "process",
        "process",
    ]
    assert (
        chain[1].end_time_unix_nano
        <= chain[2].start_time_unix_nano
        <= chain[3].start_time_unix_nano
    )
