"""SQLite's file is replaced by another one while workers and cleaners have it open."""

import os
import pathlib

import helpers
import pytest
from django.db import connection, connections
from probe import tasks

from django_txtasks.guards import connections as slot_connections
from django_txtasks.guards.file import is_replaced
from django_txtasks.models import Cleaner, Worker

pytestmark = [
    pytest.mark.usefixtures("rows", "quick"),
    pytest.mark.skipif(connection.vendor != "sqlite", reason="what SQLite has"),
]


@pytest.fixture
def replace():
    """Replaces the file by a copy without the rows of workers and cleaners, as a restored backup would be."""
    path = pathlib.Path(connection.settings_dict["NAME"])

    def call():
        copy = path.with_suffix(".copy")
        helpers.execute(f"VACUUM INTO '{copy}'")
        connection.close()
        for end in ("-wal", "-shm"):
            path.with_name(path.name + end).unlink(missing_ok=True)
        os.replace(copy, path)
        Worker.objects.all().delete()
        Cleaner.objects.all().delete()

    return call


def test_a_file_that_is_replaced_is_noticed_by_all(processes, replace):
    worker = processes.start("runworkers", "--threads=2")
    cleaner = processes.start("runcleaner")
    before = tasks.note.enqueue("before")
    helpers.wait_until(lambda: helpers.finished(before.id) and Cleaner.objects.exists())
    replace()
    after = [tasks.note.enqueue(f"after {number}") for number in range(5)]
    helpers.wait_until(
        lambda: all(helpers.finished(one.id) for one in after),
        what=lambda: processes.log_of(worker),
    )
    helpers.wait_until(Cleaner.objects.exists, what=lambda: processes.log_of(cleaner))
    for one in (worker, cleaner):
        assert "its file was replaced by another one" in processes.log_of(one)


def test_a_slot_that_was_not_idle_uses_the_new_file_as_the_loop_does(processes, replace):
    """Else its tasks would end in the new file, and have their effects in the old one."""
    processes.start("runworkers", "--threads=1")
    before = tasks.slow.enqueue("slow", 2)
    helpers.wait_until(lambda: helpers.row(before.id).worker)
    replace()
    after = [tasks.note.enqueue(f"after {number}") for number in range(5)]
    helpers.wait_until(lambda: all(helpers.finished(one.id) for one in after))
    assert [helpers.runs(f"after {number}") for number in range(5)] == [1] * 5


def test_a_slot_opens_the_new_file(replace, monkeypatch):
    monkeypatch.setattr(slot_connections, "FRESH_SECONDS", -1)

    def attempt():
        slot_connections.before_attempt(lambda alias: None)
        raw = connection.connection
        helpers.runs()
        slot_connections.after_attempt(failed=False)
        return raw

    def use():
        attempt()
        first = attempt()
        assert first is not None and attempt() is first
        with helpers.second_session(replace):
            pass
        assert attempt() is None

    with helpers.second_session(use):
        pass


def test_a_file_that_is_away_for_a_moment_is_not_replaced(tmp_path):
    path = tmp_path / "away.sqlite3"
    with helpers.second_alias(NAME=str(path)):
        other = connections["second"]
        other.ensure_connection()
        assert not is_replaced(other)
        path.rename(tmp_path / "there")
        assert not is_replaced(other)
        path.write_bytes(b"")
        assert is_replaced(other)
        other.close()
        assert not is_replaced(other)
