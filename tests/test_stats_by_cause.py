"""Failed tasks by cause: few entries of one index are read, however many tasks, causes and queues there are."""

import json
import uuid

import helpers
import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_txtasks.exceptions import InvalidOption
from django_txtasks.models import EndedWorker, Task
from django_txtasks.stats import by_cause, causes

pytestmark = pytest.mark.usefixtures("rows")

ERROR = {"class": "shop.errors.Declined", "type": "Declined", "traceback": "…\nDeclined: card 1"}


def add(
    number,
    *,
    cause=None,
    status="dead",
    queue="default",
    name="shop.tasks.pay",
    day=1,
    errors=(ERROR,),
):
    Task.objects.bulk_create(
        Task(
            id=uuid.uuid4(), task_name=name, status=status, queue_name=queue, cause=cause, errors=list(errors),
            run_after=f"2026-01-{day:02} 00:00:0{index % 10}Z",
        )
        for index in range(number)
    )  # fmt: skip


def rows_read():
    """Return how many rows and entries of the tasks' table were read so far."""
    if connection.vendor == "postgresql":
        sql = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'txtasks_task'"
        return int(helpers.execute(sql)[0][0])
    rows = helpers.execute("SHOW SESSION STATUS LIKE 'Handler_read%%'")
    return sum(int(number) for _, number in rows)


def test_each_cause_is_one_entry_with_its_numbers_times_and_newest_error():
    add(3, cause=-7, day=2)
    add(2, cause=-7, status="pending", day=4)
    add(1, cause=-7, status="held", day=3)
    add(1, cause=9, name="shop.tasks.ship", errors=())
    found = causes()
    assert not found.is_cut
    one, other = found.causes
    assert (one.fingerprint, one.queue, one.task) == (-7, "default", "shop.tasks.pay")
    assert (one.dead, one.retrying, one.held, one.is_capped) == (3, 2, 1, False)
    assert (one.exception, one.last_line) == ("shop.errors.Declined", "Declined: card 1")
    assert (one.first.isoformat(), one.last.isoformat()) == (
        "2026-01-02T00:00:00+00:00", "2026-01-04T00:00:01+00:00",
    )  # fmt: skip
    assert Task.objects.get(pk=one.sample).status == "pending"
    assert (other.fingerprint, other.dead, other.exception, other.last_line) == (9, 1, "", "")


def test_the_message_of_one_task_is_not_said_of_all():
    """One cause is a class and a place in the code; the messages of its tasks may differ."""
    add(118, cause=-7, day=2)
    assert causes().causes[0].error == "Declined: card 1"
    newest = {"class": "shop.errors.Declined", "traceback": "…\nDeclined: card 2"}
    add(1, cause=-7, day=3, errors=[newest])
    (one,) = causes().causes
    assert (one.dead, one.differs) == (119, True)
    assert one.error == "Declined (the newest: card 2)"
    assert str(one.oldest) in json.dumps(one.as_json())


def test_the_answer_is_json_and_the_fingerprint_is_text():
    add(1, cause=-(2**63))
    add(1, cause=2**63 - 1, queue="mail")
    found = json.loads(json.dumps(causes().as_json()))
    assert {one["fingerprint"] for one in found["causes"]} == {str(-(2**63)), str(2**63 - 1)}
    assert found["is_cut"] is False


def test_dead_tasks_without_a_cause_are_one_entry_and_held_ones_have_not_failed():
    add(2)
    add(2, status="held")
    add(2, status="pending")
    (one,) = causes().causes
    assert (one.fingerprint, one.dead, one.retrying, one.held) == (None, 2, 0, 0)
    assert one.as_json()["fingerprint"] is None


def test_a_cause_names_the_release_that_was_the_newest_when_its_first_task_ran():
    for day, release in ((1, "1.0"), (3, "1.1"), (5, "1.2")):
        EndedWorker.objects.create(
            id=uuid.uuid4(), host="x", pid=1, release=release,
            started_at=f"2026-01-{day:02} 00:00Z", ended_at="2026-01-09 00:00Z",
        )  # fmt: skip
    add(1, cause=1, day=4)
    add(1, cause=1, day=6)
    (one,) = causes().causes
    assert one.since == "1.1"
    Task.objects.update(started_at="2026-01-07 00:00Z")  # the tasks waited for a deploy
    assert causes().causes[0].since == "1.2"
    EndedWorker.objects.all().delete()
    assert causes().causes[0].since == ""


def test_a_running_task_has_no_place_in_the_list():
    add(1, cause=1)
    Task.objects.update(status="claimed", worker=uuid.uuid4(), claimed_at="2026-01-01 00:00Z")
    assert causes().causes == ()


def test_the_cause_with_the_most_dead_tasks_is_first_and_the_others_are_cut():
    for cause, number in enumerate((1, 3, 2)):
        add(number, cause=cause, queue=f"q{cause}")
    assert [one.dead for one in causes().causes] == [3, 2, 1]
    found = causes(limit=2)
    assert ([one.dead for one in found.causes], found.is_cut) == ([3, 2], True)


def test_numbers_end_at_a_limit_and_say_so(monkeypatch):
    monkeypatch.setattr(by_cause, "MOST", 5)
    add(8, cause=1)
    add(5, cause=2)
    assert [(one.dead, one.is_capped) for one in causes().causes] == [(5, True), (5, False)]


def test_probes_end_at_a_limit_and_the_answer_says_so(monkeypatch):
    monkeypatch.setattr(by_cause, "MAX_PROBES", 10)
    for cause in range(30):
        add(1, cause=cause)
    found = causes()
    assert found.is_cut
    assert 5 < len(found.causes) <= 10


def test_a_cause_stays_in_the_list_though_a_task_of_it_ends_in_the_meantime(monkeypatch):
    add(3, cause=7)
    add(1, cause=7, status="pending", day=4)
    read = by_cause.sizes_of

    def sizes_of(alias, places):
        found = list(read(alias, places))
        Task.objects.filter(status="pending").delete()
        return found

    monkeypatch.setattr(by_cause, "sizes_of", sizes_of)
    (one,) = causes().causes
    assert (one.dead, one.retrying) == (3, 1)
    assert Task.objects.get(pk=one.sample).status == "dead"


def test_the_numbers_of_a_cause_say_that_not_all_queues_were_read(monkeypatch):
    for number in range(5):
        add(1, cause=1, queue=f"q{number}")
    assert by_cause.numbers_of(1)["dead"] == (5, False)
    monkeypatch.setattr(by_cause, "MAX_PROBES", 3)
    assert by_cause.numbers_of(1)["dead"] == (3, True)
    assert by_cause.numbers_of(1)["pending"] == (0, True)


@pytest.mark.skipif(connection.vendor != "postgresql", reason="the others have no such settings")
def test_the_settings_of_the_reads_end_with_them():
    """Otherwise the other statements of the caller's transaction would read in order, too."""
    add(1, cause=1)
    with transaction.atomic():
        assert causes().causes
        assert helpers.execute("SHOW enable_sort") == [("on",)]
        assert by_cause.numbers_of(1)["dead"] == (1, False)
        assert helpers.execute("SHOW enable_sort") == [("on",)]


def test_many_causes_take_few_statements_besides_the_probes():
    for cause in range(60):
        add(1, cause=cause)
    with CaptureQueriesContext(connection) as queries:
        found = causes(10)
    assert (len(found.causes), found.is_cut) == (10, True)
    assert len(queries) <= 60 + 20


def test_with_many_causes_each_count_ends_earlier(monkeypatch):
    """Together the counts read ``MOST_ENTRIES`` entries at most: each reads one more than its number."""
    monkeypatch.setattr(by_cause, "MOST_ENTRIES", 12)
    add(9, cause=1)
    assert causes().causes[0].dead == 5  # its place, and that of tasks without a cause
    add(1, cause=2)
    add(1, cause=3)
    assert causes().causes[0].dead == 2
    for cause in range(4, 20):
        add(1, cause=cause)
    assert causes().causes[0].dead == 1


@pytest.mark.skipif(
    connection.vendor != "postgresql", reason="the others have one probe for each cause"
)
def test_postgresql_finds_all_causes_in_one_statement():
    for cause in range(60):
        add(1, cause=cause, queue=f"q{cause % 3}")
    add(1, queue="q9")
    with CaptureQueriesContext(connection) as queries:
        assert len(causes(100).causes) == 61
    assert len(queries) <= 12


def test_a_limit_below_one_is_refused():
    with pytest.raises(InvalidOption, match="limit is 0"):
        causes(limit=0)


@pytest.mark.skipif(
    connection.vendor == "sqlite", reason="an index that is named is followed there"
)
def test_few_entries_are_read_though_the_statistics_are_of_an_empty_table(monkeypatch):
    """Neither the tasks that never failed nor the failed ones beyond the limit are read."""
    monkeypatch.setattr(by_cause, "MOST", 20)
    with helpers.statistics_of_empty_tables():
        for queue in ("default", "mail"):
            add(2000, status="pending", queue=queue)
            for cause in (1, 2, 3):
                add(500, cause=cause, queue=queue)
            add(500, cause=1, status="pending", queue=queue)
            add(500, queue=queue)
        with transaction.atomic():
            before = rows_read()
            found = causes()
            read = rows_read() - before
    assert [one.dead for one in found.causes] == [20] * 8
    assert read < 1000, f"{read} entries were read"


@pytest.mark.skipif(connection.vendor != "sqlite", reason="the others count what they read")
def test_each_statement_searches_the_index_of_causes():
    plans = []

    def explain(execute, sql, params, many, context):
        if " INDEXED BY " in sql:
            execute(f"EXPLAIN QUERY PLAN {sql}", params, many, context)
            plans.append([row[3] for row in context["cursor"].fetchall()])
        return execute(sql, params, many, context)

    add(2, cause=1)
    add(2)
    with connection.execute_wrapper(explain):
        causes()
    assert len(plans) >= 5
    for plan in plans:
        reads = [line for line in plan if "txtasks_task" in line]
        assert reads, plan
        assert all("SEARCH" in line and "txtasks_cause" in line for line in reads), plan
        assert not any("TEMP B-TREE" in line for line in plan), plan
