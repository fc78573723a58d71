"""Tables that stay healthy on PostgreSQL: their storage parameters, and checks that say when they don't."""

from __future__ import annotations

import re
import uuid
from contextlib import contextmanager
from datetime import timedelta

import helpers
import psycopg
import pytest
import services
from django.core.management import call_command
from django.db import connection, connections
from probe import tasks
from settings import database

from django_txtasks import checks
from django_txtasks.conf import get_config
from django_txtasks.core.rows import workers
from django_txtasks.core.rows.attempts import Arrow, Ended
from django_txtasks.core.rows.turn import Capacity
from django_txtasks.core.working.schedule import Plan
from django_txtasks.core.working.turn_writer import TurnWriter
from django_txtasks.insight import bloat

IS_POSTGRES = connection.vendor == "postgresql"
on_postgres = pytest.mark.skipif(not IS_POSTGRES, reason="other databases have no such parameters")

TABLES = ("txtasks_task", "txtasks_worker", "txtasks_finishedtask")
FIGURES = ("txtasks_rawstat", "txtasks_stat")
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
        "SELECT relname, reloptions FROM pg_class WHERE relname = ANY(%s)", [*TABLES, *FIGURES]
    )
    return {table: set(options or ()) for table, options in rows}


@on_postgres
def test_after_migrate_the_tables_are_vacuumed_as_queues(rows):
    assert parameters() == {
        "txtasks_task": QUEUE,
        "txtasks_worker": QUEUE - {"autovacuum_vacuum_threshold=1000"}
        | {"autovacuum_vacuum_threshold=50"},
        "txtasks_finishedtask": HISTORY,
        "txtasks_rawstat": QUEUE - {"fillfactor=50"} | {"fillfactor=100"},
        "txtasks_stat": QUEUE,
    }


class Elsewhere:
    """A router that knows our models by their names alone."""

    def allow_migrate(self, db, app_label, model_name=None, **hints):
        return False if model_name in ("task", "worker", "finishedtask") else None


def test_a_router_keeps_single_tables_away_and_what_belongs_to_them(second_database, settings):
    settings.DATABASE_ROUTERS = [Elsewhere()]
    call_command("migrate", "txtasks", database="second", verbosity=0)
    names = helpers.tables_of("second")
    assert "txtasks_lane" in names and not set(names) & set(TABLES)


def times_vacuumed(table):
    """Return how often autovacuum has cleaned a table of the server ``own``, and its TOAST table."""
    with connections["own"].cursor() as cursor:
        cursor.execute(
            "SELECT s.autovacuum_count FROM pg_class c JOIN pg_stat_all_tables s"
            " ON s.relid IN (c.oid, c.reltoastrelid) WHERE c.relname = %s ORDER BY s.relid = c.oid DESC",
            [table],
        )
        return [count for (count,) in cursor.fetchall()]


def watchful(server):
    """Have a server look for dead rows each second."""
    with psycopg.connect(server.url, autocommit=True) as session:
        session.execute("ALTER SYSTEM SET autovacuum_naptime = 1")
        session.execute("SELECT pg_reload_conf()")


@on_postgres
def test_a_small_fleet_that_beats_is_vacuumed(own_server):
    """Here under a snapshot, so that no look prunes what has died: 600 dead rows of five workers."""
    with services.Postgres() as server:
        watchful(server)
        with own_server(server) as own:
            fleet = [
                workers.register(
                    "own",
                    queues=["default"],
                    threads=1,
                    listening=None,
                    lease=timedelta(seconds=15),
                    task_names=["x"],
                )
                for _ in range(5)
            ]
            with snapshot("BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1", of=own):
                for _ in range(120):
                    for worker in fleet:
                        assert workers.beat("own", worker, running=1, listening=True)
            helpers.wait_until(lambda: times_vacuumed("txtasks_worker")[0], what="a vacuum")


@on_postgres
def test_long_values_of_few_tasks_are_vacuumed(own_server):
    with services.Postgres() as server:
        watchful(server)
        with own_server(server) as own, own.cursor() as cursor:
            for _ in range(60):
                cursor.execute(
                    "INSERT INTO txtasks_task (id, task_name, args) SELECT gen_random_uuid(), 'x', "
                    "to_jsonb(string_agg(md5(random()::text), '')) FROM generate_series(1, 600)"
                )
            cursor.execute("DELETE FROM txtasks_task")
            helpers.wait_until(
                lambda: times_vacuumed("txtasks_task")[1], what="a vacuum of long values"
            )


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
    assert all_of_them == 1000
    assert hot > 500  # an autoanalyze in between may keep pages full; with an index it is 0


def new_worker():
    return workers.register(
        "default", queues=["default"], threads=4, listening=True, lease=timedelta(seconds=15)
    )


def updates(table):
    """Return how many rows of a table were updated, and how many of these without touching an index."""
    return helpers.execute(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = %s", table
    )[0]


# -- statistics -----------------------------------------------------------------------------------

BACKLOG = 20_000


@on_postgres
@pytest.mark.parametrize("keep_finished", [0, 60], ids=["without history", "with history"])
@pytest.mark.parametrize(
    "way", ["in a transaction", "at once", "at once, by plans of an empty table"]
)
def test_a_turn_reads_few_rows_though_statistics_are_of_an_empty_table(
    unwatched, txtasks, keep_finished, way
):
    txtasks(keep_finished=keep_finished)
    helpers.execute(INSERT, BACKLOG)
    helpers.execute("DELETE FROM txtasks_task")
    helpers.execute("VACUUM ANALYZE txtasks_task")
    before = rows_read()
    subscription = helpers.subscription()
    writer = TurnWriter(get_config(), subscription, threads=4)

    def turns():
        hinted = tasks.note.enqueue()
        for plan in (
            Plan(Capacity(100), scans=True),
            Plan(Capacity(0)),
            Plan(Capacity(1), [hinted.id]),
            Plan(Capacity(0)),
        ):
            writer.buffer.one_by_one = way == "in a transaction"
            claimed = writer.write(plan, NothingRuns(), None).claimed
            writer.buffer.add(Ended(attempt=one, arrow=Arrow.FINISH) for one in claimed)

    writer.write(Plan(Capacity(0)), NothingRuns(), None)
    if "plans" in way:
        for _ in range(6):  # as often as it may take until a plan is kept
            turns()
    with helpers.second_session(
        lambda: helpers.execute(INSERT.replace("'x'", "'probe.tasks.note'"), BACKLOG)
    ):
        pass
    turns()
    writer.registration.leave()
    read, deleted = (now - then for now, then in zip(rows_read(), before, strict=True))
    expected = 107 if "plans" in way else 101
    assert (deleted, read < 10 * expected) == (expected, True), f"{read} rows were read"


class NothingRuns:
    """Idle slots."""

    running = 0

    def holds(self):
        return set()


def rows_read():
    """Return how many rows of the task table were read, and how many deleted, by now."""
    ((pid,),) = helpers.execute("SELECT pg_backend_pid()")
    connection.close()  # a session counts when it ends
    here = "SELECT 1 FROM pg_stat_activity WHERE pid = %s"
    helpers.wait_until(lambda: not helpers.execute(here, pid))
    return helpers.execute(
        "SELECT seq_tup_read + idx_tup_fetch, n_tup_del FROM pg_stat_user_tables "
        "WHERE relname = 'txtasks_task'"
    )[0]


# -- checks ---------------------------------------------------------------------------------------

ROWS = 2000
INSERT = """
    INSERT INTO txtasks_task (id, task_name) SELECT gen_random_uuid(), 'x' FROM generate_series(1, %s)
"""


@pytest.fixture
def unwatched(rows, monkeypatch):
    """A task table that autovacuum leaves alone, and thresholds that two thousand rows exceed."""
    monkeypatch.setattr(bloat, "DEAD_ROWS", ROWS)
    monkeypatch.setattr(bloat, "SNAPSHOT_AGE", timedelta(0))
    monkeypatch.setattr(bloat, "VACUUM_TIMEOUT", timedelta(0))
    if IS_POSTGRES:
        helpers.execute("VACUUM txtasks_task")
        helpers.execute("ALTER TABLE txtasks_task SET (autovacuum_enabled = off)")
    yield
    if IS_POSTGRES:
        helpers.execute("ALTER TABLE txtasks_task RESET (autovacuum_enabled)")
        helpers.execute("VACUUM (TRUNCATE) txtasks_task")


def enqueue_and_remove(count=ROWS):
    helpers.execute(INSERT, count)
    helpers.execute("DELETE FROM txtasks_task")
    connection.close()  # which counts what this session has done


def warnings(check_id, alias="default"):
    return [one for one in checks.check_health(databases=[alias]) if one.id == check_id]


def warned(check_id):
    """Return the check's message when the statistics have arrived."""
    return helpers.wait_until(lambda: warnings(check_id))[0]


@contextmanager
def snapshot(*statements, of=connection):
    """A session of its own that has begun to read, and does not end."""
    own = of.copy()
    try:
        with own.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            yield own
    finally:
        own.close()


REPORT = (
    "SET application_name = 'yearly report'",
    "BEGIN ISOLATION LEVEL REPEATABLE READ",
    "SELECT count(*) FROM txtasks_task",
)


def test_a_healthy_table_is_no_finding(rows):
    assert checks.check_health(databases=["default", "nowhere"]) == []


@on_postgres
def test_dead_rows_that_no_vacuum_removes_are_found(unwatched):
    assert not warnings("txtasks.W014")
    enqueue_and_remove()
    message = warned("txtasks.W014")
    # estimates: sessions of earlier tests may tell what they did after the VACUUM that counted
    dead, live = re.search(
        r"has ([\d,]+) dead rows? beside ([\d,]+) live rows?", message.msg
    ).groups()
    assert ROWS <= int(dead.replace(",", "")) < 2 * ROWS
    assert int(live.replace(",", "")) < ROWS / 2
    assert "VACUUM txtasks_task" in message.hint
    helpers.execute("VACUUM txtasks_task")
    helpers.wait_until(lambda: not warnings("txtasks.W014"))


@on_postgres
def test_the_session_that_keeps_dead_rows_is_named(unwatched):
    with snapshot(*REPORT) as other:
        enqueue_and_remove()
        helpers.execute("VACUUM txtasks_task")
        message = warned("txtasks.W015")
        pid = other.connection.info.backend_pid
    assert f"pid {pid} (user " in message.msg
    assert "'yearly report', idle in transaction) holds a snapshot since 2" in message.msg
    assert f"pg_terminate_backend({pid})" in message.hint
    helpers.execute("VACUUM txtasks_task")
    helpers.wait_until(lambda: not warnings("txtasks.W015"))


@on_postgres
def test_an_old_snapshot_without_dead_rows_is_no_finding(unwatched):
    with snapshot(*REPORT):
        assert not warnings("txtasks.W015")


@on_postgres
def test_a_young_snapshot_is_no_finding(unwatched, monkeypatch):
    monkeypatch.setattr(bloat, "SNAPSHOT_AGE", timedelta(hours=1))
    with snapshot(*REPORT):
        enqueue_and_remove()
        assert warned("txtasks.W014")
        assert not warnings("txtasks.W015")


@on_postgres
def test_a_role_that_is_not_told_since_when_says_so(unwatched, monkeypatch):
    monkeypatch.setattr(bloat, "SNAPSHOT_TRANSACTIONS", 1)
    stranger = f"stranger_{uuid.uuid4().hex}"
    with snapshot(*REPORT) as other:
        enqueue_and_remove()
        helpers.execute(f"CREATE ROLE {stranger}")
        try:
            helpers.execute(f"SET ROLE {stranger}")
            message = warned("txtasks.W015")
        finally:
            helpers.execute("RESET ROLE")
            helpers.execute(f"DROP ROLE {stranger}")
        pid = other.connection.info.backend_pid
    assert f"pid {pid} (user " in message.msg
    assert "holds a snapshot that " in message.msg
    assert "pg_read_all_stats" in message.hint


@on_postgres
def test_a_table_and_indexes_far_larger_than_their_rows_are_found(unwatched, monkeypatch):
    monkeypatch.setattr(bloat, "BLOATED_BYTES", 100_000)
    enqueue_and_remove()
    helpers.execute("VACUUM txtasks_task")
    table, indexes = helpers.wait_until(
        lambda: len(found := warnings("txtasks.W014")) == 2 and found
    )
    assert "MB for 0 rows" in table.msg
    assert "VACUUM (TRUNCATE) txtasks_task" in table.hint
    assert "REINDEX TABLE CONCURRENTLY txtasks_task" in indexes.hint
    helpers.execute("VACUUM (TRUNCATE) txtasks_task")
    helpers.execute("REINDEX TABLE CONCURRENTLY txtasks_task")
    assert not warnings("txtasks.W014")


@on_postgres
def test_a_check_does_not_wait_for_a_table_that_is_locked(unwatched):
    with helpers.locked("LOCK TABLE txtasks_task"):
        assert checks.check_health(databases=["default"]) == []
        assert helpers.execute(
            "SELECT 1 FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted"
            " AND relation = CAST('txtasks_task' AS regclass)"
        )


@pytest.fixture
def own_server(unwatched):
    """A server of the test's own, as Django's alias ``own``, with our tables."""

    @contextmanager
    def migrated(server):
        entry = {**connection.settings_dict, **database(server.url)}
        connections.settings["own"] = entry
        try:
            call_command("migrate", "txtasks", database="own", verbosity=0, skip_checks=True)
            yield connections["own"]
        finally:
            connections["own"].close()
            del connections["own"]
            del connections.settings["own"]

    return migrated


@on_postgres
def test_a_forgotten_prepared_transaction_is_named(own_server):
    with services.Postgres() as server:
        with psycopg.connect(server.url, autocommit=True) as session:
            session.execute("ALTER SYSTEM SET max_prepared_transactions = 5")
        server.stop()
        server.start()
        with own_server(server) as own, own.cursor() as cursor:
            cursor.execute("ALTER TABLE txtasks_task SET (autovacuum_enabled = off)")
            cursor.execute("BEGIN")
            cursor.execute("CREATE TABLE anything ()")
            cursor.execute("PREPARE TRANSACTION 'forgotten'")
            cursor.execute(INSERT, [ROWS])
            cursor.execute("DELETE FROM txtasks_task")
            own.close()
            (message,) = helpers.wait_until(lambda: warnings("txtasks.W015", "own"))
    assert "The prepared transaction forgotten holds a snapshot since 2" in message.msg
    assert "ROLLBACK PREPARED 'forgotten'" in message.hint


@pytest.mark.skipif(connection.vendor != "mysql", reason="other databases keep no such history")
def test_the_connection_that_keeps_mariadbs_history_is_named(own_server, monkeypatch):
    monkeypatch.setattr(bloat, "UNDO_RECORDS", 100)
    with services.MariaDB() as server, own_server(server) as own, own.cursor() as cursor:
        cursor.execute("INSERT INTO txtasks_task (id, task_name) VALUES (UUID(), 'x')")
        begin = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
        with snapshot("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", begin, of=own) as other:
            for _ in range(300):
                cursor.execute("UPDATE txtasks_task SET attempt = attempt + 1")
            (message,) = helpers.wait_until(lambda: warnings("txtasks.W015", "own"))
            thread = other.connection.thread_id()
            cursor.execute("CREATE USER stranger")
            cursor.execute("GRANT SELECT ON test.* TO stranger")
            own.close()
            own.settings_dict["USER"] = "stranger"
            (hidden,) = warnings("txtasks.W015", "own")
    assert f"The connection {thread} holds a snapshot since 2" in message.msg
    assert f"KILL {thread}" in message.hint
    assert "may not see" in hidden.msg
    assert "GRANT PROCESS" in hidden.hint
