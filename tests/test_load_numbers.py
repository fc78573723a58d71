"""The load of each queue: the same numbers from PostgreSQL's view and from the statements of other databases."""

import json
import math
import uuid
from datetime import timedelta

import helpers
import pytest
from django.core.management import call_command
from django.db import connection
from django.db.models import Value
from probe import tasks
from reads import work_counted

from django_txtasks.core.rows import workers
from django_txtasks.core.rows.turn import ALONE_MARK, LOOP_MARK, TAKES_LAST
from django_txtasks.core.rows.workers import DRAIN_MARK
from django_txtasks.insight import load
from django_txtasks.models import DatabaseNow, FinishedTask, Task, Worker
from django_txtasks.operations import pausing

pytestmark = pytest.mark.usefixtures("rows")
GIVE, OTHER = "probe.tasks.give", "probe.tasks.fail"
WAITS = 2_500
ONE, LEASE = timedelta(seconds=1), timedelta(hours=1)


def worker(*names, queues=("default",), threads=4):
    return workers.register(
        "default", queues=list(queues), threads=threads, listening=None, lease=LEASE,
        task_names=list(names),
    )  # fmt: skip


def due(number, name=GIVE, **columns):
    """Write due tasks, a second old."""
    columns.setdefault("run_after", DatabaseNow() - Value(ONE))
    Task.objects.bulk_create(
        [Task(pk=uuid.uuid4(), task_name=name, **columns) for _ in range(number)]
    )


def claimed(number, by, name=GIVE, ago=ONE):
    now = DatabaseNow() - Value(ago)
    due(number, name, status="claimed", worker=by, claimed_at=now, started_at=now, attempt=1)


def ended(number, seconds, name=GIVE, **columns):
    now = Worker.objects.annotate(now=DatabaseNow()).values_list("now", flat=True).first()
    started = None if seconds is None else now - timedelta(seconds=seconds)
    columns = {"outcome": "succeeded", "finished_at": now, "started_at": started, **columns}
    FinishedTask.objects.bulk_create(
        [FinishedTask(pk=uuid.uuid4(), task_name=name, **columns) for _ in range(number)]
    )


def numbers(queue="default"):
    """Return (due, running, wanted threads) of a queue; None = it has no load."""
    found = {one.queue_name: one for one in load.look("default").queues}
    one = found.get(queue)
    return one and (one.due, one.running, one.wanted_threads)


@pytest.mark.parametrize("stats", [True, False])
def test_run_times_need_no_statistics(txtasks, stats):
    txtasks(stats=stats)
    for _ in range(3):
        tasks.note.enqueue("x")
    call_command("runworkers", batch=True)
    tasks.note.enqueue("x")
    (one,) = load.look("default").queues
    assert 0 < one.run_seconds < helpers.PATIENCE
    assert (one.due, one.wanted_threads) == (1, math.ceil(one.run_seconds / 15))


@pytest.mark.skipif(connection.vendor == "postgresql", reason="test_load_view tests the view")
@pytest.mark.parametrize(("priorities", "counted"), [(2, 8), (4, 12)])
def test_many_queues_and_priorities_read_a_bounded_number_of_rows(monkeypatch, priorities, counted):
    monkeypatch.setattr(load.statements, "MOST_READ", 8)
    monkeypatch.setattr(load.statements, "FEWEST", 3)
    for priority in range(priorities):
        due(9, priority=priority)
    assert numbers()[0] == counted


@pytest.mark.skipif(connection.vendor != "mysql", reason="counts reads of MariaDB")
def test_run_times_do_not_read_the_whole_history(monkeypatch):
    monkeypatch.setattr(load.statements, "LAST_ENDED", 10)
    worker(GIVE)
    ended(2_000, 1.0)
    due(1)
    with work_counted() as reads:
        (one,) = load.look("default").queues
    assert one.run_seconds == pytest.approx(1, abs=0.01)
    assert reads[0] < 1_000


def test_an_empty_database_has_no_load():
    assert load.look("default") == load.Look("default", (), ())


def test_last_chances_after_a_crash_want_no_threads():
    """They have processes of their own, which no scaler starts."""
    worker(GIVE)
    alone = worker(GIVE, ALONE_MARK, TAKES_LAST, threads=1)
    due(5, crashes=2, run_after=DatabaseNow() - Value(timedelta(hours=2)))
    due(4, crashes=2, lane="x")
    claimed(1, alone)
    assert numbers() is None
    due(3)
    due(2, crashes=1, lane="x")
    (one,) = load.look("default").queues
    assert (one.due, one.due_in_lanes, one.running) == (3, 2, 0)
    assert one.oldest_seconds < 3600


def test_due_tasks_want_threads_by_their_run_time():
    me = worker(GIVE)
    ended(3, 2.0)
    ended(1, None, outcome="cancelled")
    ended(5, 50.0, outcome="discarded")
    due(40)
    claimed(2, me)
    (one,) = load.look("default").queues
    assert one.queue_name == "default"
    assert (one.due, one.due_in_lanes, one.running) == (40, 0, 2)
    assert one.run_seconds == pytest.approx(2.0, abs=0.01)
    assert one.wanted_threads == 2 + math.ceil(40 * one.run_seconds / 15)
    assert 1 <= one.oldest_seconds < helpers.PATIENCE


def test_without_an_end_the_time_of_running_tasks_counts():
    due(30)
    assert numbers() == (30, 0, 2)  # a second each
    claimed(2, worker(GIVE), ago=timedelta(seconds=300))
    due_now, running, wanted = numbers()
    assert (due_now, running) == (30, 2)
    assert wanted == pytest.approx(2 + 30 * 300 / 15, rel=0.4)


@pytest.mark.parametrize(
    "columns",
    [
        {"status": "held"},
        {"run_after": DatabaseNow() + Value(timedelta(hours=1))},
        {"expires_at": DatabaseNow() - Value(ONE)},
        {"queue_name": "paused"},
    ],
    ids=["held", "later", "expired", "paused"],
)
def test_what_may_not_start_does_not_count(columns):
    pausing.pause("default", "paused")
    worker(GIVE, queues=["default", "paused"])
    due(3, **columns)
    assert load.look("default").queues == ()
    due(2)
    due(1, expires_at=DatabaseNow() + Value(timedelta(hours=1)), priority=3)
    assert numbers()[0] == 3


def test_tasks_in_lanes_stand_apart():
    due(7, lane="shop")
    due(2, lane="shop", expires_at=DatabaseNow() - Value(ONE))
    due(3, lane="zebra", run_after=DatabaseNow() + Value(ONE * 3600))
    (one,) = load.look("default").queues
    assert (one.due, one.due_in_lanes, one.wanted_threads) == (0, 7, 0)


def test_each_queue_and_priority_counts():
    for queue in ("default", "mail"):
        for priority in (-3, 0, 5):
            due(4, queue_name=queue, priority=priority)
    due(5, queue_name="mail", priority=7, run_after=DatabaseNow() + Value(ONE * 3600))
    assert {one.queue_name: one.due for one in load.look("default").queues} == {
        "default": 12, "mail": 12
    }  # fmt: skip


def test_a_worker_runs_no_more_tasks_than_it_has_threads():
    """What it has claimed ahead waits for a thread."""
    claimed(20, worker(GIVE, threads=4))
    assert numbers() == (0, 4, 4)


def test_a_silent_or_lost_worker_does_not_count():
    silent, lost = worker(GIVE), worker(GIVE)
    claimed(1, silent)
    claimed(1, lost)
    Worker.objects.filter(pk=silent).update(seen_at=DatabaseNow() - Value(2 * LEASE))
    Worker.objects.filter(pk=lost).update(lost=True)
    assert load.look("default") == load.Look("default", (), ())


def test_waits_on_an_event_loop_want_no_threads():
    loop = worker("probe.tasks.wait", LOOP_MARK, threads=WAITS)
    threads = worker(GIVE)
    claimed(WAITS, loop, "probe.tasks.wait")
    due(200, "probe.tasks.wait")
    ended(500, 30.0, "probe.tasks.wait")
    assert load.look("default").queues == ()
    due(10)
    claimed(1, threads)
    assert numbers() == (10, 1, 2)  # a second each, although the waits take 30
    assert [one.threads for one in load.look("default").workers] == [4]


def test_a_drain_wants_no_threads():
    worker(DRAIN_MARK, queues=["mail"], threads=1)
    due(100, queue_name="mail")
    assert load.look("default") == load.Look("default", (), ())


def test_a_name_that_no_worker_declares_wants_no_threads_unless_there_is_no_worker():
    due(100, OTHER)
    assert numbers() == (100, 0, 7)
    loop = worker("probe.tasks.wait", LOOP_MARK)
    assert numbers() == (100, 0, 7)
    worker(GIVE)
    assert numbers() is None
    worker(OTHER)
    assert numbers() == (100, 0, 7)
    Worker.objects.filter(pk=loop).delete()


def test_a_queue_counts_up_to_a_limit():
    due(10_010)
    due(5, priority=4)
    assert numbers()[0] == 10_000


def test_rows_that_people_have_written_harm_nothing():
    due(1)
    me = worker(GIVE)
    claimed(1, me)
    Worker.objects.filter(pk=worker(GIVE)).update(queues={"no": "list"}, task_names=7)
    if connection.vendor == "postgresql":
        helpers.execute("UPDATE txtasks_task SET run_after = '-infinity' WHERE status = 'pending'")
        helpers.execute("UPDATE txtasks_task SET claimed_at = '-infinity' WHERE status = 'claimed'")
    assert numbers()[:2] == (1, 1)


def test_a_look_is_a_line_of_json():
    due(1)
    worker(GIVE)
    from django_txtasks.insight.load.records import parse

    look = load.look("default")
    parsed = parse(look.as_json())
    assert parsed.workers == look.workers
    assert json.loads(look.as_json())["queues"][0]["due"] == 1
    for broken in (
        "",
        "{",
        "[]",
        '{"database": 1}',
        '{"database": "a", "queues": [{}], "workers": []}',
    ):
        with pytest.raises(ValueError):
            parse(broken)
