"""Packages of others that know ``django.tasks`` and nothing of this one."""

import json
import os
import signal
import subprocess
import sys

import django
import helpers
import pytest
from django.db import connection

from django_txtasks.models import Task, Worker

pytestmark = [
    pytest.mark.usefixtures("rows", "quick"),
    pytest.mark.smoke,
    pytest.mark.skipif(
        connection.vendor != "postgresql", reason="the same whatever the database; Django matters"
    ),
    pytest.mark.skipif(django.VERSION < (6, 0), reason="they need Django's own Tasks"),
]

SETTINGS = """
from settings_for_tests import *

INSTALLED_APPS = [*INSTALLED_APPS, "crontask", "debug_toolbar", "overseer", "tasks_monitor", "theirs"]
DEBUG = True
INTERNAL_IPS = ["127.0.0.1"]
DEBUG_TOOLBAR_PANELS = ["debug_toolbar.panels.tasks.TasksPanel"]
DEBUG_TOOLBAR_CONFIG = {"IS_RUNNING_TESTS": False}
MIDDLEWARE = ["debug_toolbar.middleware.DebugToolbarMiddleware", *MIDDLEWARE]
ROOT_URLCONF = "theirs.urls"
"""
TASKS = """
from apscheduler.triggers.interval import IntervalTrigger
from crontask import cron
from django.dispatch import receiver
from django.tasks import task
from django.tasks.signals import task_finished
from probe.models import Run


@cron(IntervalTrigger(seconds=1))
@task(priority=3)
def every_second():
    Run.objects.create(key="every second")


@task
def wait():
    import time

    time.sleep(3600)


@receiver(task_finished)
def count(task_result, **_):
    Run.objects.create(key=f"{task_result.status} {task_result.id}")
"""
ENQUEUE = """
import sys, django
django.setup()
from datetime import timedelta
from django_txtasks import cancel_task
from theirs.tasks import wait
print(wait.enqueue().id)
expires = wait.using(run_after=timedelta(hours=1)).enqueue()
print(expires.id)
cancelled = wait.using(run_after=timedelta(hours=1)).enqueue()
cancel_task(cancelled.id)
print(cancelled.id)
"""
URLS = """
from debug_toolbar.toolbar import debug_toolbar_urls
from django.db import transaction
from django.http import HttpResponse
from django.urls import path
from theirs.tasks import every_second


@transaction.atomic
def page(request):
    every_second.enqueue()
    return HttpResponse("<html><body>done</body></html>")


urlpatterns = [path("", page), *debug_toolbar_urls()]
"""
ASK = """
import json
import django
django.setup()
from debug_toolbar.toolbar import DebugToolbar
from django.test import Client
toolbars = []
def note(toolbar, **_):
    toolbars.append(toolbar)
DebugToolbar._created.connect(note)
assert Client().get("/").status_code == 200
print(json.dumps(toolbars[0].get_panel_by_id("TasksPanel").get_stats(), default=str))
"""


@pytest.fixture
def theirs(tmp_path, processes):
    """The environment of processes of a project that has such packages."""
    (tmp_path / "theirs").mkdir()
    files = {"__init__.py": "", "tasks.py": TASKS, "urls.py": URLS, "settings.py": SETTINGS}
    for name, text in files.items():
        (tmp_path / "theirs" / name).write_text(text)
    environment = processes._environment()
    return {
        **environment,
        "DJANGO_SETTINGS_MODULE": "theirs.settings",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), environment["PYTHONPATH"]]),
    }


def test_django_crontask_schedules_tasks_of_this_backend(processes, theirs):
    processes.start("crontask", "--no-heartbeat", env=theirs)
    ours = Task.objects.filter(
        task_name="theirs.tasks.every_second"
    )  # it adds one of its own at each full minute
    helpers.wait_until(ours.exists)
    assert ours.first().priority == 3
    processes.start("runworkers", "--threads=1", env=theirs)
    helpers.wait_until(lambda: helpers.runs("every second") > 1)


def test_the_panel_of_django_debug_toolbar_shows_what_a_request_has_enqueued(theirs):
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=theirs, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    [shown] = json.loads(done.stdout)["tasks"]
    assert shown["task"]["module_path"] == "theirs.tasks.every_second"
    assert (shown["backend"], shown["status"], shown["task"]["priority"]) == ("default", "READY", 3)
    assert Task.objects.get().task_name == "theirs.tasks.every_second"


@pytest.fixture
def observer(processes, theirs):
    """The tables of django-tasks-monitor and django-overseer: give the status that both show for each id."""

    def migrate(*to):
        for app in ("tasks_monitor", "overseer"):
            process = processes.start("migrate", app, *to, env=theirs)
            assert process.wait(helpers.PATIENCE) == 0

    def shown():
        seen = dict(helpers.execute("SELECT result_id, status FROM tasks_monitor_taskrecord"))
        also = dict(helpers.execute("SELECT result_id, status FROM overseer_run"))
        return seen if seen == also else {"monitor": seen, "overseer": also}

    migrate()
    yield shown
    processes.end()
    migrate("zero")


def test_two_observers_see_the_end_of_each_task(processes, theirs, observer, txtasks):
    txtasks(clean_interval=0.2)
    done = subprocess.run(
        [sys.executable, "-c", ENQUEUE], env=theirs, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    killed, expires, cancelled = done.stdout.split()
    assert observer() == {killed: "READY", expires: "READY", cancelled: "FAILED"}
    workers = processes.start("runworkers", env=theirs)
    helpers.wait_until(lambda: observer().get(killed) == "RUNNING")
    os.kill(Worker.objects.get().pid, signal.SIGKILL)
    os.kill(workers.pid, signal.SIGKILL)
    helpers.execute(
        "UPDATE txtasks_task SET expires_at = now() - interval '1 second' WHERE id = %s", expires
    )
    processes.start("runcleaner", env=theirs)
    ended = dict.fromkeys([killed, expires, cancelled], "FAILED")
    helpers.wait_until(lambda: observer() == ended, what=lambda: str(observer()))
    assert all(helpers.runs(f"FAILED {one}") == 1 for one in ended)
