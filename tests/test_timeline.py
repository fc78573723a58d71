"""The attempts of a task on its page: where each ran, and how it ended, also when its workers are gone."""

import os
import signal
from datetime import timedelta

import helpers
import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.urls import reverse
from probe import tasks

from django_txtasks import enqueue_task
from django_txtasks.conf import get_config
from django_txtasks.core.cleaning.cleaner import Cleaner
from django_txtasks.models import EndedWorker, FinishedTask, Task, Worker

pytestmark = pytest.mark.usefixtures("rows", "quick")


@pytest.fixture
def page(client):
    person = User.objects.create_superuser("root", password="secret")
    client.force_login(person)

    def lines(task_id):
        kind = "task" if Task.objects.filter(pk=task_id).exists() else "finishedtask"
        url = reverse(f"admin:txtasks_{kind}_change", args=[task_id])
        text = client.get(url).content.decode()
        return [one.split("</div>")[0] for one in text.split("<div>attempt ")[1:]]

    yield lines
    person.delete()


def work():
    call_command("runworkers", batch=True, threads=1, verbosity=0)


def test_attempts_of_workers_that_have_ended_say_where_they_were(page):
    handle = enqueue_task(tasks.fail_until, 2)
    work()
    work()
    assert not Worker.objects.exists()
    workers = [str(one) for one in EndedWorker.objects.all()]
    last, first = page(handle.id)
    assert last.startswith("2 · ")
    assert last.endswith(" · succeeded")
    assert first.startswith("1 · ")
    assert first.endswith("ValueError")
    assert all(any(one in line for one in workers) for line in (last, first))


def test_an_attempt_whose_worker_was_killed_says_where_it_was(page, processes, txtasks):
    txtasks(lease=3, heartbeat_interval=0.5, clean_interval=1)
    handle = enqueue_task(tasks.slow_once, "killed")
    processes.start("runworkers", "--threads=1")
    helpers.wait_until(lambda: helpers.runs("killed"))
    lost = Worker.objects.get()
    (line,) = page(handle.id)
    assert str(lost) in line
    assert line.endswith("claimed")
    os.kill(lost.pid, signal.SIGKILL)
    processes.start("runcleaner")
    helpers.wait_until(FinishedTask.objects.exists)
    two_days_ago = lost.seen_at - timedelta(days=2)
    Worker.objects.filter(lost=True).update(seen_at=two_days_ago)
    helpers.wait_until(lambda: EndedWorker.objects.filter(pk=lost.pk).exists())
    last, first = page(handle.id)
    assert str(lost) in first
    assert "WorkerLost" in first
    assert last.startswith("2 · ")


def test_a_worker_nobody_knows_shows_as_its_id(page):
    handle = enqueue_task(tasks.fail_until, 2)
    work()
    gone = EndedWorker.objects.get()
    EndedWorker.objects.all().delete()
    (line,) = [one for one in page(handle.id) if one.startswith("1 · ")]
    assert str(gone.pk) in line


def test_a_row_of_nonsense_shows_what_it_can(page):
    handle = enqueue_task(tasks.note)
    work()
    FinishedTask.objects.update(errors=["text", {"attempt": 7, "worker": 5}, None])
    last, strange = page(handle.id)
    assert last.endswith("succeeded")
    assert strange == "7 · 5"


@pytest.mark.parametrize(("keep", "left"), [(3600, 1), (None, 2)])
def test_they_are_forgotten_with_the_tasks_that_name_them(txtasks, keep, left):
    txtasks(keep_finished=keep)
    work()
    work()
    one = EndedWorker.objects.first()
    EndedWorker.objects.filter(pk=one.pk).update(ended_at=one.ended_at - timedelta(days=2))
    Cleaner(get_config(), "default").run_once()
    assert EndedWorker.objects.count() == left
