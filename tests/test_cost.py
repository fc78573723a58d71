"""What the queue costs its database: counted by the processes, and compared with what the server has counted."""

import html
import json
import re
from datetime import timedelta
from io import StringIO

import helpers
import pytest
from django.core.management import call_command
from django.db import connection, transaction
from probe import tasks
from test_figures import add_up
from test_glance import signed_in

from django_txtasks import enqueue_many, overview, stats
from django_txtasks.conf import get_config, parse
from django_txtasks.core.cleaning.cleaner import Cleaner
from django_txtasks.database import cost
from django_txtasks.exceptions import ConfigError
from django_txtasks.features.figures import appending, places
from django_txtasks.features.figures import writer as figures
from django_txtasks.features.figures.tally import Tally
from django_txtasks.insight import cost as room
from django_txtasks.insight.cost import database_cost
from django_txtasks.metrics import exposition, kept
from django_txtasks.models import DatabaseNow, RawStat

pytestmark = pytest.mark.usefixtures("rows")
HOUR = timedelta(hours=1)
IS_POSTGRES = pytest.mark.skipif(
    "connection.vendor != 'postgresql'", reason="only PostgreSQL counts what a database does"
)
OF_SERVER = """
    SELECT xact_commit + xact_rollback, tup_inserted + tup_updated + tup_deleted
      FROM pg_stat_database WHERE datname = current_database()
"""


def of_server():
    """Return the transactions and the written rows that PostgreSQL has counted in this database."""
    helpers.execute("SELECT pg_stat_force_next_flush()")
    helpers.execute("SELECT 1")
    return helpers.execute(OF_SERVER)[0]


def drain(function, number):
    """Enqueue, let a worker run all, and return what the server and what we have counted."""
    forget_figures()
    before = of_server()
    enqueue_many([(function, [])] * number)
    call_command("runworkers", batch=True, threads=4, stdout=StringIO())
    after = of_server()
    ours, rest = stats.sums(HOUR), cost.of("default")
    assert ours.succeeded == number
    counted = ours.transactions + rest.transactions, ours.rows_written + rest.rows + number
    return [now - then for now, then in zip(after, before, strict=True)], counted


def forget_figures():
    RawStat.objects.all().delete()
    cost.take("default")


@IS_POSTGRES
@pytest.mark.parametrize("keep", [3600, 0], ids=["with history", "without"])
@pytest.mark.parametrize("function", [tasks.whatever, tasks.atomic_quick])
def test_what_is_counted_for_a_task_is_what_the_server_counts(keep, function, txtasks):
    """Two drains, because the start of a worker costs more than we count."""
    txtasks(keep_finished=keep)
    gaps = []
    for number in (100, 400):
        server, ours = drain(function, number)
        gaps.append([theirs - mine for theirs, mine in zip(server, ours, strict=True)])
    for few, many in zip(*gaps, strict=True):
        assert abs(many - few) < 15, gaps


def test_an_idle_worker_and_a_cleaner_tell_what_they_cost(monkeypatch):
    monkeypatch.setattr(figures, "WRITE_IDLE_SECONDS", 0.2)
    forget_figures()
    with helpers.working():
        helpers.wait_until(lambda: stats.sums(HOUR).transactions > 3)
    assert stats.sums(HOUR).rows_written > 1, "its beats"
    forget_figures()
    cost.of("default").transactions += 5
    Cleaner(get_config()).run_once()
    assert not RawStat.objects.exists(), "it has added them up"
    found = stats.totals()
    assert found.transactions >= 5
    assert (found.functions, found.queues) == ((), ())
    assert stats.functions(HOUR).functions == ()
    assert set(stats.charts(HOUR)) <= {None, *get_config().queues}


def test_each_count_is_written_once():
    forget_figures()
    cost.of("default").transactions += 7
    for _ in range(2):
        with transaction.atomic():
            appending.append_cost("default")
    assert stats.sums(HOUR).transactions == 7
    add_up()
    assert stats.totals().transactions >= 7


def test_no_place_of_a_queue_is_taken(monkeypatch):
    monkeypatch.setattr(places, "MAX_QUEUES", 1)
    counted(succeeded=2, queue="one")
    counted(transactions=3)
    add_up()
    assert [one.queue for one in stats.totals().queues] == ["one"]
    assert stats.totals().transactions >= 3


def counted(succeeded=0, transactions=0, rows=0, queue="default", other=0):
    """Append what processes have counted."""
    tally, found = Tally(), cost.Cost()
    found.transactions, found.rows = transactions, rows
    tally.add_cost(found)
    if succeeded or other:
        tally.of(queue, "f").succeeded += succeeded
        tally.of(queue, "f").other += other
    with transaction.atomic():
        appending.append("default", tally)


@pytest.fixture
def a_busy_hour(rows):
    """An hour with 3,600 tasks, 7,200 transactions and 10,800 rows beside those of the enqueueing."""
    cost.take("default")
    counted(succeeded=3600, transactions=7200, rows=10_800)
    RawStat.objects.update(at=DatabaseNow() - timedelta(minutes=60))
    kept.forget()
    overview._forget()


@pytest.mark.usefixtures("a_busy_hour")
def test_the_cost_is_per_second_and_per_task():
    found = database_cost()
    assert found.tasks_per_second == pytest.approx(1.0, rel=0.05)
    assert found.transactions_per_second == pytest.approx(2.0, rel=0.05)
    assert found.rows_per_second == pytest.approx(4.0, rel=0.05)
    assert found.transactions_per_task == pytest.approx(2.0)
    assert found.rows_per_task == pytest.approx(4.0), "with the INSERT of each task"
    assert found.history_mb_per_day == 0.0


@pytest.fixture
def client(rows):
    return signed_in(is_superuser=True)


def status(**options):
    out = StringIO()
    call_command("txtasks_status", stdout=out, **options)
    return out.getvalue()


def metric(name):
    lines = exposition.text(["default"]).splitlines()
    return {
        one: float(value)
        for one, _, value in (line.rpartition(" ") for line in lines)
        if one.startswith(name)
    }


@pytest.mark.usefixtures("a_busy_hour")
def test_page_status_and_metrics_show_the_cost(client):
    line = next(one for one in status().splitlines() if one.startswith("Cost"))
    assert "2.0 transactions/s (2.0 per task)" in line
    assert "4.0 rows written/s (4.0 per task)" in line
    assert "0.0 MB of history in the last day." in line
    assert ("sessions" in line) is (connection.vendor != "sqlite")
    found = json.loads(status(json=True))["cost"]
    assert found["transactions_per_task"] == pytest.approx(2.0)
    page = client.get("/admin/txtasks/overview/").content.decode()
    assert "What the queue costs the database" in page
    assert "2.0/s<br><small>2.0 per task</small>" in page
    assert list(metric("txtasks_transactions_total").values()) == [7200]
    assert list(metric("txtasks_rows_written_total").values()) == [10_800]
    assert list(metric("txtasks_history_bytes_per_day").values()) == [0]


@pytest.mark.usefixtures("a_busy_hour")
def test_without_figures_no_cost_is_guessed(txtasks, client):
    txtasks(stats=False)
    assert database_cost().transactions_per_second is None
    assert "transactions/s" not in status()
    page = client.get("/admin/txtasks/overview/").content.decode()
    assert "per task" not in page
    assert not metric("txtasks_transactions_total")


@pytest.mark.usefixtures("a_busy_hour")
def test_a_cost_above_its_bound_is_a_warning(txtasks, client):
    txtasks(database_budget={"transactions_per_second": 5, "rows_per_second": 3.5})
    warning = (
        "The queue writes 4.0 rows per second, more than the 3.5 of TXTASKS['database_budget']."
    )
    assert warning in status()
    assert "transactions per second, more" not in status()
    page = html.unescape(client.get("/admin/txtasks/overview/").content.decode())
    assert warning in page
    assert metric('txtasks_problems{database="default",problem="over_budget"}')


@pytest.mark.once
@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ({"transactions": 5}, "Did you mean 'transactions_per_second'?"),
        ({"sessions": 0}, "it must be a number above 0"),
        ({"sessions": True}, "it must be a number above 0"),
        ({"sessions": float("nan")}, "it must be a number above 0"),
        (50, "it must be a dict with numbers, such as {'sessions': 50}"),
    ],
)
def test_a_budget_that_is_wrong_is_refused(budget, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        parse({"database_budget": budget})


@pytest.mark.skipif("connection.vendor == 'sqlite'", reason="SQLite has no sessions")
def test_the_sessions_of_a_worker_are_those_that_the_server_has():
    with helpers.working(threads=3):
        tasks.quick.enqueue()
        helpers.wait_until(lambda: not helpers.counts()["pending"])
        mine = sessions()
        helpers.wait_until(lambda: room.sessions_of("default") == sessions() - NOT_OURS)
        assert mine


def sessions():
    """Return the number of sessions in this database, as the server has them."""
    sql = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database()"
    if connection.vendor == "mysql":
        sql = "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE()"
    return helpers.execute(sql)[0][0]


NOT_OURS = 1
"""The session of this test."""
