"""No setting of the database server changes a task: see docs/reference/server-settings.md."""

from contextlib import contextmanager
from io import StringIO

import helpers
import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, connections
from django.db.models import Sum
from probe import asking, tasks

from django_txtasks import batch, checks, enqueue_many
from django_txtasks.contrib import people
from django_txtasks.contrib.people.models import Question
from django_txtasks.features.figures import appending
from django_txtasks.features.figures.adding_up import EVER
from django_txtasks.features.figures.tally import Tally
from django_txtasks.models import FinishedTask, Schedule, Stat, Task

on_mysql = pytest.mark.skipif(connection.vendor != "mysql", reason="others have no such settings")
ODD = 'it\'s \\ "quoted" %s NULL 100% ||'

POSTGRESQL = {
    "values": "array_nulls=off transform_null_equals=on standard_conforming_strings=off backslash_quote=off"
    " escape_string_warning=off bytea_output=escape extra_float_digits=-10 intervalstyle=sql_standard"
    " datestyle=ISO,DMY quote_all_identifiers=on xmloption=document row_security=off timezone=Asia/Kathmandu"
    " default_toast_compression=pglz lc_messages=C client_min_messages=error",
    "plans": "enable_indexscan=off enable_bitmapscan=off enable_hashjoin=off enable_nestloop=off jit_above_cost=0"
    " plan_cache_mode=force_generic_plan synchronous_commit=off from_collapse_limit=1 geqo=off",
    "serializable": "default_transaction_isolation=serializable default_transaction_deferrable=on",
}
MYSQL = {
    "words": "SET SESSION sql_mode = 'ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES,IGNORE_SPACE,"
    "HIGH_NOT_PRECEDENCE,STRICT_ALL_TABLES,ONLY_FULL_GROUP_BY,NO_ZERO_DATE,NO_ZERO_IN_DATE,"
    "ERROR_FOR_DIVISION_BY_ZERO,NO_UNSIGNED_SUBTRACTION,PAD_CHAR_TO_FULL_LENGTH,NO_AUTO_VALUE_ON_ZERO'",
    "lenient": "SET SESSION sql_mode = ''",
    "values": "SET SESSION time_zone = '+05:45', group_concat_max_len = 4, div_precision_increment = 0,"
    " collation_connection = utf8mb4_general_ci, completion_type = 0, lc_time_names = 'de_DE',"
    " innodb_lock_wait_timeout = 1, optimizer_switch = 'index_merge=off,mrr=on', sql_quote_show_create = 0",
}
SQLITE = {
    "pragmas": "PRAGMA case_sensitive_like = ON; PRAGMA reverse_unordered_selects = ON; "
    "PRAGMA recursive_triggers = ON; PRAGMA automatic_index = OFF; PRAGMA cache_size = 10; "
    "PRAGMA temp_store = MEMORY; PRAGMA secure_delete = ON",
}


@contextmanager
def sessions_with(**options):
    """Open each session of the default alias with these options, in all threads."""
    entry = connection.settings_dict
    former = dict(entry["OPTIONS"])
    connection.close()
    entry["OPTIONS"].update(options)
    try:
        yield
    finally:
        connection.close()
        entry["OPTIONS"].clear()
        entry["OPTIONS"].update(former)


def option_of(setting):
    if connection.vendor == "postgresql":
        return {"options": " ".join(f"-c {one}" for one in POSTGRESQL[setting].split())}
    if connection.vendor == "mysql":
        return {"init_command": MYSQL[setting]}
    given = connection.settings_dict["OPTIONS"].get("init_command", "")
    return {"init_command": f"{given} {SQLITE[setting]}"}


SETTINGS = {"postgresql": POSTGRESQL, "mysql": MYSQL}.get(connection.vendor, SQLITE)


@pytest.fixture(params=SETTINGS)
def unusual(request, rows):
    """Sessions with settings of the server that few servers have."""
    with sessions_with(**option_of(request.param)):
        yield


def all_have_ended(*handles):
    ids = [one.id for one in handles]
    return lambda: FinishedTask.objects.filter(pk__in=ids).count() == len(ids)


def test_counts_are_added_up_whatever_the_server_s_settings_are(unusual):
    tally = Tally()
    for task in ("probe.tasks.nothing", "probe.tasks.give"):
        tally.of(ODD, task).succeeded += 1
    appending.append("default", tally)
    call_command("runcleaner", once=True, verbosity=0)
    ever = Stat.objects.filter(width=EVER, queue_name=ODD)
    assert ever.aggregate(n=Sum("succeeded"))["n"] == 2


def test_tasks_of_each_kind_run_whatever_the_server_s_settings_are(unusual, quick, txtasks):
    tasks.released.clear()
    txtasks(lanes={ODD: {"at_most": 2}})
    plain = [
        tasks.nothing.enqueue(),
        tasks.give.enqueue(ODD),
        tasks.give.enqueue(1.1),
        tasks.note_async.enqueue(),
    ]
    plain += enqueue_many((tasks.give, (ODD,)) for _ in range(3))
    plain += [
        tasks.atomic_note.enqueue(ODD),
        tasks.two_steps.enqueue("s", repr(ODD)),
        tasks.fail_until.enqueue(2),
    ]
    plain += [tasks.give.using(lane=ODD).enqueue(n) for n in range(3)]
    plain += [
        tasks.give.using(once=ODD).enqueue(1),
        tasks.tidy.enqueue("k", shelf=ODD),
        tasks.tidy.enqueue("k", shelf=ODD),
    ]
    with batch(name=ODD, on_finish=tasks.tell_of_batch):
        plain += [tasks.nothing.enqueue(), tasks.nothing.enqueue()]
    dead, asking_one = tasks.fail.enqueue(ODD), asking.approve_async.enqueue(ODD)
    Schedule.objects.create(name=ODD, task_name="probe.tasks.nothing", every=3600)
    with helpers.working(threads=4):
        helpers.wait_until(all_have_ended(*plain))
        helpers.wait_until(lambda: helpers.row(dead.id).status == "dead")
        question = helpers.wait_until(Question.objects.first)
        ada = User.objects.create(username="ada", is_superuser=True)
        assert people.answer(question, ada, {"approved": True, "reason": ODD}) is None
        helpers.wait_until(all_have_ended(asking_one))
        call_command("runcleaner", once=True, verbosity=0)
        for command in ("txtasks_status", "txtasks_explain", "txtasks_audit", "txtasks_load"):
            call_command(command, stdout=StringIO())
    assert not Task.objects.exclude(pk=dead.id).filter(status="dead").exists()
    assert helpers.finished(plain[0].id).result is None
    assert helpers.finished(plain[1].id).result == ODD
    assert helpers.finished(plain[2].id).result == 1.1


# -- what tasks rely on is checked ------------------------------------------------------------------


def warnings(alias="default"):
    found = checks.check_server_settings(databases=[alias])
    assert {one.id for one in found} <= {"txtasks.W037"}
    return [one.msg for one in found]


def test_a_server_as_the_documentation_has_it_is_no_finding(rows):
    assert warnings() == []
    assert warnings("nowhere") == []


@pytest.mark.skipif(
    connection.vendor != "postgresql", reason="PostgreSQL has an encoding for each database"
)
@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_an_encoding_that_lacks_letters_is_found(rows, encoding):
    name = f"{connection.settings_dict['NAME']}_narrow"
    helpers.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    try:
        with helpers.second_alias(NAME=name):
            (message,) = warnings("second")
    finally:
        helpers.execute(f"DROP DATABASE {name} WITH (FORCE)")
    assert f"has the encoding {encoding}" in message


@on_mysql
def test_a_session_that_lacks_letters_is_found(rows):
    with sessions_with(charset="latin1"):
        (message,) = warnings()
    assert "sessions of the character set latin1" in message


@on_mysql
@pytest.mark.parametrize("mode", ["ORACLE", "EMPTY_STRING_IS_NULL"])
def test_a_mode_that_stops_workers_is_found(rows, mode):
    with sessions_with(init_command=f"SET SESSION sql_mode = '{mode}'"):
        (message,) = warnings()
    assert f"sql_mode {mode}, which" in message


@on_mysql
@pytest.mark.parametrize("guard", ["sql_safe_updates = 1", "max_join_size = 1000"])
def test_a_guard_that_refuses_statements_is_found(rows, guard):
    with sessions_with(init_command=f"SET SESSION {guard}"):
        (message,) = warnings()
    assert "refuse statements of cleaners and pages" in message


@on_mysql
def test_tables_of_the_site_with_such_a_name_are_no_finding(second_database):
    call_command("migrate", "txtasks", database="second", verbosity=0, skip_checks=True)
    with connections["second"].cursor() as cursor:
        cursor.execute("CREATE TABLE txtasks_of_shop (a varchar(9)) ENGINE = MyISAM CHARSET latin1")
    assert warnings("second") == []


@on_mysql
def test_a_table_without_transactions_is_found(second_database):
    call_command("migrate", "txtasks", database="second", verbosity=0, skip_checks=True)
    with connections["second"].cursor() as cursor:
        cursor.execute("ALTER TABLE txtasks_once ENGINE = MyISAM")
    (message,) = warnings("second")
    assert "1 table without transactions: txtasks_once" in message


@on_mysql
def test_tables_that_somebody_has_converted_are_found(second_database):
    call_command("migrate", "txtasks", database="second", verbosity=0, skip_checks=True)
    with connections["second"].cursor() as cursor:
        cursor.execute("ALTER TABLE txtasks_once CONVERT TO CHARACTER SET utf8mb3")
    (message,) = warnings("second")
    assert "2 text columns of another character set or collation: txtasks_once.task_name" in message
