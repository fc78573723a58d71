"""manage.py txtasks_preflight: names and calls of waiting tasks against the code that is about to be deployed."""

from __future__ import annotations

import json
import uuid
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from probe import tasks

from django_txtasks import batch, external
from django_txtasks.insight.preflight import preflight, shapes
from django_txtasks.insight.preflight.shapes import Call
from django_txtasks.management.commands.txtasks_preflight import Command
from django_txtasks.models import Schedule, Status, Task, Worker

pytestmark = pytest.mark.usefixtures("rows")


def row(args=(), kwargs=None, *, name="shop.tasks.pack", status=Status.PENDING, **columns):
    if status == Status.CLAIMED:
        columns |= {"worker": uuid.uuid4(), "claimed_at": "2026-01-01T00:00:00Z"}
    return Task.objects.create(
        id=uuid.uuid4(),
        task_name=name,
        args=list(args),
        kwargs=kwargs or {},
        status=status,
        **columns,
    )


def told(*options):
    """Return the exit code and the output."""
    out, code = StringIO(), 0
    try:
        call_command("txtasks_preflight", *options, stdout=out)
    except SystemExit as end:
        code = end.code
    return code, out.getvalue()


def found():
    """Return (kind, function, where, states) of each finding."""
    report = preflight("default", 60)
    return [
        (one.case.kind.name, one.case.task_name, one.case.where, dict(one.counts))
        for one in report.sorted()
    ]


def test_an_empty_table_fits(releases):
    releases.deploy("")
    assert told() == (0, "Checked 0 live tasks and 0 schedules: they fit this code.\n")


def test_a_database_without_tables_has_nothing_that_waits(second_database):
    assert told("--database=second")[0] == 0


def test_an_unknown_name_and_a_call_that_does_not_fit(releases):
    releases.deploy("@task\ndef pack(order, *, weight): ...\n@task\ndef mail(order): ...")
    for status in (Status.PENDING, Status.HELD, Status.CLAIMED):
        row([1], {"colour": 1}, status=status)
        row([1], name="shop.tasks.gone", status=status)
        row([1], name="shop.tasks.mail", status=status)
    code, text = told()
    assert code == 3
    gone, do, misfit, do_too, last = text.splitlines()
    assert gone.startswith(
        "UNKNOWN   shop.tasks.gone (tasks): no function of this name is declared. Rows: "
    )
    assert "1 claimed, 1 held, 1 pending; one is " in gone
    assert "@task(was=['shop.tasks.gone'])" in do
    assert "shop.tasks.pack(order, *, weight) is called as (…, colour=…): " in misfit
    assert do_too.strip().startswith("do: ")
    assert last == "Checked 9 live tasks and 0 schedules: they do not all fit this code."


def test_each_problem_has_its_exit_code(releases):
    releases.deploy("@task\ndef pack(order, weight): ...")
    row([1])
    code, text = told()
    assert code == 2
    assert "missing a required argument: 'weight'" in text
    assert "Give the parameter a default" in text
    Task.objects.update(task_name="shop.tasks.gone")
    assert told()[0] == 1
    Task.objects.update(task_name="shop.tasks.pack", args=[1, 2])
    assert told()[0] == 0


def test_dead_tasks_are_only_notes(releases):
    releases.deploy("@task\ndef pack(order): ...")
    row([1, 2], status=Status.DEAD)
    row([1], name="shop.tasks.gone", status=Status.DEAD)
    code, text = told()
    assert code == 0
    assert [one.split()[0] for one in text.splitlines()] == [
        "NOTE",
        "do:",
        "NOTE",
        "do:",
        "Checked",
    ]


CALLS = [
    ("def pack(order)", [1], {}, True),
    ("def pack(order)", [], {"order": 1}, True),
    ("def pack(order)", [1], {"order": 1}, False),
    ("def pack(order)", [1, 2], {}, False),
    ("def pack(order, colour)", [1], {}, False),
    ("def pack(order, colour=1)", [1], {}, True),
    ("def pack(*orders, **more)", [1, 2], {"a": 1, "b": 2}, True),
    ("def pack(*orders)", [], {"a": 1}, False),
    ("def pack(order, /)", [], {"order": 1}, False),
    ("def pack(*, order)", [], {"order": 1}, True),
    ("def pack(*, order)", [1], {}, False),
    ("async def pack(order)", [1], {}, True),
    ("async def pack(order)", [], {}, False),
]


@pytest.mark.parametrize("call", CALLS, ids=range(len(CALLS)))
@pytest.mark.parametrize("decorator", ["@task", "@task(takes_context=True)", "@django_task"])
def test_a_call_fits_as_the_worker_calls_it(releases, decorator, call):
    head, args, kwargs, fits = call
    if "context" in decorator:
        head = head.replace("(", "(ctx, ", 1)
    releases.deploy(f"{decorator}\n{head}: ...")
    row(args, kwargs)
    assert (found() == []) is fits


def test_the_context_has_its_place(releases):
    releases.deploy("@task(takes_context=True)\ndef pack(ctx, **more): ...")
    row([], {"order": 1})
    assert found() == []
    row([], {"ctx": 1})
    assert [one[0] for one in found()] == ["ARGUMENTS"]


def test_a_decorator_that_takes_anything_is_a_note(releases):
    releases.deploy(
        "def logged(function):\n"
        "    @wraps(function)\n"
        "    def wrapper(*args, **kwargs): return function(*args, **kwargs)\n"
        "    return wrapper\n"
        "@task\n@logged\ndef pack(order): ..."
    )
    row([1])
    assert found() == []
    row([1, 2])
    assert found() == [("NOTE", "shop.tasks.pack", "tasks", {"pending": 1})]
    assert told()[0] == 0


def test_hooks_and_compensations_of_waiting_tasks(releases):
    releases.deploy(
        "@task\ndef told(event): ...\n"
        "@task\ndef next_one(result): ...\n"
        "@task\ndef undo(order, colour): ...\n"
        "@task(on_failure=told, on_success=next_one.with_result(), compensate=undo, idempotent=True)\n"
        "def pack(order, colour): ..."
    )["pack"].enqueue(1, colour=2)
    assert found() == []
    releases.deploy(
        "@task\ndef told(): ...\n@task\ndef undo(order): ...\n@task\ndef pack(order, colour): ..."
    )
    pending = {"pending": 1}
    assert found() == [
        ("UNKNOWN", "shop.tasks.next_one", "on_success of shop.tasks.pack", pending),
        ("ARGUMENTS", "shop.tasks.told", "on_failure of shop.tasks.pack", pending),
        ("ARGUMENTS", "shop.tasks.undo", "compensate of shop.tasks.pack", pending),
    ]


def test_hooks_of_hooks_and_of_open_batches(releases):
    code = releases.deploy(
        "@task\ndef last(event): ...\n@task(on_success=last)\ndef done(event): ...\n@task\ndef pack(order): ..."
    )
    with batch(on_finish=code["done"]):
        code["pack"].enqueue(1)
    releases.deploy("@task\ndef done(event): ...\n@task\ndef pack(order): ...")
    assert found() == [("UNKNOWN", "shop.tasks.last", "on_success of shop.tasks.done", {"open": 1})]


def test_schedules(releases):
    releases.deploy("@periodic(every=60)\n@task\ndef pack(order=1): ...")
    columns = {"every": 60.0, "task_name": "shop.tasks.pack"}
    Schedule(
        name="shop.tasks.pack", args=[1, 2], from_code=True, **columns
    ).save()  # migrate writes it anew
    Schedule(name="gone", from_code=True, **{**columns, "task_name": "shop.tasks.gone"}).save()
    Schedule(name="off", args=[1, 2], enabled=False, **columns).save()
    assert told()[0] == 0
    Schedule(name="edited", args=[1, 2], from_code=True, edited=True, **columns).save()
    Schedule(name="by hand", **{**columns, "task_name": "shop.tasks.missing"}).save()
    assert found() == [
        ("UNKNOWN", "shop.tasks.missing", "schedule by hand", {"enabled": 1}),
        ("ARGUMENTS", "shop.tasks.pack", "schedule edited", {"enabled": 1}),
        ("NOTE", "shop.tasks.gone", "schedule gone", {"enabled": 1}),
        ("NOTE", "shop.tasks.pack", "schedule off", {"disabled": 1}),
    ]
    assert told()[0] == 3


def test_the_result_as_json(releases):
    releases.deploy("@task\ndef pack(order): ...")
    sample = row([1], name="shop.tasks.gone")
    code, text = told("--json")
    said = json.loads(text)
    (finding,) = said.pop("findings")
    assert said == {
        "database": "default", "exit_code": 1, "tasks": 1, "schedules": 0, "left_out": 0, "trouble": "",
    }  # fmt: skip
    assert code == 1
    assert (finding["kind"], finding["task"], finding["where"]) == (
        "unknown",
        "shop.tasks.gone",
        "tasks",
    )
    assert finding["rows"] == {"pending": 1}
    assert uuid.UUID(finding["sample"]) == sample.pk


def test_each_row_is_read_once_whatever_the_size_of_a_part(releases, monkeypatch):
    releases.deploy("@task\ndef pack(order): ...")
    rows = [row([1], {"b": 1, "a": number}) for number in range(7)] + [row([1]) for _ in range(6)]
    for size in (1, 2, 3, 13, 14):
        monkeypatch.setattr(shapes, "ROWS_PER_PART", size)
        counts = {}
        for shape, count, _ in shapes.shapes_of_rows("default", 60):
            counts[shape.call] = counts.get(shape.call, 0) + count
        assert counts == {Call(1, ("a", "b")): 7, Call(1, ()): 6}
    assert preflight("default", 60).tasks == len(rows)


def test_a_row_that_is_no_call_is_a_misfit(releases):
    releases.deploy("@task\ndef pack(order): ...")
    Task.objects.filter(pk=row().pk).update(args={"order": 1})
    Task.objects.filter(pk=row([1]).pk).update(kwargs=[1])
    assert found() == [("ARGUMENTS", "shop.tasks.pack", "tasks", {"pending": 2})]


def test_too_little_time_is_said_and_is_an_exit_code(releases, monkeypatch):
    releases.deploy("@task\ndef pack(order): ...")
    monkeypatch.setattr(shapes, "ROWS_PER_PART", 1)
    for _ in range(3):
        row([1], name="shop.tasks.gone")
    code, text = told("--seconds=1e-9")
    assert code & 4
    assert "Not all rows could be read in 1e-09 s" in text


def test_many_different_findings_are_counted(releases, monkeypatch):
    monkeypatch.setattr("django_txtasks.insight.preflight.MOST_FINDINGS", 2)
    releases.deploy("")
    for number in range(5):
        row(name=f"shop.tasks.gone{number}")
    code, text = told()
    assert code == 5
    assert "Rows with further findings: 3." in text


@pytest.mark.parametrize("option", ["--seconds=0", "--database=nowhere"])
def test_a_wrong_option_is_no_finding(releases, option):
    with pytest.raises(CommandError) as raised:
        told(option)
    assert raised.value.returncode == 4


@pytest.mark.parametrize("seconds", ["inf", "nan", "-1", "1e300"])
def test_odd_seconds_are_named(releases, seconds):
    with pytest.raises(CommandError, match=r"--seconds is .*; it must be a number") as raised:
        told(f"--seconds={seconds}")
    assert raised.value.returncode == 4


@pytest.mark.parametrize("option", ["--secnds=3", "--seconds=x"])
def test_an_option_that_cannot_be_parsed_has_a_code_of_its_own(releases, option, capsys):
    with pytest.raises(SystemExit) as raised:
        Command().run_from_argv(["manage.py", "txtasks_preflight", option])
    assert raised.value.code == 4
    assert option.split("=")[0] in capsys.readouterr().err


def test_schedules_and_batches_that_were_not_read_are_said(releases, monkeypatch):
    monkeypatch.setattr("django_txtasks.insight.preflight.MOST_SCHEDULES", 1)
    monkeypatch.setattr(shapes, "MOST_BATCHES", 1)
    for name in ("a", "b"):
        Schedule(name=name, task_name="shop.tasks.gone", every=60.0).save()
    code = releases.deploy("@task\ndef done(result): ...")
    for _ in range(2):
        with batch(on_finish=code["done"]):
            code["done"].enqueue(1)
    status, text = told()
    assert status == 5
    assert "Only 1 schedules were checked: there are more." in text
    assert "open batches were checked: there are more." in text


def test_it_writes_nothing(releases):
    releases.deploy("@task\ndef pack(order): ...")
    row([1])
    told()
    words = {one["sql"].split()[0] for one in _queries(told)}
    assert words <= {"SELECT", "SET", "BEGIN", "COMMIT", "START", "PRAGMA"}
    assert not Worker.objects.exists()


def _queries(work):
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as captured:
        work()
    return captured.captured_queries


def test_what_is_handed_over_needs_no_function_here(txtasks):
    """Its code is in the other system. A queue of workers with the same names is checked as ever."""
    txtasks(queues=["default", "events"], hand_over={"events": "probe.relay.send"})
    external("mail.nightly", queue_name="events").using(run_after=7200).enqueue(1)
    schedule = {"task_name": "mail.nightly", "every": 60, "next_at": "2030-01-01T00:00:00Z"}
    Schedule.objects.create(name="theirs", queue_name="events", **schedule)
    row(name="probe.tasks.note", args=[1, 2, 3], queue_name="events")
    theirs = external("mail.confirm", queue_name="events")
    tasks.note.using(on_success=theirs, on_failure=theirs, run_after=7200).enqueue("x")
    with batch(name="b", on_finish=theirs):
        tasks.note.using(run_after=7200).enqueue("y")
    assert told("--database", "default")[0] == 0 and not found()
    Schedule.objects.create(name="ours", queue_name="default", **schedule)
    row(name="mail.nightly")
    assert [(kind, where) for kind, _, where, _ in found()] == [
        ("UNKNOWN", "schedule ours"),
        ("UNKNOWN", "tasks"),
    ]
