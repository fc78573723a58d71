"""No sentence of the log holds an argument, a result or any other value of a task: security.md promises so."""

from __future__ import annotations

import contextlib
import logging
import uuid

import helpers
import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from probe import tasks
from test_lifecycle import clean, declare_lost, new_worker
from test_waits import token_for

from django_txtasks import batch, periodic, publish, resume, resume_url
from django_txtasks.database.errors import message_of, text_of
from django_txtasks.features.lanes import changes as lane_changes
from django_txtasks.features.schedules import changes as schedule_changes
from django_txtasks.features.schedules import periodic as scheduling
from django_txtasks.models import Schedule, Status, Task
from django_txtasks.operations import operators

pytestmark = pytest.mark.usefixtures("rows", "quick")

SECRET = "hunter2"
NESTED = {"password": SECRET, "deep": [{"list": [SECRET, {"key": SECRET}]}], SECRET: 1}


class Kept(logging.Handler):
    """Keeps all records."""

    def __init__(self):
        super().__init__(logging.DEBUG)
        self.records = []

    def emit(self, record):
        self.records.append(record)


@pytest.fixture(autouse=True)
def log(txtasks):
    """All records of this package; at the end of the test none holds the secret."""
    txtasks(lanes={"api": {"at_most": 2}, "tenant:*": {"weight": 1}})
    logger, kept = logging.getLogger("django_txtasks"), Kept()
    level = logger.level
    logger.addHandler(kept)
    logger.setLevel(logging.DEBUG)
    yield kept
    logger.removeHandler(kept)
    logger.setLevel(level)
    assert kept.records
    for record in kept.records:
        text = f"{record.getMessage()} {record.exc_text} {sorted(map(str, vars(record).items()))}"
        assert SECRET not in text, record.getMessage()


def work():
    call_command("runworkers", batch=True, threads=2)


def work_until_nothing_waits():
    def none_left():
        work()
        return not Task.objects.filter(status=Status.PENDING).exists()

    helpers.wait_until(none_left)


def test_arguments_and_results():
    tasks.give.enqueue(NESTED)
    tasks.note.enqueue(SECRET)
    tasks.atomic_note.enqueue(key=SECRET)
    tasks.numbers.enqueue([SECRET])  # hands its result to a hook
    tasks.note_async.enqueue(SECRET)
    work_until_nothing_waits()


def test_attempts_that_fail():
    tasks.add_up.enqueue([1, SECRET])
    tasks.told_atomic.enqueue(SECRET)
    tasks.reject.enqueue()
    tasks.tidy_told.enqueue(SECRET)
    tasks.give.enqueue(value=SECRET)
    with contextlib.suppress(Exception):
        tasks.note.enqueue(SECRET, SECRET, password=SECRET)
    work_until_nothing_waits()


def test_a_result_that_cannot_be_kept():
    tasks.give.enqueue([SECRET] * 3)
    tasks.give_much.enqueue(300_000)
    work_until_nothing_waits()


@pytest.mark.parametrize("notices", [{"task": "probe.tasks.notice"}, {"mail": ["ops@example.com"]}])
def test_a_dead_task_its_hooks_and_its_notices(txtasks, notices):
    txtasks(dead_notices=notices)
    tasks.pay_too_much.enqueue(SECRET, amount=NESTED)
    handle = tasks.fail_until.using(max_attempts=1).enqueue(99)
    Task.objects.filter(pk=handle.id).update(headers={"password": SECRET})
    work_until_nothing_waits()
    assert Task.objects.filter(status=Status.DEAD).count() == 2


def test_a_crash_and_its_compensation():
    tasks.pay.enqueue(SECRET, amount=NESTED)
    tasks.try_to_pay.enqueue(SECRET, amount=NESTED)
    worker = new_worker()
    with transaction.atomic():
        helpers.claim(worker, 2)
    declare_lost(worker)
    clean()
    work_until_nothing_waits()


def test_steps_waits_and_tokens(settings):
    settings.ROOT_URLCONF = "urls_for_waits"
    handle = tasks.ask.enqueue(SECRET)
    tasks.sleep_between.enqueue(SECRET, 0)
    work()
    token = token_for(handle.id)
    resume_url(token, value=SECRET)
    assert resume(token, NESTED)
    work_until_nothing_waits()


def test_progress():
    tasks.released.set()
    tasks.tell_progress.enqueue("key", [1, 2, SECRET])
    work_until_nothing_waits()


def test_lanes_and_keys():
    tasks.asked_to_wait.enqueue(SECRET, 0)
    tasks.serve_tenant.enqueue(SECRET, tenant="a")
    for _ in range(3):
        tasks.tidy.enqueue(SECRET, SECRET)
        tasks.call_api_once.enqueue(SECRET)
        tasks.note.using(once=SECRET).enqueue(SECRET)
    lane_changes.limit("default", "api", {"at_most": 1}, by="ann")
    work_until_nothing_waits()


def test_batches_and_events():
    with batch(name="b", on_finish=tasks.tell_of_batch):
        tasks.give.enqueue(NESTED)
        tasks.hear.enqueue(SECRET)
    publish("probe.happened", SECRET)
    publish("probe.happened", key=SECRET)
    work_until_nothing_waits()


def test_what_people_do():
    alias, keep = "default", True
    ids = [tasks.give.enqueue(NESTED).id for _ in range(3)]
    ids = [uuid.UUID(str(one)) for one in ids]
    operators.hold(alias, ids)
    operators.resume(alias, ids)
    operators.run_now(alias, ids)
    operators.cancel(alias, ids, keep=keep)


def test_schedules(monkeypatch):
    monkeypatch.setattr(scheduling, "_declared", {})
    periodic("0 3 * * *", args=[NESTED], name="nightly")(tasks.give)
    schedule_changes.sync("default", scheduling.declared(), keep=True)
    changes = {"kwargs": {"password": SECRET}, "args": [SECRET, NESTED], "cron": "0 4 * * *"}
    schedule_changes.configure("default", "nightly", changes, keep=True, by="ann")
    schedule_changes.follow_code("default", "nightly", scheduling.declared()["nightly"], keep=True)
    schedule_changes.disable("default", "nightly", keep=True)
    schedule_changes.enable("default", "nightly", keep=True)
    scheduling.run_now("default", "nightly", by="ann")
    work_until_nothing_waits()


@pytest.mark.parametrize(
    "columns",
    [
        {"kwargs": {"nobody_knows": SECRET}},
        {"args": [SECRET, SECRET, SECRET]},
        {"args": {SECRET: SECRET}},
        {"kwargs": [SECRET]},
    ],
    ids=str,
)
def test_a_schedule_whose_arguments_do_not_fit(columns):
    past = {"every": 60.0, "next_at": "2020-01-01T00:00Z"}
    Schedule.objects.create(name="bad", task_name="probe.tasks.give", **{**past, **columns})
    call_command("runcleaner", once=True)
    assert not Schedule.objects.get().enabled or Schedule.objects.get().error
    assert SECRET not in Schedule.objects.get().error


@pytest.mark.parametrize(
    "columns",
    [
        {"args": {SECRET: 1}},
        {"kwargs": [SECRET]},
        {"kwargs": {"nobody_knows": SECRET}},
        {"errors": SECRET},
    ],
    ids=str,
)
def test_a_row_of_nonsense(columns):
    handle = tasks.give.enqueue(1)
    Task.objects.filter(pk=handle.id).update(**columns)
    work()
    call_command("runcleaner", once=True)


BAD = {
    "postgresql": [
        ("INSERT INTO txtasks_task (id, task_name, args) VALUES (%s, %s, CAST(%s AS jsonb))",
         ["0190d0c5-0000-7000-8000-000000000000", "x", '{"password": "hunter2'],),
        ("UPDATE txtasks_task SET priority = CAST(%s AS int)", [SECRET]),
        ("UPDATE txtasks_task SET task_name = NULL", []),
        ("UPDATE txtasks_task SET id = '0190d0c5-0000-7000-8000-000000000000'", []),
    ],
    "mysql": [
        ("UPDATE txtasks_task SET priority = %s", [SECRET]),
        ("UPDATE txtasks_task SET args = %s", ['{"password": "hunter2']),
        ("UPDATE txtasks_task SET id = '0190d0c5-0000-7000-8000-000000000000', task_name = NULL", []),
        ("INSERT INTO txtasks_pausedqueue (queue_name) VALUES (%s), (%s)", [SECRET, SECRET]),
        ("INSERT INTO txtasks_pausedqueue (queue_name, paused_at) VALUES ('x', %s)", [SECRET]),
    ],
    "sqlite": [
        ("UPDATE txtasks_task SET args = %s", ['{"password": "hunter2']),
        ("INSERT INTO txtasks_pausedqueue (queue_name) VALUES (%s), (%s)", [SECRET, SECRET]),
    ],
}  # fmt: skip


@pytest.mark.parametrize("number", range(5))
def test_what_a_database_says_of_a_row_that_it_refuses(number, log):
    """PostgreSQL shows the row in DETAIL and CONTEXT; MariaDB quotes the value."""
    for _ in range(2):
        tasks.give.enqueue(NESTED)
    work()
    for _ in range(2):
        tasks.give.enqueue(NESTED)
    cases = BAD[connection.vendor]
    sql, params = cases[number % len(cases)]
    with pytest.raises(DatabaseError) as caught, transaction.atomic():
        helpers.execute(sql, *params)
    for text in (text_of(caught.value), message_of(caught.value)):
        assert text and SECRET not in text
