"""A task whose row does not fit the function waits for code that takes its arguments, and burns no attempt."""

from __future__ import annotations

import json
import uuid
from datetime import timedelta

import helpers
import pytest
from django.db import transaction
from django.db.models import F

from django_txtasks import enqueue_many, signals
from django_txtasks.conf import get_config
from django_txtasks.core.ground.causes import cause_of_class
from django_txtasks.core.rows import outcomes, workers
from django_txtasks.core.rows.attempts import Arrow, Attempt, Counted
from django_txtasks.core.working.running.limits import NO_LIMIT
from django_txtasks.exceptions import ArgumentsDoNotFit
from django_txtasks.features.misfits import verdict as misfits
from django_txtasks.insight.audit import audit
from django_txtasks.insight.explain import explain
from django_txtasks.models import DatabaseNow, Status, Task
from django_txtasks.testing import run_due_tasks

pytestmark = pytest.mark.usefixtures("rows", "quick")

OLD = "@task{}\n{}def pack(order, colour): ran.append((order, colour))"
NEW = "@task{}\n{}def pack(order, colour, *, weight): ran.append((order, colour, weight))"
LEASE = timedelta(seconds=15)
ATOMIC = ["", "(atomic=True)"]


def waiting(count=1):
    """Wait until so many tasks have been released because they do not fit."""
    released = Task.objects.filter(status=Status.PENDING, attempt__gt=0)
    helpers.wait_until(lambda: released.count() == count, what=f"{count} released tasks")


def come_due():
    Task.objects.update(run_after=DatabaseNow() - timedelta(seconds=1))


@pytest.fixture
def told():
    found = []

    def note(signal, **facts):
        found.append(facts)

    signals.arguments_do_not_fit.connect(note)
    yield found
    signals.arguments_do_not_fit.disconnect(note)


@pytest.mark.parametrize("options", ATOMIC)
def test_a_call_that_does_not_fit_waits_and_runs_once_after_the_deploy(releases, told, options):
    handle = releases.deploy(OLD.format(options, ""))["pack"].enqueue(7, colour="red")
    releases.deploy(NEW.format(options, ""))
    with helpers.working():
        waiting()
    row = helpers.row(handle.id)
    assert (row.status, row.failures, row.crashes) == (Status.PENDING, 0, 0)
    assert row.cause == cause_of_class("shop.tasks.pack", ArgumentsDoNotFit)
    (error,) = row.errors
    assert error["type"] == "ArgumentsDoNotFit"
    assert error["message"] == (
        "The arguments do not fit: shop.tasks.pack(order, colour, *, weight) was called as (…, colour=…): missing "
        "a required argument: 'weight'. The task waits for code that takes them."
    )
    assert releases.ran == []
    assert [(one["task_id"], one["error"]) for one in told] == [(handle.id, error["message"])]

    releases.deploy(NEW.format(options, "").replace("weight)", "weight=1)", 1))
    come_due()
    with helpers.working():
        helpers.wait_until(lambda: helpers.finished(handle.id), what="the end of the task")
    assert releases.ran == [(7, "red", 1)]
    assert helpers.finished(handle.id).failures == 0


@pytest.mark.parametrize(("kind", "slots"), [("every", 0), ("loop", 10)])
def test_an_async_call_waits_too(releases, kind, slots):
    handle = releases.deploy(OLD.format("", "async "))["pack"].enqueue(7, colour="red")
    releases.deploy("@task\nasync def pack(order): ran.append(order)")
    with helpers.working(kind=kind, async_tasks=slots):
        waiting()
    row = helpers.row(handle.id)
    assert (row.failures, row.errors[0]["type"]) == (0, "ArgumentsDoNotFit")
    assert "unexpected keyword argument 'colour'" in row.errors[0]["message"]


def test_a_task_of_django_waits_and_is_not_announced_as_failed(releases):
    from django_txtasks.backends import compat

    ended = []

    def note(task_result, **_):
        ended.append(task_result.id)

    releases.deploy("@django_task(max_attempts=1)\ndef pack(order, colour): ran.append(order)")
    handle = releases.code["pack"].enqueue(7, colour="red")
    releases.deploy("@django_task(max_attempts=1)\ndef pack(order): ran.append(order)")
    compat.task_finished.connect(note)
    try:
        with helpers.working():
            waiting()
    finally:
        compat.task_finished.disconnect(note)
    assert (helpers.row(uuid.UUID(handle.id)).errors[0]["type"], ended) == ("ArgumentsDoNotFit", [])


BODIES = [
    "@task(max_attempts=1)\ndef pack(order): len(5)",
    "@task(max_attempts=1)\ndef pack(order): pack.function()",
    "@task(max_attempts=1)\ndef pack(order): (lambda: None)(order)",
    "@task(max_attempts=1)\nasync def pack(order): len(5)",
    "@task(max_attempts=1)\ndef pack(order): raise TypeError('missing a required argument')",
    "@django_task(max_attempts=1)\ndef pack(order): len(5)",
]


@pytest.mark.parametrize("source", BODIES, ids=range(len(BODIES)))
def test_a_type_error_inside_the_function_is_a_failure(releases, source):
    handle = releases.deploy(source)["pack"].enqueue(7)
    run_due_tasks(reraise=False)
    row = helpers.row(uuid.UUID(str(handle.id)))
    assert (row.status, row.failures, row.errors[0]["type"]) == (Status.DEAD, 1, "TypeError")


def test_a_signature_that_is_not_true_makes_no_misfit_of_a_failure(releases):
    releases.deploy(
        "def pack(*given): len(5)\n"
        "pack.__signature__ = signature(lambda order, colour: None)\n"
        "pack = task(max_attempts=1)(pack)"
    )
    task_id = uuid.uuid4()
    Task.objects.create(id=task_id, task_name="shop.tasks.pack", args=[7], max_attempts=1)
    run_due_tasks(reraise=False)
    row = helpers.row(task_id)
    assert (row.status, row.errors[0]["type"]) == (Status.DEAD, "TypeError")


def test_a_decorator_that_has_begun_makes_it_a_failure(releases):
    wrapped = (
        "def logged(function):\n"
        "    @wraps(function)\n"
        "    def wrapper(*args, **kwargs):\n"
        "        ran.append('began')\n"
        "        return function(*args, **kwargs)\n"
        "    return wrapper\n"
        "@task(max_attempts=1)\n@logged\n"
    )
    handle = releases.deploy(f"{wrapped}def pack(order): ...")["pack"].enqueue(7)
    releases.deploy(f"{wrapped}def pack(order, colour): ...")
    run_due_tasks(reraise=False)
    row = helpers.row(handle.id)
    assert (row.status, row.errors[0]["type"]) == (Status.DEAD, "TypeError")
    assert releases.ran == ["began"]


FORMS = [
    ("def pack(order)", [7, 8], {}, "too many positional arguments"),
    ("def pack(order, colour)", [7], {}, "missing a required argument: 'colour'"),
    ("def pack(order, *, colour)", [7], {}, "'colour'"),
    ("def pack(order)", [], {"order": 7, "colour": 1}, "unexpected keyword argument 'colour'"),
    ("def pack(order)", [7], {"order": 7}, "multiple values for argument 'order'"),
    ("def pack(order, /)", [], {"order": 7}, "'order'"),
    ("def pack(order, *rest)", [], {}, "missing a required argument: 'order'"),
]


@pytest.mark.parametrize("context", [False, True])
@pytest.mark.parametrize("form", FORMS, ids=range(len(FORMS)))
def test_each_form_of_a_call_that_does_not_fit(releases, context, form):
    head, args, kwargs, why = form
    if context:
        head = head.replace("(", "(ctx, ", 1)
    releases.deploy(f"@task(takes_context={context})\n{head}: ran.append(7)")
    task_id = uuid.uuid4()
    Task.objects.create(id=task_id, task_name="shop.tasks.pack", args=args, kwargs=kwargs)
    run_due_tasks(reraise=False)
    row = helpers.row(task_id)
    assert (row.status, row.failures, releases.ran) == (Status.PENDING, 0, [])
    assert why in row.errors[0]["message"]


@pytest.mark.parametrize("head", ["def pack(*args, **kwargs)", "def pack(order, *, colour=1)"])
def test_what_fits_runs(releases, head):
    releases.deploy(f"@task\n{head}: ran.append(7)")
    Task.objects.create(id=uuid.uuid4(), task_name="shop.tasks.pack", args=[7])
    run_due_tasks()
    assert releases.ran == [7]


def test_waits_double_up_to_five_minutes_in_one_entry(releases):
    releases.deploy("@task\ndef pack(order): ...")
    attempt = Attempt(uuid.uuid4(), 1, uuid.uuid4(), "shop.tasks.pack", max_attempts=1)
    before = [{"type": "ValueError", "attempt": 1}]
    attempt, waits = attempt._replace(errors=before), []
    runner = helpers.runner()
    for _ in range(8):
        ended = runner.run(attempt, NO_LIMIT)
        assert (ended.arrow, ended.counted) == (Arrow.RELEASE, Counted.NOTHING)
        waits.append(ended.delay.total_seconds())
        errors = json.loads(ended.attempt.errors_with(dict(ended.error)))
        attempt = attempt._replace(errors=errors)
    assert waits == [10, 20, 40, 80, 160, 300, 300, 300]
    assert [one["type"] for one in attempt.errors] == ["ValueError", "ArgumentsDoNotFit"]
    assert attempt.errors[-1]["tries"] == 8


@pytest.fixture
def long_waits(monkeypatch):
    """A machine may take longer than 10 s for a backlog."""
    monkeypatch.setattr(misfits, "FIRST_WAIT", timedelta(hours=1))
    monkeypatch.setattr(misfits, "LONGEST_WAIT", timedelta(hours=1))


def test_a_backlog_of_misfits_costs_one_claim_each_and_two_log_lines(releases, told, long_waits):
    pack = releases.deploy(OLD.format("", ""))["pack"]
    enqueue_many((pack, (number,), {"colour": "red"}) for number in range(20))
    enqueue_many((pack, (number, "red")) for number in range(20))
    note = releases.deploy(f"{NEW.format('', '')}\n@task\ndef note(): ran.append(1)")["note"]
    last = note.using(priority=-100).enqueue()
    with helpers.working():
        helpers.wait_until(lambda: helpers.finished(last.id), what="the task behind them")
        waiting(40)
    assert not Task.objects.exclude(attempt=1).exists()
    assert not Task.objects.filter(run_after__lt=DatabaseNow() + timedelta(minutes=30)).exists()
    assert len(told) == 2


def test_a_thousand_misfits_cost_a_thousand_claims(releases, long_waits):
    pack = releases.deploy(OLD.format("", ""))["pack"]
    enqueue_many((pack, (number, "red")) for number in range(1000))
    releases.deploy(NEW.format("", ""))
    worker = workers.register("default", queues=["default"], threads=1, listening=None, lease=LEASE)
    runner, claims = helpers.runner(), 0
    for _ in range(20):
        with transaction.atomic():
            claimed = helpers.claim(worker, 100).claimed
        claims += len(claimed)
        with transaction.atomic():
            ended = [runner.run(one, NO_LIMIT) for one in claimed]
            outcomes.record("default", ended, config=get_config())
    assert claims == 1000


def test_no_worker_is_told_of_it_before_its_time(releases):
    releases.deploy(OLD.format("", ""))["pack"].enqueue(7, colour="red")
    releases.deploy(NEW.format("", ""))
    worker = workers.register("default", queues=["default"], threads=1, listening=None, lease=LEASE)
    with transaction.atomic():
        (attempt,) = helpers.claim(worker).claimed
    ended = helpers.runner().run(attempt, NO_LIMIT)
    with transaction.atomic():
        recorded = outcomes.record("default", [ended], config=get_config())
    assert (recorded.done, recorded.to_notify) == ([ended], [])


def test_no_hook_is_told_of_it(releases):
    hook = "@task\ndef told(event): ran.append(event)\n"
    handle = releases.deploy(f"{hook}{OLD.format('(on_retry=told, on_failure=told)', '')}")[
        "pack"
    ].enqueue(7, colour="red")
    releases.deploy(f"{hook}{NEW.format('', '')}")
    run_due_tasks(reraise=False)
    assert list(Task.objects.values_list("pk", flat=True)) == [handle.id]


def test_explain_says_it(releases):
    handle = releases.deploy(OLD.format("", ""))["pack"].enqueue(7, colour="red")
    releases.deploy(NEW.format("", ""))
    run_due_tasks(reraise=False)
    reason = explain("default", handle.id)[0]
    assert reason.gate == "arguments"
    assert "shop.tasks.pack(order, colour, *, weight)" in reason.text
    assert "Tries so far: 1. The next try is in " in reason.text
    assert "txtasks_preflight" in reason.lift
    Task.objects.update(attempt=F("attempt") + 1)  # since then it has begun, and snoozed
    assert explain("default", handle.id)[0].gate == "later"


def test_the_audit_finds_them(releases):
    releases.deploy(OLD.format("", ""))["pack"].enqueue(7, colour="red")
    assert "misfits" not in [one.name for one in audit("default", get_config())]
    releases.deploy(NEW.format("", ""))
    run_due_tasks(reraise=False)
    (found,) = [one for one in audit("default", get_config()) if one.name == "misfits"]
    assert (found.count, found.is_problem) == (1, True)
