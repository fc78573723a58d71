"""Finished tasks are kept for a time by queue and outcome; a cleaner removes each at its time."""

from datetime import timedelta

import helpers
import pytest
from django.db import connection, transaction
from probe import tasks
from test_cleaner_load import IS_POSTGRES, Clock, ago, rows_read, write

from django_txtasks import cancel_task
from django_txtasks.conf import get_config, parse
from django_txtasks.core.cleaning import Cleaner, removal
from django_txtasks.core.ground.retention import OUTCOMES, Horizon, Kind
from django_txtasks.core.rows import cleaning
from django_txtasks.database.transactions import own_transaction
from django_txtasks.exceptions import ConfigError
from django_txtasks.models import FinishedTask, Outcome, Status, Task
from django_txtasks.operations import operators

pytestmark = pytest.mark.usefixtures("rows")

DAY = timedelta(days=1)
QUEUES = ["default", "mail", "orders"]


def history(count, outcome, days, queue="default", **columns):
    """Write finished rows of this age."""
    write(
        count, "txtasks_finishedtask", outcome=f"'{outcome}'", queue_name=f"'{queue}'",
        finished_at=ago(round(days * 86400)), **columns,
    )  # fmt: skip


def left():
    """Return how many finished rows there are of each queue and outcome."""
    rows = FinishedTask.objects.values_list("queue_name", "outcome")
    return {one: list(rows).count(one) for one in set(rows)}


def clean():
    return Cleaner(get_config(), clock=Clock()).run_once()


# -- the setting


@pytest.mark.once
def test_the_outcomes_of_the_settings_are_those_of_the_rows():
    assert set(OUTCOMES) == set(Outcome.values)


@pytest.mark.once
def test_a_time_by_outcome_has_a_horizon_for_each_distinct_time():
    kept = {
        "*": {"succeeded": 3 * DAY, "merged": 3 * DAY, "*": 365 * DAY},
        "mail": 3 * DAY,
        "orders": {"succeeded": None, "*": 365 * DAY},
    }
    retention = parse({"queues": QUEUES, "keep_finished": kept}).retention
    failed = ("cancelled", "discarded", "expired", "handed")
    assert retention.horizons == [
        Horizon(
            3 * DAY,
            (Kind(("mail", "orders"), True, ("succeeded", "merged")), Kind(("mail",), False)),
        ),
        Horizon(
            365 * DAY,
            (
                Kind(("mail", "orders"), True, failed),
                Kind(("orders",), False, ("cancelled", "discarded", "expired", "merged", "handed")),
            ),
        ),
    ]
    assert retention.longest == 365 * DAY
    assert retention.age("mail", "expired") == 3 * DAY
    assert retention.age("orders", "succeeded") is None
    assert retention.age("another", "merged") == 3 * DAY


@pytest.mark.once
@pytest.mark.parametrize(
    ("kept", "horizons"),
    [
        (7 * DAY, [Horizon(7 * DAY)]),
        (None, []),
        ({"default": DAY, "*": DAY}, [Horizon(DAY)]),
        ({"*": {"succeeded": DAY, "*": DAY}}, [Horizon(DAY)]),
        ({"*": {"succeeded": 0, "*": DAY}},
         [Horizon(0 * DAY, (Kind((), True, ("succeeded",)),)), Horizon(DAY)]),
        ({"default": DAY, "mail": DAY, "orders": DAY},
         [Horizon(DAY, (Kind(("default", "mail", "orders"), False),))]),
    ],
    ids=str,
)  # fmt: skip
def test_rows_of_the_longest_time_are_removed_without_a_condition(kept, horizons):
    """Unless rows of some queue stay for ever: then the statement has to leave them out."""
    assert parse({"queues": QUEUES, "keep_finished": kept}).retention.horizons == horizons


@pytest.mark.once
@pytest.mark.parametrize(
    ("kept", "told"),
    [
        ({"*": {"succeded": 5, "*": 60}}, "unknown outcome 'succeded'. Did you mean 'succeeded'"),
        ({"*": {"dead": 5, "*": 60}}, "has the unknown outcome 'dead'.*Use succeeded, "),
        ({"*": {"succeeded": 5}}, "says nothing of the outcome 'cancelled'"),
        ({"*": {}}, "says nothing of the outcome 'succeeded'"),
        ({"succeeded": 5, "*": 60}, r"names the queue 'succeeded'.*For a time by outcome"),
        ({"*": {"succeeded": "1 d", "*": 60}}, "use seconds"),
        ({"*": {"succeeded": -1, "*": 60}}, "longer than zero"),
        ({"*": {5: 5, "*": 60}}, "has the unknown outcome 5"),
        ({"mail": {"*": 5}}, "says nothing of the queue 'default'"),
    ],
    ids=str,
)  # fmt: skip
def test_a_time_by_outcome_that_says_too_little_is_refused(kept, told):
    with pytest.raises(ConfigError, match=told):
        parse({"queues": QUEUES, "keep_finished": kept})


# -- recording


def test_an_outcome_that_is_kept_nowhere_gets_no_row(rows, quick, txtasks):
    txtasks(queues=QUEUES, keep_finished={"*": {"succeeded": 0, "*": 3600}, "mail": 0})
    later = tasks.note.using(run_after=DAY)
    cancelled, held, dead = later.enqueue("1"), later.enqueue("2"), tasks.reject.enqueue()
    expired = later.using(expires=2 * DAY).enqueue("3")
    with helpers.working():
        notes = [tasks.note.enqueue("ran"), tasks.atomic_note.enqueue("ran")]
        helpers.wait_until(lambda: helpers.runs("ran") == 2)
        helpers.wait_until(lambda: Task.objects.filter(status=Status.DEAD).exists())
        helpers.wait_until(lambda: not Task.objects.filter(pk__in=[n.id for n in notes]).exists())
    assert not FinishedTask.objects.exists()
    cancel_task(cancelled.id)
    operators.cancel("default", [held.id], keep=get_config().keeps("cancelled"))
    operators.discard("default", [dead.id], keep=get_config().keeps("discarded"))
    Task.objects.filter(pk=expired.id).update(expires_at="2020-01-01T00:00Z")
    clean()
    ends = {one.pk: one.outcome for one in FinishedTask.objects.all()}
    assert ends == {
        cancelled.id: "cancelled", held.id: "cancelled", dead.id: "discarded", expired.id: "expired"
    }  # fmt: skip


def test_an_outcome_that_one_queue_keeps_gets_a_row_until_the_next_pass(quick, txtasks):
    txtasks(queues=QUEUES, keep_finished={"*": {"succeeded": 0, "*": 3600}, "mail": 3600})
    with helpers.working():
        for queue in ("default", "mail"):
            tasks.note.using(queue_name=queue).enqueue()
        helpers.wait_until(lambda: helpers.counts()["finished"] == 2)
    clean()
    assert left() == {("mail", "succeeded"): 1}


# -- pruning


def test_each_outcome_is_removed_at_its_time(txtasks):
    txtasks(
        queues=QUEUES,
        keep_finished={
            "*": {"succeeded": 3 * DAY, "merged": 5 * DAY, "*": 365 * DAY},
            "mail": {"succeeded": None, "*": 3 * DAY},
            "orders": 4 * DAY,
        },
    )
    for days in (2.9, 3.1, 4.1, 5.1, 364, 366):
        for outcome in Outcome.values:
            for queue in QUEUES:
                history(1, outcome, days, queue)
    assert clean()["pruned"] > 0
    assert left() == {
        ("default", "succeeded"): 1, ("default", "merged"): 3, ("default", "cancelled"): 5,
        ("default", "discarded"): 5, ("default", "expired"): 5, ("default", "handed"): 5,
        ("mail", "succeeded"): 6, ("mail", "merged"): 1, ("mail", "cancelled"): 1,
        ("mail", "discarded"): 1, ("mail", "expired"): 1, ("mail", "handed"): 1,
        **{("orders", outcome): 2 for outcome in Outcome.values},
    }  # fmt: skip
    assert clean()["pruned"] == 0


def test_a_row_of_a_queue_that_the_settings_no_longer_name_has_the_time_of_all_others(txtasks):
    txtasks(queues=QUEUES, keep_finished={"mail": 9 * DAY, "*": {"expired": 9 * DAY, "*": DAY}})
    for queue in ("mail", "gone"):
        for outcome in ("succeeded", "expired"):
            history(1, outcome, 2, queue)
    clean()
    assert left() == {("mail", "succeeded"): 1, ("mail", "expired"): 1, ("gone", "expired"): 1}


def looks_of(monkeypatch):
    """Note each look at finished rows: its result, by horizon."""
    looks = []

    def prune(alias, horizon, *, since=None, prune=cleaning.prune):
        removed = prune(alias, horizon, since=since)
        looks.append((horizon.age, since, removed))
        return removed

    monkeypatch.setattr(cleaning, "prune", prune)
    return looks


def test_rows_that_stay_for_a_year_are_read_once_a_day_and_10000_in_a_pass(monkeypatch, txtasks):
    """As many as 2,000 stand in front, and 100 at a look: each pass reads those of the last minutes."""
    monkeypatch.setattr(cleaning, "ROWS_PER_LOOK", 100)
    monkeypatch.setattr(removal, "KEPT_PER_PASS", 500)
    txtasks(keep_finished={"*": {"succeeded": 3 * DAY, "*": 365 * DAY}})
    history(2000, "cancelled", 100)
    history(50, "succeeded", 90)
    clock, looks = Clock(), looks_of(monkeypatch)
    cleaner = Cleaner(get_config(), clock=clock)
    passes = []
    for _ in range(7):
        history(30, "succeeded", 3.1)
        looks.clear()
        counts = cleaner.run_once()
        passes.append((counts["pruned"], sum(one.looked for _, _, one in looks)))
        clock.now += 30
    assert [pruned for pruned, _ in passes] == [30, 30, 30, 30, 80, 30, 30]
    assert left() == {("default", "cancelled"): 2000}
    assert max(looked for _, looked in passes) <= 600, passes
    assert passes[-1] == (30, 30)
    clock.now += removal.DAY_SECONDS
    looks.clear()
    cleaner.run_once()
    assert [since for _, since, _ in looks].count(None) == 2  # of all rows, and of the longest time


@pytest.mark.skipif(connection.vendor == "sqlite", reason="it does not count what it reads")
def test_a_batch_reads_few_rows_behind_rows_that_stay(txtasks):
    txtasks(keep_finished={"*": {"succeeded": 3 * DAY, "*": 365 * DAY}})
    history(5000, "cancelled", 100)
    history(500, "succeeded", 3.1)
    day, _ = get_config().retention.horizons
    place = cleaning.place_of_age("default", day.age + DAY)
    limit = timedelta(minutes=1)
    with (
        helpers.statistics_of_empty_tables(),
        own_transaction("default", limit=limit, in_order=True),
    ):
        before = rows_read()
        removed = cleaning.prune("default", day, since=place)
        assert len(removed.rows) == 500
        assert rows_read() - before < 5000


def test_a_plain_time_has_the_statement_without_a_condition(monkeypatch, txtasks):
    """A site that does not keep rows by queue or outcome pays nothing for those that do."""
    txtasks(keep_finished=3 * DAY)
    history(20, "succeeded", 3.1)
    history(20, "cancelled", 3.1)
    said, looks = [], looks_of(monkeypatch)

    def note(execute, sql, params, many, context):
        if "FROM txtasks_finishedtask" in sql:
            said.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        assert clean()["pruned"] == 40
    assert len(looks) == 1
    (look,) = [one for one in said if "finished_at <" in one]
    assert "outcome IN ('succeeded', 'merged')" in look  # of batches
    assert look.count("outcome IN") == 1
    assert "queue_name" not in look.partition("FROM (SELECT")[0]


def test_a_shorter_time_finds_rows_that_had_a_longer_one(monkeypatch, txtasks):
    """A cleaner with new settings begins at the oldest row, however far behind its horizon that is."""
    txtasks(keep_finished={"*": {"succeeded": 365 * DAY, "*": None}})
    history(30, "succeeded", 200)
    history(30, "expired", 200)
    assert clean()["pruned"] == 0
    txtasks(keep_finished={"*": {"succeeded": 3 * DAY, "*": None}})
    assert clean()["pruned"] == 30
    txtasks(keep_finished={"*": {"succeeded": 3 * DAY, "*": 100 * DAY}})
    assert clean()["pruned"] == 30


def test_a_pass_that_is_killed_in_the_middle_of_a_slice_removes_nothing_twice(monkeypatch, txtasks):
    monkeypatch.setattr(cleaning, "ROWS_PER_LOOK", 20)
    txtasks(keep_finished={"*": {"succeeded": 3 * DAY, "*": 365 * DAY}})
    history(50, "expired", 3.2)
    history(90, "succeeded", 3.1)

    class Killed(BaseException):
        pass

    deletes = []

    def kill(execute, sql, params, many, context):
        if "DELETE FROM txtasks_step" in sql:
            deletes.append(sql)
            if len(deletes) == 3:
                raise Killed
        return execute(sql, params, many, context)

    with connection.execute_wrapper(kill), pytest.raises(Killed):
        clean()
    stayed = left()[("default", "succeeded")]
    assert 90 - 60 < stayed < 90
    assert clean()["pruned"] == stayed
    assert left() == {("default", "expired"): 50}


@pytest.mark.skipif(connection.vendor == "sqlite", reason="one writer at a time")
def test_two_cleaners_remove_each_row_once(monkeypatch, txtasks):
    monkeypatch.setattr(cleaning, "ROWS_PER_LOOK", 50)
    txtasks(keep_finished={"*": {"succeeded": 3 * DAY, "*": 365 * DAY}})
    history(200, "succeeded", 3.1)
    history(20, "discarded", 3.1)
    other = []

    def meanwhile(execute, sql, params, many, context):
        if "DELETE FROM txtasks_finishedtask" in sql and not other:
            other.append(None)
            with helpers.second_session(lambda: other.append(clean()["pruned"])):
                pass
        return execute(sql, params, many, context)

    with connection.execute_wrapper(meanwhile):
        mine = clean()["pruned"]
    assert mine + other[1] == 200
    assert other[1] > 0 or not IS_POSTGRES  # MariaDB locks all rows of a small table
    assert left() == {("default", "discarded"): 20}


def test_a_row_that_has_to_stay_is_removed_a_day_later_at_the_latest(txtasks):
    """A failed member of an open batch stays; when the batch has ended, the row is far behind the last place."""
    txtasks(keep_finished={"*": {"expired": 3 * DAY, "*": 365 * DAY}})
    winner = tasks.note.enqueue()
    helpers.execute(
        "INSERT INTO txtasks_batch (id, name, hooks) VALUES (%s, '', '{}')", winner.id.hex
    )
    helpers.execute("UPDATE txtasks_task SET batch = id, status = 'held'")
    history(1, "expired", 9, batch=f"'{winner.id.hex}'")
    clock = Clock()
    cleaner = Cleaner(get_config(), clock=clock)
    assert cleaner.run_once()["pruned"] == 0
    with transaction.atomic():
        helpers.execute("UPDATE txtasks_batch SET finished_at = '2020-01-01 00:00:00'")
        helpers.execute("DELETE FROM txtasks_task")
    clock.now += 60
    cleaner.run_once()
    clock.now += removal.DAY_SECONDS
    cleaner.run_once()
    assert not FinishedTask.objects.exists()
