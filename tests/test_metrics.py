"""Metrics for Prometheus: their values, their text, who may read them, and how often the database is asked."""

from __future__ import annotations

import re
import threading
import urllib.error
import urllib.request
import uuid
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import helpers
import pytest
import test_deaths
import test_figures
import test_startup
from django.contrib.auth.models import Permission, User
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.urls import path
from django.utils import timezone
from prometheus_client import CollectorRegistry, generate_latest

from django_txtasks import metrics, overview, signals
from django_txtasks.conf import parse
from django_txtasks.exceptions import ConfigError
from django_txtasks.features.figures import appending
from django_txtasks.features.figures.places import MAX_QUEUES
from django_txtasks.features.figures.tally import MAX_NAMES, OTHERS, Tally
from django_txtasks.features.lanes.status import waiting_in
from django_txtasks.metrics import access, exposition, kept, names, samples
from django_txtasks.metrics.collector import Collector
from django_txtasks.models import Cleaner, Schedule, Status, Task, Worker
from django_txtasks.operations import pausing
from django_txtasks.overview import Count, problems
from django_txtasks.processes import probe_server
from django_txtasks.processes.probes import Liveness, Probes
from django_txtasks.stats import reading

pytestmark = pytest.mark.usefixtures("rows", "forgotten")

ROOT = Path(__file__).parent.parent
TOKEN = "a-token-of-16-characters-or-more"
NAME = "probe.tasks.note"
urlpatterns = [path("metrics/", metrics.view)]


@pytest.fixture
def forgotten(settings):
    settings.ROOT_URLCONF = __name__
    kept.forget()
    yield
    kept.forget()


def tasks(number: int, **columns: Any) -> None:
    due = timezone.now() + columns.pop("due", timedelta(0))
    usual = {"task_name": NAME, "run_after": due}
    Task.objects.bulk_create(Task(id=uuid.uuid4(), **usual | columns) for _ in range(number))


def worker(**columns: Any) -> None:
    usual = {"host": "web-1", "pid": 7, "queues": ["default"], "threads": 4, "lease": 15.0}
    Worker.objects.create(id=uuid.uuid4(), **usual | {"task_names": [NAME]} | columns)


def appended(**numbers: int) -> None:
    """Append counts of a function, as a process without a worker's row does."""
    tally = Tally()
    counts = tally.of("default", NAME)
    for outcome, number in numbers.items():
        setattr(counts, outcome, number)
    counts.took(0.03, 0.5)
    with transaction.atomic():
        appending.append("default", tally)


def value(metric: str, **labels: str) -> float | None:
    """Return a value, read anew; None = the metric has no value with these labels."""
    kept.forget()
    wanted = [one for one in kept.samples("default") if one.metric + one.suffix == metric]
    return next((float(one.value) for one in wanted if one.labels == labels), None)


# -- values -----------------------------------------------------------------------------------------


def test_each_queue_has_its_numbers(txtasks):
    txtasks(queues=["default", "mail"])
    tasks(3, due=-timedelta(minutes=3))
    tasks(2, due=timedelta(hours=1), cause=8)
    tasks(4, status=Status.DEAD, cause=9)
    tasks(5, status=Status.HELD)
    tasks(1, status=Status.CLAIMED, worker=uuid.uuid4(), claimed_at=timezone.now())
    pausing.pause("default", "mail", by="ada")
    found = {name: value(f"txtasks_{name}", queue="default") for name in (
        "due", "due_is_capped", "later", "retrying", "dead", "held", "running", "paused",
    )}  # fmt: skip
    assert found == {
        "due": 3, "due_is_capped": 0, "later": 2, "retrying": 2, "dead": 4, "held": 5, "running": 1, "paused": 0,
    }  # fmt: skip
    oldest = value("txtasks_oldest_seconds", queue="default")
    assert oldest is not None
    assert 180 <= oldest < 180 + helpers.PATIENCE
    assert value("txtasks_paused", queue="mail") == 1
    assert value("txtasks_problems", problem="no_worker") == 1


@pytest.mark.parametrize(
    ("count", "is_shown"),
    [
        (Count(), True),
        (Count(2000, is_capped=True), True),
        (Count(0, is_capped=True), False),
        (Count(7, age=3.0), False),
    ],
)
def test_a_count_that_was_not_read_now_has_no_value(count, is_shown):
    found = list(samples._of_queue(overview.QueueFigures("mail", dead=count)))
    assert ("txtasks_dead" in {one.metric for one in found}) is is_shown


def test_processes_are_counted():
    worker()
    worker(pid=2, suspected_at=timezone.now())
    worker(pid=3, lost=True)
    worker(pid=4, seen_at=timezone.now() - timedelta(hours=1))
    assert value("txtasks_cleaners") == 0
    assert value("txtasks_cleaner_pass_age_seconds") is None
    passed = timezone.now() - timedelta(seconds=40)
    Cleaner.objects.create(
        id=uuid.uuid4(), host="web-1", pid=8, interval=30.0, lease=15.0, passed_at=passed
    )
    for state in samples.STATES:
        assert value("txtasks_workers", state=state) == 1
    assert value("txtasks_slots") == 8
    assert value("txtasks_cleaners") == 1
    age = value("txtasks_cleaner_pass_age_seconds")
    assert age is not None
    assert 40 <= age < 40 + helpers.PATIENCE


def test_the_lanes_that_wait_longest_are_shown(monkeypatch):
    monkeypatch.setattr(samples, "LANE_SECONDS", helpers.PATIENCE)
    monkeypatch.setattr(samples, "MOST_LANES", 2)
    monkeypatch.setattr(samples, "MOST_WAITING", 3)
    tasks(2, lane="a", due=timedelta(hours=1))
    tasks(5, lane="b", due=-timedelta(hours=1))
    tasks(2, lane="c", due=-timedelta(hours=2))
    found = [value("txtasks_lane_waiting", lane=lane) for lane in "abc"]
    assert found == [None, 3, 2]


@pytest.mark.skipif(connection.vendor != "postgresql", reason="asks PostgreSQL for its plan")
def test_the_count_of_a_lane_reads_only_its_part_of_the_index():
    helpers.execute(
        """INSERT INTO txtasks_task (id, task_name, queue_name, priority, status, run_after, lane)
           SELECT gen_random_uuid(), %s, 'default', 0, 'pending', now(), 'lane-' || mod(i, 1000)
             FROM generate_series(1, 20000) AS i""",
        NAME,
    )
    helpers.execute("VACUUM ANALYZE txtasks_task")
    with CaptureQueriesContext(connection) as seen:
        assert waiting_in("default", ["lane-7"], 200) == {"lane-7": 20}
    plan = helpers.execute(f"EXPLAIN {seen[0]['sql']}")
    assert "Index Cond: (ROW(status, lane) >= ROW('pending'" in " ".join(line for (line,) in plan)


def test_schedules_that_need_attention_have_their_reason():
    late = timezone.now() - timedelta(hours=1)
    Schedule.objects.create(name="nightly", task_name=NAME, every=60.0, next_at=late)
    Schedule.objects.create(name="gone", task_name="gone.tasks.run", every=60.0)
    Schedule.objects.create(
        name="well", task_name=NAME, every=60.0, next_at=timezone.now() + timedelta(hours=1)
    )
    assert value("txtasks_schedule_late", schedule="nightly", reason="late") == 1
    assert value("txtasks_schedule_late", schedule="gone", reason="broken") == 1
    assert "well" not in metrics.text(["default"])


def test_counters_have_what_is_added_up_and_what_is_not():
    appended(succeeded=3, died=1)
    test_figures.add_up()
    appended(succeeded=4, failed=2)
    labels = {"queue": "default", "task": NAME}
    totals = [value("txtasks_attempts_total", outcome=one, **labels) for one in samples.OUTCOMES]
    assert totals == [7, 2, 1, 0]
    assert value("txtasks_attempt_seconds_total", **labels) == 1.0
    assert value("txtasks_counters_are_behind") == 0
    assert value("txtasks_run_seconds_count", queue="default") == 2
    assert value("txtasks_run_seconds_sum", queue="default") == 1.0
    ends = ("0.02", "0.03", "0.045", "335", "+Inf")
    found = [value("txtasks_wait_seconds_bucket", queue="default", le=one) for one in ends]
    assert found == [0, 2, 2, 2, 2]


def made(*names: tuple[str, str]) -> None:
    """Append one success of each pair of queue and function, in several writes, as several workers do."""
    for begin in range(0, len(names), 500):
        tally = Tally()
        for queue, task in names[begin : begin + 500]:
            tally.of(queue, task).succeeded += 1
            tally.of(queue, task).took(0.03, 0.5)
        with transaction.atomic():
            appending.append("default", tally)


def lines(metric: str) -> dict[str, float]:
    """Return the lines of a metric that a monitor gets, with their numbers, as they were read last."""
    found = (one.rsplit(" ", 1) for one in metrics.text(["default"]).splitlines())
    return {line: float(number) for line, number in found if line.startswith(metric + "{")}


@pytest.mark.once
def test_three_thousand_names_have_a_thousand_lines_of_their_own():
    names = [("default", f"made.tasks.import_{number}") for number in range(3000)]
    appended(succeeded=5)
    test_figures.add_up()
    seen = []
    first, again = partial(made, *names), partial(made, *names[::6])
    for step in (first, test_figures.add_up, again, test_figures.add_up):
        step()
        assert value("txtasks_attempts_total", queue="default", task=NAME, outcome="succeeded") == 5
        found = lines("txtasks_attempts_total")
        assert len(found) == (MAX_NAMES + 1) * len(samples.OUTCOMES)
        assert len(lines("txtasks_attempt_seconds_total")) == MAX_NAMES + 1
        assert sum(found.values()) == sum(lines("txtasks_run_seconds_count").values()) + 4
        seen.append(found)
    assert [sum(found.values()) for found in seen] == [3005, 3005, 3505, 3505]
    _, added_up, *later = seen  # the places are given for good as soon as they are added up
    for found in later:
        assert found.keys() == added_up.keys()
        assert all(found[line] >= number for line, number in added_up.items())
    (others,) = [line for line in added_up if f'task="{OTHERS}"' in line and "succeeded" in line]
    assert added_up[others] == 3000 - (MAX_NAMES - 1)


def test_queues_made_by_code_have_a_bound_of_lines():
    queues = [f"customer-{number:03}" for number in range(MAX_QUEUES + 50)]
    for step in (partial(made, *((queue, NAME) for queue in queues)), test_figures.add_up):
        step()
        assert value("txtasks_run_seconds_count", queue=OTHERS) == 50
        counts = lines("txtasks_run_seconds_count")
        assert len(counts) == MAX_QUEUES + 1
        assert sum(counts.values()) == len(queues)
        assert value("txtasks_attempts_total", queue=OTHERS, task=OTHERS, outcome="succeeded") == 50


def test_counters_are_left_out_if_some_rows_are_not_read(monkeypatch):
    monkeypatch.setattr(reading, "MAX_RAW_ROWS", 1)
    appended(succeeded=1)
    appended(succeeded=1)
    assert value("txtasks_counters_are_behind") == 1
    assert "_total" not in metrics.text(["default"])
    assert "_bucket" not in metrics.text(["default"])


def test_without_figures_there_are_no_counters(txtasks):
    appended(succeeded=1)
    txtasks(stats=False)
    assert value("txtasks_counters_are_behind") is None
    assert "_total" not in metrics.text(["default"])


def test_the_counters_come_from_one_statement():
    appended(succeeded=1)
    with CaptureQueriesContext(connection) as seen:
        list(samples.samples_of("default"))
    ever = [
        one["sql"]
        for one in seen
        if "txtasks_rawstat" in one["sql"]
        and "task_name > ''" not in one["sql"]
        and "task_name = ''" not in one["sql"]
    ]
    assert len(ever) == 1
    assert "txtasks_stat " in ever[0]


# -- text -------------------------------------------------------------------------------------------


def test_the_text_groups_the_values_of_all_databases_and_escapes_names():
    one = samples.Sample("txtasks_dead", 2, {"queue": 'a"\\\n\0b'})
    two = samples.Sample("txtasks_oldest_seconds", 0.25, {"queue": "ä"})
    text = exposition.text_of({"default": [one, two], "second": [one._replace(value=True)]})
    assert text == (
        "# HELP txtasks_oldest_seconds Wait of the oldest due task; 0 = no task is due.\n"
        "# TYPE txtasks_oldest_seconds gauge\n"
        'txtasks_oldest_seconds{database="default",queue="ä"} 0.25\n'
        "# HELP txtasks_dead Dead tasks, at most 2,000.\n"
        "# TYPE txtasks_dead gauge\n"
        'txtasks_dead{database="default",queue="a\\"\\\\\\nb"} 2\n'
        'txtasks_dead{database="second",queue="a\\"\\\\\\nb"} 1\n'
    )


def test_each_value_belongs_to_a_metric_and_has_its_labels():
    appended(succeeded=1)
    worker()
    tasks(1, lane="a")
    Schedule.objects.create(name="gone", task_name="gone.tasks.run", every=60.0)
    Cleaner.objects.create(
        id=uuid.uuid4(), host="web-1", pid=8, interval=30.0, lease=15.0, passed_at=timezone.now()
    )
    test_deaths.ended(3, how="signal 9", held={NAME: "default"})
    found = kept.samples("default")
    without = {"txtasks_sessions"}  # not known: this worker has none in its row
    assert {one.metric for one in found} == names.METRICS.keys() - without
    for one in found:
        assert {*one.labels} - {"le"} == {*names.METRICS[one.metric].labels}


# -- age --------------------------------------------------------------------------------------------


def test_values_are_kept_for_fifteen_seconds(monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(kept, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    first = kept.samples("default")
    tasks(1, due=-timedelta(minutes=1))
    clock[0] += 14.9
    with CaptureQueriesContext(connection) as seen:
        assert kept.samples("default") is first
    assert len(seen) == 0
    clock[0] += 0.1
    again = kept.samples("default")
    assert again is not first
    assert 1 in [one.value for one in again if one.metric == "txtasks_due"]


def test_in_a_test_case_nothing_is_kept(monkeypatch):
    """The next test rolls back what this one has written."""
    monkeypatch.setattr(kept, "is_in_test_case", lambda alias: True)
    assert kept.samples("default") is not kept.samples("default")


def test_while_one_thread_reads_the_others_wait_for_it(monkeypatch):
    monkeypatch.setattr(kept, "WAIT_SECONDS", helpers.PATIENCE)
    reads, may_go_on = [], threading.Event()

    def read(alias):
        reads.append(alias)
        assert may_go_on.wait(helpers.PATIENCE)
        return [samples.Sample("txtasks_slots", 1, {})]

    monkeypatch.setattr(kept, "samples_of", read)
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(kept.samples("default"))) for _ in range(3)
    ]
    for one in threads:
        one.start()
    helpers.wait_until(lambda: reads)
    may_go_on.set()
    for one in threads:
        one.join(helpers.PATIENCE)
    assert len(reads) == 1
    assert len(found) == 3


def test_no_request_waits_for_long_for_the_read_of_another(monkeypatch):
    """Otherwise each scrape of a database that hangs would keep one more thread of the site."""
    monkeypatch.setattr(kept, "WAIT_SECONDS", 0.01)
    is_reading, may_go_on, answers = threading.Event(), threading.Event(), []

    def read(alias):
        is_reading.set()
        assert may_go_on.wait(helpers.PATIENCE)
        return [samples.Sample("txtasks_slots", 1, {})]

    def ask():
        answers.append(access._answer(["default"]))

    monkeypatch.setattr(kept, "samples_of", read)
    threads = [threading.Thread(target=ask) for _ in range(2)]
    threads[0].start()
    assert is_reading.wait(helpers.PATIENCE)
    threads[1].start()
    helpers.wait_until(lambda: answers)
    assert answers[0][0] == 503 and "another request still reads" in answers[0][1]
    may_go_on.set()
    for one in threads:
        one.join(helpers.PATIENCE)
    assert answers[1][0] == 200


# -- who may read -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("token", "header", "status"),
    [
        (TOKEN, f"Bearer {TOKEN}", 200),
        (TOKEN, f"bearer  {TOKEN} ", 200),
        (TOKEN, TOKEN, 403),
        (TOKEN, f"Basic {TOKEN}", 403),
        (TOKEN, f"Bearer {TOKEN}x", 403),
        (TOKEN, f"Bearer {TOKEN[:-1]}", 403),
        (TOKEN, "Bearer \xe4", 403),
        (TOKEN, None, 403),
        ("", "Bearer ", 403),
        ("", None, 403),
    ],
)
def test_a_program_needs_the_token(client, txtasks, token, header, status):
    txtasks(metrics_token=token)
    headers = {} if header is None else {"HTTP_AUTHORIZATION": header}
    response = client.get("/metrics/", **headers)
    assert response.status_code == status
    assert (b"txtasks_slots" in response.content) is (status == 200)
    assert response["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "no-store" in response["Cache-Control"] or status == 403


def test_a_user_needs_the_permission(client, person):
    user = User.objects.get()
    assert client.get("/metrics/").status_code == 403
    person("view_task")
    assert client.get("/metrics/").status_code == 200
    User.objects.filter(pk=user.pk).update(is_active=False)
    assert client.get("/metrics/").status_code == 403
    assert Permission.objects.filter(codename="view_task").exists()


def test_only_reads_of_known_databases_are_answered(client, txtasks):
    txtasks(metrics_token=TOKEN)
    headers = {"HTTP_AUTHORIZATION": f"Bearer {TOKEN}"}
    assert client.post("/metrics/", **headers).status_code == 405
    assert client.get("/metrics/?db=nowhere", **headers).status_code == 400
    assert client.get("/metrics/?db=default", **headers).status_code == 200
    assert client.head("/metrics/", **headers).status_code == 200


@pytest.mark.parametrize(
    "middleware", [[], ["django.contrib.auth.middleware.LoginRequiredMiddleware"]]
)
def test_the_view_needs_neither_users_nor_a_login(client, settings, txtasks, middleware):
    txtasks(metrics_token=TOKEN)
    usual = settings.MIDDLEWARE
    settings.MIDDLEWARE = [*usual, *middleware] if middleware else []
    assert client.get("/metrics/").status_code == 403
    headers = {"HTTP_AUTHORIZATION": f"Bearer {TOKEN}"}
    assert client.get("/metrics/", **headers).status_code == 200


def test_a_database_that_does_not_answer_is_said(client, txtasks):
    txtasks(metrics_token=TOKEN)

    def refuse(execute, sql, params, many, context):
        raise OperationalError("the server is away")

    with connection.execute_wrapper(refuse):
        response = client.get("/metrics/", HTTP_AUTHORIZATION=f"Bearer {TOKEN}")
    assert response.status_code == 503
    assert b"the server is away" in response.content


def test_without_a_token_a_database_that_does_not_answer_is_said_in_one_line(client, person):
    """The rows of sessions and users are in the database, too."""
    person("view_task")
    assert client.get("/metrics/").status_code == 200

    def refuse(execute, sql, params, many, context):
        raise OperationalError("connection to 10.0.0.5 failed\n\tIs the server running?")

    kept.forget()
    with connection.execute_wrapper(refuse):
        response = client.get("/metrics/")
        code, text = metrics.answer(["default"], "")
    assert response.status_code == 503
    said = response.content.decode()
    assert said.startswith("The database did not answer") and said.count("\n") == 1
    assert "10.0.0.5" not in said  # for people who may read the metrics
    assert code == 503 and "10.0.0.5" in text and text.count("\n") == 1


@pytest.mark.parametrize("token", ["short", 16 * "ä", "with a space in it", 12345678901234567])
def test_a_bad_token_is_refused_and_not_repeated(token):
    with pytest.raises(ConfigError, match=r"metrics_token.*at least 16 ASCII") as raised:
        parse({"metrics_token": token})
    assert str(token) not in str(raised.value)
    assert TOKEN not in repr(parse({"metrics_token": TOKEN}))


# -- the probe port ---------------------------------------------------------------------------------


@pytest.fixture
def port_of():
    started = []

    def start(page):
        started.append(Probes(Liveness(timedelta(1)), 0, "127.0.0.1", {"/metrics": page}))
        return started[-1].port

    yield start
    for one in started:
        one.close()


def ask(port: int, where: str = "/metrics", **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{where}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=helpers.PATIENCE) as got:  # noqa: S310
            return got.status, got.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_long_page_arrives_whole(port_of):
    text = "x" * 5_000_000
    assert ask(port_of(lambda _: (200, text))) == (200, f"{text}\n")


def test_a_page_that_waits_delays_no_probe(port_of, monkeypatch):
    monkeypatch.setattr(probe_server, "MAX_PAGES", 2)
    waits, may_go_on, answers = [], threading.Event(), []

    def page(authorization):
        waits.append(authorization)
        assert may_go_on.wait(helpers.PATIENCE)
        return 200, "slow"

    port = port_of(page)
    threads = [
        threading.Thread(target=lambda: answers.append(ask(port, Authorization="Bearer x")))
        for _ in range(2)
    ]
    for one in threads:
        one.start()
    helpers.wait_until(lambda: len(waits) == 2)
    assert ask(port, "/live") == (200, "ok\n")
    assert ask(port)[0] == 503
    may_go_on.set()
    for one in threads:
        one.join(helpers.PATIENCE)
    assert answers == [(200, "slow\n")] * 2
    assert waits == ["Bearer x"] * 2
    helpers.wait_until(lambda: ask(port) == (200, "slow\n"))


def test_a_page_that_fails_takes_no_thread_for_good(port_of, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr(probe_server, "MAX_PAGES", 1)
    answers = iter([ZeroDivisionError, None])

    def page(authorization):
        if error := next(answers):
            raise error
        return 200, "well"

    port = port_of(page)
    with pytest.raises((ConnectionError, OSError)):
        ask(port)
    helpers.wait_until(lambda: ask(port) == (200, "well\n"))


def test_without_a_thread_the_port_refuses_and_says_so(port_of, monkeypatch):
    monkeypatch.setattr(probe_server, "MAX_PAGES", 1)
    told = []

    def note(**facts):
        told.append((facts["path"], str(facts["error"])))

    start = threading.Thread.start

    def refuse(thread):
        if thread.name == "txtasks-page":
            raise RuntimeError("can't start new thread")
        start(thread)

    port = port_of(lambda _: (200, "well"))
    signals.probe_unanswered.connect(note)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            answers = [ask(port), ask(port)]
            assert ask(port, "/live") == (200, "ok\n")
        assert answers == [(503, "no thread can answer: can't start new thread\n")] * 2
        assert ask(port) == (200, "well\n")
        helpers.wait_until(lambda: told)
    finally:
        signals.probe_unanswered.disconnect(note)
    assert told == [("/metrics", "can't start new thread")]


def test_the_port_asks_for_the_token_if_there_is_one(txtasks):
    assert metrics.answer(["default"], "")[0] == 200
    txtasks(metrics_token=TOKEN)
    assert metrics.answer(["default"], "")[0] == 403
    assert metrics.answer(["default"], f"Bearer {TOKEN}")[0] == 200


# -- a registry -------------------------------------------------------------------------------------


def test_a_registry_has_the_same_text():
    appended(succeeded=1)
    tasks(2)
    registry = CollectorRegistry(auto_describe=True)
    with CaptureQueriesContext(connection) as seen:
        registry.register(Collector())
    assert len(seen) == 0
    theirs = generate_latest(registry).decode()
    assert values_in(theirs) == values_in(metrics.text(["default"]))
    assert kinds_in(theirs) == kinds_in(metrics.text(["default"]))


def values_in(text: str) -> dict[frozenset[str], float]:
    lines = [one for one in text.splitlines() if not one.startswith("#")]
    pairs = [one.rpartition(" ") for one in lines]
    return {
        frozenset(before.replace("{", ",").rstrip("}").split(",")): float(number)
        for before, _, number in pairs
    }


def kinds_in(text: str) -> set[str]:
    return {one for one in text.splitlines() if one.startswith("# TYPE")}


# -- off --------------------------------------------------------------------------------------------


@pytest.mark.once
def test_nothing_is_imported_until_somebody_asks():
    found = test_startup.imported_by(
        "import django; django.setup()\n"
        "import django_txtasks.management.commands.runworkers\n"
        "import django_txtasks.management.commands.runcleaner"
    )
    assert "django_txtasks.processes.probe_server" in found
    assert not [one for one in found if one.startswith(("django_txtasks.metrics", "prometheus"))]


# -- documentation ----------------------------------------------------------------------------------


@pytest.mark.once
def test_each_metric_and_each_problem_is_documented():
    page = (ROOT / "docs/reference/metrics.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) ?\| (.+) \|$", page, re.MULTILINE)
    said = {
        name: names.Metric(kind, tuple(re.findall(r"`(\w+)`", labels)), meaning)
        for name, kind, labels, meaning in rows
    }
    assert said == names.METRICS
    code = (ROOT / "django_txtasks/overview/problems.py").read_text()
    real = [
        getattr(problems, one, one.strip('"'))
        for one in re.findall(r'Problem\(\s*("\w+"|[A-Z]+)', code)
    ]
    assert len(real) > 10
    assert set(real) == set(re.findall(r"`(\w+)`", page.split("**Problems**")[1]))
