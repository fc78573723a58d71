"""txtasks_audit: each question finds what it is for, and nothing in a healthy site."""

import dataclasses
import io
import json
import uuid
from datetime import timedelta

import helpers
import pytest
from django.core.management import CommandError, call_command
from django.db import InternalError, OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from probe import tasks

from django_txtasks import enqueue_many
from django_txtasks.conf import get_config
from django_txtasks.inspection.audit import (
    QUESTIONS,
    _answer,
    _reading,
    _view,
    audit,
)
from django_txtasks.inspection.finding import MAX_COUNTED_ROWS
from django_txtasks.lifecycle import pausing
from django_txtasks.models import Cleaner, FinishedTask, Schedule, Status, Task, Worker

pytestmark = pytest.mark.usefixtures("rows")

LONG, JUST_NOW = timedelta(days=1), timedelta(0)


@pytest.fixture(autouse=True)
def cleaner(rows):
    """A cleaner that has just finished a pass."""
    Cleaner.objects.create(
        id=uuid.uuid4(), host="web1", pid=8, interval=30, lease=15, passed_at=timezone.now()
    )


def worker(seen=JUST_NOW, queues=("default",), **columns):
    """Write a worker that was seen so long ago."""
    facts = {"host": "web1", "pid": 7, "queues": list(queues), "threads": 4, "lease": 15.0}
    seen_at = timezone.now() - seen
    return Worker.objects.create(id=uuid.uuid4(), seen_at=seen_at, **{**facts, **columns})


def row(due=JUST_NOW, **columns):
    """Write a task that has been due for so long."""
    run_after = timezone.now() - due
    facts = {"id": uuid.uuid4(), "task_name": "probe.tasks.note", "args": [], "kwargs": {}}
    return Task.objects.create(run_after=run_after, **{**facts, **columns})


def claimed(by, since=LONG, **columns):
    """Write a task that somebody claimed so long ago."""
    times = {"claimed_at": timezone.now() - since, "started_at": timezone.now() - since}
    return row(status=Status.CLAIMED, worker=by, attempt=1, **times, **columns)


def found(**options):
    """Return the count of each finding, by name."""
    return {finding.name: finding.count for finding in audit("default", get_config(), **options)}


def test_a_healthy_site_has_no_findings():
    busy = worker()
    worker(seen=LONG, lost=True)
    row()
    row(due=-LONG)
    row(status=Status.HELD, due=LONG)
    claimed(busy.pk, since=timedelta(minutes=30))
    claimed(worker(seen=timedelta(seconds=20), lost=True).pk, since=timedelta(seconds=16))
    worker(seen=timedelta(seconds=20))
    row(attempt=4, failures=2, crashes=1)
    row(attempt=9, failures=5, crashes=3)
    FinishedTask.objects.create(id=uuid.uuid4(), task_name="probe.tasks.note", outcome="succeeded")
    assert found() == {}


def no_cleaner():
    Cleaner.objects.all().delete()


def silent_workers():
    worker(seen=timedelta(seconds=31))


def not_recovered():
    claimed(worker(seen=LONG, lost=True).pk)


def overdue_unserved():
    worker(queues=["mail"])
    worker(seen=timedelta(seconds=20))
    row(due=timedelta(seconds=65))


def overdue():
    worker()
    row(due=timedelta(seconds=65))


def overdue_paused():
    worker()
    row(due=timedelta(seconds=65))
    pausing.pause("default", "default")


def undeclared():
    worker(task_names=["orders.tasks.send_receipt"])
    row(task_name="reports.jobs.monthly", due=-timedelta(hours=1))


def held_long():
    claimed(worker().pk, since=timedelta(minutes=61))


def schedules():
    Schedule(name="s", task_name="probe.tasks.note", every=60.0, error="bad").save()


def live_and_finished():
    worker()
    twice = row()
    FinishedTask.objects.create(id=twice.pk, task_name=twice.task_name, outcome="succeeded")


def impossible_counts():
    row(attempt=9, crashes=4)


def unreadable():
    row(args={"a": 1})


def dead():
    row(status=Status.DEAD)


MAKERS = (no_cleaner, silent_workers, not_recovered, overdue_unserved, overdue, overdue_paused, undeclared,
          held_long, schedules, live_and_finished, impossible_counts, unreadable, dead)  # fmt: skip


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_each_question_finds_what_it_is_for_and_nothing_else(make):
    make()
    assert found() == {make.__name__: 1}


def test_there_is_a_test_of_every_question():
    assert {make.__name__ for make in MAKERS} == {question.name for question in QUESTIONS}


def test_without_any_worker_no_queue_is_served():
    row(due=timedelta(seconds=65))
    assert found() == {"overdue_unserved": 1}


def test_a_question_that_is_not_answered_in_time_is_a_finding():
    def ask(view):
        raise OperationalError("canceling statement due to statement timeout")

    finding = _answer(
        dataclasses.replace(QUESTIONS[0], ask=ask), _view("default", get_config(), LONG)
    )
    assert (finding.name, finding.is_problem) == ("unanswered:no_cleaner", True)
    assert "statement timeout" in finding.meaning


def test_a_claim_whose_worker_has_no_row_is_found_after_a_lease():
    claimed(uuid.uuid4(), since=timedelta(seconds=10))
    assert found() == {}
    claimed(uuid.uuid4(), since=timedelta(seconds=16))
    assert found() == {"not_recovered": 1}


@pytest.mark.parametrize(
    "counts",
    [
        {"attempt": 9, "failures": 6},
        {"attempt": 9, "crashes": 4},
        {"attempt": 1, "failures": 1, "crashes": 1},
    ],
    ids=["failures", "crashes", "attempts"],
)
def test_counts_that_cannot_be_are_found(counts):
    row(**counts)
    assert found() == {"impossible_counts": 1}


@pytest.mark.parametrize("wrong", [{"args": {}}, {"kwargs": []}, {"args": 1}, {"kwargs": "text"}])
def test_arguments_that_cannot_be_passed_are_found(wrong):
    row(**wrong)
    assert found() == {"unreadable": 1}


def test_how_long_a_claim_is_beyond_suspicion_can_be_said():
    claimed(worker().pk, since=timedelta(minutes=10))
    assert found() == {}
    assert found(long_running_after=timedelta(minutes=5)) == {"held_long": 1}


def test_nothing_is_counted_beyond_a_limit():
    enqueue_many([(tasks.note, ["x"])] * (MAX_COUNTED_ROWS + 5))
    helpers.execute("UPDATE txtasks_task SET status = 'dead'")
    (finding,) = audit("default", get_config())
    assert (finding.count, finding.shown_count) == (MAX_COUNTED_ROWS + 1, f"{MAX_COUNTED_ROWS}+")


def test_an_audit_waits_for_no_lock_and_only_reads():
    for make in MAKERS:
        make()
    with (
        helpers.locked("UPDATE txtasks_task SET priority = 1"),
        CaptureQueriesContext(connection) as asked,
    ):
        assert set(found()) >= {"dead", "not_recovered", "live_and_finished"}
    first_words = {query["sql"].split()[0] for query in asked.captured_queries}
    assert first_words <= {"SELECT", "SET", "BEGIN", "COMMIT"}


@pytest.mark.skipif(connection.vendor != "postgresql", reason="only PostgreSQL is told to refuse")
def test_an_audit_on_postgresql_could_not_write():
    with pytest.raises(InternalError, match="read-only"), _reading("default"):
        helpers.execute("DELETE FROM txtasks_task")


# ---- the command


def command(*arguments):
    """Return the exit code and what the command prints."""
    out = io.StringIO()
    try:
        call_command("txtasks_audit", *arguments, stdout=out)
    except SystemExit as leaving:
        return leaving.code, out.getvalue()
    return 0, out.getvalue()


def test_nothing_found_is_exit_code_0():
    assert command() == (0, "Nothing was found.\n")
    assert command("--json") == (0, '{"ok": true, "findings": []}\n')


def test_a_problem_is_exit_code_1_with_what_it_means_and_what_to_do():
    stuck = claimed(worker().pk)
    code, text = command()
    assert code == 1
    first, means, do = text.splitlines()
    assert first.startswith("PROBLEM 1 tasks that a living worker")
    assert str(stuck.pk) in first
    assert means.strip().startswith("means:")
    assert do.strip().startswith("do:")


def test_dead_tasks_are_told_and_are_no_problem():
    row(status=Status.DEAD)
    code, text = command("--json")
    assert code == 0
    (finding,) = json.loads(text)["findings"]
    assert (finding["name"], finding["is_problem"]) == ("dead", False)


def test_problems_come_first():
    row(status=Status.DEAD)
    row(args={})
    assert command()[1].startswith("PROBLEM")


def test_wrong_options_are_refused():
    with pytest.raises(CommandError, match="more than 0"):
        call_command("txtasks_audit", "--long-running-after=0")
    with pytest.raises(CommandError, match="not in DATABASES"):
        call_command("txtasks_audit", "--database=nowhere")
