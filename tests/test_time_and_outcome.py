"""Schedules, results, batches, steps, waits and events at once, in real processes: behind a pooler, and through a
moment in which the database only reads."""

import time
from contextlib import contextmanager
from datetime import timedelta

import helpers
import pytest
from django.db import connection, transaction
from probe import tasks
from servers import PgBouncer

from django_txtasks import batch, publish, resume
from django_txtasks.features.schedules.rules import tick_of_id
from django_txtasks.features.steps.answering import token_of
from django_txtasks.models import FinishedTask, Schedule, Task, Wait

pytestmark = pytest.mark.usefixtures("rows")
ONLY_POSTGRESQL = pytest.mark.skipif(
    connection.vendor != "postgresql", reason="what PostgreSQL has"
)
OFTEN = {"max_attempts": 1000, "max_crashes": 1000}
MEMBERS = 20
TICKS = 5


@pytest.fixture
def quick(txtasks):
    """Shorten the times that last seconds in production."""
    txtasks(
        heartbeat_interval=0.2, lease=3, poll_interval=0.2, clean_interval=1, keep_finished=None,
        retry_base=0.05, retry_ceiling=0.05,
    )  # fmt: skip


@pytest.fixture
def pooler():
    """In front of the tests' PostgreSQL."""
    with PgBouncer(int(connection.settings_dict["PORT"])) as one:
        yield one


@contextmanager
def only_reading():
    """All other sessions end, and new ones may not write."""
    name = connection.settings_dict["NAME"]
    helpers.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    helpers.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    try:
        yield
    finally:
        helpers.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')


def start(processes, **env):
    """Start two workers and a cleaner; return who tells their logs."""
    processes.start("runworkers", "--threads=3", env=env)
    processes.start("runworkers", "--threads=3", env=env)
    processes.start("runcleaner", env=env)
    return lambda: "\n".join(processes.log_of(one) for one in processes.started)


def ask_for_all():
    """Enqueue one of each, in one transaction. Returns the handle of what waits for an answer."""
    with transaction.atomic():
        Schedule(name="s", task_name="probe.tasks.nothing", every=1.0, catch_up="all").save()
        with batch(on_finish=tasks.tell_of_batch, name="all"):
            for number in range(MEMBERS):
                tasks.two_steps.using(**OFTEN).enqueue(f"steps {number}")
            tasks.sleep_between.using(**OFTEN).enqueue("sleeper", 2)
            asked = tasks.ask.using(**OFTEN).enqueue("k")
        tasks.numbers.using(max_attempts=1000).enqueue([1, 2, 3])
    return asked


def check_all(asked, log):
    """Answer the waiting tasks, wait for the end of all, and check their outcomes."""
    helpers.wait_until(
        lambda: Wait.objects.filter(task_id=asked.id, name="answer").exists(), what=log
    )
    publish("probe.happened", "event")
    assert resume(token_of("default", asked.id, "answer"), "yes")
    assert asked.result(timeout=helpers.PATIENCE)[0] == "yes"
    helpers.wait_until(
        lambda: FinishedTask.objects.filter(task_name="probe.tasks.nothing").count() >= TICKS,
        what=log,
    )
    Schedule.objects.update(enabled=False)
    helpers.wait_until(lambda: not Task.objects.exists(), what=log)
    for number in range(MEMBERS):
        for step in ("first", "second"):
            assert helpers.runs(f"steps {number} {step}") == 1
    for key in ("sleeper before", "sleeper after", "k asked"):
        assert helpers.runs(key) == 1
    (told,) = FinishedTask.objects.filter(task_name="probe.tasks.tell_of_batch")
    assert (told.result["name"], told.result["failed"]) == ("all", 0)
    assert helpers.runs("event heard") >= helpers.runs("event heard, too") == 1
    assert FinishedTask.objects.get(task_name="probe.tasks.add_up").args == [[1, 2, 3]]
    ticks = sorted(
        tick_of_id(one.pk) for one in FinishedTask.objects.filter(task_name="probe.tasks.nothing")
    )
    assert ticks == [ticks[0] + number * timedelta(seconds=1) for number in range(len(ticks))]


def test_all_at_once(processes, quick):
    log = start(processes)
    check_all(ask_for_all(), log)


@ONLY_POSTGRESQL
def test_all_behind_a_pooler(processes, quick, pooler):
    log = start(processes, TXTASKS_DATABASE_URL=pooler.url)
    check_all(ask_for_all(), log)


@ONLY_POSTGRESQL
def test_all_through_a_moment_in_which_the_database_only_reads(processes, quick):
    log = start(processes)
    asked = ask_for_all()
    for _ in range(3):
        time.sleep(0.3)
        with only_reading():
            time.sleep(0.7)
    check_all(asked, log)
