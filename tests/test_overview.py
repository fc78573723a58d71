"""The overview tells what matters now: counts from index entries alone, processes, and problems as sentences."""

from __future__ import annotations

import json
import math
import re
import time
import uuid
from datetime import timedelta
from typing import Any

import helpers
import pytest
import scene
from django.core.management import call_command
from django.db import connection, transaction
from django.utils import timezone
from django.utils.translation import override
from probe import tasks

from django_txtasks import overview as overview_room
from django_txtasks.database import places
from django_txtasks.features.figures.adding_up import EPOCH
from django_txtasks.models import Cleaner, Schedule, Stat, Status, Task, Worker
from django_txtasks.operations import pausing
from django_txtasks.overview import Count, counting, gathering, overview, running, spans
from django_txtasks.stats import by_cause

pytestmark = pytest.mark.django_db

NAME = "probe.tasks.note"
LATER = timedelta(hours=1)
LONG_AGO = timezone.now() - timedelta(days=1)


def rows(count: int, **columns: Any) -> list[Task]:
    """Write tasks; ``due`` is a distance from now."""
    due = timezone.now() + columns.pop("due", timedelta(0))
    made = [
        Task(id=uuid.uuid4(), task_name=columns.get("task_name", NAME), run_after=due)
        for _ in range(count)
    ]
    for one in made:
        for column, value in columns.items():
            setattr(one, column, value)
    return Task.objects.bulk_create(made)


def worker(**columns: Any) -> Worker:
    usual = {"host": "web-1", "pid": 7, "queues": ["default"], "threads": 4, "lease": 15.0}
    names = {"task_names": [NAME], "listening": True}
    return Worker.objects.create(id=uuid.uuid4(), **usual | names | columns)


def cleaner(**columns: Any) -> Cleaner:
    usual = {
        "host": "web-1",
        "pid": 8,
        "interval": 30.0,
        "lease": 15.0,
        "passed_at": timezone.now(),
    }
    return Cleaner.objects.create(id=uuid.uuid4(), **usual | columns)


def now() -> Any:
    return overview(max_age=0)


def queue(name: str = "default") -> Any:
    return next(one for one in now().queues if one.name == name)


def names_of_problems() -> list[str]:
    return [one.name for one in now().problems]


@pytest.fixture
def well() -> None:
    """One worker and one cleaner: nothing to report."""
    worker()
    cleaner()


# -- counts ---------------------------------------------------------------------------------------


def test_each_state_is_counted_by_queue(well, txtasks):
    txtasks(queues=["default", "mail"])
    rows(3, priority=5)
    rows(2, due=-timedelta(minutes=3))
    rows(4, due=LATER, cause=8)
    rows(5, due=LATER, queue_name="mail")
    rows(6, status=Status.DEAD, cause=-9)
    rows(7, status=Status.DEAD)
    rows(8, status=Status.HELD, queue_name="mail")
    rows(2, cause=1, queue_name="mail")
    default, mail = queue("default"), queue("mail")
    states = counting.STATES
    assert [getattr(default, state).number for state in states] == [5, 4, 4, 13, 0]
    assert [getattr(mail, state).number for state in states] == [2, 5, 2, 0, 8]
    assert 180 <= default.oldest < 180 + helpers.PATIENCE
    assert [one.name for one in now().queues] == ["default", "mail"]  # the longest wait first
    assert now().total("due") == Count(7)


def test_tasks_in_lanes_count_with_their_queue(well):
    rows(2)
    rows(3, lane="a", due=-timedelta(seconds=100))
    rows(4, lane="b", due=LATER)
    assert (queue().due, queue().later) == (Count(5), Count(4))
    assert queue().oldest >= 100


def test_with_many_queues_each_count_ends_earlier(well, monkeypatch):
    monkeypatch.setattr(counting, "FEWEST", 3)
    monkeypatch.setattr(counting, "MOST_ENTRIES", 10)
    rows(9)
    assert str(queue().due) == "3+"


def test_a_count_ends_at_its_limit(well, monkeypatch):
    monkeypatch.setattr(counting, "MOST", 10)
    rows(10)
    assert str(queue().due) == "10"
    rows(1)
    assert str(queue().due) == "10+"
    rows(11, lane="a")
    assert queue().due.is_capped
    rows(11, status=Status.DEAD)
    assert queue().dead == Count(10, is_capped=True)


def test_many_cells_take_several_statements(well, monkeypatch):
    monkeypatch.setattr(places, "PLACES_PER_STATEMENT", {})
    monkeypatch.setattr(places, "FEW_PLACES_PER_STATEMENT", 2)
    for priority in range(5):
        rows(priority + 1, priority=priority)
    rows(3, status=Status.HELD)
    assert (queue().due, queue().held) == (Count(15), Count(3))


def test_a_queue_that_no_setting_names_is_shown(well):
    rows(1, queue_name="forgotten")
    assert queue("forgotten").due == Count(1)


@pytest.mark.skipif(
    "connection.vendor == 'sqlite'", reason="SQLite counts instructions, and these are too few"
)
def test_counts_that_take_too_long_are_shown_with_their_age(well, kept, monkeypatch):
    rows(2)
    found = overview(max_age=0)
    monkeypatch.setattr(counting, "_within", lambda *_: None)
    overview_room._kept["default", "en-us"] = overview_room._kept["default", "en-us"]._replace(
        read_at=overview_room._kept["default", "en-us"].read_at - 60
    )
    old = queue()
    assert found.queues[0].due == Count(2)
    assert old.due.number == 2
    assert old.due.age >= 60


@pytest.mark.django_db(transaction=True)  # ALTER TABLE commits on MariaDB
@pytest.mark.skipif("connection.vendor == 'sqlite'", reason="SQLite does not count rows")
def test_an_overview_reads_few_rows_whatever_the_size_of_the_table(well, monkeypatch):
    monkeypatch.setattr(counting, "MOST", 100)
    monkeypatch.setattr(by_cause, "MOST", 100)
    with helpers.statistics_of_empty_tables():
        for status, columns in (
            (Status.PENDING, {}),
            (Status.PENDING, {"due": LATER}),
            (Status.PENDING, {"cause": 7, "queue_name": "other"}),
            (Status.PENDING, {"lane": "a"}),
            (Status.DEAD, {"cause": 7}),
            (Status.HELD, {}),
        ):
            rows(3000, status=status, **columns)
        with transaction.atomic():
            before = rows_read()
            found = now()
            read = rows_read() - before
    assert str(found.total("due")) == "300+"
    assert read < 4000, f"{read} rows and index entries were read"


def rows_read() -> int:
    """Rows and index entries that this transaction, or on MariaDB this session, has read."""
    if connection.vendor == "mysql":
        counts = helpers.execute("SHOW SESSION STATUS LIKE 'Handler_read%%'")
        return sum(int(number) for name, number in counts if name != "Handler_read_rnd_next")
    sql = """
        SELECT sum(pg_stat_get_xact_tuples_returned(c.oid) + pg_stat_get_xact_tuples_fetched(c.oid))
          FROM pg_class c WHERE c.relname LIKE 'txtasks%%'
    """
    return int(helpers.execute(sql)[0][0])


# -- processes ------------------------------------------------------------------------------------


def test_running_tasks_come_with_their_worker_the_longest_first(well):
    one = Worker.objects.get()
    Worker.objects.filter(pk=one.pk).update(progress={"x": 1})
    start = timezone.now()
    for minutes in (1, 3, 2):
        since = start - timedelta(minutes=minutes)
        rows(
            1, status=Status.CLAIMED, worker=one.pk, claimed_at=since, started_at=since, timeout=240
        )
    found = now()
    assert [round(task.seconds / 60) for task in found.running] == [3, 2, 1]
    assert found.running[0].host == "web-1"
    assert 0.7 < found.running[0].share < 1
    assert (found.running_total, queue().running) == (Count(3), 3)


def test_a_claim_whose_worker_has_no_row_is_shown(well):
    rows(1, status=Status.CLAIMED, worker=uuid.uuid4(), claimed_at=timezone.now())
    assert now().running[0].pid is None


def test_workers_have_states(well):
    worker(lost=True, pid=1)
    worker(seen_at=timezone.now() - timedelta(hours=1), pid=2)
    worker(suspected_at=timezone.now(), pid=3)
    assert {one.pid: one.state for one in now().workers} == {
        1: "lost", 2: "silent", 3: "suspected", 7: "alive",
    }  # fmt: skip
    assert now().slots == 8


# -- problems -------------------------------------------------------------------------------------


def test_all_is_well(well):
    tasks.note.enqueue("x")
    assert names_of_problems() == []


def test_without_processes():
    assert names_of_problems() == ["no_worker", "no_cleaner"]


def test_a_paused_queue_is_a_problem_once_tasks_wait_in_it(well):
    pausing.pause("default", "default", by="ada", reason="provider answers 503")
    assert names_of_problems() == []
    rows(2, due=-timedelta(minutes=5))
    (problem,) = now().problems
    assert problem.subject == "default"
    assert "paused by ada" in problem.text
    assert "“provider answers 503”. 2 tasks wait, the oldest for 5 min" in problem.text


def test_a_queue_without_a_worker(well, txtasks):
    txtasks(queues=["default", "mail", "a b"])
    rows(1, queue_name="mail")
    (problem,) = now().problems
    assert problem.text.startswith("No living worker serves queue mail. 1 task waits")
    assert problem.text.endswith(" Start a worker: manage.py runworkers --queue mail.")
    Task.objects.update(queue_name="a b")
    assert now().problems[0].text.endswith(" Start a worker: manage.py runworkers --queue 'a b'.")


def test_a_name_that_no_worker_declares(well):
    rows(1, task_name="gone.tasks.run")
    (problem,) = now().problems
    assert (problem.name, problem.subject) == ("undeclared_names", "default")
    assert "runs gone.tasks.run, so at least 1 task waits. If a deploy has renamed" in problem.text
    assert "@task(was=['gone.tasks.run'])" in problem.text and problem.function == "gone.tasks.run"
    rows(2, task_name="away.tasks.run")
    (problem,) = now().problems
    assert "away.tasks.run, gone.tasks.run, so at least 3 tasks wait." in problem.text
    assert problem.function == ""


def test_silent_workers_and_several_releases(well):
    lost = worker(seen_at=timezone.now() - timedelta(hours=1), pid=2, host="web-2")
    rows(1, status=Status.CLAIMED, worker=lost.pk, claimed_at=timezone.now())
    Worker.objects.filter(pid=7).update(release="b")
    worker(release="a", pid=3)
    silent, releases = now().problems
    assert re.fullmatch(
        r"Worker web-2 pid 2 has been silent for 1 h( \d+ \w+)?\. It has claimed 1 task\. If it runs, its log "
        r"says why .* such as a full disk\. A cleaner will declare the worker lost\.",
        silent.text,
    )
    assert (releases.text, releases.is_warning) == (
        "Workers of several releases run side by side: a, b.", True,
    )  # fmt: skip


def test_workers_that_no_hint_reaches(well, txtasks):
    Worker.objects.update(listening=False)
    assert names_of_problems() == []  # it has just started
    Worker.objects.update(started_at=LONG_AGO)
    (problem,) = now().problems
    assert problem.name == "nobody_listens" and "The log of the workers" in problem.text
    txtasks(broker_url="amqp://user:secret@rabbit/shop")
    assert (
        now()
        .problems[0]
        .text.startswith(
            "No worker is connected to RabbitMQ (amqp://rabbit:5672/shop), so each task waits up to 1 s"
        )
    )
    worker(pid=8)
    (problem,) = now().problems
    assert problem.name == "deaf_workers"
    assert problem.text == "Hints do not reach 1 worker: web-1 pid 7. Its log says why."


def test_rabbitmq_is_away_while_the_database_sends_the_hints(well, txtasks):
    txtasks(broker_url="amqp://rabbit")
    assert names_of_problems() == []  # a new worker connects
    Worker.objects.update(started_at=LONG_AGO)
    rows(1, task_name="gone.tasks.run")
    Worker.objects.create(
        id=uuid.uuid4(), host="x", pid=2, queues=[], threads=1, lease=15.0, will=3, lost=True
    )
    *_, problem = now().problems
    assert (problem.name, problem.is_warning) == ("no_broker", True)
    assert "RabbitMQ (amqp://rabbit:5672) serves none of the workers." in problem.text
    assert problem.text.endswith("the end of a worker is noticed only 15 s later.")
    Worker.objects.update(will=1)
    assert names_of_problems() == ["undeclared_names"]
    Worker.objects.update(will=0)
    txtasks(broker_url=None)
    assert names_of_problems() == ["undeclared_names"]


def test_a_queue_with_too_few_workers_is_behind(well):
    rows(2, due=-timedelta(seconds=5))
    Worker.objects.update(running=3)
    assert names_of_problems() == []
    rows(1, due=-timedelta(hours=2))
    (problem,) = now().problems
    assert problem.text == (
        "Queue default is behind: 3 tasks wait, the oldest for 2 h. Its workers use 3 of 4 slots; if these are "
        "too few, start more workers."
    )
    assert (problem.name, problem.subject, problem.is_warning) == ("queue_behind", "default", True)


def test_a_queue_with_tasks_in_lanes_is_behind_if_no_slot_is_free(well, txtasks):
    txtasks(lanes={"mailgun": {"rate": "1/h"}})
    rows(1, due=-timedelta(hours=2), lane="mailgun")
    assert names_of_problems() == []
    Worker.objects.update(running=4)
    assert names_of_problems() == ["queue_behind"]


def test_a_queue_whose_tasks_no_worker_declares_is_not_behind(well):
    rows(1, due=-timedelta(hours=2), task_name="gone.tasks.run")
    assert names_of_problems() == ["undeclared_names"]


def test_a_full_lane_in_which_tasks_wait(well, txtasks):
    txtasks(lanes={"mailgun": {"at_most": 1}})
    one, since = Worker.objects.get(), timezone.now() - timedelta(minutes=5)
    (old,) = rows(1, status=Status.CLAIMED, worker=one.pk, claimed_at=since, lane="mailgun")
    assert names_of_problems() == []
    rows(2, lane="mailgun")
    (problem,) = now().problems
    begin = f"Lane mailgun is full (1 at once): 2 tasks wait. {NAME} has run in it for 5 min"
    assert problem.text.startswith(begin)
    assert (problem.is_warning, problem.subject, problem.task) == (True, "mailgun", str(old.pk))


def test_schedules_that_are_late(well):
    late = timezone.now() - timedelta(hours=1)
    Schedule.objects.create(name="nightly", task_name=NAME, every=60.0, next_at=late)
    Schedule.objects.create(name="gone", task_name="gone.tasks.run", every=60.0)
    texts = [one.text for one in now().problems]
    assert any(text.startswith("Schedule nightly is late by 1 h") for text in texts)
    assert any("the code has no function gone.tasks.run. Deploy" in text for text in texts)
    assert now().schedules_total == 2


def test_tasks_that_run_for_long_without_a_limit(well):
    one, since = Worker.objects.get(), timezone.now() - timedelta(hours=2)
    (first,) = rows(1, status=Status.CLAIMED, worker=one.pk, claimed_at=since, started_at=since)
    (problem,) = now().problems
    assert problem.text == f"1 task without a time limit has run for more than 1 h: {NAME} for 2 h."
    assert (problem.name, problem.task) == ("long_running", str(first.pk))
    rows(1, status=Status.CLAIMED, worker=one.pk, claimed_at=since, started_at=since)
    assert now().problems[0].task == ""
    Task.objects.update(timeout=86400)
    assert names_of_problems() == []


def asked(seconds: float, **columns: Any) -> Task:
    """Write a task that has run for two hours, and was asked to stop some seconds ago."""
    since = timezone.now() - timedelta(hours=2)
    asked_at = timezone.now() - timedelta(seconds=seconds)
    (one,) = rows(
        1, status=Status.CLAIMED, worker=Worker.objects.get().pk, claimed_at=since, started_at=since,
        cancel_asked_at=asked_at, **columns,
    )  # fmt: skip
    return one


def test_a_long_task_that_was_asked_to_stop_says_so_at_once(well):
    one = asked(0)
    (problem,) = now().problems
    assert (problem.name, problem.task) == ("asked_to_stop", str(one.pk))
    assert re.match(
        rf"{NAME} has run for 2 h, and still runs \d+ s after it was asked to stop\.", problem.text
    )
    assert problem.text.endswith(" Its page says how to end it.")
    assert now().running[0].asked_at == one.cancel_asked_at


def test_a_short_task_that_was_asked_to_stop_has_some_seconds(well):
    asked(-600, timeout=86400)  # a busy machine may need seconds before it reads
    assert names_of_problems() == []
    asked(60, timeout=86400)
    assert names_of_problems() == ["asked_to_stop"]
    assert now().problems[0].text.startswith(NAME)
    asked(60, timeout=86400)
    assert "2 tasks still run although they were asked to stop" in now().problems[0].text


def test_a_lane_is_full_of_a_task_that_was_asked_to_stop(well, txtasks):
    txtasks(lanes={"mailgun": {"at_most": 1}})
    asked(0, lane="mailgun", timeout=86400)
    rows(2, lane="mailgun")
    (problem,) = now().problems
    assert problem.name == "full_lane"
    assert f"{NAME} has run in it for 2 h, although it was asked to stop " in problem.text


def test_errors_come_before_warnings(well):
    Worker.objects.update(listening=False, started_at=LONG_AGO)
    rows(1, task_name="gone.tasks.run")
    assert [one.is_warning for one in now().problems] == [False, True]


# -- the function ---------------------------------------------------------------------------------


@pytest.fixture
def kept(monkeypatch):
    """Keep overviews as outside of a ``TestCase``."""
    monkeypatch.setattr(overview_room, "is_in_test_case", lambda alias: False)
    monkeypatch.setattr(overview_room, "_kept", {})


def test_each_test_case_reads_anew(well):
    overview()
    rows(1)
    assert overview().total("due") == Count(1)


@pytest.mark.django_db(transaction=True)
def test_an_overview_ends_with_the_tables_that_a_test_empties():
    rows(1)
    assert overview(max_age=3600).total("due") == Count(1)
    call_command("flush", interactive=False, verbosity=0)
    assert overview(max_age=3600).total("due") == Count(0)


def test_an_overview_is_kept_for_a_while(well, kept):
    first = overview(max_age=0)
    rows(1)
    assert overview(max_age=3600) is first
    assert overview(max_age=0).total("due") == Count(1)


def test_while_one_thread_reads_the_others_get_the_last_one(well, kept):
    first = overview(max_age=0)
    lock = overview_room._reading["default", "en-us"]
    with lock:
        overview_room._kept["default", "en-us"] = overview_room._kept["default", "en-us"]._replace(
            read_at=time.monotonic() - 6
        )
        assert overview(max_age=5) is first
        assert overview(max_age=0) is not first


def test_it_is_plain_json_in_any_language(well):
    rows(1, status=Status.CLAIMED, worker=Worker.objects.get().pk, claimed_at=timezone.now())
    pausing.pause("default", "default", by="ada")
    rows(1)
    with override("de"):
        text = json.dumps(now().as_json())
    found = json.loads(text)
    assert found["queues"][0]["due"] == {"number": 1, "is_capped": False, "age": 0.0}
    assert found["problems"][0]["name"] == "paused_queue"


def test_text_in_the_columns_of_a_worker_that_is_no_list(well):
    worker(queues="x", task_names={"a": 1}, pid=2)
    assert {one.pid: one.queues for one in now().workers} == {7: ("default",), 2: ()}


# -- what workers have counted --------------------------------------------------------------------


def minutes(succeeded: int) -> None:
    """Write counts of some minutes before and after now: the next one may begin before they are read."""
    start = timezone.now().replace(second=0, microsecond=0)
    for age in range(-2, 8):
        at = start - timedelta(minutes=age)
        Stat.objects.create(
            width=60, starts_at=at, queue_name="default", succeeded=succeeded, due=5
        )


def test_a_queue_has_a_rate_and_a_time_until_it_is_empty(well):
    minutes(24)
    rows(48)
    found = queue()
    assert found.per_minute == 24
    assert found.empty_in == 120
    assert now().figures.chart.points[-2].succeeded == 24


def test_without_a_rate_a_queue_is_never_empty(well):
    rows(1)
    assert queue().empty_in is None  # no minute of it has ended yet
    Task.objects.update(run_after=LONG_AGO)
    assert math.isinf(queue().empty_in)
    since = timezone.now() - timedelta(minutes=10)
    (long,) = rows(1, status=Status.CLAIMED, worker=Worker.objects.get().pk, claimed_at=since)
    assert queue().empty_in is None  # its task may end at any time
    long.delete()
    Task.objects.update(run_after=timezone.now())
    pausing.pause("default", "default")
    assert math.isinf(queue().empty_in)
    pausing.resume("default", "default")
    Worker.objects.update(lost=True)
    assert math.isinf(queue().empty_in)
    Task.objects.all().delete()
    assert queue().empty_in == 0


def test_functions_come_by_the_time_that_they_used(well):
    start = timezone.now().replace(minute=0, second=0, microsecond=0)
    for name, milliseconds in (("a.b", 10), ("c.d", 20)):
        Stat.objects.create(
            width=600, starts_at=start, queue_name="default", task_name=name, succeeded=1,
            run_ms=milliseconds,
        )  # fmt: skip
    assert [one.task for one in now().figures.functions] == ["c.d", "a.b"]


def test_a_release_is_marked_in_the_hour_in_which_it_came(well):
    Worker.objects.update(release="b")
    worker(release="a", started_at=timezone.now() - timedelta(hours=2), pid=3)
    assert [one.release for one in now().figures.deploys] == ["b"]


@pytest.mark.parametrize(
    ("name", "width", "step", "ago"), [("day", 60, 600, 20), ("month", 86400, 86400, 600)]
)
def test_a_longer_time_has_a_chart_and_its_releases(well, name, width, step, ago):
    at = timezone.now() - timedelta(hours=ago)
    Worker.objects.update(release="b", started_at=at)
    worker(release="a", started_at=timezone.now() - timedelta(days=99), pid=3)
    start = int(at.timestamp()) // width * width
    Stat.objects.create(
        width=width, starts_at=EPOCH + timedelta(seconds=start), queue_name="default", succeeded=9
    )
    figures = spans.figures_of(now(), name)
    assert figures.chart.step == step
    assert sum(one.succeeded for one in figures.chart.points) == 9
    assert [one.release for one in figures.deploys] == ["b"]


def test_a_day_of_many_queues_is_read_from_hours(well, monkeypatch):
    monkeypatch.setattr(spans, "MOST_ROWS", 24 * 60 - 1)
    assert spans.figures_of(now(), "day").chart.step == 3600


def test_a_longer_time_is_read_once_in_a_while(well, kept, monkeypatch):
    monkeypatch.setattr(spans, "is_in_test_case", lambda alias: False)
    monkeypatch.setattr(spans, "_kept", {})
    first = spans.figures_of(now(), "month")
    assert spans.figures_of(now(), "month") is first
    assert spans.figures_of(now(), "day") is not first
    monkeypatch.setattr(spans, "MAX_AGE_SECONDS", 0.0)
    assert spans.figures_of(now(), "month") is not first


def test_without_counts_there_is_no_chart(well, txtasks):
    txtasks(stats=False)
    minutes(10)
    found = now()
    assert (found.figures.is_on, found.figures.chart, found.queues[0].minutes) == (False, None, ())


# -- causes ---------------------------------------------------------------------------------------


def test_causes_come_with_their_counts(well):
    error = {"type": "ValueError", "message": "no mail"}
    rows(3, status=Status.DEAD, cause=5, errors=[error])
    rows(2, due=LATER, cause=5, errors=[error])
    (cause,) = now().causes
    assert (cause.dead, cause.retrying, cause.last_line) == (3, 2, "no mail")
    assert names_of_problems() == []


def test_many_deaths_of_one_cause_are_a_problem_while_they_are_new(well):
    error = {"class": "a.b.Gone", "type": "Gone", "message": "x"}
    rows(20, status=Status.DEAD, cause=-5, errors=[error])
    (problem,) = now().problems
    assert (problem.name, problem.subject) == ("failing_cause", "-5")
    assert f"20 tasks of {NAME} are dead because of a.b.Gone: x, the last" in problem.text
    assert problem.text.endswith("Repair the cause, then revive the tasks.")
    Worker.objects.update(release="4f2a1c", started_at=LONG_AGO)
    assert "dead because of a.b.Gone: x since release 4f2a1c, the last" in now().problems[0].text
    earlier = LONG_AGO - timedelta(days=1)
    scene.worker("web-9", 9, [], release="9e0b77", started_at=earlier, lost=True)
    assert "or go back to release 9e0b77; then revive" in now().problems[0].text
    Task.objects.update(run_after=timezone.now() - timedelta(hours=2))
    assert names_of_problems() == []


# -- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [Status.DEAD, Status.HELD])
def test_a_queue_outside_the_settings_is_there_with_its_stopped_tasks(well, status):
    rows(2, queue_name="forgotten", status=status)
    assert getattr(queue("forgotten"), status.value) == Count(2)
    assert now().total(status.value) == Count(2)


def test_queues_that_are_left_out_are_said(well, monkeypatch):
    monkeypatch.setattr(gathering, "MOST_QUEUES", 2)
    for number in range(4):
        rows(1, queue_name=f"q{number}", status=Status.DEAD)
    found = now()
    assert (len(found.queues), found.more_queues) == (2, 4)
    assert found.total("dead").is_capped


def test_queues_behind_the_last_bucket_are_said(well, monkeypatch):
    rows(3, queue_name="a")
    rows(1, queue_name="b")
    assert not now().has_more_queues
    monkeypatch.setattr(gathering, "MOST_BUCKETS", 2)
    found = now()
    assert found.has_more_queues and found.total("due").is_capped
    assert (str(queue("a").due), str(queue("b").due)) == ("3", "1+")


def test_with_more_workers_than_are_read_no_queue_is_called_unserved(well, monkeypatch, txtasks):
    monkeypatch.setattr(gathering, "MOST_WORKERS", 1)
    monkeypatch.setattr(running, "MOST_WORKERS", 1)
    txtasks(queues=["default", "mail"])
    worker(host="web-2", queues=["mail"])
    rows(1, queue_name="mail")
    found = now()
    assert found.has_more_workers
    assert "unserved_queue" not in [one.name for one in found.problems]


def test_workers_with_an_event_loop_are_known(well):
    worker(host="web-2", task_names=["@loop", NAME])
    assert [one.is_loop for one in now().workers] == [False, True]


def test_a_capped_number_has_its_plus_in_a_sentence(well, monkeypatch):
    monkeypatch.setattr("django_txtasks.overview.problems.MOST", 20)
    monkeypatch.setattr(by_cause, "MOST", 20)
    monkeypatch.setattr(running, "MOST_SHOWN", 2)
    rows(22, status=Status.DEAD, cause=5, errors=[{"class": "shop.Declined"}])
    since = timezone.now() - timedelta(days=2)
    rows(3, status=Status.CLAIMED, worker=uuid.uuid4(), claimed_at=since, started_at=since)
    texts = " ".join(one.text for one in now().problems)
    assert "20+ tasks of" in texts
    assert "2+ tasks without a time limit" in texts
    assert str(Count(2000, is_capped=True)) == "2,000+"


def test_a_number_below_its_limit_has_no_plus_though_another_one_is_capped(well, monkeypatch):
    monkeypatch.setattr("django_txtasks.overview.problems.MOST", 30)
    monkeypatch.setattr(by_cause, "MOST", 30)
    rows(21, status=Status.DEAD, cause=5)
    rows(40, cause=5, due=LATER)
    assert any(one.text.startswith("21 tasks of") for one in now().problems)
