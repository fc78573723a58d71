"""Changes that a task makes to its session end with it, and connections live as long as Django's settings say."""

import sys

import helpers
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from probe import sessions, tasks
from probe.models import Run

from django_txtasks import checks
from django_txtasks.database import sessions as database_sessions
from django_txtasks.guards.session_statements import outlives_the_task

pytestmark = pytest.mark.usefixtures("rows", "quick")
on_postgres = pytest.mark.skipif(connection.vendor != "postgresql", reason="what PostgreSQL has")
has_sessions = pytest.mark.skipif(connection.vendor == "sqlite", reason="what a server has")

LEFT = {
    "postgresql": [
        ("SET search_path = pg_catalog", "SHOW search_path"),
        ("/* by hand */ set role pg_monitor", "SELECT current_user"),
        ("SELECT 1; SET TIME ZONE 'Asia/Tokyo'", "SHOW TimeZone"),
        ("SET default_transaction_read_only = on", "SHOW default_transaction_read_only"),
        ("SELECT set_config('my.tenant', '7', false)", "SELECT current_setting('my.tenant', true)"),
        (
            "SELECT pg_advisory_lock(42)",
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
        ),
        ("CREATE TEMP TABLE mine (id int)", "SELECT to_regclass('pg_temp.mine')"),
        ("SELECT 1 AS id INTO TEMP mine", "SELECT to_regclass('pg_temp.mine')"),
        ("LISTEN somebody", "SELECT * FROM pg_listening_channels()"),
        ("PREPARE mine AS SELECT 1", "SELECT name FROM pg_prepared_statements"),
        ("DO $$ BEGIN PERFORM set_config('my.tenant', '7', false); END $$",
         "SELECT current_setting('my.tenant', true)"),
    ],
    "mysql": [
        ("SET time_zone = '+05:00'", "SELECT @@session.time_zone"),
        ("set session transaction read only", "SELECT @@session.tx_read_only"),
        ("SET @tenant = 7", "SELECT @tenant"),
        ("SELECT GET_LOCK('mine', 1)", "SELECT IS_USED_LOCK('mine') <=> CONNECTION_ID()"),
        ("LOCK TABLES orders_order READ", "SELECT count(*) FROM probe_run"),
        ("CREATE TEMPORARY TABLE mine (id int)", "SHOW TABLES LIKE 'mine'"),
        ("START TRANSACTION", "SELECT @@in_transaction"),
    ],
    "sqlite": [
        ("PRAGMA query_only = 1", "PRAGMA query_only"),
        ("ATTACH ':memory:' AS mine", "SELECT count(*) FROM pragma_database_list WHERE name = 'mine'"),
        ("CREATE TEMP TABLE mine (id int)", "SELECT name FROM sqlite_temp_master"),
    ],
}[connection.vendor]  # fmt: skip
MINE = {
    "postgresql": "SELECT pg_backend_pid()",
    "mysql": "SELECT CONNECTION_ID()",
    "sqlite": "SELECT 1",
}[connection.vendor]


@pytest.fixture(autouse=True)
def claim_nothing_ahead(monkeypatch):
    """A short task can be claimed while no slot is free, and then runs before a longer one of higher priority."""
    monkeypatch.setattr("django_txtasks.fast.prefetch.AHEAD_SECONDS", 0.0)


def run_one_after_the_other(*calls, threads=1):
    """Run calls in the one slot of a worker in this process, in this order; return their ids."""
    handles = [
        function.using(priority=50 - number).enqueue(*arguments)
        for number, (function, *arguments) in enumerate(calls)
    ]
    connection.close()
    call_command("runworkers", batch=True, threads=threads)
    return [handle.id for handle in handles]


def results(ids):
    return [helpers.finished(task_id).result for task_id in ids]


@pytest.mark.parametrize(("sql", "asked"), LEFT, ids=[sql for sql, _ in LEFT])
def test_what_a_task_leaves_in_its_session_is_not_there_for_the_next(sql, asked):
    ids = run_one_after_the_other((sessions.see, asked), (sessions.do, sql), (sessions.see, asked))
    before, _, after = results(ids)
    assert after == before


def test_the_session_of_a_copy_says_nothing_of_the_threads_own():
    sql, asked = LEFT[0]
    ids = run_one_after_the_other(
        (sessions.see, asked), (sessions.do_and_copy, sql), (sessions.see, asked)
    )
    before, _, after = results(ids)
    assert after == before


def test_the_same_holds_for_a_connection_to_another_database(second_database):
    sql, asked = LEFT[0]
    handles = [
        sessions.see.using(priority=3).enqueue(asked, alias="second"),
        sessions.do.using(priority=2).enqueue(sql, alias="second"),
        sessions.see.using(priority=1).enqueue(asked, alias="second"),
    ]
    call_command("runworkers", batch=True, threads=1)
    first, _, last = results(handle.id for handle in handles)
    assert first == last


def test_a_transaction_that_a_task_begins_by_hand_is_not_the_next_ones():
    ids = run_one_after_the_other((sessions.do, "BEGIN"), (tasks.note, "after it"))
    assert helpers.runs("after it") == 1
    assert all(helpers.finished(one).outcome == "succeeded" for one in ids)


@has_sessions
def test_tasks_that_leave_nothing_share_a_session(monkeypatch):
    monkeypatch.setattr(database_sessions, "LEAST_AGE_SECONDS", 600)
    local = {"postgresql": "SET LOCAL work_mem = '8MB'", "mysql": "SELECT 1"}[connection.vendor]
    ids = run_one_after_the_other(
        (sessions.see, MINE), (tasks.note, "x"), (sessions.do_in_transaction, local),
        (tasks.atomic_note, "y"), (tasks.note_async, "z"), (sessions.see, MINE),
    )  # fmt: skip
    found = results(ids)
    assert found[0] == found[-1]


@has_sessions
@pytest.mark.parametrize(
    "between",
    [
        (sessions.fail_after, "SELECT 1"),
        (sessions.swallow, "SELECT nothing FROM nowhere"),
    ],
    ids=["failed", "swallowed"],
)
def test_after_a_failure_the_next_task_has_a_new_session(between):
    ids = run_one_after_the_other((sessions.see, MINE), between, (sessions.see, MINE))
    assert helpers.finished(ids[0]).result != helpers.finished(ids[2]).result


@on_postgres
def test_a_session_that_was_made_read_only_behind_djangos_back_costs_one_attempt():
    read_only = "SET default_transaction_read_only = on"
    _, task_id = run_one_after_the_other(
        (sessions.do_beside_django, read_only), (tasks.note, "written")
    )
    while not (done := helpers.finished(task_id)):  # a batch may end before the retry is due
        assert helpers.row(task_id).status == "pending"
        run_one_after_the_other()
    assert (done.outcome, done.attempt, helpers.runs("written")) == ("succeeded", 2, 1)


@has_sessions
@pytest.mark.parametrize(("age", "kept"), [(None, True), (60, True), (0.000001, False), (0, True)])
def test_a_connection_lives_as_long_as_conn_max_age_says(age, kept, monkeypatch):
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", age)
    first, second = results(run_one_after_the_other((sessions.see, MINE), (sessions.see, MINE)))
    assert (first == second) is kept


@has_sessions
@pytest.mark.parametrize("age", [0.05, 0])
def test_an_idle_thread_closes_a_connection_whose_age_is_over(age, monkeypatch):
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", age)
    monkeypatch.setattr(database_sessions, "LEAST_AGE_SECONDS", 0.05)
    listed = {
        "postgresql": "SELECT 1 FROM pg_stat_activity WHERE pid = %s",
        "mysql": "SELECT 1 FROM information_schema.processlist WHERE id = %s",
    }[connection.vendor]
    with helpers.working(threads=1):
        handle = sessions.see.enqueue(MINE)
        done = helpers.wait_until(lambda: helpers.finished(handle.id))
        helpers.wait_until(lambda: not helpers.execute(listed, int(done.result[0][0])))


@has_sessions
def test_health_checks_spare_a_task_the_session_that_has_just_died(monkeypatch):
    monkeypatch.setitem(connection.settings_dict, "CONN_HEALTH_CHECKS", True)
    _, task_id = run_one_after_the_other((sessions.lose_session,), (tasks.note, "healthy"))
    assert (helpers.finished(task_id).attempt, helpers.runs("healthy")) == (1, 1)


@pytest.mark.parametrize(
    "sql",
    [
        'SELECT "orders_order"."id" FROM "orders_order" WHERE "orders_order"."customer" = %s',
        "UPDATE probe_run SET key = 'SET x'",
        "SET LOCAL statement_timeout = 5",
        "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "SET CONSTRAINTS ALL IMMEDIATE",
        "SELECT pg_advisory_xact_lock(1)",
        "SELECT set_config('my.tenant', %s, true)",
        "SAVEPOINT s1",
    ],
)
@pytest.mark.once
def test_what_ends_with_its_transaction_costs_no_session(sql):
    assert not outlives_the_task("postgresql", sql)


# -- pools ----------------------------------------------------------------------------------------


@pytest.fixture
def pool(monkeypatch):
    """Django's own pool, of one connection."""
    connection.close()
    options = {"min_size": 1, "max_size": 1, "timeout": 20}
    with monkeypatch.context() as patch:
        patch.setitem(connection.settings_dict["OPTIONS"], "pool", options)
        yield options
        connection.close()
        connection.close_pool()


@on_postgres
def test_threads_share_a_pool_that_is_smaller_than_they_are_many(pool):
    handles = [tasks.note.enqueue("pooled") for _ in range(8)]
    handles += [tasks.atomic_note.enqueue("pooled") for _ in range(8)]
    pool["max_size"] = 4  # as the command wants it; the pool is there and has one
    connection.close()
    call_command("runworkers", batch=True, threads=4)
    assert connection.pool.max_size == 1
    assert helpers.runs("pooled") == len(handles)
    assert {helpers.finished(handle.id).attempt for handle in handles} == {1}


@on_postgres
def test_what_a_task_leaves_in_its_session_does_not_come_back_out_of_the_pool(pool):
    asked = "SHOW search_path"
    ids = run_one_after_the_other(
        (sessions.see, asked), (sessions.do, "SET search_path = pg_catalog"), (sessions.see, asked)
    )
    before, _, after = results(ids)
    assert after == before


@on_postgres
def test_a_copy_of_the_connection_takes_one_connection_of_the_pool(pool):
    pool["timeout"] = 2
    [task_id] = run_one_after_the_other((sessions.copy_connection,))
    assert helpers.finished(task_id), helpers.row(task_id).errors


@on_postgres
def test_more_threads_than_the_pool_has_connections_are_refused_with_both_numbers(pool):
    with pytest.raises(CommandError, match=r"at most 1 connection,.* 4 threads"):
        call_command("runworkers", batch=True, threads=4)
    [found] = [one for one in checks.check_databases() if one.id == "txtasks.W024"]
    assert "at most 1 connection" in found.msg
    pool.update(min_size=4, max_size=None)  # which is what psycopg_pool takes if it is told nothing
    assert not [one for one in checks.check_databases() if one.id == "txtasks.W024"]
    with pytest.raises(CommandError, match=r"at most 4 connections,.* 16 threads"):
        call_command("runworkers", batch=True, threads=16)


# -- DEBUG ----------------------------------------------------------------------------------------


def test_debug_leaks_no_queries_in_a_worker_or_a_cleaner(settings):
    settings.DEBUG = True
    from django_txtasks.conf import get_config
    from django_txtasks.core.cleaning import Cleaner

    ids = run_one_after_the_other(*[(sessions.count_queries,) for _ in range(3)])
    assert results(ids) == [0, 0, 0]
    connection.queries_log.clear()
    call_command("runworkers", batch=True)
    assert not connection.queries_log
    turns = iter([False, False, True])
    Cleaner(get_config()).run(lambda _: next(turns), lambda _: None)
    assert not connection.queries_log


@pytest.mark.once
def test_an_age_that_no_thread_can_wait_for_stops_no_thread(monkeypatch):
    """People write such a number where they mean None: for ever."""
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", sys.maxsize)
    ids = run_one_after_the_other(*[(sessions.see, "SELECT 1")] * 3)
    assert results(ids) == [[["1"]]] * 3


@has_sessions
def test_a_retry_that_a_task_asks_for_keeps_its_session(monkeypatch):
    monkeypatch.setattr(database_sessions, "LEAST_AGE_SECONDS", 600)
    run_one_after_the_other((sessions.retry_after_query, MINE))
    assert Run.objects.count() == 2
    assert Run.objects.values("key").distinct().count() == 1


@pytest.mark.once
def test_tasks_of_a_slot_share_the_connections_of_caches():
    """They would be opened anew for each task: caches live where contexts do."""
    ids = run_one_after_the_other(*[(sessions.meet_cache,)] * 3)
    assert results(ids) == [1, 2, 3]
