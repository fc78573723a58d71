"""What Sentry is sent, in the envelopes of its real SDK."""

import json
import os
import subprocess
import sys
from datetime import timedelta

import django
import helpers
import pytest
from probe import on_loop, sessions, tasks
from test_schedules import add, tick
from test_sessions_of_slots import run_one_after_the_other

from django_txtasks import enqueue_many
from django_txtasks.features.traces import tracing
from django_txtasks.models import FinishedTask, Task

sentry_sdk = pytest.importorskip("sentry_sdk", reason="sentry-sdk is not installed")
from sentry_sdk.integrations.logging import LoggingIntegration  # noqa: E402
from sentry_sdk.transport import Transport  # noqa: E402

from django_txtasks.contrib.sentry.apps import Sentry, SentryWithCheckIns  # noqa: E402
from django_txtasks.contrib.sentry.monitors import slug_of  # noqa: E402

pytestmark = [pytest.mark.usefixtures("rows", "quick"), pytest.mark.once]
YEAR = timedelta(days=365).total_seconds()  # no second tick comes near the first one


class Kept(Transport):
    """Keeps what would be sent: (type, content) of each item of the envelopes."""

    def __init__(self, options=None):
        super().__init__(options)
        self.items = []

    def capture_envelope(self, envelope):
        for item in envelope.items:
            content = json.loads(item.get_bytes()) if item.type != "client_report" else None
            self.items.append((item.type, content))

    def of(self, kind):
        return [content for type_, content in self.items if type_ == kind]

    def transaction(self, name):
        (found,) = [one for one in self.of("transaction") if one["transaction"] == name]
        return found


@pytest.fixture
def sent():
    transport = Kept()
    sentry_sdk.init(
        dsn="http://key@127.0.0.1:9/1",
        transport=transport,
        traces_sample_rate=1.0,
        default_integrations=False,
        integrations=[LoggingIntegration()],
    )
    Sentry.ready(Sentry)
    yield transport
    sentry_sdk.get_client().close(timeout=0)
    sentry_sdk.get_global_scope().set_client(None)
    tracing.tracers.clear()


def data_of(one):
    return one["contexts"]["trace"]["data"]


def enqueue_in_request(call):
    with sentry_sdk.isolation_scope(), sentry_sdk.start_transaction(op="http.server", name="GET"):
        return call()


def test_an_enqueueing_in_a_transaction_is_a_span(sent):
    handle = enqueue_in_request(tasks.note.enqueue)
    request = sent.transaction("GET")
    (span,) = request["spans"]
    assert (span["op"], span["description"]) == ("queue.publish", "probe.tasks.note")
    assert span["origin"] == "auto.queue.django_txtasks"
    found = {name: span["data"].get(name) for name in
             ("messaging.system", "messaging.destination.name", "messaging.message.id")}  # fmt: skip
    assert found == {
        "messaging.system": "django_txtasks",
        "messaging.destination.name": "default",
        "messaging.message.id": str(handle.id),
    }
    kept = Task.objects.get(pk=handle.id).headers["sentry"]
    trace_id = request["contexts"]["trace"]["trace_id"]
    assert kept["sentry-trace"] == f"{trace_id}-{span['span_id']}-1"
    assert f"sentry-trace_id={trace_id}" in kept["baggage"]


def test_many_tasks_are_one_span(sent):
    handles = enqueue_in_request(lambda: enqueue_many([(tasks.note, ()), (tasks.mail, ())]))
    (span,) = sent.transaction("GET")["spans"]
    assert span["data"]["messaging.destination.name"] == "default, mail"
    assert "messaging.message.id" not in span["data"]
    assert (
        len({Task.objects.get(pk=one.id).headers["sentry"]["sentry-trace"] for one in handles}) == 1
    )


def test_outside_a_transaction_the_trace_goes_along_without_a_span(sent):
    handle = tasks.note.enqueue()
    assert Task.objects.get(pk=handle.id).headers["sentry"]["sentry-trace"]
    assert sent.items == []


@pytest.mark.parametrize(
    ("function", "kind"), [(tasks.note, "every"), (on_loop.nap, "loop")], ids=["thread", "loop"]
)
def test_an_attempt_is_a_transaction_in_the_trace_of_its_request(sent, function, kind):
    handle = enqueue_in_request(function.enqueue)
    options = {"kind": kind, "async_tasks": 5} if kind == "loop" else {}
    with helpers.working(**options):
        helpers.wait_until(FinishedTask.objects.exists)
    request, attempt = sent.transaction("GET"), sent.transaction(function.declaration.name)
    of_attempt = attempt["contexts"]["trace"]
    assert of_attempt["trace_id"] == request["contexts"]["trace"]["trace_id"]
    assert of_attempt["parent_span_id"] == request["spans"][0]["span_id"]
    assert (of_attempt["op"], of_attempt["status"]) == ("queue.process", "ok")
    assert attempt["transaction_info"] == {"source": "task"}
    data = data_of(attempt)
    latency = data.pop("messaging.message.receive.latency")
    assert 0 <= latency < helpers.PATIENCE * 1000
    found = {
        name: value for name, value in data.items() if name.startswith(("messaging", "txtasks"))
    }
    assert found == {
        "messaging.system": "django_txtasks",
        "messaging.message.id": str(handle.id),
        "messaging.destination.name": "default",
        "messaging.message.retry.count": 0,
        "txtasks.outcome": "finish",
    }


def test_a_death_is_one_event_in_the_trace_with_the_tags_of_its_task(sent):
    (died, _) = run_one_after_the_other((sessions.tag_and_fail, "a"), (sessions.tag_and_fail, "b"))
    attempts = [
        one for one in sent.of("transaction") if one["transaction"].endswith("tag_and_fail")
    ]
    assert [one["contexts"]["trace"]["status"] for one in attempts] == ["internal_error"] * 2
    events = sent.of("event")
    assert [one["exception"]["values"][-1]["value"] for one in events] == ["a", "b"]
    assert [one["tags"]["customer"] for one in events] == ["a", "b"]
    assert [one["contexts"]["trace"]["trace_id"] for one in events] == [
        one["contexts"]["trace"]["trace_id"] for one in attempts
    ]
    assert data_of(attempts[0])["messaging.message.id"] == str(died)


def test_a_retry_is_counted_and_its_hook_is_in_the_same_trace(sent):
    enqueue_in_request(lambda: tasks.told.enqueue("no", 1))
    run_one_after_the_other()
    helpers.wait_until(lambda: helpers.runs("success told"))
    told = [one for one in sent.of("transaction") if one["transaction"] == "probe.tasks.told"]
    assert [data_of(one)["messaging.message.retry.count"] for one in told] == [0, 1]
    assert [data_of(one)["txtasks.outcome"] for one in told] == ["retry", "finish"]
    traces = {one["contexts"]["trace"]["trace_id"] for one in sent.of("transaction")}
    assert len(sent.of("transaction")) == 5  # the request, two attempts, two hooks
    assert len(traces) == 1
    assert sent.of("event") == []  # a retry is a warning


def test_a_client_that_is_off_leaves_the_column_empty_and_runs_the_task(sent):
    sentry_sdk.get_global_scope().set_client(None)
    handle = tasks.note.enqueue()
    assert Task.objects.get(pk=handle.id).headers is None
    run_one_after_the_other()
    assert FinishedTask.objects.count() == 1
    assert sent.items == []


# -- check-ins ------------------------------------------------------------------------------------


@pytest.fixture
def checked(sent):
    SentryWithCheckIns.ready(SentryWithCheckIns)
    return lambda: [
        (one["monitor_slug"], one["check_in_id"], one["status"], one["monitor_config"])
        for one in sent.of("check_in")
    ]


def run_tick(name, **columns):
    add(name, due=-timedelta(seconds=2), **columns)
    assert tick()[0] == 1
    task_id = Task.objects.get().pk
    run_one_after_the_other()
    return task_id.hex


def test_the_task_of_a_schedule_checks_in_when_it_begins_and_ends(checked, sent):
    mark = run_tick("Shop.nightly report", cron="0 3 1 1 *", tz="Europe/Berlin")
    config = {"schedule": {"type": "crontab", "value": "0 3 1 1 *"}, "timezone": "Europe/Berlin"}
    assert checked() == [
        ("shop-nightly-report", mark, "in_progress", config),
        ("shop-nightly-report", mark, "ok", config),
    ]
    first, last = sent.of("check_in")
    assert (first["duration"], last["duration"] > 0) == (None, True)


def test_a_schedule_with_an_interval_has_it_in_minutes(checked):
    mark = run_tick("yearly", every=YEAR)
    rule = {"type": "interval", "value": 365 * 24 * 60, "unit": "minute"}
    assert checked()[0] == ("yearly", mark, "in_progress", {"schedule": rule, "timezone": "UTC"})


def test_an_interval_that_sentry_does_not_know_has_no_monitor(checked):
    run_tick("odd", every=YEAR + 1)
    assert checked() == []
    assert FinishedTask.objects.filter(outcome="succeeded").count() == 1


def test_a_task_that_dies_checks_in_with_an_error_and_a_retry_does_not(checked):
    add(
        "yearly", every=YEAR, due=-timedelta(seconds=2), task_name="probe.tasks.told", args=["no", 9]
    )  # fmt: skip
    assert tick()[0] == 1
    run_one_after_the_other()
    helpers.wait_until(lambda: helpers.runs("failure told"))
    assert [status for _, _, status, _ in checked()] == [*["in_progress"] * 3, "error"]
    assert len({mark for _, mark, _, _ in checked()}) == 1


def test_check_ins_are_off_unless_asked_for(sent):
    run_tick("yearly", every=YEAR)
    assert sent.of("check_in") == []


def test_a_task_that_no_schedule_enqueued_has_no_check_in(checked):
    run_one_after_the_other((tasks.note, "a"))
    assert checked() == []


def test_long_names_of_schedules_stay_apart_as_slugs():
    long = "shop.reports.tasks.a_report_with_a_name_that_is_very_long"
    assert slug_of("probe.tasks.note") == "probe-tasks-note"
    assert len(slug_of(long)) == 50
    assert slug_of(long) != slug_of(f"{long}er")


# -- beside Sentry's own integration of Django ------------------------------------------------------

SETTINGS = """
from settings_for_tests import *
import json
import sentry_sdk
from sentry_sdk.transport import Transport

class Printed(Transport):
    def capture_envelope(self, envelope):
        for item in envelope.items:
            print(json.dumps([item.type, json.loads(item.get_bytes())]))

sentry_sdk.init(dsn="http://key@127.0.0.1:9/1", transport=Printed, traces_sample_rate=1.0)
INSTALLED_APPS = [*INSTALLED_APPS, "django_txtasks.contrib.sentry"]
ROOT_URLCONF = "sentry_urls"
"""
URLS = """
from django.http import HttpResponse
from django.tasks import task
from django.urls import path
from probe import tasks

@task
def theirs():
    pass

def page(request):
    theirs.enqueue()
    tasks.note.enqueue()
    return HttpResponse("done")

urlpatterns = [path("", page)]
"""
ASK = """
import django
django.setup()
import sentry_sdk
from django.test import Client
with sentry_sdk.start_transaction(op="http.server", name="GET"):  # Django's test client makes none
    assert Client().get("/").status_code == 200
"""


@pytest.mark.skipif(django.VERSION < (6, 0), reason="Django 5.2 has no Tasks of its own")
def test_there_is_one_span_for_a_task_of_django_too(tmp_path, processes):
    (tmp_path / "sentry_settings.py").write_text(SETTINGS)
    (tmp_path / "sentry_urls.py").write_text(URLS)
    environment = processes._environment()
    environment["DJANGO_SETTINGS_MODULE"] = "sentry_settings"
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), environment["PYTHONPATH"]])
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    items = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('["')]
    (request,) = [content for kind, content in items if kind == "transaction"]
    spans = [one for one in request["spans"] if one["op"].startswith("queue.")]
    assert [one["op"] for one in spans] == ["queue.submit.django", "queue.publish"]
    ids = {str(one.pk): one for one in Task.objects.all()}
    for span in spans:
        row = ids.pop(span["data"]["messaging.message.id"])
        assert span["data"]["messaging.destination.name"] == "default"
        assert row.headers["sentry"]["sentry-trace"].split("-")[1] == span["span_id"]
    assert ids == {}
