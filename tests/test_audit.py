"""txtasks_audit: each question finds its problem, and nothing on a healthy site."""

import dataclasses
import io
import json
import re
import threading
import time
import uuid
from datetime import timedelta

import helpers
import pytest
from django.core.management import CommandError, call_command
from django.db import InternalError, OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from probe import tasks

from django_txtasks import batch, enqueue_many
from django_txtasks.conf import get_config
from django_txtasks.core.cleaning.cleaner import Cleaner as CleanerLoop
from django_txtasks.core.rows.turn import LOOP_MARK
from django_txtasks.features.progress.notes import LAG, THREADS
from django_txtasks.insight import forgotten
from django_txtasks.insight.audit import _answer, _view, audit
from django_txtasks.insight.finding import MAX_COUNTED_ROWS
from django_txtasks.insight.questions import QUESTIONS
from django_txtasks.insight.reading import reading
from django_txtasks.models import (
    Batch,
    Cleaner,
    FinishedTask,
    Lane,
    Schedule,
    Status,
    Task,
    Wait,
    Worker,
)
from django_txtasks.operations import operators, pausing
from django_txtasks.testing import run_due_tasks

pytestmark = pytest.mark.usefixtures("rows")

LONG, JUST_NOW = timedelta(days=1), timedelta(0)


@pytest.fixture(autouse=True)
def cleaner(rows):
    """A cleaner that has just finished a pass."""
    Cleaner.objects.create(
        id=uuid.uuid4(), host="web1", pid=8, interval=30, lease=15, passed_at=timezone.now()
    )


def worker(seen=JUST_NOW, queues=("default",), **columns):
    """Write a worker that was last seen this long ago."""
    facts = {"host": "web1", "pid": 7, "queues": list(queues), "threads": 4, "lease": 15.0}
    seen_at = timezone.now() - seen
    return Worker.objects.create(id=uuid.uuid4(), seen_at=seen_at, **{**facts, **columns})


def row(due=JUST_NOW, **columns):
    """Write a task that has been due for this long."""
    run_after = timezone.now() - due
    facts = {"id": uuid.uuid4(), "task_name": "probe.tasks.note", "args": [], "kwargs": {}}
    return Task.objects.create(run_after=run_after, **{**facts, **columns})


def finished(ended=LONG, **columns):
    """Write a task that finished this long ago."""
    facts = {"id": uuid.uuid4(), "task_name": "probe.tasks.note", "outcome": "succeeded"}
    at = timezone.now() - ended
    return FinishedTask.objects.create(finished_at=at, **{**facts, **columns})


def batch_of(*members, age=LONG, **columns):
    """Write a batch of this age with these members."""
    one = Batch.objects.create(id=uuid.uuid4(), created_at=timezone.now() - age, **columns)
    for member in members:
        type(member).objects.filter(pk=member.pk).update(batch=one.pk)
    return one


def slept(name="answer", until=None, ended=None, due=-LONG, **columns):
    """Write a task that was not woken, and its wait, with times relative to now."""
    now = timezone.now()
    task = row(due=due, attempt=1, **columns)
    wait(task, name, until and now + until, ended and now + ended)
    return task


def wait(task, name, until, ended_at):
    """Write a wait of a task."""
    value = None if ended_at is None else "1"
    Wait.objects.create(
        task_id=task.pk, name=name, is_sleep=False, until=until, ended_at=ended_at, value=value
    )


def claimed(by, since=LONG, **columns):
    """Write a task that was claimed this long ago."""
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
    finished()
    assert found() == {}


def test_healthy_batches_are_no_finding():
    busy = worker()
    for member in (row(due=-LONG), row(status=Status.HELD), claimed(busy.pk, since=JUST_NOW)):
        batch_of(member, finished())
    batch_of(finished(), finished(ended=timedelta(seconds=100)))
    batch_of(finished(), age=timedelta(seconds=100))
    batch_of(finished(), finished_at=timezone.now(), failed=False)
    assert found() == {}


def test_healthy_waits_are_no_finding():
    worker()
    slept()
    slept(until=LONG)
    slept(until=LONG, ended=timedelta(seconds=-100), due=-LONG)
    slept(ended=-LONG, due=timedelta(seconds=5))
    for one in ({"failures": 1}, {"crashes": 1}, {"snoozes": 1}):
        slept(ended=-LONG, due=-timedelta(hours=1), **one)
    slept(ended=-LONG, status=Status.HELD)
    wait(finished(), "answer", None, timezone.now() - LONG)
    wait(slept(ended=-LONG), "and another one", None, None)
    wait(slept(ended=-LONG), "and another one", timezone.now() + LONG, None)
    wait(row(due=-LONG), "brought before it has begun", None, timezone.now() - LONG)
    assert found() == {}


def no_cleaner():
    Cleaner.objects.all().delete()


def silent_workers():
    worker(seen=timedelta(seconds=31))


def held_threads():
    notes = {f"{THREADS}web1 pid 7": [10.0, 3, "shop.tasks.export (2) / shop.tasks.ask (3)"]}
    worker(task_names=[LOOP_MARK], progress=notes)
    worker(task_names=[LOOP_MARK], progress={LAG: [0.2, None, ""]})
    worker(progress=notes)  # no event loop


def not_recovered():
    claimed(worker(seen=LONG, lost=True).pk)


def overdue_unserved():
    worker(queues=["mail"])
    worker(seen=timedelta(seconds=20))
    row(due=JUST_NOW)


def overdue():
    worker()
    row(due=timedelta(seconds=65))


def overdue_foreign():
    """As a worker in another language registers itself."""
    worker()
    worker(task_names=["render.page"], sessions=["4711 1.0 2.0"])
    row(due=timedelta(seconds=65), task_name="render.page")


def not_cancelled():
    row(expires_at=timezone.now() - timedelta(seconds=65), due=LONG)
    row(expires_at=timezone.now() - timedelta(seconds=1), due=LONG)


def overdue_paused():
    worker()
    row(due=timedelta(seconds=65))
    pausing.pause("default", "default")


def undeclared():
    worker(task_names=["orders.tasks.send_receipt"])
    worker(queues=["mail"], task_names=["reports.jobs.monthly"])
    row(task_name="reports.jobs.monthly", due=LONG)


def held_long():
    claimed(worker().pk, since=timedelta(minutes=61))


def full_lanes():
    Lane.objects.create(pk="printer", at_most=1)
    claimed(worker().pk, since=JUST_NOW, lane="printer")
    row(lane="printer")


def unended_batches():
    batch_of(finished(), finished(outcome="expired"))


def unwoken_tasks():
    slept(ended=-LONG)


def schedules():
    Schedule(name="s", task_name="probe.tasks.note", every=60.0, error="bad").save()


def schedules_off():
    long_ago = timezone.now() - LONG - timedelta(days=1)
    off = {"enabled": False, "from_code": True, "watched_from": long_ago}
    Schedule(name="s", task_name="probe.tasks.note", every=60.0, **off).save()


def live_and_finished():
    worker()
    twice = row()
    FinishedTask.objects.create(id=twice.pk, task_name=twice.task_name, outcome="succeeded")


def impossible_counts():
    worker()
    row(attempt=9, crashes=4)


def unreadable():
    worker()
    row(args={"a": 1})


def dead():
    row(status=Status.DEAD)


def misfits():
    worker()
    error = {"type": "ArgumentsDoNotFit", "attempt": 2}
    row(attempt=2, errors=[error], cause=1)
    row(
        attempt=3, errors=[error, {"type": "ValueError", "attempt": 3}], cause=1
    )  # it has begun since


MAKERS = (no_cleaner, silent_workers, held_threads, not_recovered, overdue_unserved, overdue,
          overdue_foreign, not_cancelled, overdue_paused,
          undeclared, misfits, held_long, full_lanes, unended_batches, unwoken_tasks, schedules, schedules_off,
          live_and_finished,
          impossible_counts, unreadable, dead)  # fmt: skip


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_each_question_finds_what_it_is_for_and_nothing_else(make):
    make()
    assert found() == {make.__name__: 1}


def test_there_is_a_test_of_every_question():
    # in test_hand_over_settings.py and test_readers_of_rows.py
    of_hand_over = {"overdue_undrained", "handed_and_served", "handed_slowly"}
    tested = {make.__name__ for make in MAKERS} | of_hand_over
    assert tested == {question.name for question in QUESTIONS}


def reported(name):
    """Return the examples of a finding."""
    (finding,) = (one for one in audit("default", get_config()) if one.name == name)
    return finding.examples


def test_the_oldest_batch_that_nobody_has_ended_comes_first():
    young, old = batch_of(finished()), batch_of(finished(), age=2 * LONG, name="the im\x1bport")
    first, second = reported("unended_batches")
    assert first.startswith(f"{old.pk} ('the im\\x1bport' of 20")
    assert second.startswith(str(young.pk))


def test_a_batch_that_its_last_member_has_left_is_found_whatever_that_is_now():
    batch_of()
    batch_of(row(status=Status.DEAD))
    assert found() == {"unended_batches": 2, "dead": 1}


def test_a_real_batch_that_nobody_has_ended_is_found():
    with batch(on_finish=tasks.tell_of_batch) as one:
        enqueue_many([(tasks.note, ["x"])] * 3)
    run_due_tasks()
    assert one.status().finished_at is not None
    Worker.objects.all().delete()
    worker()
    helpers.execute(
        "UPDATE txtasks_batch SET finished_at = NULL, created_at = '2026-01-01 00:00:00'"
    )
    assert found() == {}  # a member has just ended
    helpers.execute("UPDATE txtasks_finishedtask SET finished_at = '2026-01-01 00:00:00'")
    assert found() == {"unended_batches": 1}
    CleanerLoop(get_config()).run_once()
    assert found() == {}


def looks_at_batches():
    """Return how often an audit looks at the batches that it has found."""
    with CaptureQueriesContext(connection) as asked:
        assert found() == {"unended_batches": 1}
    return sum("created_at" in one["sql"] and "txtasks_batch" in one["sql"] for one in asked)


def test_without_a_history_a_batch_is_found_that_is_so_at_a_second_look(txtasks):
    one = batch_of()
    assert looks_at_batches() == 1
    txtasks(keep_finished=0)
    assert looks_at_batches() == 2
    row(batch=one.pk, due=-LONG)
    assert found() == {}


def test_a_batch_that_is_ended_between_two_looks_is_no_finding(txtasks, monkeypatch, snapshots):
    """Also where the site's transactions see what was there when they began."""
    txtasks(keep_finished=0)
    one = batch_of()

    def end_it(seconds):
        thread = threading.Thread(target=end_elsewhere, args=(one.pk,))
        thread.start()
        thread.join()

    monkeypatch.setattr(time, "sleep", end_it)
    assert found() == {}


@pytest.fixture
def snapshots():
    """Transactions of this session that do not ask for a level see one state of the database, on PostgreSQL."""
    if connection.vendor != "postgresql":
        yield
        return
    helpers.execute("SET default_transaction_isolation = 'repeatable read'")
    yield
    helpers.execute("RESET default_transaction_isolation")


def end_elsewhere(pk):
    Batch.objects.filter(pk=pk).update(finished_at=timezone.now())
    connection.close()


def test_however_many_other_tasks_ended_lately_a_member_that_did_is_seen(monkeypatch):
    monkeypatch.setattr(forgotten, "LATELY_ENDED", 1)
    batch_of(finished(ended=timedelta(seconds=50)))
    finished(ended=JUST_NOW)
    assert found() == {}


@pytest.mark.skipif(connection.vendor != "sqlite", reason="elsewhere the column takes no such id")
def test_a_batch_whose_id_was_written_by_hand_stops_no_audit():
    one = batch_of()
    batch_of(finished())
    helpers.execute("UPDATE txtasks_batch SET id = 'mine' WHERE id = %s", one.pk.hex)
    assert found() == {"unended_batches": 1}


def test_more_open_batches_than_a_page_has_are_looked_at_and_not_counted_to_the_end():
    Batch.objects.bulk_create(
        Batch(id=uuid.uuid4(), created_at=timezone.now() - LONG)
        for _ in range(MAX_COUNTED_ROWS + 600)
    )
    assert found() == {"unended_batches": MAX_COUNTED_ROWS + 1}


@pytest.mark.parametrize(
    "columns",
    [
        {"ended": -LONG},
        {"ended": -LONG, "until": LONG},
        {"until": -LONG},
        {"ended": -LONG, "failures": 1, "due": -timedelta(days=36000)},
    ],
    ids=["value", "value before its time", "sleep", "after a failure"],
)
def test_a_task_that_nobody_has_woken_is_found(columns):
    slept(**columns)
    assert found() == {"unwoken_tasks": 1}


def test_the_task_that_was_to_be_woken_first_comes_first():
    young, old = slept(ended=-LONG), slept("approval", ended=-2 * LONG)
    first, second = reported("unwoken_tasks")
    assert first.startswith(f"{old.pk} ('approval' since 20")
    assert second.startswith(str(young.pk))


def test_a_real_task_that_waits_for_what_is_there_is_found():
    handle, sleeper = tasks.ask.enqueue("k"), tasks.sleep_between.enqueue("k", 86400)
    run_due_tasks()
    Worker.objects.all().delete()
    worker()
    assert found() == {}
    helpers.execute("UPDATE txtasks_wait SET until = '2026-01-01 00:00:00' WHERE is_sleep")
    assert reported("unwoken_tasks")[0].startswith(str(sleeper.id))
    helpers.execute("UPDATE txtasks_wait SET value = '1', ended_at = '2026-01-01 00:00:00'")
    assert found() == {"unwoken_tasks": 2}
    operators.run_now("default", [handle.id, sleeper.id])
    assert found() == {}


def test_waits_of_more_tasks_than_a_page_has_are_looked_at():
    waits = [
        Wait(task_id=uuid.uuid4(), name="of a task that is gone", is_sleep=True, until=None)
        for _ in range(2 * forgotten.TASKS_PER_PAGE)
    ]
    Wait.objects.bulk_create(waits)
    slept(ended=-LONG, id=uuid.UUID(int=2**128 - 1))
    assert found() == {"unwoken_tasks": 1}


@pytest.mark.parametrize("where", [{}, {"lane": "mailgun"}, {"queue_name": "nowhere in TXTASKS"}])
def test_without_any_worker_no_queue_is_served(where):
    """Nobody has to wait for the answer: such a task is not late, nobody takes it."""
    row(due=-LONG, **where)
    assert found() == {}
    row(**where)
    assert found() == {"overdue_unserved": 1}


def test_a_name_that_its_workers_do_not_know_is_not_blamed_on_slow_workers():
    worker(task_names=["probe.tasks.note"])
    worker(queues=["mail"], task_names=["probe.tasks.give"])
    row(due=LONG)
    row(due=LONG, task_name="probe.tasks.give")
    assert found() == {"overdue": 1, "undeclared": 1}


def test_a_question_that_is_not_answered_in_time_is_a_finding():
    def ask(view):
        raise OperationalError("canceling statement due to statement timeout")

    finding = _answer(
        dataclasses.replace(QUESTIONS[0], ask=ask), _view("default", get_config(), LONG)
    )
    assert (finding.name, finding.is_problem) == ("unanswered:no_cleaner", True)
    assert "statement timeout" in finding.meaning


def test_a_question_to_tables_of_an_older_release_says_what_to_do():
    def ask(view):
        helpers.execute("SELECT * FROM txtasks_not_there")

    finding = _answer(
        dataclasses.replace(QUESTIONS[0], ask=ask), _view("default", get_config(), LONG)
    )
    assert "run 'manage.py migrate'" in finding.meaning
    assert finding.action == "Ask again when the error is fixed."


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
    worker()
    row(**counts)
    assert found() == {"impossible_counts": 1}


@pytest.mark.parametrize("wrong", [{"args": {}}, {"kwargs": []}, {"args": 1}, {"kwargs": "text"}])
def test_arguments_that_cannot_be_passed_are_found(wrong):
    worker()
    row(**wrong)
    assert found() == {"unreadable": 1}


def test_how_long_a_claim_is_beyond_suspicion_can_be_said():
    claimed(worker().pk, since=timedelta(minutes=10))
    assert found() == {}
    assert found(long_running_after=timedelta(minutes=5)) == {"held_long": 1}


def test_a_claim_is_beyond_suspicion_as_long_as_the_page_says_so(txtasks):
    txtasks(long_running_after=300)
    claimed(worker().pk, since=timedelta(minutes=10), timeout=3600)
    assert found() == {}
    claimed(worker().pk, since=timedelta(minutes=10))
    assert found() == {"held_long": 1}


def test_a_full_lane_is_told_with_its_longest_task(txtasks):
    txtasks(lanes={"printer": {"at_most": 2}})
    one = worker(queues=["default"])
    claimed(one.pk, since=timedelta(minutes=1), lane="printer")
    assert found() == {}
    old = claimed(one.pk, since=timedelta(minutes=59.5), lane="printer")
    assert found() == {}
    row(lane="printer")
    (finding,) = audit("default", get_config())
    (text,) = finding.examples
    assert text.startswith(
        f"printer (2 at once): 1 wait, probe.tasks.note {old.pk} has run for 59 min"
    )
    assert (finding.name, finding.is_problem) == ("full_lanes", False)
    Lane.objects.create(pk="printer", paused_at=timezone.now())
    assert found() == {}


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
    # A session that has run tasks sends BEGIN along with the first statement of a transaction.
    sent = [query["sql"].removeprefix("BEGIN; ") for query in asked.captured_queries]
    first_words = {sql.split()[0] for sql in sent}
    # WITH: which queues and tasks have failed rows; SHOW: grants, while another test makes MariaDB read-only
    reads = {"SELECT", "WITH", "SHOW"}
    assert first_words <= reads | {"SET", "BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE"}
    assert not [sql for sql in sent if re.search(r"\b(INSERT|UPDATE|DELETE|FOR)\b", sql)]


@pytest.mark.skipif(connection.vendor != "postgresql", reason="only PostgreSQL is told to refuse")
def test_an_audit_on_postgresql_could_not_write():
    with pytest.raises(InternalError, match="read-only"), reading("default", 10):
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
    assert first.startswith(
        "PROBLEM tasks without a time limit that a living worker has run for very long (1): "
    )
    assert str(stuck.pk) in first
    assert means.strip().startswith("means:")
    assert do.strip().startswith("do:")


def test_dead_tasks_are_told_by_function_and_exception_with_the_most_frequent_first():
    for number, kind in ((1, "KeyError"), (3, "OSError"), (2, "ValueError")):
        for _ in range(number):
            row(status=Status.DEAD, cause=number, errors=[{"class": f"builtins.{kind}"}])
    row(status=Status.DEAD, cause=9, task_name="probe.tasks.fail")
    row(status=Status.PENDING, cause=10)
    (finding,) = [one for one in audit("default", get_config()) if one.name == "dead"]
    assert finding.line == (
        "dead tasks (7): probe.tasks.note: builtins.OSError (3), probe.tasks.note: builtins.ValueError (2), "
        f"{finding.causes[2]}, …"
    )
    assert len(finding.examples) == 3  # ids, for programs
    assert "builtins.OSError" in command()[1]


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
