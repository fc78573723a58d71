"""A database without task tables: commands that may create them run; commands that need them report it."""

from __future__ import annotations

import asyncio
import sys

import helpers
import pytest
from django.core.checks import run_checks
from django.core.exceptions import SynchronousOnlyOperation
from django.core.management import CommandError, call_command
from django.db import DatabaseError
from probe import tasks

from django_txtasks import enqueue_many, enqueue_task

REFUSAL = "has no table txtasks_task. Run: manage.py migrate --database second"
NEED_TABLES = ["runworkers", "runcleaner", "txtasks_audit", "txtasks_queue list", "txtasks_status"]
pytestmark = pytest.mark.usefixtures("second_database")


@pytest.mark.parametrize("command", ["migrate", "migrate_everything"])
def test_the_tables_are_made_by_whatever_command_makes_them(command):
    """This process is no ``manage.py``: neither is a script that calls ``migrate``."""
    call_command(command, database="second", skip_checks=False, verbosity=0)
    assert "txtasks_task" in helpers.tables_of("second")


@pytest.mark.once
def test_a_command_of_another_name_makes_the_tables_in_a_process_of_its_own(
    processes, second_database
):
    made = processes.start("migrate_everything", "--database=second", env=second_database)
    assert made.wait(helpers.PATIENCE) == 0
    assert "txtasks_task" in helpers.tables_of("second")


@pytest.fixture
def site_without_our_tables(second_database):
    """A site that has migrated other apps."""
    call_command("migrate", "contenttypes", database="second", verbosity=0)


def test_a_first_migrate_warns_of_no_missing_tables(capsys):
    """Nothing was migrated yet, and each app lacks its tables."""
    assert run_checks(databases=["second"]) == run_checks()
    call_command("migrate", database="second", skip_checks=False, verbosity=0)
    assert "no table" not in capsys.readouterr().err
    assert "txtasks_task" in helpers.tables_of("second")


@pytest.mark.once
def test_a_first_migrate_in_a_process_of_its_own_warns_of_nothing(processes, second_database):
    made = processes.start("migrate", "--database=second", env=second_database)
    assert made.wait(helpers.PATIENCE) == 0
    assert "no table" not in processes.log_of(made)


@pytest.mark.usefixtures("site_without_our_tables")
def test_a_deployment_that_asks_for_warnings_hears_of_missing_tables(capsys):
    call_command("check", databases=["second"])
    said = capsys.readouterr().err
    assert "txtasks.W029" in said and "manage.py migrate --database second" in said
    with pytest.raises(CommandError, match="W029"):
        call_command("check", databases=["second"], fail_level="WARNING")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no notes of exceptions")
@pytest.mark.parametrize("number", [1, 2], ids=["one task", "many tasks"])
def test_an_enqueue_before_migrate_has_a_note_of_the_remedy(number):
    calls = [(tasks.note.using(using="second"), ["x"])] * number
    with pytest.raises(DatabaseError) as caught:
        enqueue_many(calls) if number > 1 else enqueue_task(calls[0][0], "x")
    assert "run 'manage.py migrate'." in caught.value.__notes__[0]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no notes of exceptions")
@pytest.mark.parametrize(
    "enqueue", [enqueue_task, lambda *call: enqueue_many([(call[0], call[1:])])]
)
def test_an_enqueue_in_async_code_has_a_note_of_the_remedy(enqueue):
    async def view():
        enqueue(tasks.note, "x")

    with pytest.raises(SynchronousOnlyOperation) as caught:
        asyncio.run(view())
    assert "await aenqueue(), aenqueue_task()" in caught.value.__notes__[0]


@pytest.mark.parametrize("command", NEED_TABLES)
def test_a_command_that_needs_the_tables_refuses_to_start_without_them(command):
    with pytest.raises(CommandError, match=REFUSAL):
        call_command(*command.split(), "--database=second")


@pytest.mark.usefixtures("site_without_our_tables")
@pytest.mark.parametrize("name", ["migrate", "migrate_everything", "check", ""])
def test_no_check_asks_for_the_name_of_the_command(monkeypatch, name):
    """A name says nothing of what a command does."""
    monkeypatch.setattr(sys, "argv", ["manage.py", name])
    assert "txtasks.W029" in [one.id for one in run_checks(databases=["second"])]
