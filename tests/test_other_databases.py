"""Databases on which tasks do not run are refused by name; the others get no needless warning."""

from contextlib import suppress

import helpers
import pytest
from django.core.management import CommandError, call_command
from django.core.management.base import SystemCheckError
from django.db import DatabaseError, connection, connections, transaction
from django.db.transaction import TransactionManagementError
from probe import tasks

from django_txtasks import checks, enqueue_many
from django_txtasks.exceptions import UnsupportedDatabase
from django_txtasks.guards import server_kind
from django_txtasks.guards.server_kind import product_of
from django_txtasks.models import Task

pytestmark = pytest.mark.usefixtures("rows")
GENUINE = [
    ("postgresql", "PostgreSQL 15.7 (Debian 15.7-0+deb12u1) on x86_64-pc-linux-gnu, compiled by gcc 12.2.0"),
    ("postgresql", "PostgreSQL 16.1, compiled by Visual C++ build 1937, 64-bit"),
    ("mysql", "10.11.18-MariaDB-0+deb12u1 Debian 12"),
    ("mysql", "8.0.35-0ubuntu0.22.04.1 (Ubuntu)"),
    ("mysql", "8.0.35-27 Percona Server (GPL), Release 27"),
]  # fmt: skip
OTHERS = {
    "CockroachDB": ("postgresql", "CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu, built 2023/09/27)"),
    "YugabyteDB": ("postgresql", "PostgreSQL 11.2-YB-2.20.1.0-b0 on x86_64-pc-linux-gnu, compiled by clang 16"),
    "Redshift": ("postgresql", "PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC 3.4.2, Redshift 1.0.58"),
    "Aurora DSQL": ("postgresql", "PostgreSQL 16 (Aurora DSQL)"),
    "'PostgreSQL 16'": ("postgresql", "PostgreSQL 16"),
    "TiDB": ("mysql", "8.0.11-TiDB-v7.5.0 TiDB Server (Apache License 2.0)"),
    "Vitess": ("mysql", "8.0.30-Vitess"),
    "SingleStore": ("mysql", "5.7.32 SingleStoreDB source distribution"),
}  # fmt: skip


@pytest.fixture
def oracle(tmp_path):
    """An alias of a vendor that tasks do not know: SQLite that calls itself by another name."""
    with helpers.second_alias(
        ENGINE="probe.oracle", NAME=str(tmp_path / "oracle.sqlite3"), OPTIONS={}
    ):
        assert connections["second"].vendor == "oracle"
        yield


@pytest.mark.parametrize("is_atomic", [False, True])
def test_an_enqueue_on_an_unknown_vendor_is_a_named_error(oracle, is_atomic):
    there = tasks.note.using(using="second")
    calls = [
        lambda: there.enqueue("x"),
        lambda: there.using(once="k").enqueue("x"),
        lambda: there.using(run_after=60).enqueue("x"),
        lambda: enqueue_many([(there, ["x"])] * 30),
    ]
    for call in calls:
        with pytest.raises(
            UnsupportedDatabase, match=r"vendor 'oracle'.*PostgreSQL, MariaDB, MySQL or SQLite"
        ):
            if is_atomic:
                with transaction.atomic(using="second"):
                    call()
            else:
                call()
    assert not Task.objects.exists()


def test_a_worker_and_a_cleaner_do_not_start_on_an_unknown_vendor(oracle):
    for command in ("runworkers", "runcleaner"):
        with pytest.raises(SystemCheckError, match=r"txtasks\.E004"):
            call_command(command, database="second", skip_checks=False)


@pytest.mark.once
@pytest.mark.parametrize(("vendor", "version"), GENUINE)
def test_what_is_genuine_is_known(vendor, version):
    assert product_of(vendor, version) is None


@pytest.mark.once
@pytest.mark.parametrize("product", OTHERS)
def test_another_product_is_known_by_its_version(product):
    assert product in str(product_of(*OTHERS[product]))


def test_this_server_is_what_its_backend_says():
    assert not [
        one for one in checks.check_tables(databases=["default"]) if one.id == "txtasks.E004"
    ]


@pytest.mark.skipif(
    connection.vendor != "postgresql", reason="only PostgreSQL lets a test replace version()"
)
def test_a_server_that_only_speaks_the_protocol_is_refused_by_a_check_and_at_enqueueing():
    helpers.execute("CREATE SCHEMA another")
    try:
        helpers.execute(
            "CREATE FUNCTION another.version() RETURNS text LANGUAGE sql"
            " AS $$ SELECT 'CockroachDB CCL v23.1.11'::text $$"
        )
        path = "-c search_path=another,public,pg_catalog"
        with helpers.second_alias(OPTIONS={"options": path}):
            (error,) = checks.check_tables(databases=["second"])
            assert error.id == "txtasks.E004"
            assert "'second' is CockroachDB, on which tasks do not run" in error.msg
            refused = [
                lambda: tasks.note.using(using="second").enqueue("x"),
                lambda: enqueue_many([(tasks.note.using(using="second"), ["x"])]),
            ]
            for enqueue in refused:
                server_kind._genuine.discard("second")
                with pytest.raises(UnsupportedDatabase, match="'second' is CockroachDB"):
                    enqueue()
            with pytest.raises(CommandError, match="is CockroachDB"):
                call_command("runworkers", database="second", batch=True, skip_checks=False)
    finally:
        helpers.execute("DROP SCHEMA another CASCADE")


def test_the_version_is_asked_once_in_a_process_and_django_counts_no_statement(
    django_assert_num_queries,
):
    server_kind._genuine.discard("default")
    with django_assert_num_queries(1):
        tasks.note.enqueue("first")
    assert "default" in server_kind._genuine


def test_a_broken_transaction_raises_at_enqueueing_what_django_raises():
    server_kind._genuine.discard("default")
    with pytest.raises(TransactionManagementError), transaction.atomic():
        with suppress(DatabaseError), transaction.atomic(savepoint=False):
            helpers.execute("SELECT * FROM no_such_table")
        tasks.note.enqueue("x")


def test_django_s_own_checks_find_nothing_in_our_tables():
    """On MariaDB Django warned, at each command, that the conditions of our indexes are ignored."""
    found = call_command_check()
    assert not [
        one for one in found if getattr(one.obj, "__module__", "") == "django_txtasks.models"
    ]


def call_command_check():
    from django.apps import apps
    from django.core.checks import run_checks

    return run_checks([apps.get_app_config("txtasks")], databases=["default"])
