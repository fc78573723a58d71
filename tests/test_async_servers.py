"""Async tasks while PostgreSQL restarts, behind a pooler, and with a pool as small as their threads are few."""

import time
from collections import Counter

import helpers
import pytest
from django.core.management import call_command
from django.db import connection, connections
from probe import on_loop
from probe.models import Run
from servers import PgBouncer, Postgres

from django_txtasks import enqueue_many
from django_txtasks.models import FinishedTask, Status, Task, Worker

pytestmark = [
    pytest.mark.usefixtures("rows", "quick"),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="servers for PostgreSQL"),
]
IN_FLIGHT, WITH_ROWS, THREADS = 2000, 100, 2


@pytest.fixture
def own_server(monkeypatch):
    """A PostgreSQL of this test alone, as the default database."""
    with Postgres() as server:
        connection.close()
        with monkeypatch.context() as patch:
            for name, value in [
                ("PORT", str(server.port)),
                ("USER", "postgres"),
                ("NAME", "postgres"),
            ]:
                patch.setitem(connection.settings_dict, name, value)
            call_command("migrate", run_syncdb=True, verbosity=0, skip_checks=True)
            yield server
            connections.close_all()


def start_loop(processes, slots, **env):
    options = ["--processes=0", f"--threads={THREADS}", f"--async-tasks={slots}"]
    return processes.start("runworkers", *options, env=env)


def all_have_run(finished):
    """Wait until no task is left; each has finished, and each key has one run."""
    helpers.wait_until(lambda: not Task.objects.exists(), what=lambda: str(helpers.counts()))
    assert FinishedTask.objects.count() == finished
    assert set(Counter(Run.objects.values_list("key")).values()) == {1}


def test_a_restart_of_the_database_loses_and_doubles_none_of_the_tasks_in_flight(
    own_server, processes, txtasks
):
    """Those of the default policy end while the database is away. The others write a row then, or later."""
    txtasks(lease=60, grace=60)
    half = IN_FLIGHT // 2
    enqueue_many((on_loop.note_and_nap_once, [f"once {n}", 1 + n / half]) for n in range(half))
    enqueue_many((on_loop.nap_and_note, [f"again {n}", 1 + 3 * n / half]) for n in range(half))
    start_loop(processes, IN_FLIGHT, TXTASKS_DATABASE_URL=own_server.url)
    once = Run.objects.filter(key__startswith="once")
    helpers.wait_until(lambda: once.count() == half)
    helpers.wait_until(lambda: not Task.objects.filter(status=Status.PENDING).exists())
    [before] = Worker.objects.all()
    connection.close()
    own_server.stop()
    time.sleep(1.5)
    own_server.start()
    all_have_run(IN_FLIGHT)
    assert set(FinishedTask.objects.values_list("crashes", flat=True)) == {0}
    [after] = Worker.objects.filter(lost=False)
    assert (after.pk, after.pid) == (before.pk, before.pid), "the worker goes on"


def with_rows():
    """Enqueue tasks with rows: by the async ORM, in a transaction, and in threads of ``asyncio.to_thread``."""
    enqueue_many((on_loop.write_thrice, [f"{n}"]) for n in range(WITH_ROWS))


def test_a_pooler_that_gives_each_transaction_a_session_is_enough(processes):
    with_rows()
    with PgBouncer(int(connection.settings_dict["PORT"])) as pooler:
        start_loop(processes, WITH_ROWS, TXTASKS_DATABASE_URL=pooler.url)
        all_have_run(WITH_ROWS)
        assert set(FinishedTask.objects.values_list("attempt", flat=True)) == {1}
        processes.end()


def test_a_pool_with_a_session_for_each_thread_is_enough_for_many_tasks(processes):
    with_rows()
    start_loop(processes, WITH_ROWS, TXTASKS_TEST_POOL=str(THREADS))
    all_have_run(WITH_ROWS)
    assert set(FinishedTask.objects.values_list("attempt", flat=True)) == {1}


def test_a_pool_that_is_smaller_than_the_threads_is_refused(processes):
    one = start_loop(processes, WITH_ROWS, TXTASKS_TEST_POOL=str(THREADS - 1))
    assert one.wait(helpers.PATIENCE) == 1
    assert "at most 1 connection, and a worker process has 2 threads" in processes.log_of(one)
