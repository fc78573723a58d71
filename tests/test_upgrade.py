"""Tables of an earlier version, with whatever is in them, become tables of this one and go on."""

from __future__ import annotations

import uuid
from pathlib import Path

import helpers
import pytest
from django.core.management import call_command
from django.db import connections

from django_txtasks import migrations
from django_txtasks.models import FinishedTask, Task

pytestmark = pytest.mark.smoke

HISTORY = sorted(path.stem for path in Path(migrations.__path__[0]).glob("0*.py"))
OLD_ROWS = """
    INSERT INTO txtasks_task (id, task_name, args) VALUES ('{pending}', 'probe.tasks.give', '[1]');
    INSERT INTO txtasks_task (id, task_name, args, status) VALUES ('{held}', 'probe.tasks.give', '[2]', 'held');
    INSERT INTO txtasks_task (id, task_name, status, attempt, failures, errors)
    VALUES ('{dead}', 'probe.tasks.fail', 'dead', 1, 1, '[{{"attempt": 1, "type": "ValueError"}}]');
    INSERT INTO txtasks_task (id, task_name, args, status, attempt, worker, claimed_at, on_crash)
    VALUES ('{crashed}', 'probe.tasks.give', '[3]', 'claimed', 1, '{worker}', CURRENT_TIMESTAMP, 'retry');
    INSERT INTO txtasks_finishedtask (id, task_name, outcome)
    VALUES ('{finished}', 'probe.tasks.give', 'succeeded')
"""


def migrate(to=""):
    call_command("migrate", "txtasks", *filter(None, [to]), database="second", verbosity=0)


@pytest.fixture
def old(second_database):
    """Migrate the second database to a state, write rows of that time into it, and return their ids."""

    def write(state):
        migrate(state)
        ids = {
            name: uuid.uuid4().hex
            for name in ("pending", "held", "dead", "crashed", "finished", "worker")
        }
        with connections["second"].cursor() as cursor:
            for statement in OLD_ROWS.format(**ids).split(";"):
                cursor.execute(statement)
        return {name: uuid.UUID(text) for name, text in ids.items()}

    return write


@pytest.mark.parametrize("state", HISTORY[:-1])
def test_what_is_in_the_tables_outlives_an_upgrade_and_goes_on(state, old):
    ids = old(state)
    migrate()
    assert Task.objects.using("second").count() == 4
    call_command("runcleaner", database="second", once=True, verbosity=0)
    call_command("runworkers", database="second", batch=True, verbosity=0)
    left = {task.pk: task for task in Task.objects.using("second")}
    assert {ids["held"], ids["dead"]} == set(left)
    assert left[ids["dead"]].errors[0]["type"] == "ValueError"
    finished = {task.pk: task.result for task in FinishedTask.objects.using("second")}
    assert finished == {ids["pending"]: 1, ids["crashed"]: 3, ids["finished"]: None}


def test_all_of_the_history_can_be_taken_back(old):
    """Down to nothing and up again: no migration is a one-way street."""
    old(HISTORY[-1])
    migrate("zero")
    assert not helpers.tables_of("second")
    migrate()
    assert len(helpers.tables_of("second")) == 12
