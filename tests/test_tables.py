"""Tables that stay healthy on PostgreSQL: their storage parameters, and checks that say when they don't."""

from __future__ import annotations

import uuid
from datetime import timedelta

import helpers
import pytest
from django.core.management import call_command
from django.db import connection
from probe import tasks

from django_txtasks.lifecycle import workers

IS_POSTGRES = connection.vendor == "postgresql"
on_postgres = pytest.mark.skipif(not IS_POSTGRES, reason="other databases have no such parameters")

TABLES = ("txtasks_task", "txtasks_worker", "txtasks_finishedtask")
QUEUE = {
    "autovacuum_vacuum_scale_factor=0",
    "autovacuum_vacuum_threshold=1000",
    "autovacuum_vacuum_cost_delay=0",
    "vacuum_truncate=off",
    "fillfactor=50",
}
HISTORY = {"autovacuum_vacuum_scale_factor=0.02", "autovacuum_vacuum_insert_scale_factor=0.05"}


def parameters():
    """Return the storage parameters of our tables."""
    rows = helpers.execute(
        "SELECT relname, reloptions FROM pg_class WHERE relname = ANY(%s)", list(TABLES)
    )
    return {table: set(options or ()) for table, options in rows}


def migrate(*target):
    call_command("migrate", "txtasks", *target, verbosity=0, skip_checks=True)


@pytest.fixture
def first_tables(rows):
    """The tables as the migrations before this one leave them; put back at the end."""
    migrate("0002")
    yield
    migrate()


@on_postgres
def test_after_migrate_the_tables_are_vacuumed_as_queues(rows):
    assert parameters() == {
        "txtasks_task": QUEUE,
        "txtasks_worker": QUEUE,
        "txtasks_finishedtask": HISTORY,
    }


@on_postgres
def test_a_migration_back_leaves_the_servers_own_parameters(first_tables):
    assert parameters() == {table: set() for table in TABLES}


def test_the_migration_of_parameters_goes_back_and_forth_with_rows_in_the_tables(first_tables):
    task_id = tasks.note.enqueue("kept").id
    migrate()
    migrate("0002")
    assert helpers.row(task_id)


@on_postgres
def test_the_parameters_are_set_while_somebody_enqueues(first_tables):
    helpers.execute("SET lock_timeout = '10s'")  # longer than a lock that nobody holds takes
    with helpers.locked("INSERT INTO txtasks_task (id, task_name) VALUES (%s, 'x')", uuid.uuid4()):
        migrate()
    helpers.execute("RESET lock_timeout")
    assert parameters()["txtasks_task"] == QUEUE


@on_postgres
def test_a_router_keeps_the_parameters_away_from_a_database_without_our_tables(
    first_tables, settings
):
    settings.DATABASE_ROUTERS = [Elsewhere()]
    migrate()
    settings.DATABASE_ROUTERS = []
    assert parameters() == {table: set() for table in TABLES}
    migrate("0002")


class Elsewhere:
    """A router that knows our models by their names alone."""

    def allow_migrate(self, db, app_label, model_name=None, **hints):
        return False if model_name in ("task", "worker", "finishedtask") else None


# -- heartbeats -----------------------------------------------------------------------------------


@on_postgres
def test_a_heartbeat_touches_no_index(rows):
    fleet = [new_worker() for _ in range(100)]
    before = updates("txtasks_worker")
    for _ in range(10):
        for worker in fleet:
            assert workers.beat("default", worker, running=1, listening=True)
    connection.close()  # which counts what this session has done
    helpers.wait_until(lambda: updates("txtasks_worker")[0] >= before[0] + 1000)
    all_of_them, hot = (
        now - then for now, then in zip(updates("txtasks_worker"), before, strict=True)
    )
    assert all_of_them == hot == 1000


def new_worker():
    return workers.register(
        "default", queues=["default"], threads=4, listening=True, lease=timedelta(seconds=15)
    )


def updates(table):
    """Return how many rows of a table were updated, and how many of these without touching an index."""
    return helpers.execute(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = %s", table
    )[0]
