"""Schedules come from code into the database by themselves: by migrate, and by a cleaner that starts."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import helpers
import pytest
from django.db import connection
from probe import tasks
from test_schedules import forget, schedule, sync

from django_txtasks import signals
from django_txtasks.features.schedules import changes as schedule_changes
from django_txtasks.features.schedules import periodic as scheduling
from django_txtasks.models import Schedule, Task

pytestmark = pytest.mark.usefixtures("rows")
HOUR = timedelta(hours=1)
TASKS = """
from django_txtasks import periodic, task

@periodic(every={every}, name="often", args=["x"])
@task
def often(key): ...

@periodic(every=1, name="lost", queue_name="nowhere")
@task
def lost(): ...
"""
SETTINGS = """
from settings_for_tests import *
INSTALLED_APPS = [*INSTALLED_APPS, "nightly"]
TXTASKS = {{**TXTASKS, "sync_schedules": {on}}}
{more}
"""
SQLITE = """
DATABASES = {"default": {
    "ENGINE": "django.db.backends.sqlite3", "NAME": "file.sqlite3",
    "OPTIONS": {"transaction_mode": "IMMEDIATE"},
}}
"""
TESTS = """
from django.test import TestCase, TransactionTestCase
from django_txtasks.models import Schedule

class NoneHere(TestCase):
    def test_none(self):
        assert not Schedule.objects.exists()

class NorAfterFlush(TransactionTestCase):
    available_apps = None
    test_none = NoneHere.test_none
"""


class Release:
    """A release of a project, whose commands are processes of their own."""

    def __init__(self, directory: Path, processes, every: int, *, on: bool = True, more: str = ""):
        self.directory, self.processes = directory / f"release{every}{on}", processes
        app = self.directory / "nightly"
        app.mkdir(parents=True)
        (app / "__init__.py").touch()
        (app / "tasks.py").write_text(TASKS.format(every=every))
        (app / "tests.py").write_text(TESTS)
        (self.directory / "release_settings.py").write_text(SETTINGS.format(on=on, more=more))

    def run(self, *command: str) -> str:
        """Run a command to its end; return its output."""
        environment = self.processes._environment()
        path = f"{self.directory}:{environment['PYTHONPATH']}"
        done = subprocess.run(
            [sys.executable, "-m", "django", *command],
            env={**environment, "DJANGO_SETTINGS_MODULE": "release_settings", "PYTHONPATH": path},
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=helpers.PATIENCE * 2,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def release(tmp_path, processes):
    def make(every: int, **options) -> Release:
        return Release(tmp_path, processes, every, **options)

    return make


@pytest.mark.once
def test_migrate_brings_schedules_and_a_cleaner_has_them_tick(release):
    new = release(3600)
    said = new.run("migrate")
    assert "Schedules of 'default' are as in the code: 1 added." in said
    assert "'nowhere' is not among TXTASKS['queues']" in said
    assert (schedule("often").every, schedule("often").from_code) == (3600, True)
    assert "are as in the code" not in new.run("migrate")
    Schedule.objects.update(next_at="2020-01-01T00:00Z")
    new.run("runcleaner", "--once")
    assert Task.objects.get().task_name == "nightly.tasks.often"


@pytest.mark.once
def test_a_cleaner_that_starts_adds_what_is_new_and_says_so(release):
    said = release(3600).run("runcleaner", "--once")
    assert "Schedules of 'default' are as in the code: 1 added." in said
    assert schedule("often").every == 3600
    said = release(60).run("runcleaner", "--once")
    assert "1 changed" not in said
    assert schedule("often").every == 3600


@pytest.mark.once
def test_an_older_release_that_starts_again_overwrites_nothing(release):
    old, new = release(60), release(3600)
    old.run("migrate")
    assert "1 changed" in new.run("migrate")
    old.run("migrate")
    old.run("runcleaner", "--once")
    assert schedule("often").every == 3600


@pytest.mark.once
def test_nothing_comes_by_itself_where_that_is_turned_off(release):
    off = release(3600, on=False)
    off.run("migrate")
    off.run("runcleaner", "--once")
    assert not Schedule.objects.exists()


@pytest.mark.once
def test_nothing_comes_after_flush_nor_into_a_test_database_nor_without_its_table(release):
    new = release(3600, more=SQLITE)
    count = (
        "shell",
        "-v0",
        "-c",
        "from django_txtasks.models import *; print(Schedule.objects.count(), 'rows')",
    )
    assert "1 added" in new.run("migrate")
    assert "1 rows" in new.run(*count)
    new.run("flush", "--noinput")
    assert "0 rows" in new.run(*count)
    assert "Ran 2 tests" in new.run("test", "nightly")
    new.run("migrate", "txtasks", "zero")
    assert "1 added" in new.run("migrate")


# -- what the code says, by whom it was said ----------------------------------------------------------


def bring(**options):
    return scheduling.bring("default", **options)


def declare(code, every, name="s"):
    scheduling._declared.pop(name, None)
    code(name=name, every=every)


def test_each_later_release_counts_and_none_comes_back(code):
    for minutes in (1, 2, 3):
        declare(code, timedelta(minutes=minutes))
        assert bring() == ("1 added" if minutes == 1 else "1 changed")
        assert bring() == ""
    for minutes in (1, 2):
        declare(code, timedelta(minutes=minutes))
        assert bring() == ""
    assert schedule().every == 180
    assert "1 changed" in sync()  # who says so goes back
    assert schedule().every == 120
    declare(code, timedelta(minutes=3))
    assert bring() == ""
    assert schedule().every == 120


def test_rows_of_a_release_before_there_were_versions(code):
    declare(code, HOUR)
    sync()
    Schedule.objects.update(code_versions=[])
    declare(code, 2 * HOUR)
    assert bring() == "1 changed"
    declare(code, HOUR)
    assert bring() == ""
    assert schedule().every == 7200


def test_what_people_have_changed_stays_and_the_newest_code_is_known(code):
    declare(code, HOUR)
    bring()
    schedule_changes.configure("default", "s", {"every": 60.0}, keep=True, by="ann")
    declare(code, 2 * HOUR)
    assert bring() == ""
    assert schedule().every == 60
    one = scheduling.declared("default")["s"]
    schedule_changes.follow_code("default", "s", one, keep=True)
    declare(code, HOUR)
    assert bring() == ""
    assert schedule().every == 7200


def test_what_people_have_added_or_turned_off_stays(code):
    declare(code, HOUR)
    configuration = {**scheduling.declared("default")["s"].configuration, "every": 60.0}
    schedule_changes.add("default", "s", configuration, by="ann")
    assert bring() == ""
    assert (schedule().every, schedule().from_code) == (60, False)
    declare(code, HOUR, "off")
    bring()
    schedule_changes.disable("default", "off", keep=True, by="ann")
    declare(code, 2 * HOUR, "off")
    assert bring() == "1 changed"
    assert (schedule("off").every, schedule("off").enabled) == (7200, False)


def test_it_removes_nothing_and_turns_on_nothing_that_sync_has_turned_off(code):
    declare(code, HOUR)
    bring()
    forget("s")
    declare(code, HOUR, "other")
    assert bring() == "1 added"
    assert schedule().enabled
    sync()
    declare(code, HOUR)
    assert bring() == ""
    assert (schedule().enabled, schedule().error) == (False, schedule_changes.GONE)


def test_rows_with_a_release_number_are_left_to_sync(code):
    declare(code, HOUR)
    sync("--release", "7")
    declare(code, 2 * HOUR)
    declare(code, HOUR, "new")
    assert bring() == "1 added"
    assert schedule().every == 3600


def test_a_cleaner_leaves_rows_that_are_there(code):
    declare(code, HOUR)
    bring()
    declare(code, 2 * HOUR)
    declare(code, HOUR, "new")
    assert bring(only_new=True) == "1 added"
    assert schedule().every == 3600


@pytest.mark.skipif(connection.vendor == "sqlite", reason="one writer at a time")
def test_two_that_bring_the_same_at_once_add_it_once(code):
    declare(code, HOUR)
    with helpers.second_session(bring), helpers.second_session(bring):
        bring()
    assert schedule().code_versions == [schedule().code_versions[0]]


def test_a_queue_that_is_none_keeps_no_other_schedule_out(code, told):
    declare(code, HOUR)
    scheduling._declared["bad"] = scheduling.declared()["s"].__class__(
        **{**vars(scheduling.declared()["s"]), "name": "bad", "queue_name": "nowhere"}
    )
    assert bring() == "1 added"
    ((signal, facts),) = told
    assert (signal, facts["schedule"]) == (signals.schedule_not_written, "bad")
    assert not Schedule.objects.filter(pk="bad").exists()
    assert tasks.note.declaration.name == schedule().task_name
