"""Tracers: what they are asked, what the rows carry, and that their errors harm no task."""

import subprocess
import sys
from contextlib import contextmanager
from datetime import timedelta

import helpers
import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from probe import on_loop, tasks
from test_schedules import add, tick
from test_sessions_of_slots import run_one_after_the_other

from django_txtasks import batch, enqueue_many
from django_txtasks.features.traces import tracing
from django_txtasks.models import FinishedTask, Task

pytestmark = [pytest.mark.usefixtures("rows", "quick"), pytest.mark.smoke]
LONG = 25  # as many rows as PostgreSQL writes by COPY


class Noting:
    """A tracer that notes what it is asked. ``breaks`` names the moments at which it raises."""

    def __init__(self, name="noting", breaks=()):
        self.name, self.breaks = name, breaks
        self.calls, self.runs, self.got = [], [], []

    def odd(self, moment):
        return {"no JSON": {1}} if moment in self.breaks else {}

    def _at(self, moment):
        if moment in self.breaks:
            raise ValueError(f"{self.name} breaks at {moment}")

    @contextmanager
    def enqueueing(self, call):
        self._at("before enqueueing")
        self.calls.append(call)
        yield {"number": len(self.calls)}
        self._at("after enqueueing")

    @contextmanager
    def running(self, run, headers):
        self._at("before run")
        self.got.append(headers)
        yield {"of": str(run.task_id), **self.odd("odd headers")}
        self.runs.append(run)
        self._at("after run")

    def tick(self, schedule):
        self._at("tick")
        return {"schedule": schedule.name}


@pytest.fixture
def tracer():
    tracing.add_tracer(noting := Noting())
    yield noting
    tracing.tracers.clear()
    tracing._reported.clear()


def headers(task_id):
    return Task.objects.get(pk=task_id).headers


def test_without_a_tracer_the_column_is_null_and_no_statement_names_it():
    with CaptureQueriesContext(connection) as queries:
        first = tasks.note.enqueue()
        enqueue_many([(tasks.note, ())] * LONG)
    run_one_after_the_other()
    assert tracing.tracers == []
    assert tracing.begin(None) is None
    assert not any("headers" in one["sql"] for one in queries)
    assert FinishedTask.objects.filter(pk=first.id).exists()


@pytest.mark.once
def test_without_the_apps_neither_library_is_imported(processes):
    code = """
import sys, django
django.setup()
from django_txtasks.features.traces import tracing
from django_txtasks.management.commands import runcleaner, runworkers
from django_txtasks.core.working import worker
from probe import tasks
found = {one.partition(".")[0] for one in sys.modules} & {"opentelemetry", "sentry_sdk"}
assert not found, found
assert "django_txtasks.contrib.otel" not in sys.modules
assert tracing.tracers == []
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=processes._environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_each_way_of_enqueueing_writes_the_headers(tracer):
    one = tasks.note.enqueue()
    many = enqueue_many([(tasks.note, ()), (tasks.mail, ())])
    long = enqueue_many([(tasks.note, ())] * LONG)
    with transaction.atomic(), batch(name="b"):
        member = tasks.note.enqueue()
    assert headers(one.id) == {"noting": {"number": 1}}
    assert [headers(each.id) for each in many] == [{"noting": {"number": 2}}] * 2
    assert headers(long[-1].id) == {"noting": {"number": 3}}
    assert headers(member.id) == {"noting": {"number": 4}}
    assert Task.objects.get(pk=member.id).batch is not None
    assert tracer.calls[0].tasks == [("probe.tasks.note", "default")]
    assert tracer.calls[1].tasks == [("probe.tasks.note", "default"), ("probe.tasks.mail", "mail")]
    assert [each.id for each in tracer.calls[1].handles] == [each.id for each in many]


def test_a_second_call_of_a_key_of_once_counts_no_new_task(tracer):
    first, second = (tasks.note.using(once="k").enqueue() for _ in range(2))
    assert first.id == second.id
    assert [len(call.handles) for call in tracer.calls] == [1, 0]
    many = enqueue_many([(tasks.note.using(once="k"), ()), (tasks.note, ())])
    assert [one.id for one in tracer.calls[-1].handles] == [many[1].id]


def test_a_tracer_learns_of_a_call_that_failed(tracer):
    with transaction.atomic():
        handle = tasks.note.enqueue()
    row = Task.objects.get(pk=handle.id)
    with (
        pytest.raises(Exception) as raised,
        transaction.atomic(),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr("django_txtasks.core.enqueueing.calls.new_ids", lambda count: [row.pk])
        tasks.note.enqueue()
    assert tracer.calls[-1].error is raised.value
    assert tracer.calls[-1].handles == ()


def ways(txtasks):
    txtasks(lanes={"api": {"weight": 1}}, poll_interval=0.05)
    calls = [tasks.note, tasks.note.using(lane="api"), tasks.note.using(unique_key="k")]
    return [one.enqueue() for one in calls]


@pytest.mark.parametrize("kind", ["threads", "loop"])
def test_each_claim_brings_the_headers_to_the_attempt(tracer, txtasks, kind):
    handles = ways(txtasks) if kind == "threads" else [on_loop.nap.enqueue()]
    options = {"kind": "loop", "async_tasks": 5} if kind == "loop" else {}
    with helpers.working(**options):
        helpers.wait_until(lambda: FinishedTask.objects.count() == len(handles))
    assert sorted(one["number"] for one in tracer.got) == list(range(1, len(handles) + 1))
    assert {run.task_id for run in tracer.runs} == {one.id for one in handles}
    assert {(run.number, run.outcome) for run in tracer.runs} == {(1, "finish")}
    assert all(0 <= run.waited < helpers.PATIENCE for run in tracer.runs)


def test_hinted_tasks_bring_their_headers_too(tracer, broker):
    with helpers.working():
        tasks.note.enqueue()
        helpers.wait_until(lambda: FinishedTask.objects.count() == 1)
    assert tracer.got == [{"number": 1}]


@pytest.mark.parametrize("function", [tasks.told, tasks.told_atomic])
def test_a_hook_gets_the_headers_of_the_attempt_that_enqueues_it(tracer, function):
    (told,) = run_one_after_the_other((function, 7))
    assert [run.task_name for run in tracer.runs] == [function.declaration.name, "probe.tasks.tell"]
    assert tracer.got == [{"number": 1}, {"of": str(told)}]


def test_a_failed_attempt_tells_its_error_and_the_next_has_the_headers_of_the_enqueueing(tracer):
    (told,) = run_one_after_the_other((tasks.told, "no", 1))
    helpers.wait_until(lambda: helpers.finished(told), what="retried")
    first, *_ = [run for run in tracer.runs if run.task_id == told]
    assert (first.outcome, first.error["class"], first.error["message"]) == (
        "retry", "builtins.ValueError", "no",
    )  # fmt: skip
    assert "Traceback" in first.error["traceback"]
    of_it = [got for got, run in zip(tracer.got, tracer.runs, strict=True) if run.task_id == told]
    assert of_it == [{"number": 1}] * 2


def test_the_task_of_a_tick_has_the_headers_of_its_schedule(tracer):
    add("nightly", due=-timedelta(seconds=2))
    assert tick()[0] == 1
    assert Task.objects.get().headers == {"noting": {"schedule": "nightly"}}


@pytest.mark.parametrize(
    "moment", ["before enqueueing", "after enqueueing", "before run", "after run", "tick"]
)
def test_an_error_of_a_tracer_harms_no_task_and_is_logged_once(tracer, moment, caplog):
    tracing.add_tracer(Noting("broken", [moment]))
    add("nightly", due=-timedelta(seconds=2))
    add("weekly", due=-timedelta(seconds=2))
    assert tick()[0] == 2
    run_one_after_the_other((tasks.note, "a"), (tasks.note, "b"))
    assert FinishedTask.objects.filter(outcome="succeeded").count() == 4
    assert len(tracer.runs) == 4
    assert [one.message for one in caplog.records if "tracer" in one.message] == [
        "The tracer broken has failed. Tasks run as without it, but traces are missing. This process logs no "
        f"further failure of it: ValueError: broken breaks at {moment}"
    ]


def test_headers_that_are_no_json_harm_no_task(tracer, caplog):
    tracing.add_tracer(broken := Noting("broken", ["odd headers"]))
    run_one_after_the_other((tasks.told, 7))
    assert tracer.got[1].keys() == {"of"}
    assert broken.got == [{"number": 1}, {}]
    assert [run.outcome for run in broken.runs] == ["finish", "finish"]
    assert "broken has failed" in caplog.text


def test_two_tracers_keep_their_headers_apart(tracer):
    tracing.add_tracer(other := Noting("other"))
    handle = tasks.note.enqueue()
    assert headers(handle.id) == {"noting": {"number": 1}, "other": {"number": 1}}
    run_one_after_the_other()
    assert tracer.got == other.got == [{"number": 1}]


@pytest.mark.parametrize("text", ["[]", '"x"', "7", '{"noting": [1]}', '{"theirs": {"a": 1}}'])
def test_headers_that_others_wrote_are_no_harm(tracer, text):
    handle = tasks.note.enqueue()
    helpers.execute("UPDATE txtasks_task SET headers = %s WHERE id = %s", text, handle.id.hex)
    run_one_after_the_other()
    assert tracer.got == [{}]
    assert tracer.runs[0].outcome == "finish"


def test_an_added_tracer_takes_the_place_of_one_with_its_name(tracer):
    tracing.add_tracer(again := Noting())
    assert tracing.tracers == [again]
