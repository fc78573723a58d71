"""A database that takes no writes: status, audit, At a glance and explain name this, not what follows from it."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sqlite3
import tempfile
import uuid
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import helpers
import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import DatabaseError, connection, connections
from django.test import Client
from django.test.utils import CaptureQueriesContext, override_settings
from django.utils import timezone
from probe import tasks
from servers import Standby

from django_txtasks import overview as overview_room
from django_txtasks.guards.read_only import read_only
from django_txtasks.insight.explain import explain
from django_txtasks.models import Cleaner, PausedQueue, Worker
from django_txtasks.overview import overview
from django_txtasks.overview.gathering import gather

pytestmark = pytest.mark.usefixtures("rows")
VENDOR = connection.vendor
LONG_AGO = timezone.now() - timedelta(hours=1)
BEGINS = "The database takes no writes: "
REASONS = {
    "postgresql": "default_transaction_read_only (database) is on",
    "mysql": "read_only is on",
    "sqlite": "this process may not write the file",
}
ADVICE = ("Start", "start ", "runworkers", "runcleaner", "rundrain")


class ToSecond:
    """A router by which ``second`` is the database of the tasks."""

    def db_for_write(self, model, **hints):
        return "second"


@contextmanager
def no_writes():
    """Give the alias ``second`` of the test's database, which takes no writes."""
    with {"postgresql": _postgresql, "mysql": _mariadb, "sqlite": _sqlite}[VENDOR]():
        with pytest.raises(DatabaseError):
            PausedQueue.objects.using("second").create(pk="refused")
        yield


@contextmanager
def _postgresql():
    name = connection.ops.quote_name(connection.settings_dict["NAME"])
    helpers.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    try:
        with helpers.second_alias():
            yield
    finally:
        helpers.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")


@contextmanager
def _mariadb():
    with helpers.second_alias_of_plain_user(), helpers.read_only_server():
        yield


@contextmanager
def _sqlite():
    """A copy, because another user than root does not reach the folder of the test's file."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    file = folder / "copy.sqlite3"
    helpers.execute("VACUUM INTO %s", str(file))
    file.chmod(0o444)
    try:
        # the journal mode of the tests would be written to the file
        with helpers.second_alias(NAME=str(file), OPTIONS={}), _without_rights():
            connections["second"].ensure_connection()
            yield
    finally:
        shutil.rmtree(folder)


@contextmanager
def _without_rights():
    """Root may write any file, so it becomes another user for a while."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


def a_worker(**columns):
    facts = {"host": "web1", "pid": 7, "queues": ["default"], "threads": 4, "lease": 15.0}
    return Worker.objects.create(id=uuid.uuid4(), **{**facts, **columns})


def a_cleaner(**columns):
    facts = {"host": "web1", "pid": 8, "interval": 30.0, "lease": 15.0}
    return Cleaner.objects.create(id=uuid.uuid4(), **{**facts, **columns})


def printed(command, *arguments):
    """Return what a command prints about ``second``."""
    out = io.StringIO()
    try:
        call_command(command, *arguments, "--database=second", stdout=out)
    except SystemExit as leaving:
        assert leaving.code == 1
    return out.getvalue()


def problems(alias="second"):
    return [one.name for one in gather(alias, {})[0].problems]


@pytest.fixture
def silence():
    """A minute of failover: a due task, and processes whose last beats are from before; returns the handle."""
    a_worker(seen_at=LONG_AGO)
    a_cleaner(seen_at=LONG_AGO, passed_at=LONG_AGO)
    handle = tasks.note.using(run_after=LONG_AGO).enqueue("x")
    assert problems("default") == ["no_worker", "no_cleaner", "silent_workers"]
    return handle


def test_the_status_begins_with_it_and_does_not_advise_to_start_processes(silence):
    printed_before = io.StringIO()
    call_command("txtasks_status", stdout=printed_before)
    assert "manage.py runworkers" in printed_before.getvalue()
    with no_writes():
        text = printed("txtasks_status")
        verdict = json.loads(printed("txtasks_status", "--json"))["verdict"]
    assert text.startswith(BEGINS) and REASONS[VENDOR] in text
    assert verdict == text.splitlines()[0]
    assert not [word for word in ADVICE if word in text]
    assert re.search(r"Cleaners: 0 at work; last whole pass: \d{4,} s ago", text)
    assert "Also:" not in text


def test_the_audit_begins_with_it_and_does_not_ask_what_follows_from_it(silence):
    with no_writes():
        first, means, do, *others = printed("txtasks_audit").splitlines()
        found = json.loads(printed("txtasks_audit", "--json"))
    assert first.startswith(f"PROBLEM {BEGINS}") and REASONS[VENDOR] in first
    assert "workers and cleaners that run cannot record it" in means
    assert do.strip().startswith("do:    ") and not [word for word in ADVICE if word in do]
    assert not others
    assert [one["name"] for one in found["findings"]] == ["no_writes"]


def test_at_a_glance_begins_with_it(silence):
    client = Client()
    client.force_login(User.objects.create(username="ada", is_staff=True, is_superuser=True))
    page = "/admin/txtasks/overview/?db=second&fragment=1"
    with helpers.second_alias():  # a process of another user cannot import modules from each place
        assert BEGINS not in client.get(page).content.decode()
    overview_room._forget()
    with no_writes():
        html = client.get(page).content.decode()
    assert BEGINS in html
    assert "No worker is alive" not in html and "runworkers" not in html
    assert "No cleaner is running" not in html


@pytest.mark.skipif(VENDOR != "postgresql", reason="a standby of PostgreSQL")
def test_a_standby_is_named(silence):
    with (
        Standby(int(connection.settings_dict["PORT"])) as standby,
        helpers.second_alias(HOST="127.0.0.1", PORT=str(standby.port)),
    ):
        assert helpers.row(silence.id)
        text = printed("txtasks_status")
        audited = printed("txtasks_audit")
        (reason,) = explain("second", silence.id)
    assert text.startswith(f"{BEGINS}its server is a standby.")
    assert audited.startswith(f"PROBLEM {BEGINS}its server is a standby.")
    assert reason.gate == "no_writes" and "promote the server" in reason.lift


def test_explain_names_it(silence):
    with no_writes():
        (reason,) = explain("second", silence.id)
    assert reason.gate == "no_writes" and reason.text.startswith(BEGINS)
    assert not [word for word in ADVICE if word in f"{reason.text} {reason.lift}"]


def test_explain_names_it_for_a_task_whose_worker_is_silent(silence):
    helpers.execute(
        "UPDATE txtasks_task SET status = 'claimed', worker = %s, claimed_at = run_after",
        uuid.uuid4().hex,
    )
    with no_writes():
        (reason,) = explain("second", silence.id)
    assert reason.gate == "no_writes"


def test_a_replica_with_living_processes_is_no_problem():
    a_worker()
    a_cleaner(passed_at=timezone.now())
    with no_writes():
        assert read_only("second") is not None
        assert problems() == []
        assert "Nothing was found." in printed("txtasks_audit")


def test_where_the_tasks_are_written_it_is_told_before_the_leases_run_out():
    a_worker()
    a_cleaner(passed_at=timezone.now())
    with no_writes(), override_settings(DATABASE_ROUTERS=[ToSecond()]):
        assert problems() == ["no_writes"]
        assert printed("txtasks_audit").startswith(f"PROBLEM {BEGINS}")


def test_explain_names_it_before_the_leases_run_out():
    a_worker()
    a_cleaner(passed_at=timezone.now())
    waiting = tasks.note.using(run_after=LONG_AGO).enqueue("x")
    with no_writes(), override_settings(DATABASE_ROUTERS=[ToSecond()]):
        (reason,) = explain("second", waiting.id)
    assert reason.gate == "no_writes" and reason.text.startswith(BEGINS)


def test_other_problems_stay(silence):
    PausedQueue.objects.create(pk="default")
    helpers.execute("UPDATE txtasks_task SET max_crashes = 1, crashes = 5, status = 'held'")
    tasks.note.using(run_after=LONG_AGO).enqueue("y")
    with no_writes():
        assert problems() == ["no_writes", "paused_queue"]
        found = json.loads(printed("txtasks_audit", "--json"))["findings"]
    names = [one["name"] for one in found]
    assert names == ["no_writes", "impossible_counts", "overdue_paused"]


def only_this_session():
    """``second`` as an alias whose sessions may not write, while those of other processes may."""
    options = {**connection.settings_dict["OPTIONS"]}
    if VENDOR == "postgresql":
        options["options"] = "-c default_transaction_read_only=on"
    return helpers.second_alias(OPTIONS=options)


@pytest.mark.skipif(VENDOR == "mysql", reason="read_only is a setting of the whole server")
def test_a_session_that_only_reads_explains_nothing():
    """As that of a role for monitoring. Without processes it is said, because it may be the reason."""
    a_worker()
    with only_this_session():
        if VENDOR == "sqlite":
            with connections["second"].cursor() as cursor:
                cursor.execute("PRAGMA query_only = 1")
        assert problems() == ["no_cleaner"]
        Worker.objects.all().delete()
        assert problems() == ["no_writes", "no_worker", "no_cleaner"]
        assert printed("txtasks_status").startswith("This process cannot write to the database: ")
        names = [one["name"] for one in json.loads(printed("txtasks_audit", "--json"))["findings"]]
        assert names == ["no_writes", "no_cleaner"]


@pytest.mark.skipif(VENDOR != "mysql", reason="MariaDB and MySQL let some users write anyway")
def test_a_user_that_may_write_anyway_has_no_problem(silence):
    with helpers.read_only_server():
        assert helpers.execute("SELECT @@global.read_only") == [(1,)]
        assert read_only("default") is None
        assert problems("default")[0] == "no_worker"


@pytest.mark.skipif(VENDOR != "sqlite", reason="a file of SQLite needs a journal beside it")
def test_a_folder_that_takes_no_journal():
    folder = Path(tempfile.mkdtemp())
    file = folder / "one.sqlite3"
    sqlite3.connect(file).close()
    file.touch()
    file.chmod(0o666)
    folder.chmod(0o555)
    try:
        with helpers.second_alias(NAME=str(file), OPTIONS={}), _without_rights():
            assert "or its folder" in str(read_only("second").reason)
            with pytest.raises(DatabaseError), connections["second"].cursor() as cursor:
                cursor.execute("CREATE TABLE t (x)")
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_it_costs_one_statement():
    a_worker()
    a_cleaner(passed_at=timezone.now())
    with CaptureQueriesContext(connection) as asked:
        assert overview(max_age=0).problems == ()
    marks = ("pg_is_in_recovery", "@@global.read_only", "pragma_query_only")
    assert len([one for one in asked if any(mark in one["sql"] for mark in marks)]) == 1
