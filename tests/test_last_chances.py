"""Last chances after a crash, where no supervisor starts a process for them, and the look for them."""

import itertools
import threading
import time
import uuid
from datetime import timedelta

import helpers
import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.utils import timezone
from probe import tasks
from probe.models import Run
from reads import explained, work_counted

from django_txtasks import enqueue_many
from django_txtasks.core.working import last_chances as chances
from django_txtasks.core.working import last_chances as of_worker
from django_txtasks.models import FinishedTask, PausedQueue, Task
from django_txtasks.processes.child import Assignment, Child, Role
from django_txtasks.processes.last_chances import MOST, NEWS, LastChanceProcesses

pytestmark = pytest.mark.usefixtures("rows")


def last(*keys, function=tasks.beside, **values):
    """Enqueue tasks whose next attempt is the last allowed one after a crash."""
    handles = enqueue_many([(function, (key,)) for key in keys])
    Task.objects.filter(pk__in=[one.id for one in handles]).update(crashes=2, **values)
    return handles


def most_beside():
    """Return the number of tasks that ran at the same time as each last chance, itself included."""
    return dict(Run.objects.filter(key__startswith="last").values_list("key", "attempt"))


def found():
    return [one.task_id for one in chances.due(helpers.subscription())]


@pytest.fixture
def soon(monkeypatch, txtasks):
    """Looks and patience that fit a test."""
    monkeypatch.setattr(of_worker, "EVERY_SECONDS", 0.1)
    monkeypatch.setattr(of_worker, "PATIENCE_SECONDS", 0.3)
    txtasks(poll_interval=0.1, lanes={"customer:*": {"at_most": 2}})


def test_a_worker_without_a_supervisor_runs_them_one_at_a_time_with_nothing_beside(soon):
    """They are the first rows, and there is always other work, which it stops claiming after its patience."""
    last("last1", "last2", "last3")
    enqueue_many([(tasks.beside, (f"other{n}",)) for n in range(40)])
    with helpers.working(threads=4):
        helpers.wait_until(lambda: len(most_beside()) == 3)
        others = Run.objects.filter(key__startswith="other").count()
        helpers.wait_until(lambda: FinishedTask.objects.count() == 43)
    assert most_beside() == {"last1": 1, "last2": 1, "last3": 1}
    assert others < 40, "they must not wait until all other work is done"
    assert Run.objects.filter(key__startswith="other", attempt__gt=1).exists()


def test_one_in_a_lane_runs_alone_too_and_waits_while_the_lane_is_paused(soon):
    free, paused = (tasks.beside.using(lane=f"customer:{n}").enqueue(f"last{n}") for n in (1, 2))
    Task.objects.update(crashes=2)
    call_command("txtasks_lane", "pause", "customer:2", verbosity=0)
    assert found() == [free.id]
    others = [(tasks.beside.using(lane="customer:1"), (f"other{n}",)) for n in range(6)]
    enqueue_many([*others, *((tasks.beside, (f"another{n}",)) for n in range(6))])
    with helpers.working(threads=4):
        helpers.wait_until(lambda: FinishedTask.objects.count() == 13)
    assert most_beside() == {"last1": 1}
    assert Task.objects.get().pk == paused.id


def test_a_lane_without_a_rule_does_not_keep_others_waiting(soon):
    rows = last(*(f"last{n}" for n in range(chances.MOST_LAST_CHANCES + 1)))
    Task.objects.filter(pk__in=[one.id for one in rows[:-1]]).update(lane="nobody")
    with helpers.working(threads=2):
        helpers.wait_until(lambda: helpers.finished(rows[-1].id))


@pytest.mark.parametrize("others", [0, 1])
def test_a_command_that_ends_when_nothing_is_due_runs_them(soon, others):
    last("last1", "last2")
    enqueue_many([(tasks.beside, (f"other{n}",)) for n in range(others)])
    call_command("runworkers", "--batch", verbosity=0)
    assert most_beside() == {"last1": 1, "last2": 1}
    assert FinishedTask.objects.count() == 2 + others


@pytest.mark.skipif(connection.vendor == "sqlite", reason="it has no locks of rows")
def test_a_command_that_ends_when_nothing_is_due_waits_for_one_whose_row_is_locked(soon):
    (row,) = last("last1")
    locked, let_go = threading.Event(), threading.Event()

    def hold():
        with transaction.atomic():
            list(Task.objects.select_for_update().filter(pk=row.id))
            locked.set()
            let_go.wait(helpers.PATIENCE)
        connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    assert locked.wait(helpers.PATIENCE)
    threading.Timer(1.5, let_go.set).start()
    call_command("runworkers", "--batch", verbosity=0)
    thread.join()
    assert most_beside() == {"last1": 1}


def test_a_command_that_ends_when_nothing_is_due_waits_for_no_full_lane(processes, txtasks):
    """A task of another worker has the only place of the lane."""
    txtasks(poll_interval=0.1, lanes={"customer:*": {"at_most": 1}})
    in_lane = tasks.beside.using(lane="customer:1")
    running, waiting = in_lane.enqueue("other"), in_lane.enqueue("last1")
    now, worker = timezone.now(), uuid.uuid4()
    Task.objects.filter(pk=running.id).update(
        status="claimed", worker=worker, attempt=1, claimed_at=now, started_at=now
    )
    Task.objects.filter(pk=waiting.id).update(crashes=2)
    tasks.beside.enqueue("another")
    assert processes.start("runworkers", "--batch").wait(60) == 0
    assert set(Run.objects.values_list("key", flat=True)) == {"another"}


def rests():
    """Return True if no task has started for a second."""
    before = Run.objects.count()
    time.sleep(1.0)
    return Run.objects.count() == before


def test_a_busy_lane_keeps_its_next_place_for_a_last_chance_but_not_for_ever(
    soon, txtasks, monkeypatch
):
    """The process for last chances may have other tasks for hours."""
    monkeypatch.setattr(of_worker, "PATIENCE_SECONDS", 3.0)
    txtasks(poll_interval=0.1, lanes={"customer:*": {"at_most": 1}})
    last("last1", lane="customer:1")
    in_lane = tasks.beside.using(lane="customer:1")
    enqueue_many([(in_lane, (f"other{n}", 0.05)) for n in range(400)])
    with helpers.working(threads=4, kind="beside", tell=lambda: None):
        helpers.wait_until(Run.objects.exists)
        helpers.wait_until(rests)
        assert Task.objects.filter(status="pending").count() > 1, "all others have run"
        with helpers.working(threads=1, kind="alone"):
            helpers.wait_until(lambda: most_beside() == {"last1": 1})
        count = Run.objects.count()
        helpers.wait_until(lambda: Run.objects.count() > count)


def test_what_no_worker_may_start_is_not_due():
    rows = last(*map(str, range(6)))
    later, expired, unknown, at_limit, elsewhere, due = (one.id for one in rows)
    an_hour = timedelta(hours=1)
    Task.objects.filter(pk=later).update(run_after=timezone.now() + an_hour)
    Task.objects.filter(pk=expired).update(expires_at=timezone.now() - an_hour)
    Task.objects.filter(pk=unknown).update(task_name="gone.function")
    Task.objects.filter(pk=at_limit).update(attempt=2_147_483_647)
    Task.objects.filter(pk=elsewhere).update(queue_name="elsewhere")
    assert found() == [due]
    PausedQueue.objects.create(pk="default", paused_by="ann")
    assert not found()


def test_a_row_whose_limit_is_zero_stops_no_claim():
    """A person may write such a row, and MariaDB's column has no sign."""
    (row,) = last("x", max_crashes=0)
    assert found() == [row.id]


def test_a_look_reads_no_backlog(soon):
    """The statistics are those of an empty table."""
    helpers.execute(
        "ANALYZE TABLE txtasks_task" if connection.vendor == "mysql" else "ANALYZE txtasks_task"
    )
    enqueue_many((tasks.note, (str(n),)) for n in range(3000))
    Task.objects.filter(priority=0).update(crashes=1)
    rows = last("a", "b")
    if connection.vendor == "postgresql":
        with explained() as plans:
            assert found() == [one.id for one in rows]
        assert max(count for count, _ in plans) <= 10, plans
        return
    with work_counted() as counted:
        assert found() == [one.id for one in rows]
    assert counted[0] <= 100


@pytest.mark.once
def test_the_supervisor_starts_another_process_only_if_all_are_at_work():
    """Of each database it starts one for the first news, and as many as run last chances, up to a limit."""
    mine = Assignment((), ["default"], Role.LAST_CHANCE)
    worker, other = Child(Assignment((), ["default"])), Child(Assignment((), ["second"]))
    children = [worker, other]
    processes = LastChanceProcesses(mine, threads=16)
    processes.start(children, {other: NEWS})
    assert len(children) == 2, "the news of another database"
    processes.start(children, {worker: NEWS})
    processes.start(children, {worker: NEWS})
    assert len(children) == 3, "the first one has not claimed yet"
    for _ in itertools.repeat(None, 6):
        processes.start(children, {worker: NEWS, children[-1]: NEWS})
    assert len(children) == 2 + MOST
