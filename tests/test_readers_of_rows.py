"""All that reads rows for people says the same of each kind of row: one table, and one site with real rows.

A row of each kind has been due for an hour, unless it waits. A living worker of this package serves the queues
``default`` and ``mail``, and a cleaner runs, so that each reader says what it says of this row alone.
"""

import html
import io
import json
import re
import uuid
from datetime import datetime, timedelta, timezone

import helpers
import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import Value
from probe import asking, tasks
from test_glance import signed_in

from django_txtasks import overview as overview_room
from django_txtasks.contrib.people.models import Question
from django_txtasks.core.declaring import registry
from django_txtasks.core.rows import cleaners, workers
from django_txtasks.features.reports import names
from django_txtasks.metrics import exposition, kept
from django_txtasks.models import DatabaseNow, FinishedTask, Schedule, Task, Worker
from django_txtasks.operations import pausing
from django_txtasks.testing import run_due_tasks

OURS, HANDED, THEIRS = "probe.tasks.give", "billing.paid", "render.page"
HOUR, LEASE = timedelta(hours=1), timedelta(minutes=10)


def registered(queues, names, **columns):
    columns = columns or {"lost": False}
    worker = workers.register(
        "default", queues=queues, task_names=names, threads=2, listening=None, lease=LEASE
    )
    Worker.objects.filter(pk=worker).update(**columns)
    return worker


def row(name, **columns):
    """Write a row as another program does."""
    columns.setdefault("run_after", DatabaseNow() - Value(HOUR))
    return Task.objects.create(pk=uuid.uuid4(), task_name=name, args=[1], **columns)


def asks():
    asking.approve.enqueue("May we?")
    run_due_tasks()


def waits():
    tasks.ask.using(expires=None).enqueue("k")
    run_due_tasks()


def drain():
    registered(["events"], [workers.DRAIN_MARK])


def foreign():
    """As the page about workers in other languages writes it."""
    registered(["default"], [THEIRS], sessions=["4711 1.0 2.0"])


def paused():
    pausing.pause("default", "mail", by="ann")
    row(OURS, queue_name="mail")


KINDS = {
    "own": lambda: row(OURS),
    "handed, with a drain": lambda: [drain(), row(HANDED, queue_name="events")],
    "handed, no drain": lambda: row(HANDED, queue_name="events"),
    "foreign, alive": lambda: [foreign(), row(THEIRS)],
    "foreign, none": lambda: row(THEIRS),
    "question": asks,
    "token": waits,
    "lane": lambda: row(OURS, lane="slow"),
    "expired": lambda: row(OURS, expires_at=DatabaseNow() - Value(HOUR / 2)),
    "paused": paused,
}


@pytest.fixture
def site(rows, txtasks):
    """A site with a worker and a cleaner at work."""
    txtasks(
        queues=["default", "events", "mail"],
        hand_over={"events": "probe.relay.send"},
        lanes={"slow": {"at_most": 1}},
    )
    kept.forget()
    yield
    kept.forget()
    Question.objects.all().delete()
    User.objects.all().delete()


def stage(kind):
    KINDS[kind]()
    registered(["default", "mail"], registry.names())
    cleaner = cleaners.register("default", interval=timedelta(seconds=9), lease=LEASE)
    cleaners.passed("default", cleaner)
    made = Task.objects.get()
    call = {"task_name": made.task_name, "args": made.args, "kwargs": made.kwargs}
    Schedule.objects.create(
        name="nightly", queue_name=made.queue_name, cron="0 3 * * *", next_at=DatabaseNow() + Value(HOUR),
        last_at=DatabaseNow() - Value(HOUR), last_task=made.pk, **call,
    )  # fmt: skip
    return made


def told(command, *arguments, **options):
    """Return what a command prints, with its exit code."""
    out, code = io.StringIO(), 0
    try:
        call_command(command, *arguments, stdout=out, stderr=out, **options)
    except CommandError as error:
        code = error.returncode
        out.write(str(error))
    except SystemExit as end:
        code = end.code
    return f"exit code {code}\n{out.getvalue()}"


def again_when_ended(made):
    columns = ("task_name", "queue_name", "args", "kwargs", "lane", "enqueued_at", "run_after")
    columns = [one for one in columns if hasattr(FinishedTask, one)]
    ended = FinishedTask.objects.create(
        pk=uuid.uuid4(), outcome="cancelled", attempt=1, finished_at=DatabaseNow(),
        **{one: getattr(made, one) for one in columns},
    )  # fmt: skip
    said = told("txtasks_task", "again", str(ended.pk), yes=True)
    new = Task.objects.exclude(pk=made.pk).first()
    if new is not None:
        said += f"\nnew row: {new.task_name} in {new.queue_name}"
    return said


def glance(made):
    overview_room._forget()
    page = signed_in(is_superuser=True).get("/admin/txtasks/overview/").content.decode()
    text = re.sub(
        r"<(style|script|svg).*?</\1>",
        " ",
        page.partition('id="txtasks-glance"')[2],
        flags=re.DOTALL,
    )
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())


def metrics(made):
    """Return the values that are not 0, each with the label that tells it apart."""
    wanted = ("txtasks_due", "txtasks_later", "txtasks_problems", "txtasks_schedule_late")
    found = re.findall(
        r'^(\w+)\{database="default",\w+="(\w+)".*\} (\S+)$', exposition.text(["default"]), re.M
    )
    return "; ".join(f"{name}{{{of}}} {n}" for name, of, n in found if name in wanted and n != "0")


def numbers(made):
    """Return the load of the only queue that has any."""
    found = json.loads(told("txtasks_load", json=True).partition("\n")[2])["queues"]
    if not found:
        return NO_LOAD
    (one,) = found
    return f"due {one['due']}; in lanes {one['due_in_lanes']}; wanted {one['wanted_threads']}"


READERS = {
    "preflight": lambda made: told("txtasks_preflight"),
    "load": numbers,
    "again": lambda made: told("txtasks_task", "again", str(made.pk), yes=True),
    "audit": lambda made: told("txtasks_audit"),
    "explain": lambda made: told("txtasks_explain", str(made.pk)),
    "explain without an id": lambda made: told("txtasks_explain"),
    "At a glance": glance,
    "schedules": lambda made: told("txtasks_schedules", "check"),
    "metrics": metrics,
    "status": lambda made: told("txtasks_status"),
    "again, once it has ended": again_when_ended,
}


FITS = "exit code 0; Checked 1 live task and 1 schedule: they fit this code."
NO_LOAD, PENDING = "{queues []}", "exit code 1; it is pending, not dead or "
NOTHING, WELL = "exit code 0; Nothing was found.", "exit code 0; Schedules that are well: 1"
NEXT = "next: Nothing is in its way: a worker is about to claim it"
BEHIND = "Queue default is behind: 1 task waits, the oldest for 1 h. "
LATER, UNTIL = (
    "txtasks_later{default} 1",
    "exit code 0; later: Waiting for their time, or for an answer: 1 in default.",
)
NO_FUNCTION = "exit code 1; No task function render.page is declared in this code."
NO_DRAIN = "Queue events is handed over to another system, and no living drain serves it."
NOT_TAKEN = "Queue events is handed over to another system, which has not taken the task yet."
UNDRAINED = "No drain hands over queue events. 1 task waits, the oldest for 1 h. Start a drain: "
SLOWLY = "Queue events is handed over too slowly: 1 task waits"
EXPIRED = "Queue default has 1 expired task that no cleaner has cancelled. The log of the cleaners says why."
STATUS, ALL_IS_WELL = "exit code 0; ", "exit code 0; All is well."

# Each cell: texts that the output has; after "not:", texts that it lacks.
SAYS = {
    "own": {
        "preflight": FITS,
        "load": "due 1; wanted 1",
        "again": PENDING,
        "audit": "exit code 1; PROBLEM overdue tasks in queues that are served (1)",
        "explain": NEXT,
        "explain without an id": NEXT,
        "At a glance": f"{BEHIND}Its workers use 0 of 2 slots; 1 due",
        "schedules": WELL,
        "metrics": "txtasks_due{default} 1; txtasks_problems{queue_behind} 1",
        "status": f"{STATUS}{BEHIND}Its workers use 0 of 2 slots",
        "again, once it has ended": "exit code 0; new row: probe.tasks.give in default",
    },
    "handed, with a drain": {
        "preflight": f"{FITS}; Tasks of queues that are handed over, which were not compared: 1.",
        "load": NO_LOAD,
        "again": PENDING,
        "audit": "exit code 1"
        "; PROBLEM overdue tasks in queues of TXTASKS['hand_over'] that a living drain serves (1)"
        "; not: in queues that are served",
        "explain": f"drain: {NOT_TAKEN}",
        "explain without an id": f"drain: {NOT_TAKEN}",
        "At a glance": f"{SLOWLY}; 1 due; events 1 drain 1",
        "schedules": WELL,
        "metrics": "txtasks_due{events} 1; txtasks_problems{handed_slowly} 1",
        "status": f"{STATUS}{SLOWLY}; Drains: 1 alive.",
        "again, once it has ended": "exit code 0; new row: billing.paid in events",
    },
    "handed, no drain": {
        "preflight": f"{FITS}; Tasks of queues that are handed over, which were not compared: 1.",
        "load": NO_LOAD,
        "again": PENDING,
        "audit": "exit code 1"
        "; PROBLEM due tasks in queues of TXTASKS['hand_over'] that no living drain serves (1)",
        "explain": f"drain: {NO_DRAIN}; Start manage.py rundrain --queue events",
        "explain without an id": f"drain: {NO_DRAIN}",
        "At a glance": f"{UNDRAINED}; events no living drain 1",
        "schedules": WELL,
        "metrics": "txtasks_due{events} 1; txtasks_problems{undrained_queue} 1",
        "status": f"{STATUS}{UNDRAINED}",
        "again, once it has ended": "exit code 0; new row: billing.paid in events",
    },
    "foreign, alive": {
        "preflight": "exit code 1; UNKNOWN render.page (schedule nightly); Tasks that living workers in other "
        "languages run, which were not compared: 1.; not: render.page (tasks)",
        "load": NO_LOAD,
        "again": PENDING,
        "audit": "exit code 1; PROBLEM overdue tasks that only workers in other languages run (1)"
        "; not: in queues that are served",
        "explain": NEXT,
        "explain without an id": NEXT,
        "At a glance": f"{BEHIND}Workers in other languages run render.page: their logs say more.",
        "schedules": NO_FUNCTION,
        "metrics": "txtasks_due{default} 1; txtasks_problems{queue_behind} 1; txtasks_schedule_late{nightly} 1",
        "status": f"{STATUS}{BEHIND}Workers in other languages run render.page",
        "again, once it has ended": "exit code 0; new row: render.page in default",
    },
    "foreign, none": {
        "preflight": "exit code 1; UNKNOWN render.page (tasks)"
        "; If a worker in another language runs it, start that",
        "load": NO_LOAD,
        "again": PENDING,
        "audit": "exit code 1; PROBLEM names of pending tasks that no living worker of their queue declares (1)",
        "explain": "name: No living worker of queue default runs render.page."
        "; If a worker in another language runs "
        "it, start that worker.",
        "explain without an id": "name: No living worker of queue default runs render.page.",
        "At a glance": "No living worker of queue default runs render.page, so at least 1 task waits.",
        "schedules": NO_FUNCTION,
        "metrics": "txtasks_due{default} 1; txtasks_problems{undeclared_names} 1"
        "; txtasks_schedule_late{nightly} 1",
        "status": f"{STATUS}No living worker of queue default runs render.page",
        "again, once it has ended": "exit code 1; no living worker in another language runs it in queue 'default'",
    },
    "question": {
        "preflight": FITS,
        "load": NO_LOAD,
        "again": PENDING,
        "audit": NOTHING,
        "explain": "person: It waits for a person, who answers the question 'May we?' (probe.approval)."
        "; not: resume(",
        "explain without an id": f"{UNTIL}; person: Waiting for a person: 1 question.; not: The first is due",
        "At a glance": "All is well; 1 later",
        "schedules": WELL,
        "metrics": f"{LATER}; not: txtasks_problems",
        "status": f"{ALL_IS_WELL}; Waiting for a person: 1 question.",
        "again, once it has ended": "exit code 0; new row: probe.asking.approve in default",
    },
    "token": {
        "preflight": FITS,
        "load": NO_LOAD,
        "again": PENDING,
        "audit": NOTHING,
        "explain": "waits: It waits for 'answer'.; Call resume(token, value) with the text of its ctx.token.",
        "explain without an id": f"{UNTIL}; not: The first is due; Waiting for a person",
        "At a glance": "All is well; 1 later",
        "schedules": WELL,
        "metrics": f"{LATER}; not: txtasks_problems",
        "status": f"{ALL_IS_WELL}; not: Waiting for a person",
        "again, once it has ended": "exit code 0; new row: probe.tasks.ask in default",
    },
    "lane": {
        "preflight": FITS,
        "load": "due 0; in lanes 1; wanted 0",
        "again": PENDING,
        "audit": NOTHING,
        "explain": NEXT,
        "explain without an id": NEXT,
        "At a glance": "All is well; 1 due",
        "schedules": WELL,
        "metrics": "txtasks_due{default} 1; not: txtasks_problems",
        "status": f"{STATUS}A task has been due for 36; in queue default: Nothing is in its way",
        "again, once it has ended": "exit code 0; new row: probe.tasks.give in default",
    },
    "expired": {
        "preflight": FITS,
        "load": NO_LOAD,
        "again": PENDING,
        "audit": "exit code 1; PROBLEM expired tasks that no cleaner has cancelled (1)"
        "; not: in queues that are served",
        "explain": "expired: It expired at; a cleaner cancels it.",
        "explain without an id": "expired: It expired at",
        "At a glance": f"{EXPIRED}; 1 due; not: is behind",
        "schedules": WELL,
        "metrics": "txtasks_due{default} 1; txtasks_problems{not_cancelled} 1",
        "status": f"{STATUS}{EXPIRED}; It expired at; not: is behind",
        "again, once it has ended": "exit code 0; new row: probe.tasks.give in default",
    },
    "paused": {
        "preflight": FITS,
        "load": NO_LOAD,
        "again": PENDING,
        "audit": "exit code 0; NOTE overdue tasks in queues that a person has paused (1)",
        "explain": "paused: Queue mail was paused by ann; manage.py txtasks_queue resume mail",
        "explain without an id": "paused: Queue mail was paused by ann",
        "At a glance": "Queue mail has been paused by ann for; 1 task waits, the oldest for 1 h.",
        "schedules": WELL,
        "metrics": "txtasks_due{mail} 1; txtasks_problems{paused_queue} 1",
        "status": f"{STATUS}Queue mail has been paused by ann for",
        "again, once it has ended": "exit code 0; new row: probe.tasks.give in mail",
    },
}


def wrong(output, cell):
    """Return the texts of a cell that the output lacks, or has although it must not."""
    has, _, lacks = cell.partition("; not: ")
    return [one for one in has.split("; ") if one not in output] + [
        f"not: {one}" for one in lacks.split("; ") if one and one in output
    ]


@pytest.mark.parametrize("kind", SAYS)
def test_each_reader_says_of_each_kind_of_row(site, kind):
    made, found = stage(kind), {}
    for name, read in READERS.items():
        output = " ".join(read(made).split())
        if missing := wrong(output, SAYS[kind][name]):
            found[name] = (missing, output)
    assert not found


# -- more readers of the same rows ----------------------------------------------------------------


def test_a_queue_whose_functions_this_code_lacks_needs_no_worker_of_this_code(site):
    """As the queue of a worker in another language that is dead: runworkers would not help."""
    registered(["default"], registry.names())
    made = row(THEIRS, queue_name="mail")
    said = (
        "serves queue mail. 1 task waits, the oldest for 1 h. This code has no function render.page"
    )
    assert said in told("txtasks_status")
    explained = told("txtasks_explain", str(made.pk))
    assert "queue: No living worker serves queue mail" in explained
    assert "runworkers --queue" not in explained and "in another language" in explained
    row(OURS, queue_name="mail")
    assert "Start a worker: manage.py runworkers --queue mail." in told("txtasks_status")


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        ({"lane": "slow"}, "a lane"),
        ({"unique_key": uuid.uuid4(), "unique_text": "k"}, "a unique key"),
        ({"snoozes": 1}, "a snooze"),
        ({"hooks": {"on_success": {}}}, "hooks"),
    ],
    ids=["lane", "unique key", "snooze", "hooks"],
)
def test_a_task_that_workers_in_other_languages_leave_says_so(site, columns, what):
    foreign()
    made = row(THEIRS, **columns)
    said = (
        f"Only workers in other languages run render.page, and they leave tasks with {what} alone."
    )
    assert said in told("txtasks_explain", str(made.pk))
    registered(["default"], [THEIRS])
    assert said not in told("txtasks_explain", str(made.pk))


def test_workers_in_other_languages_ask_for_no_workers_of_this_package(site):
    """In a queue that both serve. A scaler of their own reads the numbers of a queue that only they serve."""
    foreign()
    row(THEIRS), row(THEIRS)
    assert "due 2" in numbers(None)
    ours = registered(["default"], registry.names())
    assert numbers(None) == NO_LOAD
    row(OURS)
    assert numbers(None) == "due 1; in lanes 0; wanted 1"
    Worker.objects.filter(pk=ours).delete()
    Worker.objects.filter(task_names=[THEIRS]).update(queues=["default", "mail"])
    assert "due 2" in numbers(None)


@pytest.mark.skipif(connection.vendor != "postgresql", reason="other databases have no view")
def test_the_view_of_scalers_knows_after_migrate_what_is_handed_over(site, txtasks):
    """KEDA would start pods of runworkers, which refuse the queue."""
    row(HANDED, queue_name="events"), row(HANDED, queue_name="it's 100%")
    query = "SELECT COUNT(*) FROM txtasks_load"
    assert helpers.execute(query) == [(2,)]
    txtasks(
        queues=["default", "events", "it's 100%"],
        hand_over=dict.fromkeys(["events", "it's 100%"], "probe.relay.send"),
    )
    try:
        call_command("migrate", "txtasks", verbosity=0)
        assert helpers.execute(query) == [(0,)]
        txtasks(hand_over={"events": "probe.relay.send"})
        call_command("migrate", "txtasks", verbosity=0)
        assert helpers.execute(query) == [(1,)]
    finally:
        txtasks(hand_over={})
        call_command("migrate", "txtasks", verbosity=0)
    assert helpers.execute(query) == [(2,)]


def test_a_schedule_is_done_when_its_task_was_handed_over(site):
    """The other system has the rest. Otherwise it would never be done by its hour."""
    tick = (datetime.now(timezone.utc) - timedelta(hours=2)).replace(second=0, microsecond=0)
    ended = FinishedTask.objects.create(
        pk=uuid.uuid4(), task_name=HANDED, queue_name="events", outcome="handed", attempt=0,
        args=[], kwargs={}, enqueued_at=tick, run_after=tick, finished_at=tick,
    )  # fmt: skip
    Schedule.objects.create(
        name="theirs", task_name=HANDED, queue_name="events", last_task=ended.pk, last_at=tick,
        cron=f"{tick.minute} {tick.hour} * * *", ready_by=f"{tick + timedelta(hours=1):%H:%M}",
        watched_from=tick - timedelta(days=9), next_at=tick + timedelta(days=1),
    )  # fmt: skip
    assert "Schedules that are well: 1" in told("txtasks_schedules", "check", "theirs")
    FinishedTask.objects.update(outcome="cancelled")
    assert "not done by" in told("txtasks_schedules", "check", "theirs")


def test_a_foreign_worker_owns_rows_of_its_queues_alone(site):
    foreign()
    row(THEIRS, queue_name="mail")
    assert "UNKNOWN   render.page (tasks)" in told("txtasks_preflight")


def test_a_hook_in_another_language_is_not_compared(site):
    foreign()
    spec = {**registry.get(OURS).task_spec, "task_name": THEIRS}
    row(OURS, hooks={"on_success": spec})
    assert "exit code 0" in told("txtasks_preflight")
    Worker.objects.all().delete()
    assert "render.page (on_success of probe.tasks.give)" in told("txtasks_preflight")


def test_only_questions_wait_for_a_person(site):
    row(OURS, status="dead")
    said = told("txtasks_status")
    assert "Dead tasks: 1. Read why, then revive or discard them." in said
    assert "Waiting for a person" not in said


def test_what_a_person_starts_in_a_queue_without_a_drain_is_said_to_wait(site):
    registered(["default"], registry.names())
    assert names.without_worker("default", [("events", HANDED)]) == [
        "No living drain hands over queue events, so its tasks wait."
    ]
    drain()
    assert not names.without_worker("default", [("events", HANDED)])
