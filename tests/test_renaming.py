"""@task(was=[…]): a function that was renamed still runs the tasks that were enqueued under its earlier names."""

from __future__ import annotations

import json
import pickle
import sys
import types
import uuid
from datetime import timedelta
from io import StringIO

import helpers
import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from django.utils import timezone

from django_txtasks import publish
from django_txtasks.conf import get_config
from django_txtasks.core.declaring import registry
from django_txtasks.core.rows import cleaning
from django_txtasks.exceptions import InvalidDeclaration
from django_txtasks.features.batches.api import batch
from django_txtasks.features.reports import names
from django_txtasks.features.schedules import periodic as scheduling
from django_txtasks.management.commands.runworkers import _task_names
from django_txtasks.models import FinishedTask, Once, Schedule, Status, Task, Worker
from django_txtasks.operations import operators
from django_txtasks.testing import run_due_tasks

pytestmark = pytest.mark.usefixtures("rows", "quick")

OLD, NEW = "shop.tasks.send", "shop.tasks.mail"
SEND = "@task({})\ndef send(order): ran.append(('send', order))"
MAIL = "@task(was=['shop.tasks.send']{})\ndef mail(order): ran.append(('mail', order))"


@pytest.mark.parametrize("kind", ["", "async "])
def test_a_row_keeps_its_old_name_and_runs(releases, kind):
    source = SEND.format("").replace("def", f"{kind}def")
    handle = releases.deploy(source)["send"].enqueue(7)
    releases.deploy(MAIL.format("").replace("def", f"{kind}def"))
    with helpers.working():
        helpers.wait_until(lambda: helpers.finished(handle.id), what="the end of the task")
        assert set(Worker.objects.get().task_names) >= {OLD, NEW}
    assert releases.ran == [("mail", 7)]
    assert helpers.finished(handle.id).task_name == OLD


def test_new_tasks_have_the_new_name(releases):
    releases.deploy(MAIL.format(""))
    handle = releases.code["mail"].enqueue(7)
    assert helpers.row(handle.id).task_name == NEW


def test_held_claimed_and_dead_tasks_run_under_the_new_name(releases):
    send = releases.deploy(SEND.format("idempotent=True"))["send"]
    held, dead, claimed = (send.enqueue(number) for number in range(3))
    Task.objects.filter(pk=held.id).update(status=Status.HELD)
    Task.objects.filter(pk=dead.id).update(status=Status.DEAD)
    lost = {"status": Status.CLAIMED, "worker": uuid.uuid4(), "claimed_at": timezone.now()}
    Task.objects.filter(pk=claimed.id).update(attempt=1, **lost)
    releases.deploy(MAIL.format(", idempotent=True"))
    operators.resume("default", [held.id])
    operators.revive("default", [dead.id])
    (orphan,) = helpers.orphans()
    with transaction.atomic():
        cleaning.recover("default", orphan, lambda _: None, get_config())
    run_due_tasks()
    assert sorted(releases.ran) == [("mail", 0), ("mail", 1), ("mail", 2)]
    assert set(FinishedTask.objects.values_list("task_name", flat=True)) == {OLD}


def test_a_hook_under_the_old_name_runs(releases):
    hook = "@task\ndef {}(event): ran.append(event['event'])\n"
    pack = "@task(on_success={})\ndef pack(order): ..."
    releases.deploy(hook.format("send") + pack.format("send"))["pack"].enqueue(7)
    releases.deploy(
        hook.format("mail").replace("@task", "@task(was=['shop.tasks.send'])") + pack.format("mail")
    )
    run_due_tasks()
    assert releases.ran == ["success"]
    assert FinishedTask.objects.filter(task_name=OLD).count() == 1


def test_a_batch_hook_under_the_old_name_runs(releases):
    releases.deploy(SEND.format("") + "\n@task\ndef pack(order): ...")
    with batch(on_finish=releases.code["send"]):
        releases.code["pack"].enqueue(7)
    releases.deploy(MAIL.format("") + "\n@task\ndef pack(order): ...")
    run_due_tasks()
    assert [one[0] for one in releases.ran] == ["mail"]


def test_a_schedule_follows_its_function(releases):
    releases.deploy("@periodic(every=60)\n@task\ndef send(): ran.append('send')")
    scheduling.bring("default")
    Schedule.objects.update(next_at=timezone.now() - timedelta(seconds=1))
    releases.deploy(
        "@periodic(every=60)\n@task(was=['shop.tasks.send'])\ndef mail(): ran.append('mail')"
    )
    assert list(scheduling.declared()) == [OLD]  # not a second schedule beside the first
    task_id = scheduling.run_now("default", OLD)
    assert helpers.row(task_id).task_name == NEW
    scheduling.bring("default")
    (schedule,) = Schedule.objects.all()
    assert (schedule.pk, schedule.task_name, schedule.enabled) == (OLD, NEW, True)


def test_a_schedule_with_its_own_name_follows_too(releases):
    releases.deploy("@periodic(every=60, name='nightly')\n@task\ndef send(): ...")
    scheduling.bring("default")
    releases.deploy(MAIL.format("").replace("(order)", "(order=1)"))
    task_id = scheduling.run_now("default", "nightly")
    run_due_tasks()
    assert releases.ran == [("mail", 1)]
    assert helpers.finished(task_id).task_name == NEW


def test_once_follows_the_oldest_name(releases):
    key = "once=lambda order: f'order {order}'"
    first = releases.deploy(SEND.format(key))["send"].enqueue(7)
    again = releases.deploy(MAIL.format(f", {key}"))["mail"].enqueue(7)
    third = releases.deploy(
        MAIL.format(f", {key}")
        .replace("']", "', 'shop.tasks.mail']")
        .replace("def mail", "def post")
    )["post"].enqueue(7)
    assert first.id == again.id == third.id
    assert Once.objects.count() == 1


def test_unique_keys_of_both_names_do_not_merge(releases):
    key = "unique_key='all'"
    releases.deploy(SEND.format(key))["send"].enqueue(7)
    releases.deploy(MAIL.format(f", {key}"))["mail"].enqueue(8)
    releases.code["mail"].enqueue(9)
    run_due_tasks()
    assert releases.ran == [("mail", 7), ("mail", 9)]


def test_events_and_pickled_functions_by_the_old_name(releases, monkeypatch):
    def loaded():
        module = types.ModuleType("shop.tasks")
        vars(module).update(releases.code)
        monkeypatch.setitem(sys.modules, "shop.tasks", module)

    monkeypatch.setitem(sys.modules, "shop", types.ModuleType("shop"))
    releases.deploy(SEND.format(""))
    loaded()
    sent = pickle.dumps(releases.code["send"].using(priority=3))
    releases.deploy("@subscribe('order.paid')\n" + MAIL.format(""))
    loaded()
    again = pickle.loads(sent)  # noqa: S301 -- made two lines above
    assert (again.declaration.name, again.options) == (NEW, {"priority": 3})
    publish("order.paid", 7)
    run_due_tasks()
    assert releases.ran == [("mail", 7)]


def test_a_task_of_django(releases):
    releases.deploy("@django_task\ndef send(order): ran.append(('send', order))")
    result = releases.code["send"].enqueue(7)
    releases.deploy(
        "@django_task(was=['shop.tasks.send'])\ndef mail(order): ran.append(('mail', order))"
    )
    run_due_tasks()
    assert releases.ran == [("mail", 7)]
    found = releases.code["mail"].get_backend().get_result(result.id)
    assert (found.status, found.task.module_path) == ("SUCCESSFUL", NEW)
    assert hash(releases.code["mail"])


def test_status_audit_and_explain_know_the_old_name(releases):
    releases.deploy(SEND.format(""))["send"].enqueue(7)
    releases.deploy(MAIL.format(""))
    with helpers.working(queues=["mail"]):
        assert names.undeclared("default", ["default"], registry.names()) == {}
        out = StringIO()
        call_command("txtasks_preflight", "--json", stdout=out)
        assert json.loads(out.getvalue())["exit_code"] == 0


def test_a_worker_that_is_told_one_name_runs_all_names(releases):
    releases.deploy(f"{MAIL.format('')}\n@task\ndef pack(order): ...")
    assert _task_names([NEW], []) == (NEW, OLD)
    assert _task_names([OLD], []) == (NEW, OLD)
    assert OLD not in _task_names(None, [NEW])
    assert NEW not in _task_names(None, [OLD])
    with pytest.raises(CommandError):
        _task_names(["shop.tasks.nobody"], [])


def test_names_and_declarations(releases):
    releases.deploy(MAIL.format(""))
    assert registry.get(OLD) is registry.get(NEW)
    assert [one.name for one in registry.declarations() if one.name.startswith("shop")] == [NEW]
    assert {OLD, NEW} <= set(registry.names())
    exec(MAIL.format("").replace("was=['shop.tasks.send']", ""), releases.code)  # noqa: S102 -- loaded again
    assert registry.find(OLD) is None


TWICE = [
    (f"{SEND.format('')}\n{MAIL.format('')}", "shop.tasks.send is a task function itself"),
    (f"{MAIL.format('')}\n{SEND.format('')}", "shop.tasks.send is a task function itself"),
    (
        f"{MAIL.format('')}\n@task(was=['shop.tasks.send'])\ndef post(order): ...",
        "shop.tasks.post has was=['shop.tasks.send'] and shop.tasks.mail has was=['shop.tasks.send']",
    ),
]


@pytest.mark.parametrize(("source", "says"), TWICE, ids=range(3))
def test_a_name_in_two_places_is_refused_at_import(releases, source, says):
    with pytest.raises(InvalidDeclaration) as raised:
        releases.deploy(source)
    assert str(raised.value).startswith("The task name 'shop.tasks.send' is declared in two places")
    assert says in str(raised.value)


def test_djangos_task_refuses_it_as_django_does(releases):
    from django_txtasks.backends.compat import InvalidTask

    with pytest.raises(InvalidTask, match="declared in two places"):
        releases.deploy(
            SEND.format("") + "\n@django_task(was=['shop.tasks.send'])\ndef mail(order): ..."
        )


WRONG = ["'shop.tasks.old'", "['old']", "[3]", "['shop.tasks.']", "['shop.tasks.mail']", "None",
         "['a.b', 'a.b']", "['a.' + 'b' * 199]", "['a b.c']"]  # fmt: skip


@pytest.mark.parametrize("was", WRONG)
def test_wrong_names_are_refused(releases, was):
    with pytest.raises(InvalidDeclaration, match="has was="):
        releases.deploy(f"@task(was={was})\ndef mail(order): ...")
    assert registry.find(NEW) is None
    assert get_config()
