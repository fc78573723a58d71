"""Packages of others that know ``django.tasks`` and nothing of this one."""

import json
import os
import subprocess
import sys

import django
import helpers
import pytest
from django.db import connection

from django_txtasks.models import Task

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

INSTALLED_APPS = [*INSTALLED_APPS, "crontask", "debug_toolbar", "theirs"]
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
from django.tasks import task
from probe.models import Run


@cron(IntervalTrigger(seconds=1))
@task(priority=3)
def every_second():
    Run.objects.create(key="every second")
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
