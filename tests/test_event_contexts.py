"""The context of an attempt is visible to receivers of its own events, and to no other attempt."""

import contextvars
import gc
import json
import logging
import threading
import weakref

import helpers
import pytest
from django.core.cache import caches
from probe import sessions
from test_log_isolation import attached, held  # noqa: F401 -- a fixture
from test_sessions_of_slots import run_one_after_the_other

from django_txtasks import enqueue_many, signals
from django_txtasks.signals import queue as event_queue

pytestmark = [pytest.mark.usefixtures("rows", "quick"), pytest.mark.once]


class Tenants(logging.Handler):
    """Notes in which thread, and for which tenant, the deaths of tasks are logged."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.seen, self.caches = [], []

    def emit(self, record):
        self.seen.append(
            (threading.current_thread().name, str(record.error), sessions.tenant.get())
        )
        self.caches.append(caches["default"])


def test_the_death_of_a_task_is_logged_in_its_context():
    with attached(Tenants()) as handler:
        run_one_after_the_other(
            (sessions.set_tenant_and_fail, "a"), (sessions.set_tenant_and_fail, "b")
        )
    assert handler.seen == [
        ("txtasks-signals", "ValueError: a", "a"),
        ("txtasks-signals", "ValueError: b", "b"),
    ]
    assert handler.caches[0] is handler.caches[1]  # those of its own thread, not of the slot


def test_receivers_run_in_the_context_of_the_attempt():
    seen = []

    def hear(task_id, **facts):
        seen.append(sessions.tenant.get())

    signals.task_died.connect(hear)
    try:
        run_one_after_the_other((sessions.set_tenant_and_fail, "a"), (sessions.do, "nonsense"))
    finally:
        signals.task_died.disconnect(hear)
    assert seen == ["a", "nobody"]


def test_contexts_of_few_attempts_are_kept_for_a_handler_that_is_stuck(held, monkeypatch):  # noqa: F811
    """A task may have put anything there, such as a request with its body."""
    monkeypatch.setattr(event_queue, "MAX_LARGE_SIGNALS", 2)

    def tell(name):
        context, kept = contextvars.Context(), Value()
        context.run(sessions.tenant.set, kept)
        facts = {"task_id": 1, "task": name, "queue": "mail", "attempt": 1, "worker": "w"}
        signals.task_died.emit(context=context, error="x", **facts)
        return weakref.ref(kept)

    with signals.in_background(10):
        found = [tell("stuck")]
        assert held.reached.wait(60)
        found += [tell(f"task {number}") for number in range(5)]
        gc.collect()
        assert [one() is not None for one in found] == [True] * 3 + [False] * 3
        held.release.set()
    assert [one.task for one in held.records] == [
        "stuck",
        *[f"task {number}" for number in range(5)],
    ]


class Value:
    """A value that a task has put into its context."""


@pytest.fixture
def broken_cache():
    """One of the caches cannot be made."""
    caches.settings["broken"] = {"BACKEND": "no.such.Cache"}
    yield
    del caches.settings["broken"]


def test_a_cache_that_cannot_be_made_keeps_no_event_from_the_log(broken_cache):
    with attached(Tenants()) as handler:
        run_one_after_the_other((sessions.set_tenant_and_fail, "a"))
    assert handler.seen == [("txtasks-signals", "ValueError: a", "a")]


def test_a_cache_that_cannot_be_made_keeps_no_task_from_enqueueing_others(broken_cache):
    seen = []

    def hear(task, **facts):
        seen.append(task)

    signals.task_enqueued.connect(hear)
    try:
        [task_id] = run_one_after_the_other((sessions.enqueue_another,))
    finally:
        signals.task_enqueued.disconnect(hear)
    assert helpers.finished(task_id), helpers.row(task_id).errors
    assert seen == ["probe.sessions.enqueue_another", "probe.sessions.hear_of_success"]


@pytest.fixture
def told_to_sentry(processes, tmp_path):
    """Run tasks in a worker whose site uses Sentry; return the events."""
    pytest.importorskip("sentry_sdk")

    def run(*calls, threads):
        file = tmp_path / "events"
        enqueue_many([(function, arguments, options) for function, arguments, options in calls])
        process = processes.start(
            "runworkers", "--batch", f"--threads={threads}", env={"TXTASKS_TEST_SENTRY": str(file)}
        )
        assert process.wait(120) == 0, processes.log_of(process)
        helpers.wait_until(file.exists)
        return [json.loads(line) for line in file.read_text().splitlines()]

    return run


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(
    "function", [sessions.tag_for_sentry, sessions.tag_for_sentry_async], ids=["sync", "async"]
)
def test_what_a_task_tells_sentry_is_on_its_own_events_alone(function, threads, told_to_sentry):
    names = ["a", "b", "", "c", ""] * 4
    events = told_to_sentry(
        *[(function, [name], {"fails": True, "captures": True}) for name in names], threads=threads
    )
    deaths = [one for one in events if one["exception"]]
    assert len(deaths) == len(names) and len(events) == 2 * len(names)
    for one in events:
        exception = one["exception"]["values"][-1]["value"] if one["exception"] else one["message"]
        name = exception.rsplit(" ", 1)[1] or None
        assert one["tags"].get("tenant") == name
        assert (one["user"] or {}).get("id") == name
        assert one["tags"]["site"] == "shop"
