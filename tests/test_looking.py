"""Hints without RabbitMQ where the database sends no messages: SQLite's number of changes, and glances."""

import dataclasses
import os
import sys
import time
import uuid
from contextlib import contextmanager

import helpers
import pytest
from django.core.management import call_command
from django.db import OperationalError, connection, connections, transaction
from probe import tasks

from django_txtasks import enqueue_many, enqueue_task, hints
from django_txtasks.conf import get_config, parse
from django_txtasks.core.rows.turn import Capacity, TurnResult
from django_txtasks.core.working.hint_inbox import HintInbox
from django_txtasks.core.working.schedule import TurnSchedule
from django_txtasks.fast import glances, heads
from django_txtasks.hints import file_watcher
from django_txtasks.hints.file_changes import FileChanges
from django_txtasks.models import Task

pytestmark = pytest.mark.usefixtures("rows")

NEVER = 600  # a poll interval that no test lives to see
on_sqlite = pytest.mark.skipif(connection.vendor != "sqlite", reason="what SQLite has")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="what its kernel tells")
without_messages = pytest.mark.skipif(
    connection.vendor != "mysql", reason="where there is no message at all"
)


@pytest.fixture
def hints_only(txtasks):
    """Workers scan once when they start."""
    txtasks(database_hints=True, poll_interval=NEVER, hint_retry_interval=0.2)


@contextmanager
def watcher(heard, alias="default"):
    """A watcher of a file, which puts hints there."""
    of_alias = dataclasses.replace(helpers.subscription(), alias=alias)
    one = hints.of_database(get_config(), of_alias, heard.append)
    one.start()
    try:
        helpers.wait_until(lambda: one.connected)
        yield one
    finally:
        one.stop()
    assert not one._thread.is_alive()


@pytest.fixture
def watching(hints_only):
    """A watcher of the test's file, and the hints that it delivers."""
    heard = []
    with watcher(heard) as one:
        yield one, heard


def ids(heard):
    return [task_id for hint in list(heard) for task_id in hint.ids]


# -- SQLite -----------------------------------------------------------------------------------------


@on_sqlite
def test_a_commit_to_the_file_starts_its_task_without_a_scan(hints_only):
    with helpers.working():
        for number in range(3):
            with transaction.atomic():
                enqueue_task(tasks.note, f"seen {number}")
            helpers.wait_until(lambda n=number: helpers.runs(f"seen {n}"))


@on_sqlite
def test_a_commit_of_another_process_starts_its_task(processes, hints_only):
    worker = processes.start("runworkers")
    helpers.wait_until(
        lambda: helpers.execute("SELECT 1 FROM txtasks_worker WHERE listening"),
        what=lambda: processes.log_of(worker),
    )
    tasks.note.enqueue("other process")
    helpers.wait_until(lambda: helpers.runs("other process"))


@on_sqlite
def test_what_was_rolled_back_is_not_seen(watching):
    _, heard = watching
    with transaction.atomic():
        tasks.note.enqueue()
        transaction.set_rollback(True)
    kept = tasks.note.enqueue()
    helpers.wait_until(lambda: ids(heard))
    assert ids(heard) == [kept.id]


@on_sqlite
def test_a_commit_that_is_no_task_wakes_nobody(watching):
    """Beats of two idle workers would wake each other for ever."""
    one, heard = watching
    seen, news = [], one._heads.news
    one._heads.news = lambda: seen.append(news()) or seen[-1]
    for number in range(3):
        tasks.ran(f"beat {number}")
        helpers.wait_until(lambda n=number: len(seen) > n)
    assert not heard


@on_sqlite
def test_a_row_that_nobody_may_claim_is_told_once(watching):
    _, heard = watching
    stays = tasks.note.enqueue()
    helpers.wait_until(lambda: ids(heard))
    others = []
    for _ in range(3):
        others.append(tasks.note.enqueue().id)
        helpers.wait_until(lambda: others[-1] in ids(heard))
    assert ids(heard) == [stays.id, *others]


@on_sqlite
def test_a_full_worker_drops_what_it_is_told_and_scans_later(watching):
    one, heard = watching
    one.listen(False)
    tasks.note.enqueue()
    one.listen(True)
    helpers.wait_until(lambda: heard)


@on_sqlite
@on_linux
@pytest.mark.parametrize(
    ("mode", "name"), [("WAL", b"site"), ("DELETE", b"site"), ("WAL", b"no text \xff")]
)
def test_the_kernel_tells_of_a_commit(hints_only, tmp_path, monkeypatch, mode, name):
    monkeypatch.setattr(file_watcher, "PAUSES_SECONDS", (0.01, 0.03, 0.1, NEVER))
    wait, waits, heard = FileChanges.wait, [], []
    monkeypatch.setattr(
        FileChanges, "wait", lambda self, seconds: waits.append(seconds) or wait(self, seconds)
    )
    with helpers.second_alias(NAME=os.path.join(tmp_path, os.fsdecode(name))):
        call_command("migrate", database="second", verbosity=0)
        with connections["second"].cursor() as cursor:
            cursor.execute(f"PRAGMA journal_mode={mode}")
        with watcher(heard, "second"):
            for number in range(3):
                helpers.wait_until(lambda: waits and waits[-1] == NEVER)
                seen = tasks.note.using(using="second").enqueue(number)
                helpers.wait_until(lambda one=seen: one.id in ids(heard))


@pytest.fixture
def silence(hints_only, monkeypatch):
    """Make the kernel report no writes, although it claims to."""
    monkeypatch.setattr(FileChanges, "watch", lambda self, paths: True)


@on_sqlite
@on_linux
def test_a_commit_is_seen_though_it_was_told_before_others_can_see_it(silence, monkeypatch):
    monkeypatch.setattr(file_watcher, "PAUSES_SECONDS", (0.1, NEVER))
    heard = []
    with watcher(heard) as one:
        time.sleep(0.3)  # it waits for long now
        one._changes.wake()
        time.sleep(0.02)
        seen = tasks.note.enqueue()
        helpers.wait_until(lambda: seen.id in ids(heard))


@on_sqlite
def test_where_nobody_tells_of_writes_it_looks_all_the_time(hints_only, monkeypatch):
    monkeypatch.setattr(FileChanges, "watch", lambda self, paths: False)
    monkeypatch.setattr(file_watcher, "PAUSES_SECONDS", (NEVER,))
    heard = []
    with watcher(heard):
        seen = tasks.note.enqueue()
        helpers.wait_until(lambda: seen.id in ids(heard))


@on_sqlite
@on_linux
def test_where_the_kernel_is_silent_it_looks_all_the_time(silence, monkeypatch):
    monkeypatch.setattr(file_watcher, "PAUSES_SECONDS", (0.01, 0.2))
    heard = []
    with watcher(heard):
        time.sleep(0.1)
        first = tasks.note.enqueue()
        helpers.wait_until(lambda: first.id in ids(heard))
        monkeypatch.setattr(file_watcher, "PAUSES_SECONDS", (NEVER,))
        time.sleep(0.3)  # the last pause of before is over
        second = tasks.note.enqueue()
        helpers.wait_until(lambda: second.id in ids(heard))


@on_sqlite
def test_a_locked_file_ends_no_watcher(watching):
    _, heard = watching
    with helpers.locked("UPDATE txtasks_task SET priority = 1"):
        pass
    last = tasks.note.enqueue()
    helpers.wait_until(lambda: last.id in ids(heard))


@on_sqlite
def test_a_missing_file_ends_no_watcher(hints_only, tmp_path):
    file = tmp_path / "away" / "site.sqlite3"
    with helpers.second_alias(NAME=str(file)):
        subscription = helpers.subscription()
        one = hints.of_database(
            get_config(), subscription.__class__("second", ("default",), ()), print
        )
        one._failures.failed = lambda error: 0.01
        one.start()
        helpers.wait_until(lambda: one._thread.is_alive() and not one.connected)
        file.parent.mkdir()
        call_command("migrate", database="second", verbosity=0)
        helpers.wait_until(lambda: one.connected)
        one.stop()
        assert not one._thread.is_alive()


@on_sqlite
def test_a_database_in_memory_has_no_watcher(hints_only):
    with helpers.second_alias(NAME=":memory:"):
        subscription = helpers.subscription().__class__("second", ("default",), ())
        assert hints.of_database(get_config(), subscription, print) is None


# -- glances ----------------------------------------------------------------------------------------


@without_messages
def test_while_there_is_work_more_of_it_is_found_without_a_scan(hints_only):
    tasks.note.enqueue("first")  # found by the scan of the start
    with helpers.working():
        for number in range(5):
            helpers.wait_until(lambda n=number: helpers.counts()["finished"] == n + 1)
            tasks.note.enqueue(f"next {number}")
        helpers.wait_until(lambda: helpers.counts()["finished"] == 6)


def glancing():
    """The glances of a worker that no hint reaches, whatever the settings of the tests say."""
    config = dataclasses.replace(get_config(), database_hints=True)
    subscription = helpers.subscription()
    return glances.Glances(config, subscription, HintInbox())


def test_glances_end_a_while_after_the_last_task(monkeypatch):
    monkeypatch.setattr(glances, "FOR_SECONDS", 600)
    mine = glancing()
    mine.claimed(time.monotonic())
    assert not mine.look()
    assert mine.next < glances.NEVER
    mine.claimed(time.monotonic() - glances.FOR_SECONDS)
    assert not mine.look()
    assert mine.next == glances.NEVER


@without_messages
def test_a_worker_with_nothing_to_do_glances_no_more(hints_only, monkeypatch):
    monkeypatch.setattr(glances, "FOR_SECONDS", 0.2)
    news, looks = heads.Heads.news, []
    monkeypatch.setattr(heads.Heads, "news", lambda self: looks.append(self) or news(self))
    tasks.note.enqueue("first")

    def rests():
        before = len(looks)
        time.sleep(0.4)  # a worker that glances does so ten times
        return len(looks) == before

    with helpers.working():
        helpers.wait_until(lambda: looks)
        helpers.wait_until(rests)


@without_messages
def test_without_the_setting_there_are_no_glances(txtasks):
    txtasks(poll_interval=0.05, database_hints=False)
    tasks.note.enqueue("first")
    with helpers.working() as worker:
        helpers.wait_until(lambda: helpers.runs("first"))
        assert [look.next for look in worker.looks.instead] == [float("inf")]


def test_the_heads_name_what_is_due_for_this_worker():
    due = tasks.note.enqueue()
    tasks.note.using(run_after=3600).enqueue()
    tasks.mail.enqueue()
    tasks.whatever.enqueue(0)
    wanted = helpers.subscription(names=["probe.tasks.note"])
    assert heads.due(wanted) == ([due.id], False)
    enqueue_many((tasks.note, ()) for _ in range(heads.ROWS_PER_PRIORITY))
    found, may_be_more = heads.due(wanted)
    assert len(found) <= heads.ROWS_PER_PRIORITY
    assert may_be_more


def test_the_heads_tell_of_each_row_once():
    one = heads.Heads(helpers.subscription())
    first = tasks.note.enqueue()
    assert one.news() == ([first.id], False)
    assert one.news() == ([], False)
    second = tasks.note.enqueue()
    assert one.news() == ([second.id], False)
    Task.objects.filter(pk=first.id).update(status="held")
    assert one.news() == ([], False)
    Task.objects.filter(pk=first.id).update(status="pending")
    assert one.news() == ([first.id], False)


def test_after_a_glance_that_failed_turns_look_which_wait_longer_each_time(rows, monkeypatch):
    """A database that is away would be asked without a pause."""
    mine = glancing()
    mine.claimed(time.monotonic())

    def refused(*_):
        raise OperationalError("the server is away")

    monkeypatch.setattr(mine._heads, "news", refused)
    with pytest.raises(OperationalError):
        mine.look()
    assert mine.next == glances.NEVER


def test_after_a_glance_that_took_too_long_there_is_none_for_a_while(rows, monkeypatch):
    """Dead rows are for scans, which know how to go past them."""
    monkeypatch.setattr(heads, "LONGEST_SECONDS", -1.0)
    mine = glancing()
    mine.claimed(time.monotonic())
    tasks.note.enqueue()
    assert not mine.look()
    mine.claimed(time.monotonic())
    assert mine.next > time.monotonic() + glances.REST_SECONDS / 2
    monkeypatch.setattr(heads, "LONGEST_SECONDS", 60.0)
    assert mine.look()


@pytest.mark.once
@pytest.mark.parametrize(("is_set", "waits"), [(True, 0), (False, 1)])
def test_an_id_that_is_not_there_is_looked_up_again_only_where_hints_may_be_early(
    txtasks, is_set, waits
):
    txtasks(database_hints=is_set)
    schedule = TurnSchedule(get_config())
    absent = uuid.uuid4()
    schedule.written(
        TurnResult(Capacity(1), looked_up=(absent,), absent=(absent,)), 0.0, busy=False
    )
    assert len(schedule.timers._at) == waits


@pytest.mark.once
def test_mail_in_memory_does_not_switch_hints_off(monkeypatch):
    """As on a site whose EMAIL_BACKEND is locmem."""
    monkeypatch.setattr("django.core.mail.outbox", [], raising=False)
    monkeypatch.delattr("django.test.utils._TestState.saved_data")
    assert parse({}).has_database_hints
