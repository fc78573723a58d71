"""A cleaner decides from its own observations: silent workers, overdue tasks, old rows."""

import json
import signal
import threading
import time
from datetime import timedelta
from io import StringIO

import helpers
import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from probe import tasks

from django_txtasks import signals
from django_txtasks.conf import get_config
from django_txtasks.core.cleaning import Cleaner
from django_txtasks.core.rows import cleaning, workers
from django_txtasks.database.execute import execute
from django_txtasks.models import FinishedTask, Status, Worker

pytestmark = pytest.mark.usefixtures("rows")


class Clock:
    """Monotonic seconds that a test moves."""

    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def cleaner(clock):
    return Cleaner(get_config(), clock=clock)


@pytest.fixture
def worker():
    return workers.register(
        "default", queues=["default"], threads=1, listening=None, lease=get_config().lease
    )


def beat(worker):
    with transaction.atomic():
        assert workers.beat("default", worker, running=0, listening=None)


def look_for(cleaner, clock, seconds):
    """Let time pass under the cleaner's eyes; return how many workers it declared lost."""
    lost = 0
    for _ in range(int(seconds)):
        clock.now += 1
        lost += cleaner.find_lost()["lost"]
    return lost


def test_a_worker_silent_for_its_lease_is_lost(cleaner, clock, worker):
    assert look_for(cleaner, clock, 15) == 0
    assert look_for(cleaner, clock, 2) == 1
    row = Worker.objects.get()
    assert row.lost
    # As the log and the errors spell it, on any database.
    [holder] = cleaning.lost_workers("default")
    assert holder.whose == f"{worker} on {row.host} (pid {row.pid})"


def test_a_worker_that_beats_is_not(cleaner, clock, worker):
    for _ in range(10):
        assert look_for(cleaner, clock, 10) == 0
        beat(worker)


def test_each_workers_own_lease_counts(cleaner, clock):
    workers.register("default", queues=[], threads=1, listening=None, lease=timedelta(seconds=60))
    assert look_for(cleaner, clock, 50) == 0
    assert look_for(cleaner, clock, 12) == 1


def test_a_shorter_lease_than_this_cleaners_rhythm_is_noticed_all_the_same(txtasks, clock):
    """A worker that was started before the settings changed."""
    workers.register("default", queues=[], threads=1, listening=None, lease=timedelta(seconds=15))
    txtasks(heartbeat_interval=10, lease=60)
    cleaner = Cleaner(get_config(), clock=clock)
    lost = 0
    for _ in range(4):
        clock.now += 10
        lost += cleaner.find_lost()["lost"]
    assert lost == 1


def test_time_in_which_the_cleaner_did_not_look_does_not_count(cleaner, clock, worker):
    """It was stopped, or its machine slept: the worker may have slept with it."""
    assert look_for(cleaner, clock, 5) == 0
    clock.now += 3600
    assert cleaner.find_lost()["lost"] == 0
    assert look_for(cleaner, clock, 14) == 0
    assert look_for(cleaner, clock, 3) == 1


def test_after_a_new_database_session_it_counts_anew(cleaner, clock, worker):
    """An outage silenced all workers at once."""
    assert look_for(cleaner, clock, 14) == 0
    connection.close()
    assert look_for(cleaner, clock, 14) == 0
    assert look_for(cleaner, clock, 3) == 1


def test_a_step_of_the_databases_clock_changes_nothing(cleaner, clock, worker):
    assert look_for(cleaner, clock, 3) == 0
    helpers.execute("UPDATE txtasks_worker SET seen_at = '2001-01-01 00:00:00'")
    assert look_for(cleaner, clock, 3) == 0


def test_a_lost_workers_tasks_are_told_to_workers(clock, worker):
    told = []
    cleaner = Cleaner(get_config(), clock=clock, notify=told.extend)
    handle = tasks.slow_once.enqueue("x")
    with transaction.atomic():
        helpers.claim(worker)
    look_for(cleaner, clock, 17)
    assert told == [(handle.id, "default")]


def make_overdue(seconds):
    execute("default", "UPDATE txtasks_task SET run_after = {ago}, notified_at = NULL", age=seconds)


def test_overdue_tasks_are_told_again_once_in_two_intervals(worker):
    told = []
    cleaner = Cleaner(get_config(), notify=told.extend)
    handle = tasks.note.enqueue()
    make_overdue(59)
    assert cleaner.run_once()["renotified"] == 0
    make_overdue(61)
    assert cleaner.run_once()["renotified"] == 1
    assert cleaner.run_once()["renotified"] == 0
    assert told == [(handle.id, "default")]


def test_without_a_broker_nobody_is_told(cleaner):
    tasks.note.enqueue()
    make_overdue(100)
    assert cleaner.run_once()["renotified"] == 0


def test_renotifying_is_capped(monkeypatch, worker):
    monkeypatch.setattr("django_txtasks.core.cleaning.renotifier.MAX_RENOTIFIED_TASKS", 3)
    told = []
    for _ in range(5):
        tasks.note.enqueue()
    make_overdue(100)
    cleaner = Cleaner(get_config(), notify=told.extend)
    assert (cleaner.run_once()["renotified"], cleaner.run_once()["renotified"]) == (3, 2)
    assert len(set(told)) == 5


def finish_some(count, age):
    for _ in range(count):
        tasks.note.enqueue()
    call_command("runworkers", batch=True, verbosity=0)
    execute("default", "UPDATE txtasks_finishedtask SET finished_at = {ago}", age=age)


def test_old_finished_tasks_are_pruned_and_young_ones_kept(cleaner):
    finish_some(3, 8 * 86400)
    tasks.note.enqueue()
    call_command("runworkers", batch=True, verbosity=0)
    assert cleaner.run_once()["pruned"] == 3
    assert FinishedTask.objects.count() == 1


def test_rows_of_workers_long_lost_are_removed(cleaner, worker):
    helpers.execute("UPDATE txtasks_worker SET lost = TRUE")
    cleaner.run_once()
    assert Worker.objects.exists()
    helpers.execute("UPDATE txtasks_worker SET seen_at = '2001-01-01 00:00:00'")
    cleaner.run_once()
    assert not Worker.objects.exists()


def lost_claim(function=tasks.slow_once):
    worker = workers.register(
        "default", queues=[], threads=1, listening=None, lease=timedelta(seconds=15)
    )
    handle = function.enqueue("x")
    with transaction.atomic():
        helpers.claim(worker, 10)
    helpers.execute("UPDATE txtasks_worker SET lost = TRUE")
    return handle


def test_once_prints_what_it_did():
    lost_claim()
    output = StringIO()
    call_command("runcleaner", once=True, stdout=output)
    assert (
        output.getvalue().strip()
        == "lost 0, retried 1, buried 0, expired 0, cancelled 0, renotified 0, pruned 0, "
        "discarded 0, scheduled 0"
    )


def test_counts_can_be_json():
    lost_claim(tasks.note)
    output = StringIO()
    call_command("runcleaner", once=True, json=True, stdout=output)
    assert json.loads(output.getvalue())["buried"] == 1


def test_a_dry_run_says_what_it_would_do_and_changes_nothing():
    told = []

    def listen(**facts):
        told.append(facts)

    handle = lost_claim(tasks.note)
    output = StringIO()
    signals.task_died.connect(listen)
    try:
        call_command("runcleaner", dry_run=True, json=True, stdout=output)
    finally:
        signals.task_died.disconnect(listen)
    assert json.loads(output.getvalue())["buried"] == 1
    assert helpers.row(handle.id).status == Status.CLAIMED
    assert told == []


def test_once_looks_twice_a_lease_apart_at_a_worker_that_seems_silent(txtasks):
    txtasks(lease=1.5, heartbeat_interval=0.1)
    worker = workers.register(
        "default", queues=[], threads=1, listening=None, lease=timedelta(seconds=1.5)
    )
    execute("default", "UPDATE txtasks_worker SET seen_at = {ago}", age=60)
    call_command("runcleaner", once=True, stdout=StringIO())
    assert Worker.objects.get(pk=worker).lost


def test_once_watches_for_a_whole_lease_after_it_was_asleep_itself(txtasks, monkeypatch):
    """A pause of this process says nothing of the workers, and must not end the watch without a verdict."""
    txtasks(lease=1.5, heartbeat_interval=0.1)
    worker = workers.register(
        "default", queues=[], threads=1, listening=None, lease=timedelta(seconds=1.5)
    )
    execute("default", "UPDATE txtasks_worker SET seen_at = {ago}", age=60)
    naps = iter([0.1, 0.1, 1.4])
    sleep = time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: sleep(next(naps, seconds)))
    call_command("runcleaner", once=True, stdout=StringIO())
    assert Worker.objects.get(pk=worker).lost


def test_an_interval_must_be_positive():
    with pytest.raises(CommandError, match="more than 0"):
        call_command("runcleaner", once=True, interval=0)


def test_a_signal_that_does_not_wake_the_main_thread_stops_it_all_the_same():
    """Python runs the handler in the main thread, though the signal may come to another one."""
    before = signal.getsignal(signal.SIGTERM)

    def stop():
        while signal.getsignal(signal.SIGTERM) is before:
            time.sleep(0.01)
        time.sleep(0.3)  # the main thread waits now
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    threading.Thread(target=stop, daemon=True).start()
    call_command("runcleaner", verbosity=0)
    assert signal.getsignal(signal.SIGTERM) is before


def test_one_row_that_cannot_be_recovered_stops_no_other():
    """A row that somebody has bent until the database refuses its next state."""
    first = lost_claim()
    helpers.execute("UPDATE txtasks_task SET crashes = 2147483647 WHERE id = %s", first.id.hex)
    second = lost_claim()
    cleaner = Cleaner(get_config())
    counts = cleaner.run_once()
    assert helpers.row(second.id).status == Status.PENDING
    assert counts["retried"] >= 1
