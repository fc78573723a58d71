"""Hooks and notices in rows that were written by hand: invalid ones are dropped, and workers continue."""

from __future__ import annotations

import json
import uuid

import helpers
import pytest
from django.core.management import call_command
from django.db import connection
from probe import tasks

from django_txtasks.conf import get_config
from django_txtasks.core.cleaning import Cleaner
from django_txtasks.core.declaring import specs
from django_txtasks.core.rows import workers
from django_txtasks.models import FinishedTask, OnCrash, Status, Task

pytestmark = pytest.mark.usefixtures("rows")

SOUND = specs.task_spec("probe.tasks.give")
UNSOUND = [
    None,
    "probe.tasks.note",
    [SOUND],
    {},
    {"task_name": "probe.tasks.note"},
    {**SOUND, "more": 1},
    *(
        {**SOUND, key: value}
        for key, values in {
            "task_name": [
                None,
                5,
                "",
                "x" * 201,
                "\ud800" if connection.vendor == "sqlite" else {},
            ],
            "queue_name": [None, [], "q" * 101],
            "priority": [None, "1", True, 10**6],
            "max_attempts": [None, 0, 10**6, 1.5],
            "max_crashes": [None, -1],
            "on_crash": [None, "never", "x" * 50],
            "timeout": ["1", -1, 0, True, 1e300],
            "hooks": [None, [], {"on_success": "x"}, {"on_success": {}}],
        }.items()
        for value in values
    ),
]


def by_hand(function, **columns):
    """Write a row with a policy, as a sender does who knows no ``@task``."""
    name = function.declaration.name
    return Task.objects.create(id=uuid.uuid4(), task_name=name, **columns)


def work():
    call_command("runworkers", batch=True, threads=1)


@pytest.mark.parametrize("number", range(len(UNSOUND)))
def test_a_hook_that_no_declaration_wrote_is_dropped_and_stops_no_worker(number):
    task = by_hand(tasks.note, hooks={"on_success": UNSOUND[number]})
    work()
    assert helpers.finished(task.pk)
    assert helpers.counts()["finished"] == 1 and not Task.objects.exists()


def test_a_sound_hook_written_by_hand_is_enqueued():
    by_hand(tasks.note, hooks={"on_success": SOUND, "on_retry": {**SOUND, "hooks": None}})
    work()
    [followed] = FinishedTask.objects.filter(task_name="probe.tasks.give")
    assert followed.result["event"] == "success"


@pytest.mark.parametrize("hooks", [{"compensate": "x", "on_failure": {}}, [], 5], ids=json.dumps)
def test_such_a_hook_stops_no_cleaner(hooks):
    worker = workers.register(
        "default", queues=["default"], threads=1, listening=None, lease=get_config().lease
    )
    task = by_hand(
        tasks.note, on_crash=OnCrash.COMPENSATE, hooks=hooks, status=Status.CLAIMED, worker=worker,
        claimed_at="2026-01-01T00:00Z", started_at="2026-01-01T00:00Z",
    )  # fmt: skip
    workers.give_up("default", worker)
    assert Cleaner(get_config()).run_once()["buried"] == 1
    assert [one.pk for one in Task.objects.all()] == [task.pk]


@pytest.mark.parametrize("timeout", ["'NaN'", "'Infinity'", "-1.0", "0", "1e300", "'soon'"])
def test_a_time_limit_that_is_none_stops_no_worker(timeout):
    task = by_hand(tasks.note)
    with connection.cursor() as cursor:
        try:
            cursor.execute(f"UPDATE txtasks_task SET timeout = {timeout}")
        except Exception:
            return  # this database refuses it, which is as good
    tasks.note.enqueue("after")
    work()
    assert helpers.runs("after") == 1
    assert helpers.finished(task.pk) or helpers.row(task.pk)


def test_a_number_that_json_does_not_have_keeps_no_death_from_being_told(txtasks):
    """1e999 is a number to SQLite and MariaDB, and infinity to Python."""
    txtasks(dead_notices={"task": "probe.tasks.give"})
    task = by_hand(tasks.fail, max_attempts=1, hooks={"on_failure": SOUND})
    with connection.cursor() as cursor:
        cursor.execute("""UPDATE txtasks_task SET args = '[1e999]'""")
    with helpers.working():
        helpers.wait_until(lambda: helpers.row(task.pk).status == Status.DEAD)
    told = [*Task.objects.filter(task_name="probe.tasks.give"), *FinishedTask.objects.all()]
    assert len(told) == 2
