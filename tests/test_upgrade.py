"""Tables of an earlier version, with whatever is in them, become tables of this one and go on."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path

import helpers
import pytest
from django.core.management import call_command
from django.db import connection, connections

from django_txtasks import migrations, registry
from django_txtasks.lifecycle import statements
from django_txtasks.lifecycle.execute import bound
from django_txtasks.models import FinishedTask, Task

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


@pytest.mark.smoke
def test_all_of_the_history_can_be_taken_back(old):
    """Down to nothing and up again: no migration is a one-way street."""
    old(HISTORY[-1])
    migrate("zero")
    assert not helpers.tables_of("second")
    migrate()
    assert len(helpers.tables_of("second")) == 12


# -- names become exact on MariaDB and MySQL ----------------------------------------------------------

on_mariadb = pytest.mark.skipif(connection.vendor != "mysql", reason="others have no collations")
BEFORE_EXACT_NAMES = "0021"


def second(sql):
    with connections["second"].cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall() if cursor.description else []


def plans_of_claims():
    """Return what EXPLAIN says of the statements that claim, and of those that look for priorities."""
    texts = [statements.CHOOSE_DUE.replace("{after}", ""), statements.CHOOSE_BY_ID]
    texts += [statements.CHOOSE_IN_LANE.replace("{after}", ""), statements.HIGHEST_PRIORITY]
    texts += [statements.FIRST_OF_KEY, statements.HELD_BY]
    params = {"queue": "default", "priority": 0, "limit": 10, "names": registry.names(), "lane": "a",
              "ids": [uuid.uuid4()], "queues": ["default"], "key": uuid.uuid4(), "worker": uuid.uuid4(),
              "task_name": "probe.tasks.give", "queue_name": "default"}  # fmt: skip
    found = []
    for text in texts:
        sql, values = bound(connections["second"], text, params)
        with connections["second"].cursor() as cursor:
            cursor.execute(f"EXPLAIN {sql}", values)
            columns = [name for name, *_ in cursor.description]
            rows = [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
        found += [
            [row[name] for name in ("table", "type", "key", "key_len", "Extra")] for row in rows
        ]
    return found


@on_mariadb
def test_exact_names_change_no_plan_of_a_claim(second_database):
    migrate(BEFORE_EXACT_NAMES)
    rows = ", ".join(f"(UUID(), 'probe.tasks.give', '[{n}]')" for n in range(2000))
    second(f"INSERT INTO txtasks_task (id, task_name, args) VALUES {rows}")
    second("ANALYZE TABLE txtasks_task")
    before = plans_of_claims()
    migrate()
    second("ANALYZE TABLE txtasks_task")
    assert plans_of_claims() == before


@on_mariadb
def test_exact_names_keep_what_raw_sql_spelled_otherwise(old):
    """The old collation takes Pending for pending; the CHECK of the table would refuse that row afterwards."""
    ids = old(BEFORE_EXACT_NAMES)
    second("UPDATE txtasks_task SET status = 'Pending' WHERE status = 'pending'")
    second("UPDATE txtasks_task SET status = 'héld' WHERE status = 'held'")
    second("UPDATE txtasks_task SET on_crash = 'RETRY' WHERE on_crash = 'retry'")
    second("UPDATE txtasks_finishedtask SET outcome = 'Succeeded'")
    migrate()
    states = dict(Task.objects.using("second").values_list("pk", "status"))
    assert states == {ids[name]: state for name, state in (
        ("pending", "pending"), ("held", "held"), ("dead", "dead"), ("crashed", "claimed"))}  # fmt: skip
    assert Task.objects.using("second").get(pk=ids["crashed"]).on_crash == "retry"
    assert FinishedTask.objects.using("second").get().outcome == "succeeded"


@on_mariadb
def test_exact_names_can_be_repeated_after_half_of_them(old):
    """Such a server cannot roll back ALTER TABLE: a migration that was ended begins again."""
    old(BEFORE_EXACT_NAMES)
    migrate("0022_exact_names")
    second("DELETE FROM django_migrations WHERE app = 'txtasks' AND name = '0022_exact_names'")
    second(
        "ALTER TABLE txtasks_task MODIFY queue_name varchar(100) COLLATE utf8mb4_general_ci NOT NULL DEFAULT 'x'"
    )
    migrate()
    second("INSERT INTO txtasks_task (id, task_name) VALUES (UUID(), 'probe.tasks.give')")
    assert Task.objects.using("second").filter(queue_name="default").count() == 5
    assert not Task.objects.using("second").filter(queue_name="Default").exists()


@on_mariadb
def test_exact_names_beside_writers_leave_sound_indexes(second_database):
    """Where MariaDB 10.11 built them beside writers, it called them corrupted afterwards (1712)."""
    migrate(BEFORE_EXACT_NAMES)
    values = "UUID(), 'probe.tasks.give', '2100-01-01'"
    second(
        f"INSERT INTO txtasks_task (id, task_name, run_after) SELECT {values} FROM seq_1_to_50000"
    )
    is_over = threading.Event()

    def write():
        n = 0
        while not is_over.is_set():
            n += 1
            second(
                f"INSERT INTO txtasks_task (id, task_name, queue_name) VALUES (UUID(), 'k', 'q{n % 7}')"
            )
            second(
                "UPDATE txtasks_task SET status = 'held' WHERE task_name = 'k' AND status = 'pending'"
            )
            second("DELETE FROM txtasks_task WHERE task_name = 'k' LIMIT 1")
        connections["second"].close()

    with helpers.second_session(write):
        try:
            migrate()
        finally:
            is_over.set()
    assert second("CHECK TABLE txtasks_task")[-1][-1] == "OK"
    assert Task.objects.using("second").filter(status="pending").count() == 50000


def test_exact_names_change_nothing_in_the_schema_of_other_databases(second_database):
    if connection.vendor == "mysql":
        pytest.skip("there they do")
    sql = (
        "SELECT name, sql FROM sqlite_master ORDER BY 1"
        if connection.vendor == "sqlite"
        else "SELECT c.relname, c.relfilenode, a.attname, a.atttypid, a.atttypmod, a.attcollation"
        " FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.relname LIKE 'txtasks_%'"
        " ORDER BY 1, 3"
    )
    migrate(BEFORE_EXACT_NAMES)
    before = second(sql)
    migrate("0022")
    assert second(sql) == before
