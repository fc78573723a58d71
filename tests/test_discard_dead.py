"""``discard_dead_after``: a cleaner discards dead tasks after a time, as a person does. By default none."""

import logging
from datetime import timedelta

import helpers
import pytest
from django.db import connection
from django.utils import timezone
from probe import tasks
from test_cleaner_load import IS_POSTGRES, Clock, ago, write

from django_txtasks import batch, signals
from django_txtasks.conf import get_config, parse
from django_txtasks.core.cleaning import Cleaner, removal
from django_txtasks.core.ground.retention import Horizon, Kind, horizons_of_dead
from django_txtasks.core.rows import cleaning
from django_txtasks.exceptions import ConfigError
from django_txtasks.models import FinishedTask, Status, Task
from django_txtasks.operations import operators
from django_txtasks.testing import run_due_tasks

pytestmark = pytest.mark.usefixtures("rows")

DAY = timedelta(days=1)
QUEUES = ["default", "mail", "orders"]


def dead(function=tasks.reject, *args, **options):
    """Return the handle of a task that has died 40 days ago."""
    handle = function.using(max_attempts=1, **options).enqueue(*args)
    run_due_tasks(reraise=False)
    assert helpers.row(handle.id).status == Status.DEAD
    age(handle, 40)
    return handle


def age(handle, days):
    then = timezone.now() - timedelta(days=days)
    Task.objects.filter(pk=handle.id).update(run_after=then, started_at=then)


def clean():
    return Cleaner(get_config(), clock=Clock()).run_once()


@pytest.mark.once
@pytest.mark.parametrize(
    ("setting", "told"),
    [
        (30, "dict with times by the names of queues"),
        ({5: 30}, "dict with times by the names of queues"),
        ({"*": {"succeeded": 30}}, "use seconds"),
        ({"*": 0}, "longer than zero"),
        ({"mial": 30}, "names the queue 'mial'"),
    ],
    ids=str,
)
def test_a_time_for_dead_tasks_that_says_too_little_is_refused(setting, told):
    with pytest.raises(ConfigError, match=rf"^TXTASKS\['discard_dead_after'\].*{told}"):
        parse({"queues": QUEUES, "discard_dead_after": setting})


@pytest.mark.once
def test_a_queue_that_has_no_time_keeps_its_dead_tasks():
    assert horizons_of_dead(parse({}).discard_dead_after) == []
    assert horizons_of_dead({"*": DAY}) == [Horizon(DAY)]
    assert horizons_of_dead({"mail": DAY}) == [Horizon(DAY, (Kind(("mail",), False),))]
    assert horizons_of_dead({"*": DAY, "mail": None}) == [Horizon(DAY, (Kind(("mail",), True),))]


def test_dead_tasks_stay_for_ever_by_default():
    handle = dead()
    age(handle, 9999)
    assert clean()["discarded"] == 0
    assert helpers.row(handle.id).status == Status.DEAD


def test_each_queue_has_its_time_and_others_have_none(txtasks):
    txtasks(queues=QUEUES, discard_dead_after={"mail": 30 * DAY, "*": 90 * DAY, "orders": None})
    for queue in QUEUES:
        for days in (20, 40, 100):
            write(1, queue_name=f"'{queue}'", status="'dead'", run_after=ago(days * 86400))
            write(1, queue_name=f"'{queue}'", status="'held'", run_after=ago(days * 86400))
            write(1, queue_name=f"'{queue}'", run_after=ago(days * 86400))
    assert clean()["discarded"] == 3
    rows = Task.objects.filter(status=Status.DEAD).values_list("queue_name", flat=True)
    assert sorted(rows) == ["default", "default", "mail", "orders", "orders", "orders"]
    assert set(FinishedTask.objects.values_list("queue_name", "outcome")) == {
        ("default", "discarded"), ("mail", "discarded")
    }  # fmt: skip
    assert Task.objects.count() == 6 + 18
    assert clean()["discarded"] == 0


def test_a_task_that_was_due_long_ago_and_died_lately_stays(txtasks):
    txtasks(discard_dead_after={"*": 30 * DAY})
    handle = dead()
    Task.objects.update(started_at=timezone.now() - DAY)
    assert clean()["discarded"] == 0
    age(handle, 31)
    assert clean()["discarded"] == 1


@pytest.mark.parametrize("keep", [0, 7 * 86400])
def test_it_is_discarded_as_a_person_does_it(keep, txtasks, caplog):
    """The row, what history keeps of it, the signal with its log line; no hook a second time."""
    caplog.set_level(logging.INFO, logger="django_txtasks")
    txtasks(discard_dead_after={"*": 30 * DAY}, keep_finished=keep)
    told = []

    def note(**facts):
        told.append((facts["task_id"], facts["task"], facts["queue"]))

    signals.task_discarded.connect(note)
    try:
        one, other = dead(tasks.told, 1, 9), dead(tasks.told, 2, 9)
        hooks = helpers.runs("failure 1") + helpers.runs("failure 2")
        assert clean()["discarded"] == 2
        run_due_tasks(reraise=False)
        assert helpers.runs("failure 1") + helpers.runs("failure 2") == hooks
        third = dead(tasks.told, 3, 9)
        operators.discard("default", [third.id], keep=get_config().keeps("discarded"))
    finally:
        signals.task_discarded.disconnect(note)
    assert {task_id for task_id, *_ in told} == {one.id, other.id, third.id}
    assert len({(task, queue) for _, task, queue in told}) == 1
    lines = [one for one in caplog.records if one.getMessage().endswith("was discarded.")]
    assert len(lines) == 3
    rows = {one.pk: one for one in FinishedTask.objects.filter(outcome="discarded")}
    assert len(rows) == (3 if keep else 0)
    if keep:
        mine, persons = rows[one.id], rows[third.id]
        assert (mine.attempt, mine.failures, mine.outcome) == (
            persons.attempt, persons.failures, persons.outcome
        )  # fmt: skip
        assert len(mine.errors) == len(persons.errors) == 1


def test_a_member_of_a_batch_ends_it_as_failed(txtasks):
    txtasks(discard_dead_after={"*": 30 * DAY}, keep_finished=0)
    with batch(name="b", on_failure=tasks.tell_of_batch) as b:
        member, other = tasks.reject.enqueue(), tasks.note.using(run_after=DAY).enqueue()
    run_due_tasks(reraise=False)
    age(member, 40)
    assert clean()["discarded"] == 1
    assert b.status().failed == 1
    other.cancel()
    run_due_tasks(reraise=False)
    assert helpers.runs("failure b failed") == 1


def test_a_unique_key_and_a_lane_are_free_afterwards(txtasks):
    txtasks(discard_dead_after={"*": 30 * DAY}, lanes={"one": {"at_most": 1}})
    dead(tasks.reject, unique_key="k", lane="one")
    assert clean()["discarded"] == 1
    assert not Task.objects.exists()
    again = tasks.note.using(unique_key="k", lane="one").enqueue("again")
    run_due_tasks(reraise=False)
    assert helpers.finished(again.id).outcome == "succeeded"


def test_a_compensated_task_is_discarded_too_and_not_compensated_again(txtasks):
    """A person cannot revive it either, but can discard it."""
    txtasks(discard_dead_after={"*": 30 * DAY})
    handle = tasks.pay.enqueue("order 1", amount=5)
    helpers.execute("UPDATE txtasks_task SET status = 'dead', crashes = 1, attempt = 1")
    age(handle, 40)
    assert operators.revive("default", [handle.id]) == []
    assert clean()["discarded"] == 1
    assert not Task.objects.exists()
    assert helpers.finished(handle.id).outcome == "discarded"


def test_what_a_person_revives_meanwhile_stays(txtasks):
    """It was revived, ran and died again between the cleaner's look and its lock."""
    txtasks(discard_dead_after={"*": 30 * DAY})
    handle = dead()
    seen = []

    def revive_first(execute, sql, params, many, context):
        if "COALESCE(started_at, run_after) <" in sql and "ORDER BY" not in sql and not seen:
            seen.append(True)
            Task.objects.update(started_at=timezone.now())
        return execute(sql, params, many, context)

    with connection.execute_wrapper(revive_first):
        assert clean()["discarded"] == 0
    assert seen
    assert helpers.row(handle.id).status == Status.DEAD


@pytest.mark.skipif(connection.vendor == "sqlite", reason="one writer at a time")
def test_two_cleaners_discard_each_row_once(monkeypatch, txtasks):
    monkeypatch.setattr(cleaning, "ROWS_PER_LOOK", 20)
    txtasks(discard_dead_after={"*": 30 * DAY})
    write(60, status="'dead'", run_after=ago(40 * 86400))
    other = []
    # MariaDB locks each row that a DELETE reads, and it reads all rows of a small table
    moment = "DELETE FROM txtasks_task" if IS_POSTGRES else "run_after) < UTC_TIMESTAMP"

    def meanwhile(execute, sql, params, many, context):
        if moment in sql and "ORDER BY" not in sql and not other:
            other.append(None)
            with helpers.second_session(lambda: other.append(clean()["discarded"])):
                pass
        return execute(sql, params, many, context)

    with connection.execute_wrapper(meanwhile):
        mine = clean()["discarded"]
    assert mine + other[1] == 60
    assert FinishedTask.objects.filter(outcome="discarded").count() == 60


def test_a_pass_that_is_killed_in_the_middle_of_a_slice_loses_nothing(monkeypatch, txtasks):
    monkeypatch.setattr(cleaning, "ROWS_PER_LOOK", 20)
    txtasks(discard_dead_after={"*": 30 * DAY})
    write(60, status="'dead'", run_after=ago(40 * 86400))

    class Killed(BaseException):
        pass

    deletes = []

    def kill(execute, sql, params, many, context):
        if "DELETE FROM txtasks_task" in sql:
            deletes.append(sql)
            if len(deletes) == 2:
                raise Killed
        return execute(sql, params, many, context)

    with connection.execute_wrapper(kill), pytest.raises(Killed):
        clean()
    assert (Task.objects.count(), FinishedTask.objects.count()) == (40, 20)
    assert clean()["discarded"] == 40
    assert (Task.objects.count(), FinishedTask.objects.count()) == (0, 60)


def test_dead_tasks_that_stay_are_read_10000_in_a_pass(monkeypatch, txtasks):
    monkeypatch.setattr(cleaning, "ROWS_PER_LOOK", 20)
    monkeypatch.setattr(removal, "KEPT_PER_PASS", 60)
    txtasks(queues=QUEUES, discard_dead_after={"mail": 30 * DAY})
    write(200, queue_name="'orders'", status="'dead'", run_after=ago(400 * 86400))
    write(10, queue_name="'mail'", status="'dead'", run_after=ago(300 * 86400))
    clock = Clock()
    cleaner = Cleaner(get_config(), clock=clock)
    done = []
    for _ in range(4):
        done.append(cleaner.run_once()["discarded"])
        clock.now += 30
    assert done == [0, 0, 0, 10]
    assert Task.objects.count() == 200
