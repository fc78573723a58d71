"""Why a task is not running: each gate is named, alone, and the task starts when it is lifted."""

import json
import re
import uuid
from datetime import datetime, timedelta, timezone

import helpers
import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.urls import reverse
from probe import tasks

from django_txtasks import CancelResult
from django_txtasks.conf import get_config
from django_txtasks.core.rows import cleaners, workers
from django_txtasks.insight.explain import FULL, explain
from django_txtasks.models import DatabaseNow, Status, Task, Worker
from django_txtasks.operations import operators, pausing

pytestmark = pytest.mark.usefixtures("rows", "quick")


@pytest.fixture
def crew(txtasks):
    """A living worker with one slot, which does nothing, and a running cleaner."""
    txtasks(lease=600)  # neither beats
    lease = get_config().lease
    cleaner = cleaners.register("default", interval=timedelta(seconds=9), lease=lease)
    cleaners.passed("default", cleaner)
    return worker_row()


NAMES = ("probe.tasks.note", "probe.tasks.fail", "probe.tasks.tidy")


def worker_row(queues=("default", "mail"), names=NAMES):
    lease = get_config().lease
    return workers.register(
        "default", queues=list(queues), task_names=names, threads=1, listening=None, lease=lease
    )


def work():
    """Run everything that is due, in this process."""
    call_command("runworkers", batch=True, threads=1)


def gates(handle):
    return [one.gate for one in explain("default", handle.id)]


def only_reason(handle):
    """Return the reason. A session of ``work`` that has just ended may have the row locked for a moment."""
    helpers.wait_until(lambda: "locked" not in gates(handle))
    (reason,) = explain("default", handle.id)
    return reason


def starts(handle):
    """A worker with a free slot runs it now."""
    work()
    return helpers.row(handle.id) is None


def test_a_task_that_nothing_keeps_is_next(crew):
    handle = tasks.note.enqueue()
    assert only_reason(handle).gate == "next"
    assert "by a scan within" in only_reason(handle).text
    assert starts(handle)


def test_without_a_cleaner_that_is_said_beside_it():
    worker_row()
    handle = tasks.note.enqueue()
    assert only_reason(handle).lift == cleaners.HOW


def test_a_task_that_is_due_later(crew):
    handle = tasks.note.using(run_after=timedelta(hours=2)).enqueue()
    reason = only_reason(handle)
    assert reason.gate == "later"
    assert "It is due in 1 h 59 min" in reason.text or "2 h" in reason.text
    operators.run_now("default", [handle.id])
    assert gates(handle) == ["next"]
    assert starts(handle)


def test_a_task_that_has_failed_backs_off(crew, txtasks):
    txtasks(retry_base=600, retry_ceiling=600)
    handle = tasks.fail.enqueue("why it failed")
    work()
    reason = only_reason(handle)
    assert reason.gate == "backoff"
    assert "failed 1 time (ValueError" in reason.text
    assert "why it failed" in reason.text
    operators.run_now("default", [handle.id])
    assert gates(handle) == ["next"]


def test_a_task_of_a_paused_queue(crew):
    handle = tasks.note.enqueue()
    pausing.pause("default", "default", by="ann", reason="a deploy")
    assert only_reason(handle).gate == "paused"
    assert "by ann at 20" in only_reason(handle).text
    assert "(a deploy)" in only_reason(handle).text
    assert only_reason(handle).lift == "manage.py txtasks_queue resume default"
    pausing.resume("default", "default")
    assert gates(handle) == ["next"]
    assert starts(handle)


def test_a_task_that_has_expired(crew):
    handle = tasks.note.using(expires=timedelta(seconds=-1)).enqueue()
    assert gates(handle) == ["expired"]
    Task.objects.update(expires_at=None)
    assert starts(handle)


def test_a_task_that_is_held(crew):
    handle = tasks.note.enqueue()
    operators.hold("default", [handle.id])
    assert gates(handle) == ["held"]
    operators.resume("default", [handle.id])
    assert starts(handle)


def test_a_task_that_is_dead(crew):
    handle = tasks.reject.enqueue()
    work()
    assert only_reason(handle).gate == "dead"
    assert "Reject: the address does not exist" in only_reason(handle).text


def test_a_row_whose_counter_is_full(crew):
    handle = tasks.note.enqueue()
    Task.objects.update(crashes=FULL)
    assert gates(handle) == ["unsound"]
    Task.objects.update(crashes=0)
    assert starts(handle)


def test_a_task_without_any_worker():
    handle = tasks.note.enqueue()
    assert gates(handle) == ["workers"]
    worker = worker_row()
    assert gates(handle) == ["next"]
    Worker.objects.filter(pk=worker).update(seen_at=DatabaseNow() - 2 * get_config().lease)
    assert gates(handle) == ["workers"]


def test_a_queue_that_no_worker_serves():
    handle = tasks.note.enqueue()
    worker_row(queues=["mail"])
    assert only_reason(handle).gate == "queue"
    assert "they serve mail" in only_reason(handle).text
    worker_row()
    assert gates(handle) == ["next"]


def test_a_name_that_no_worker_runs():
    handle = tasks.note.enqueue()
    worker_row(names=["probe.tasks.fail"])
    worker_row(queues=["mail"])
    assert only_reason(handle).gate == "name"
    worker_row()
    assert gates(handle) == ["next"]


def test_a_task_behind_others_and_no_slot_is_free(crew):
    for priority, seconds in [
        (0, -2),
        (5, 0),
        (0, -2),
        (-1, -9),
        (0, 0),
    ]:  # the last two come later
        tasks.note.using(priority=priority, run_after=timedelta(seconds=seconds)).enqueue()
    handle = tasks.note.using(run_after=timedelta(seconds=-1)).enqueue()
    Worker.objects.filter(pk=crew).update(running=1)
    assert only_reason(handle).gate == "slots"
    assert (
        "Of the 1 worker that could run it each slot is taken (slots: 1)"
        in only_reason(handle).text
    )
    assert "Due tasks of its queue that come first: 3." in only_reason(handle).text
    Worker.objects.filter(pk=crew).update(running=0)
    assert gates(handle) == ["next"]


@pytest.mark.skipif(connection.vendor == "sqlite", reason="it has one lock for all rows")
def test_a_row_that_somebody_has_locked(crew):
    handle = tasks.note.enqueue()
    with helpers.locked("UPDATE txtasks_task SET priority = 7"):
        assert gates(handle) == ["locked"]
    assert gates(handle) == ["next"]


def test_another_task_of_its_key_comes_first(crew):
    first = tasks.tidy.using(run_after=timedelta(seconds=-9)).enqueue("first")
    second = tasks.tidy.enqueue("second")
    tasks.tidy.using(unique_key="another").enqueue("other")
    assert only_reason(second).gate == "unique"
    assert str(first.id) in only_reason(second).text
    assert "'shelf a'" in only_reason(second).text
    assert gates(first) == ["next"]
    first.cancel()
    assert gates(second) == ["next"]


def test_a_task_that_was_asked_to_stop(crew):
    handle = tasks.note.enqueue()
    with transaction.atomic():
        helpers.claim(crew)
    assert handle.cancel() is CancelResult.ASKED
    assert only_reason(handle).gate == "asked"


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"on_crash": "retry", "max_crashes": 3}, "A cleaner then cancels the task."),
        ({"on_crash": "retry", "max_crashes": 1}, "it is dead, not cancelled"),
        ({"on_crash": "dead"}, "it is dead, not cancelled"),
    ],
)
def test_a_task_that_does_not_look_says_what_becomes_of_it_by_a_kill(crew, columns, words):
    handle = tasks.note.enqueue()
    with transaction.atomic():
        helpers.claim(crew)
    ago = datetime.now(timezone.utc) - timedelta(minutes=1)
    Task.objects.update(cancel_asked_at=ago, **columns)
    text = only_reason(handle).lift
    assert "kill its process" in text and words in text


def test_several_gates_are_all_named(crew):
    handle = tasks.note.using(run_after=timedelta(hours=2)).enqueue()
    pausing.pause("default", "default")
    assert gates(handle) == ["later", "paused"]


def test_a_task_that_runs_says_where(crew):
    handle = tasks.note.enqueue()
    with transaction.atomic():
        helpers.claim(crew)
    assert only_reason(handle).gate == "claimed"
    assert f"(worker {crew})" in only_reason(handle).text


@pytest.mark.parametrize("how", ["lost", "silent", "forgotten"])
def test_a_task_whose_worker_is_gone(crew, how):
    handle = tasks.note.enqueue()
    with transaction.atomic():
        helpers.claim(crew)
    row = Worker.objects.filter(pk=crew)
    if how == "lost":
        row.update(lost=True)
    elif how == "silent":
        row.update(seen_at=DatabaseNow() - 2 * get_config().lease)
    else:
        row.delete()
    assert only_reason(handle).gate == "lost"
    assert "A cleaner recovers it" in only_reason(handle).text
    from django_txtasks.models import Cleaner

    Cleaner.objects.all().delete()
    assert only_reason(handle).lift == cleaners.HOW
    cleaners.note_once("default", lease=get_config().lease)
    assert "the last pass by --once was 0." in only_reason(handle).text
    assert only_reason(handle).lift == cleaners.HOW


def test_a_task_that_has_ended_or_never_was(crew, txtasks):
    txtasks(keep_finished=60)
    handle = tasks.note.enqueue()
    work()
    assert only_reason(handle).gate == "finished"
    assert "It has ended: succeeded" in only_reason(handle).text
    (reason,) = explain("default", uuid.uuid4())
    assert reason.gate == "absent"


@pytest.mark.parametrize("error", ["WorkerLost", "WorkerStopped"])
def test_a_task_that_may_be_half_done_is_to_be_checked(crew, error):
    handle = tasks.note.enqueue()
    Task.objects.update(status=Status.DEAD, errors=[{"type": error, "message": "Gone."}])
    assert only_reason(handle).text == f"It is dead: {error}: Gone."
    assert only_reason(handle).lift.startswith("Check what it has done")


def test_of_a_long_error_whole_words_are_shown(crew):
    handle = tasks.note.enqueue()
    text = "The carrier has refused this. " * 20
    Task.objects.update(status=Status.DEAD, errors=[{"type": "Refused", "message": text}])
    shown = only_reason(handle).text
    assert len(shown) < 400
    assert re.search(r" (The|carrier|has|refused|this\.) \(…\)\.$", shown)


@pytest.mark.parametrize("errors", [7, "x", [], [7], [{}], [{"type": None}]])
def test_errors_that_somebody_wrote_by_hand_are_no_trouble(crew, errors):
    handle = tasks.note.enqueue()
    Task.objects.update(status=Status.DEAD, errors=errors)
    assert "no reason was recorded" in only_reason(handle).text


@pytest.mark.parametrize("value", [7, "mail", {}, [7, None], []])
def test_a_worker_whose_row_somebody_wrote_by_hand_is_no_trouble(crew, value):
    handle = tasks.note.enqueue()
    Worker.objects.update(queues=value)
    assert gates(handle) == ["queue"]
    Worker.objects.update(queues=["default"], task_names=value or [7])
    assert gates(handle) == ["name"]


@pytest.mark.skipif(connection.vendor != "postgresql", reason="others let a reader lock")
def test_where_it_may_only_read_it_says_what_it_can(crew):
    handle = tasks.note.enqueue()
    helpers.execute("SET default_transaction_read_only = on")
    try:
        assert gates(handle) == ["next"]
    finally:
        helpers.execute("SET default_transaction_read_only = off")


@pytest.mark.skipif(connection.vendor != "postgresql", reason="a foreign key locks weakly there")
def test_a_row_that_another_row_refers_to_can_be_claimed(crew):
    handle = tasks.note.enqueue()
    with helpers.locked("SELECT id FROM txtasks_task FOR KEY SHARE"):
        assert gates(handle) == ["next"]


def test_of_another_database_it_says_which(second_database):
    call_command("migrate", database="second", verbosity=0)
    handle = tasks.note.using(using="second").enqueue()
    (reason,) = explain("second", handle.id)
    assert reason.lift == "Start manage.py runworkers --database second"


def test_a_task_that_is_in_another_database_is_found_there(second_database):
    call_command("migrate", database="second", verbosity=0)
    handle = tasks.note.using(using="second").enqueue()
    (reason,) = explain("default", handle.id)
    lift = f"manage.py txtasks_explain {handle.id} --database second"
    assert (reason.gate, reason.lift) == ("elsewhere", lift)


def test_a_database_that_cannot_be_asked_is_none_that_has_it(second_database):
    (reason,) = explain("default", uuid.uuid4())  # its tables are not there
    assert reason.gate == "absent"


# -- where people see it ----------------------------------------------------------------------------


def test_the_command_says_it(crew, capsys):
    handle = tasks.note.enqueue()
    pausing.pause("default", "default")
    call_command("txtasks_explain", str(handle.id))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("paused: Queue default was paused by somebody")
    assert lines[1] == "    manage.py txtasks_queue resume default"
    call_command("txtasks_explain", handle.id.hex, json=True)
    assert json.loads(capsys.readouterr().out)["gate"] == "paused"


def test_without_an_id_the_oldest_of_each_queue_is_explained(crew, capsys):
    now = datetime.now(timezone.utc)
    tasks.note.enqueue()
    old = tasks.note.using(run_after=now - timedelta(hours=1)).enqueue()
    later = tasks.note.using(run_after=now + timedelta(hours=1)).enqueue()
    mail = tasks.mail.enqueue()
    pausing.pause("default", "default")
    call_command("txtasks_explain")
    said = capsys.readouterr().out
    assert f"default: {old.id} (probe.tasks.note), due for 3600" in said
    assert "paused: Queue default" in said
    assert f"mail: {mail.id}" in said and str(later.id) not in said
    call_command("txtasks_explain", json=True)
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (first["queue"], first["id"], first["gate"]) == ("default", str(old.id), "paused")


def test_without_a_due_task_it_says_where_the_others_are(crew, capsys):
    call_command("txtasks_explain")
    none, absent = capsys.readouterr().out.splitlines()
    assert (none, absent[:31]) == ("No task is due.", "absent: There is no live task: ")
    hour = datetime.now(timezone.utc) + timedelta(minutes=90)
    tasks.note.using(run_after=hour + timedelta(hours=1)).enqueue()
    first = tasks.mail.using(run_after=hour).enqueue()
    Task.objects.filter(pk=first.id).update(cause=7)
    for status in (Status.HELD, Status.DEAD, Status.CLAIMED):
        claim = {"worker": crew, "claimed_at": hour} if status == Status.CLAIMED else {}
        Task.objects.create(id=uuid.uuid4(), task_name=NAMES[0], status=status, **claim)
    pausing.pause("default", "mail", by="ada", reason="503")
    call_command("txtasks_explain")
    said = capsys.readouterr().out
    assert (
        "later: Waiting for their time, or for an answer: 1 in default, 1 in mail. Of them after a failed "
        "attempt: 1 in mail. The first is due in 1 h " in said
    )
    assert f": {first.id} in queue mail.\n" in said
    assert "claimed: Running: 1 in default.\n" in said
    assert (
        "held: Held by a person: 1 in default.\n    manage.py txtasks_task resume --queue" in said
    )
    assert (
        "dead: Dead: 1 in default.\n    Fix the cause, then manage.py txtasks_task revive" in said
    )
    assert "paused: Queue mail was paused by ada at" in said and "(503): a new task" in said
    call_command("txtasks_explain", json=True)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["gate"] for line in lines] == ["later", "claimed", "held", "dead", "paused"]


def test_a_running_task_that_does_not_check_is_ended_with_its_process(crew):
    handle = tasks.note.enqueue()
    now = datetime.now(timezone.utc)
    claim = {"status": "claimed", "worker": crew, "claimed_at": now, "attempt": 1}
    Task.objects.filter(pk=handle.id).update(**claim)
    (reason,) = explain("default", handle.id)
    assert reason.lift == f"To stop it: manage.py txtasks_task stop {handle.id}"
    Task.objects.filter(pk=handle.id).update(cancel_asked_at=now)
    (reason,) = explain("default", handle.id)
    assert "kill -9" not in reason.lift
    Task.objects.filter(pk=handle.id).update(cancel_asked_at=now - timedelta(minutes=1), timeout=90)
    (reason,) = explain("default", handle.id)
    worker = Worker.objects.get(pk=crew)
    assert f"kill -9 {worker.pid} on {worker.host}" in reason.lift and "90 s" in reason.lift
    assert "other task" not in reason.lift
    assert reason.lift.endswith("Its manage.py runworkers then starts another process.")
    for _ in range(2):
        Task.objects.filter(pk=tasks.note.enqueue().id).update(**claim)
    (reason,) = explain("default", handle.id)
    assert "2 other tasks run in that process: they end, too" in reason.lift


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["17"], "'17' is not the id of a task"),
        ([uuid.UUID(int=1).hex, "--database=x"], "'x' is not in"),
    ],
)
def test_wrong_options_are_refused(arguments, message):
    with pytest.raises(CommandError, match=message):
        call_command("txtasks_explain", *arguments)


def test_the_page_of_a_task_says_it(crew, admin_client):
    handle = tasks.note.enqueue()
    pausing.pause("default", "default", reason="<b>")
    page = admin_client.get(reverse("admin:txtasks_task_change", args=[handle.id]))
    assert b"Queue default was paused by" in page.content
    assert b"&lt;b&gt;" in page.content
