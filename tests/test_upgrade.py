"""Tables of an earlier version, with whatever is in them, become tables of this one and go on."""

from __future__ import annotations

import uuid
from importlib import import_module
from pathlib import Path

import helpers
import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import connection, connections
from django.db.migrations.recorder import MigrationRecorder
from django.utils import timezone

from django_txtasks import checks, migrations
from django_txtasks.models import FinishedTask, Status, Task

FIRST = import_module("django_txtasks.migrations.0001_tables")
FORMER = [name for _, name in FIRST.Migration.replaces]
COMMANDS = [["runworkers", "--batch"], ["runcleaner", "--once"], ["txtasks_status"]]
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


def applied():
    return sorted(
        name for app, name in MigrationRecorder(connections["second"]).applied_migrations()
        if app == "txtasks"
    )  # fmt: skip


@pytest.fixture
def former(old):
    """Return a function that makes the tables of earlier migrations, with rows, and returns the ids.

    Its argument is the names of the migrations that are recorded as applied. The tables are always complete.
    """

    def make(names):
        ids = old(HISTORY[-1])
        recorder = MigrationRecorder(connections["second"])
        recorder.migration_qs.filter(app="txtasks").delete()
        for name in names:
            recorder.record_applied("txtasks", name)
        return ids

    return make


def test_what_is_in_the_tables_outlives_an_upgrade_and_goes_on(former):
    ids = former(FORMER)
    assert not checks.check_tables(databases=["second"])
    assert not checks.check_migrations(databases=["second"])
    migrate()
    assert applied() == sorted({*FORMER, *HISTORY})
    assert Task.objects.using("second").count() == 4
    call_command("runcleaner", database="second", once=True, verbosity=0)
    call_command("runworkers", database="second", batch=True, verbosity=0)
    left = {task.pk: task for task in Task.objects.using("second")}
    assert {ids["held"], ids["dead"]} == set(left)
    assert left[ids["dead"]].errors[0]["type"] == "ValueError"
    finished = {task.pk: task.result for task in FinishedTask.objects.using("second")}
    assert finished == {ids["pending"]: 1, ids["crashed"]: 3, ids["finished"]: None}


def test_tables_of_all_former_migrations_can_be_taken_back(former):
    former(FORMER)
    migrate("zero")
    assert not helpers.tables_of("second")
    migrate()
    assert len(helpers.tables_of("second")) == 16


@pytest.mark.parametrize("names", [FORMER[:1], FORMER[:-1], ["0001_initial", "0026_batch_opener"]])
def test_tables_of_some_former_migrations_are_refused_before_anything_changes(names, former):
    """The last names are those of a database that has followed the development from its beginning."""
    former(names)
    tables = helpers.tables_of("second")
    (found,) = checks.check_tables(databases=["second"])
    assert found.id == checks.UNFINISHED and FORMER[-1] in found.msg
    assert checks.COMMIT_WITH_ALL_MIGRATIONS in found.hint
    for command in COMMANDS:
        with pytest.raises(CommandError, match="tables of a development version"):
            call_command(*command, database="second")
    assert (helpers.tables_of("second"), applied()) == (tables, sorted(names))
    assert Task.objects.using("second").count() == 4


def test_tables_of_some_former_migrations_of_another_app_are_refused_too(former):
    former(FORMER)
    recorder = MigrationRecorder(connections["second"])
    recorder.migration_qs.filter(app="txtasks_people").delete()
    recorder.record_applied("txtasks_people", "0001_initial")
    (found,) = checks.check_tables(databases=["second"])
    assert found.id == checks.UNFINISHED and "lack 0002_notes_and_hidden, 0003_" in found.msg


@pytest.mark.once
def test_a_migrate_of_its_own_process_is_refused_by_the_check(former, second_database, processes):
    former(FORMER[:-1])
    started = processes.start("migrate", "--database=second", env=second_database)
    assert started.wait(helpers.PATIENCE) == 1
    assert checks.UNFINISHED in processes.log_of(started)


def test_a_project_with_migrations_of_its_own_is_not_asked_for_ours(former, settings):
    former(FORMER[:-1])
    settings.MIGRATION_MODULES = {"txtasks": "django_txtasks.migrations"}
    assert not checks.check_tables(databases=["second"])


@pytest.mark.smoke
def test_all_of_the_history_can_be_taken_back(old):
    """Down to nothing and up again: no migration is a one-way street."""
    old(HISTORY[-1])
    migrate("zero")
    assert not helpers.tables_of("second")
    migrate()
    assert len(helpers.tables_of("second")) == 16


@pytest.mark.skipif(connection.vendor != "mysql", reason="others have partial indexes")
def test_that_column_has_the_status_of_rows_that_failed_or_are_stopped(rows):
    names = {}
    for status in Status:
        claim = {"worker": uuid.uuid4(), "claimed_at": timezone.now()}
        for cause in (None, 7):
            row = Task.objects.create(
                id=uuid.uuid4(), task_name="f", status=status, cause=cause,
                **(claim if status == Status.CLAIMED else {}),
            )  # fmt: skip
            names[row.pk.hex] = (status.value, cause)
    with connection.cursor() as cursor:
        cursor.execute("SELECT id, failed_status FROM txtasks_task")
        found = {names[uuid.UUID(str(pk)).hex]: status for pk, status in cursor.fetchall()}
    assert found == {
        ("pending", None): None,
        ("pending", 7): "pending",
        ("claimed", None): None,
        ("claimed", 7): None,
        **{(status, cause): status for status in ("dead", "held") for cause in (None, 7)},
    }


@pytest.mark.skipif(connection.vendor != "mysql", reason="others read without the index")
def test_without_the_index_the_error_says_what_to_do(second_database):
    migrate()
    with connections["second"].cursor() as cursor:
        cursor.execute("ALTER TABLE txtasks_task DROP INDEX txtasks_cause")
    with pytest.raises(CommandError, match=r"run 'manage\.py migrate'"):
        call_command("txtasks_status", database="second", verbosity=0)


class TasksElsewhere:
    """A router that keeps the tasks out of ``second``."""

    def allow_migrate(self, db, app_label, **hints):
        return app_label != "txtasks" or db != "second"


def test_a_database_without_tasks_is_migrated_too(second_database, settings):
    """Django takes each migration there, too, and its operations do nothing."""
    migrate("zero")
    settings.DATABASE_ROUTERS = [TasksElsewhere()]
    migrate()
    assert not helpers.tables_of("second")
    migrate("zero")
    settings.DATABASE_ROUTERS = []
    migrate()


def test_the_tables_have_the_indexes_of_the_models_and_no_others(second_database):
    """MariaDB and MySQL know no index of a part of a table: there the index of tasks in lanes is left out.

    Indexes of failed rows and of last chances begin there with a computed column.
    """
    migrate()
    declared = {
        index.name: [name for name, _ in index.fields_orders]
        for model in apps.get_app_config("txtasks").get_models()
        for index in model._meta.indexes
        if index.name != "txtasks_in_lane" or connection.vendor != "mysql"
    }
    if connection.vendor == "mysql":
        for name in ("txtasks_stopped", "txtasks_cause"):
            declared[name][0] = "failed_status"
        declared["txtasks_last_chance"] = ["last_chance_at"]
    found = {}
    with connections["second"].cursor() as cursor:
        for table in helpers.tables_of("second"):
            made = connections["second"].introspection.get_constraints(cursor, table)
            found |= {
                name: one["columns"]
                for name, one in made.items()
                if one["index"] and not one["unique"] and not name.endswith("_like")  # Django's own
            }
    assert found == declared


@pytest.mark.skipif(connection.vendor != "postgresql", reason="only PostgreSQL has the view")
def test_an_older_view_of_the_load_becomes_the_present_one_and_keeps_its_rights(second_database):
    migrate("0001_tables")
    with connections["second"].cursor() as cursor:
        cursor.execute("SELECT pg_get_functiondef('txtasks_load_now()'::regprocedure)")
        (present,) = cursor.fetchone()
        cursor.execute(present.replace("AS $function$", "AS $function$ -- of an older version"))
        cursor.execute("GRANT SELECT ON txtasks_load TO PUBLIC")
    migrate()
    with connections["second"].cursor() as cursor:
        cursor.execute("SELECT pg_get_functiondef('txtasks_load_now()'::regprocedure)")
        assert cursor.fetchone() == (present,)
        cursor.execute("SELECT relacl::text FROM pg_class WHERE relname = 'txtasks_load'")
        assert "=r/" in cursor.fetchone()[0]
