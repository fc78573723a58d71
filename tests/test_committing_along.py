"""The finish of an atomic task and its COMMIT in one round trip, on PostgreSQL and MariaDB."""

import contextlib
import json
import re
import tempfile
import threading

import helpers
import pytest
from django.core.management import call_command
from django.db import DatabaseError, IntegrityError, connection, connections, transaction
from django.db.backends.signals import connection_created
from django.test.utils import CaptureQueriesContext
from probe import tasks
from probe.models import Run
from servers import PgBouncer

from django_txtasks.conf import get_config
from django_txtasks.core.rows import outcomes
from django_txtasks.core.rows.attempts import Arrow, Ended
from django_txtasks.core.rows.workers import register
from django_txtasks.database import transactions
from django_txtasks.database.sessions import (
    close_dedicated,
    dedicate,
    keeps_statements,
    session_of_thread,
)
from django_txtasks.exceptions import ClaimLost
from django_txtasks.fast import prepared
from django_txtasks.guards import session_watch
from django_txtasks.guards.session_statements import outlives_the_task
from django_txtasks.models import Status, Task

pytestmark = [
    pytest.mark.usefixtures("rows", "quick"),
    pytest.mark.skipif(connection.vendor == "sqlite", reason="it has no round trips"),
]
psycopg = pytest.importorskip("psycopg") if connection.vendor == "postgresql" else None
on_postgres = pytest.mark.skipif(connection.vendor != "postgresql", reason="others have no such")


def claimed():
    """Return the attempt of an atomic task that was just claimed."""
    config = get_config()
    transactions._takes_blocks("default")  # which MariaDB is asked once
    tasks.atomic_note.enqueue()
    me = register("default", queues=["default"], threads=1, listening=None, lease=config.lease)
    with transaction.atomic():
        (attempt,) = helpers.claim(me).claimed
    return attempt


def finish(attempt):
    outcomes.finish("default", Ended(attempt=attempt, arrow=Arrow.FINISH), config=get_config())


@pytest.fixture(params=[0, 60], ids=["history off", "history on"])
def history(request, txtasks):
    txtasks(keep_finished=request.param)
    return bool(request.param)


def is_in_transaction():
    if connection.vendor == "mysql":
        return bool(helpers.execute("SELECT @@in_transaction")[0][0])
    return connection.connection.info.transaction_status.name != "IDLE"


def test_the_commit_goes_along_with_the_finish(history):
    attempt = claimed()
    with transaction.atomic():
        tasks.ran("effect")
        assert is_in_transaction()
        finish(attempt)
        assert not is_in_transaction()
    assert helpers.runs("effect") == 1
    assert (helpers.finished(attempt.task_id) is not None) == history


@on_postgres
def test_the_transaction_of_a_task_begins_with_its_block():
    with transaction.atomic():
        transactions.begin(connection)
        assert is_in_transaction()
        tasks.ran("effect")
    assert helpers.runs("effect") == 1
    assert not is_in_transaction()


@on_postgres
@pytest.mark.parametrize(
    ("mode", "value", "asked", "answer"),
    [
        ("isolation_level", 4, "SHOW transaction_isolation", "serializable"),
        ("read_only", True, "SHOW transaction_read_only", "on"),
        ("deferrable", True, "SHOW transaction_deferrable", "on"),
    ],
)
def test_a_transaction_begins_as_the_session_was_told(mode, value, asked, answer):
    connection.ensure_connection()
    setattr(connection.connection, mode, value)
    try:
        with transaction.atomic():
            transactions.begin(connection)
            assert helpers.execute(asked) == [(answer,)]
    finally:
        setattr(connection.connection, mode, None)


@pytest.fixture
def slot():
    """Have this thread's connection watched as a slot's is."""
    session_watch.of_thread.note = lambda alias: None
    connection.close()
    connection.ensure_connection()
    yield
    session_watch.of_thread.note = None
    connection.close()
    connection.execute_wrappers.clear()


@contextlib.contextmanager
def asked():
    """Every query that psycopg or we send to the server in this block."""
    sent, pgconn = [], connection.connection.pgconn
    with tempfile.TemporaryFile() as trace:
        pgconn.trace(trace.fileno())
        yield sent
        pgconn.untrace()
        trace.seek(0)
        sent += re.findall(r'\tQuery\s+"(.*?)"\n', trace.read().decode())


@on_postgres
def test_begin_goes_along_with_the_first_statement(slot):
    with asked() as queries, transaction.atomic():
        assert Run.objects.create(key="one", pid=1).pk
        assert is_in_transaction()
        assert list(Run.objects.values_list("key", flat=True)) == ["one"]
    assert [one.split()[0] for one in queries] == ["BEGIN;", "SELECT", "COMMIT"]
    assert "INSERT" in queries[0]


@on_postgres
def test_several_statements_that_begin_have_their_answers(slot):
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT %s; SELECT 2, %s", [1, "%"])
        assert cursor.fetchall() == [(1,)]
        assert cursor.nextset()
        assert cursor.fetchall() == [(2, "%")]
        assert not cursor.nextset()
    assert connection.connection.autocommit


@on_postgres
def test_a_wrapper_of_a_project_reads_its_statement_and_is_in_the_transaction(slot):
    seen = []

    def note(execute, sql, params, many, context):
        seen.append(sql)
        if len(seen) == 1:
            Run.objects.create(key="of the wrapper", pid=1)
        return execute(sql, params, many, context)

    with pytest.raises(_Undone), connection.execute_wrapper(note), transaction.atomic():
        Run.objects.create(key="of the task", pid=1)
        raise _Undone
    assert [one.split()[0] for one in seen] == ["INSERT", "INSERT"]
    assert not Run.objects.exists()


@on_postgres
def test_a_cursor_of_a_project_is_in_the_transaction(monkeypatch, slot):
    """One that says something of its own before each statement, such as whose rows may be seen."""
    from django.db.backends.postgresql.base import Cursor

    class OfProject(Cursor):
        seen = ()

        def execute(self, query, params=None, **more):
            super().execute("SET LOCAL probe.tenant = '42'")
            self.seen = (*self.seen, query)
            return super().execute(query, params, **more)

    monkeypatch.setattr(connection.connection, "cursor_factory", OfProject)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('probe.tenant', true)")
        assert cursor.fetchone() == ("42",)
        assert cursor.cursor.seen[-1].startswith("SELECT")


@on_postgres
@pytest.mark.parametrize("sql", ["SELEC 1", "SELECT 1/0"])
def test_after_an_error_of_the_first_statement_the_block_does_nothing(slot, sql):
    """Also where the server could not read it: then it has not begun either."""
    with contextlib.suppress(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        with pytest.raises(DatabaseError):
            cursor.execute(sql)
        with pytest.raises(DatabaseError):
            Run.objects.create(key="after it", pid=1)
    assert not Run.objects.exists()
    assert connection.connection.autocommit
    assert not is_in_transaction()


class _Undone(Exception):
    """Ends a block."""


def _failing(cursor):
    with pytest.raises(DatabaseError):
        cursor.execute("SELECT 1/0")


def _in_a_savepoint(cursor):
    with transaction.atomic():
        cursor.execute(_INSERT, ["a"])


_INSERT = "INSERT INTO probe_run (key, attempt, pid, at) VALUES (%s, 0, 1, now())"
FIRST = {
    "a cursor of psycopg": lambda _: connection.connection.execute(_INSERT, ["a"]),
    "one": lambda cursor: cursor.execute(_INSERT, ["a"]),
    "many": lambda cursor: cursor.executemany(_INSERT, [["a"], ["b"]]),
    "composed": lambda cursor: cursor.execute(psycopg.sql.SQL("SELECT {}").format(1)),
    "a savepoint": _in_a_savepoint,
    "with a name": lambda _: list(Run.objects.iterator()),
    "a level": lambda cursor: cursor.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"),
    "an error": _failing,
}


@on_postgres
@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
def test_whatever_comes_first_the_block_is_one_transaction(slot, first):
    """It is undone as a whole, and the session is as it was."""
    with pytest.raises(_Undone), transaction.atomic():
        with connection.cursor() as cursor:
            first(cursor)
            assert is_in_transaction()
            assert not connection.connection.autocommit
        raise _Undone
    assert not is_in_transaction()
    assert connection.connection.autocommit
    assert not Run.objects.exists()


@on_postgres
@pytest.mark.parametrize("level", [None, 4])
def test_a_task_that_asks_the_database_for_nothing_finishes_in_a_transaction(level, history):
    """Without one the server would warn of a COMMIT, task by task."""
    attempt, notices = claimed(), []
    connection.connection.isolation_level = level
    connection.connection.add_notice_handler(notices.append)
    try:
        with transaction.atomic():
            finish(attempt)
    finally:
        connection.connection.remove_notice_handler(notices.append)
        connection.connection.isolation_level = None
    assert helpers.row(attempt.task_id) is None
    assert not notices


@on_postgres
def test_what_wraps_statements_of_a_project_sees_the_finish():
    attempt, seen = claimed(), []

    def note(execute, sql, params, many, context):
        seen.append((sql, context["cursor"].db is context["connection"]))
        return execute(f"{sql} /* noted */", params, many, context)

    with transaction.atomic():
        tasks.ran("effect")
        with connection.execute_wrapper(note):
            finish(attempt)
    ((sql, has_cursor),) = seen
    assert "DELETE FROM txtasks_task" in sql
    assert has_cursor
    assert helpers.row(attempt.task_id) is None


NOTE_AT_COMMIT = """
CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS
    $$BEGIN INSERT INTO seen VALUES (current_setting('enable_seqscan')); RETURN NULL; END$$;
CREATE CONSTRAINT TRIGGER see AFTER INSERT ON probe_run
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION see();
"""
KEPT = "SELECT name, statement FROM pg_prepared_statements WHERE name LIKE 'txtasks%%'"


@pytest.fixture
def known_session(rows):
    """A session that is not a pooler's, as the threads of a worker know theirs."""
    connection.close()
    yield session_of_thread("default")
    connection.close()


def finish_one(attempt=None):
    attempt = attempt or claimed()
    with transaction.atomic():
        tasks.ran("effect")
        finish(attempt)
    return attempt


@on_postgres
@pytest.mark.usefixtures("known_session")
def test_a_session_keeps_the_finish_ready_from_the_second_one_on(history):
    for number in range(8):  # from the sixth on its plan is kept, too
        attempt = finish_one()
        assert len(helpers.execute(KEPT)) == min(number, 1)
        assert (helpers.finished(attempt.task_id) is not None) == history
    assert helpers.runs("effect") == 8


@on_postgres
@pytest.mark.usefixtures("known_session")
def test_the_plan_that_is_kept_reads_no_whole_table(history):
    """Made while the table has few rows, it is for tables that have many, too."""
    helpers.execute("TRUNCATE txtasks_task")
    finish_one()
    helpers.execute("VACUUM ANALYZE txtasks_task")  # from now on the table is known to be small
    for _ in range(7):
        finish_one()
    ((name, text),) = helpers.execute(KEPT)
    ((generic,),) = helpers.execute(
        "SELECT generic_plans FROM pg_prepared_statements WHERE name = %s", name
    )
    assert generic
    nulls = ", ".join(["NULL"] * len(set(re.findall(r"\$\d", text))))
    plan = "\n".join(line for (line,) in helpers.execute(f"EXPLAIN EXECUTE {name}({nulls})"))
    assert "Index Scan" in plan
    assert "Seq Scan" not in plan


@on_postgres
@pytest.mark.usefixtures("known_session")
def test_a_finish_that_is_kept_ready_commits_nothing_where_the_claim_was_lost(history):
    for _ in range(2):
        finish_one()
    attempt = claimed()._replace(number=7)
    with pytest.raises(ClaimLost, match="attempt 7"), transaction.atomic():
        tasks.ran("late")
        finish(attempt)
    assert helpers.runs("late") == 0
    assert helpers.row(attempt.task_id).status == Status.CLAIMED


@on_postgres
def test_a_session_that_others_get_after_each_transaction_keeps_nothing_ready():
    port = int(connection.settings_dict["PORT"])
    with PgBouncer(port) as pooler, helpers.second_alias(PORT=str(pooler.port), HOST="127.0.0.1"):
        assert not session_of_thread("second")
        assert not keeps_statements("second")
    connection.close()
    assert not keeps_statements("default")  # nobody has asked yet
    assert session_of_thread("default")
    assert keeps_statements("default")
    with helpers.second_alias(OPTIONS={"pool": True}, CONN_MAX_AGE=0):
        assert session_of_thread("second")
        assert not keeps_statements("second")
        connections["second"].close_pool()


@on_postgres
@pytest.mark.usefixtures("known_session")
def test_what_the_commit_looks_at_is_planned_as_ever(history):
    """Deferred constraints come after the finish, in the same transaction."""
    for _ in range(2):
        finish_one()
    helpers.execute("CREATE TABLE seen (value text)")
    try:
        helpers.execute(NOTE_AT_COMMIT)
        finish_one()
        assert helpers.execute("SELECT DISTINCT value FROM seen") == [("on",)]
    finally:
        helpers.execute("DROP TABLE seen; DROP FUNCTION see CASCADE")


@on_postgres
def test_a_session_that_has_lost_what_it_was_to_keep_costs_no_attempt(monkeypatch):
    """The task has told it so behind Django's back; it runs again, and nothing is prepared from then on."""
    monkeypatch.setattr(prepared, "_given_up", set())
    handles = [tasks.atomic_deallocate.enqueue(secretly=True) for _ in range(6)]
    call_command("runworkers", batch=True, threads=1)
    assert [helpers.finished(one.id).outcome for one in handles] == ["succeeded"] * 6
    assert {helpers.finished(one.id).failures for one in handles} == {0}
    assert not prepared.may_be_used("default")


@on_postgres
def test_tasks_that_tell_their_session_to_keep_nothing_finish(monkeypatch):
    monkeypatch.setattr(prepared, "_given_up", set())
    functions = [tasks.atomic_note, tasks.atomic_note, tasks.atomic_deallocate] * 2
    handles = [function.enqueue() for function in functions]
    call_command("runworkers", batch=True, threads=1)
    assert [helpers.finished(one.id).outcome for one in handles] == ["succeeded"] * 6
    assert {helpers.finished(one.id).failures for one in handles} == {0}
    assert prepared.may_be_used("default")  # nothing was missed


@on_postgres
def test_a_session_in_pipeline_mode_is_left_to_psycopg():
    attempt = claimed()
    with transaction.atomic(), connection.connection.pipeline():
        transactions.begin(connection)
        tasks.ran("effect")
        finish(attempt)
    assert helpers.row(attempt.task_id) is None
    assert helpers.runs("effect") == 1


@on_postgres
@pytest.mark.parametrize(
    ("code", "expected"), [("23505", IntegrityError), ("MY001", DatabaseError)]
)
def test_an_error_of_the_finish_has_its_class_and_its_code(code, expected, history):
    """Like one that a cursor raises: it decides whether the attempt is repeated, and is what a person reads."""
    attempt = claimed()
    with pytest.raises(expected, match="txtasks_refuses") as refused, transaction.atomic():
        helpers.execute(
            "CREATE FUNCTION pg_temp.refuse() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$BEGIN RAISE 'txtasks_refuses' USING ERRCODE = '{code}'; END$$"
        )
        helpers.execute(
            "CREATE TRIGGER refuse BEFORE DELETE ON txtasks_task EXECUTE FUNCTION pg_temp.refuse()"
        )
        finish(attempt)
    assert refused.value.__cause__.diag.sqlstate == code
    assert helpers.row(attempt.task_id).status == Status.CLAIMED
    assert not is_in_transaction()


@on_postgres
@pytest.mark.parametrize(
    "text", ["it's", "\\'", "100%s %(id)s %", "\N{GRINNING FACE}", '"', "$1 $$"]
)
def test_a_result_is_kept_as_it_was_returned(text, txtasks):
    txtasks(keep_finished=60)
    attempt = claimed()
    with transaction.atomic():
        ended = Ended(attempt=attempt, arrow=Arrow.FINISH, result=json.dumps([text]))
        outcomes.finish("default", ended, config=get_config())
    assert helpers.finished(attempt.task_id).result == [text]


@pytest.mark.skipif(connection.vendor != "mysql", reason="PostgreSQL's sessions have no autocommit")
def test_the_session_is_the_same_after_it():
    asked = "SELECT CONNECTION_ID(), @@autocommit, @@in_transaction"
    attempt, before = claimed(), helpers.execute(asked)
    with transaction.atomic():
        finish(attempt)
    assert helpers.execute(asked) == before


@pytest.mark.skipif(connection.vendor != "mysql", reason="PostgreSQL's statement begins otherwise")
def test_a_slot_keeps_its_session_after_it(history):
    handles = [tasks.told_atomic.enqueue("") for _ in range(3)]
    assert not outlives_the_task("mysql", "BEGIN NOT ATOMIC DELETE FROM txtasks_task")
    assert outlives_the_task("mysql", "BEGIN NOT ATOMIC SET SESSION sql_mode = ''; END")
    opened = []

    def note(**_):
        opened.append(threading.current_thread().name)

    connection_created.connect(note)
    try:
        call_command("runworkers", batch=True, threads=1)
    finally:
        connection_created.disconnect(note)
    assert opened.count("txtasks-slot-1") == 1
    assert not Task.objects.filter(pk__in=[one.id for one in handles]).exists()


def test_hooks_of_the_commit_run_after_it():
    attempt, seen = claimed(), []
    with transaction.atomic():
        finish(attempt)
        transaction.on_commit(lambda: seen.append(helpers.finished(attempt.task_id).outcome))
    assert seen == ["succeeded"]


def test_an_attempt_that_lost_its_claim_commits_nothing(history):
    attempt = claimed()._replace(number=7)
    with pytest.raises(ClaimLost, match="attempt 7"), transaction.atomic():
        tasks.ran("effect")
        finish(attempt)
    assert helpers.runs("effect") == 0
    assert helpers.finished(attempt.task_id) is None
    assert helpers.row(attempt.task_id).status == Status.CLAIMED


@contextlib.contextmanager
def a_block_inside(*, savepoint):
    with transaction.atomic(), transaction.atomic(savepoint=savepoint):
        yield
        raise KeyError("the outer block fails, too")


@pytest.mark.parametrize("savepoint", [True, False], ids=["savepoint", "no savepoint"])
def test_a_block_inside_another_one_is_not_committed_by_the_finish(savepoint):
    attempt = claimed()
    with pytest.raises(KeyError), a_block_inside(savepoint=savepoint):
        tasks.ran("effect")
        finish(attempt)
    assert helpers.runs("effect") == 0
    assert helpers.row(attempt.task_id).status == Status.CLAIMED


def test_a_transaction_by_hand_is_not_committed_by_the_finish():
    attempt = claimed()
    transaction.set_autocommit(False)
    try:
        with transaction.atomic():
            tasks.ran("effect")
            finish(attempt)
        transaction.rollback()
    finally:
        transaction.set_autocommit(True)
    assert helpers.runs("effect") == 0
    assert helpers.row(attempt.task_id).status == Status.CLAIMED


def test_after_an_error_that_the_task_has_swallowed_nothing_is_committed():
    attempt = claimed()
    with pytest.raises(transaction.TransactionManagementError), transaction.atomic():
        tasks.ran("effect")
        with contextlib.suppress(DatabaseError), transaction.atomic(savepoint=False):
            helpers.execute("SELECT * FROM nowhere")
        finish(attempt)
    assert helpers.runs("effect") == 0
    assert helpers.row(attempt.task_id).status == Status.CLAIMED


REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no commit''; END';
CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON probe_run
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse();
"""


@on_postgres
def test_a_constraint_that_refuses_the_commit_fails_the_attempt():
    """Such a constraint is looked at by the COMMIT itself."""
    handle = tasks.atomic_note_once.enqueue()
    with connection.cursor() as cursor:
        cursor.execute(REFUSE)
    try:
        call_command("runworkers", batch=True)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION refuse CASCADE")
    row = helpers.row(handle.id)
    assert (row.status, row.failures) == (Status.DEAD, 1)
    assert "no commit" in row.errors[-1]["message"]
    assert helpers.runs() == 0


@on_postgres
def test_a_worker_in_debug_mode_works_with_values_bound_on_the_server(settings):
    """Django shows no statement with numbered parameters then."""
    settings.DEBUG = True
    handle = tasks.atomic_note.enqueue()
    connection.close()
    connection.settings_dict["OPTIONS"]["server_side_binding"] = True
    connection.features.__dict__.pop("uses_server_side_binding", None)
    try:
        call_command("runworkers", batch=True)
    finally:
        connection.close()
        del connection.settings_dict["OPTIONS"]["server_side_binding"]
        connection.features.__dict__.pop("uses_server_side_binding", None)
    assert helpers.finished(handle.id).outcome == "succeeded"


def test_in_a_dedicated_session_the_finish_takes_several_statements():
    attempt = claimed()
    dedicate("default", get_config().lease)
    try:
        with transaction.atomic():
            finish(attempt)
    finally:
        close_dedicated("default")
    assert helpers.finished(attempt.task_id).outcome == "succeeded"


@on_postgres
@pytest.mark.parametrize("option", ["server_side_binding", "pool"])
def test_an_atomic_task_finishes_however_django_is_connected(settings, option, history):
    handle = tasks.atomic_note.enqueue()
    connection.close()
    connection.settings_dict["OPTIONS"][option] = True
    if option == "pool":
        connection.settings_dict["CONN_MAX_AGE"] = 0
    try:
        call_command("runworkers", batch=True, threads=2)
    finally:
        connection.close()
        if option == "pool":
            connection.close_pool()
        del connection.settings_dict["OPTIONS"][option]
    assert helpers.runs("atomic") == 1
    assert helpers.row(handle.id) is None
    assert (helpers.finished(handle.id) is not None) == history


def test_a_result_is_kept_as_it_was(txtasks):
    txtasks(keep_finished=60)
    values = ["50 % of 'it' is %s; COMMIT", "\\ and \u00e9", None, 1.5]
    handles = [tasks.told_atomic.enqueue(value) for value in values]
    call_command("runworkers", batch=True)
    assert [helpers.finished(handle.id).result for handle in handles] == values


@pytest.mark.skipif(connection.vendor != "mysql", reason="Galera is of MariaDB")
def test_a_cluster_gets_statements_one_by_one(monkeypatch):
    """It may run a block again by itself."""
    monkeypatch.setattr(transactions, "_AGAIN", "SELECT 'wsrep_on', 'ON'")
    monkeypatch.setattr(transactions, "_runs_again", {})
    attempt = claimed()
    dedicate("default", get_config().lease)
    assert not transactions.can_use_blocks("default")
    close_dedicated("default")
    with CaptureQueriesContext(connection) as asked, transaction.atomic():
        finish(attempt)
    assert not any("NOT ATOMIC" in one["sql"] for one in asked)
    assert helpers.finished(attempt.task_id).outcome == "succeeded"
