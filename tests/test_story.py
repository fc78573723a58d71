"""What has happened to an ended task, what ran twice, and the tasks of a business object, as a command says it."""

import json
import uuid
from datetime import timedelta

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.core.management import CommandError, call_command
from django.urls import reverse
from orders.models import Order
from probe import tasks
from probe.models import Parcel
from test_hooks import claim, crash, work

from django_txtasks import batch
from django_txtasks.conf import get_config
from django_txtasks.core.rows import outcomes
from django_txtasks.core.rows.attempts import Arrow, Ended
from django_txtasks.insight import story, twice
from django_txtasks.models import DatabaseNow, FinishedTask, Status, Task, Worker
from django_txtasks.operations import operators
from django_txtasks.testing import run_due_tasks

pytestmark = pytest.mark.usefixtures("rows", "quick")


@pytest.fixture
def said(capsys):
    """Return a function that runs the command and returns what it prints."""

    def run(*arguments):
        call_command("txtasks_explain", *map(str, arguments))
        return capsys.readouterr().out

    return run


def ran_twice():
    """A task whose first attempt finishes after the second one, as after a freeze of its worker."""
    handle = tasks.rest.enqueue("x")
    first, *_ = crash(handle)
    second = claim(handle)
    outcomes.record("default", [Ended(attempt=second, arrow=Arrow.FINISH)], config=get_config())
    outcomes.note_late_finish("default", first)
    return handle


def test_a_crash_and_what_followed_it(said):
    handle = tasks.told_of_a_crash.enqueue("x")
    attempt, *_ = crash(handle)
    Worker.objects.filter(pk=attempt.worker).update(how="signal 9")
    worker = Worker.objects.get(pk=attempt.worker)
    work()
    text = said(handle.id)
    assert f"attempt: Attempt 1 at {worker} ended at 20" in text
    assert "Its process ended by signal 9 (SIGKILL). No row tells who sent it" in text
    hook = FinishedTask.objects.get(task_name="probe.tasks.tell")
    assert f"hook: Its on_failure is probe.tasks.tell, task {hook.pk}: succeeded.\n" in text
    FinishedTask.objects.all().delete()
    assert "none is this hook's: it has finished and is no longer kept" in said(handle.id)


def test_the_attempts_of_a_task_that_has_succeeded(said):
    handle = tasks.told.enqueue("why", 1)
    work()
    text = said(handle.id)
    assert "Attempt 1 at " in text and "ValueError: why.\n" in text
    assert "Attempt 2 at " in text and "and the task ended at 20" in text
    hook = FinishedTask.objects.filter(task_name="probe.tasks.tell").latest("enqueued_at")
    assert f"hook: Its on_success is probe.tasks.tell, task {hook.pk}: succeeded.\n" in text
    errors = [{"attempt": number, "type": "E"} for number in (1, 5)]
    FinishedTask.objects.filter(pk=handle.id).update(attempt=9, errors=errors)
    assert "unknown: The row tells nothing of attempt 2 to 4, 6 to 8: it left no error" in said(
        handle.id
    )


def test_a_hook_that_gets_the_result_cannot_be_told(said):
    handle = tasks.numbers.enqueue([1])
    work()
    assert (
        "Its on_success is probe.tasks.add_up, which was enqueued with its end. No row tells"
        in said(handle.id)
    )


def test_who_has_stopped_it(said):
    ada, log = User.objects.create_user("ada"), LogEntry.objects
    handle, other = tasks.note.enqueue("a"), tasks.note.enqueue("b")
    operators.cancel("default", [handle.id, other.id], keep=True)
    kind = ContentType.objects.get_for_model(Task)
    log.create(
        user=ada,
        content_type=kind,
        object_id=str(handle.id),
        action_flag=CHANGE,
        change_message="Cancelled.",
    )
    assert ", ada: Cancelled.\n" in said(handle.id)
    assert "unknown: Nothing tells by whom the task was cancelled" in said(other.id)


def test_what_ran_twice_is_said_and_listed(said, client, person):
    handle = ran_twice()
    twice_text = "A later attempt has run as well: its effects outside may have happened twice"
    assert twice_text in said(handle.id)
    listed = said("--ran-twice")
    assert (
        f"{handle.id} (probe.tasks.rest), succeeded\nlate: Attempt 1 was given up at 20" in listed
    )
    assert twice_text in listed and "Tasks with a late finish: 1." in listed
    found = json.loads(said("--ran-twice", "--json"))
    assert (found["id"], found["state"], found["gate"]) == (str(handle.id), "succeeded", "late")
    person("view_finishedtask")
    other = tasks.note.enqueue("other")
    run_due_tasks()
    url = reverse("admin:txtasks_finishedtask_changelist")
    page = client.get(url, {"twice": "yes"}).content.decode()
    assert str(handle.id) in page and str(other.id) not in page


def test_of_a_dead_task_it_says_what_a_revival_would_do(said, client, person):
    handle = tasks.until_released.enqueue("x")
    first, *_ = crash(handle)
    outcomes.note_late_finish("default", first)
    text = said(handle.id)
    assert "Its effects outside have happened. If the task runs again, they happen twice." in text
    assert f"manage.py txtasks_task discard {handle.id}" in text
    assert f"{handle.id} (probe.tasks.until_released), dead" in said("--ran-twice")
    person("view_task")
    page = client.get(reverse("admin:txtasks_task_changelist"), {"twice": "yes"}).content.decode()
    assert str(handle.id) in page
    operators.revive("default", [handle.id])
    assert "they happen twice" in said(handle.id)


def test_without_kept_rows_it_says_that_nothing_is_known(said):
    text = said(uuid.uuid4())
    assert "it has finished and is not kept (TXTASKS['keep_finished'])" in text
    assert "neither its attempts nor whether one of them ran twice" in text
    assert "manage.py txtasks_explain --of shop.order 31" in text


def test_only_the_last_to_finish_are_read_and_it_says_so(said, monkeypatch):
    monkeypatch.setattr(twice, "MOST_READ", 1)
    handle = ran_twice()
    for _ in range(2):
        tasks.note.enqueue()
        run_due_tasks()
    FinishedTask.objects.filter(pk=handle.id).update(finished_at=DatabaseNow() - timedelta(days=2))
    text = said("--ran-twice")
    assert str(handle.id) not in text and "were not read." in text


def test_the_batch_and_its_hooks(said):
    with batch(name="night", on_finish=tasks.give):
        handle = tasks.note.enqueue("member")
    run_due_tasks()
    text = said(handle.id)
    hook = FinishedTask.objects.exclude(pk=handle.id).get()
    assert "(night), which ended at 20" in text and "all members have succeeded" in text
    assert f"Its on_finish is task {hook.pk}: succeeded.\n" in text


def test_tasks_are_found_by_their_business_object(said):
    order, parcel = Order.objects.create(customer="Ada"), Parcel.objects.create()
    done = tasks.note.using(subject=order).enqueue("a")
    run_due_tasks()
    waits = tasks.note.using(subject=order, run_after=timedelta(hours=2)).enqueue("b")
    of_parcel = tasks.note.using(subject=parcel).enqueue("c")
    text = said("--of", "orders.Order", order.pk)
    assert text.index(f"{waits.id} (probe.tasks.note)\nlater: It is due in") < text.index(
        f"{done.id} (probe.tasks.note)\nfinished: It has ended: succeeded"
    )
    assert str(of_parcel.id) not in text
    assert str(of_parcel.id) in said("--of", "probe.urgentparcel", str(parcel.pk).upper())
    first = json.loads(said("--of", "orders.order", order.pk, "--json").splitlines()[0])
    assert (first["id"], first["task"], first["gate"]) == (
        str(waits.id),
        "probe.tasks.note",
        "later",
    )
    order_id = order.pk
    order.delete()
    assert str(done.id) in said("--of", "orders.order", order_id)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["31"],
            "To find the tasks of a business object by its model and its key: manage.py txtasks_explain --of",
        ),
        (
            ["--of", "orders.ordr", "31"],
            r"has the model 'orders.ordr' \(did you mean 'orders.order'\?\)",
        ),
        (
            ["--of", "orders.order", "31"],
            "No task in database 'default' is linked to orders.order 31",
        ),
        (["--of", "orders.order", "31", "--ran-twice"], "Give one of"),
    ],
)
def test_what_finds_nothing_says_why(said, arguments, text):
    with pytest.raises(CommandError, match=text) as raised:
        said(*arguments)
    assert raised.value.returncode == 1


def test_where_the_log_of_the_admin_is_missing(said, monkeypatch):
    monkeypatch.setattr(story.apps, "is_installed", lambda name: False)
    handle = tasks.note.enqueue()
    run_due_tasks()
    assert "unknown: The admin's log cannot be read here" in said(handle.id)


def test_a_hostile_row_ends_no_story(said):
    task_id = uuid.uuid4()
    errors = [{"attempt": "x", "type": 5, "worker": "y", "at": []}, 7, None]
    late = [{"attempt": None}, "x", {"attempt": "2", "finished_at": 5}]
    facts = {
        "task_name": "gone",
        "attempt": 2_147_483_646,
        "batch": uuid.uuid4(),
        "late_finishes": late,
    }
    Task.objects.create(id=task_id, status=Status.DEAD, errors=errors, **facts)
    FinishedTask.objects.create(id=uuid.uuid4(), outcome="merged", errors=errors, **facts)
    assert "batch: It was a member of batch" in said(task_id)
    assert "Tasks with a late finish: 2." in said("--ran-twice")
