"""Two ways to claim, one rule: a turn in one statement claims what a turn of several does."""

import random
import uuid
from dataclasses import replace
from datetime import timedelta

import helpers
import pytest
from django.db import OperationalError, connection, connections, transaction
from probe import tasks

from django_txtasks.conf import get_config
from django_txtasks.core.declaring import registry
from django_txtasks.core.rows import buckets, statements, workers
from django_txtasks.core.rows.engines import portable
from django_txtasks.core.rows.turn import (
    Admission,
    Bucket,
    Candidate,
    Capacity,
    RecentWindow,
    Scan,
    TurnOrder,
    TurnRequest,
)
from django_txtasks.core.working.schedule import Plan
from django_txtasks.core.working.turn_writer import TurnWriter
from django_txtasks.database import sessions
from django_txtasks.database.execute import bound
from django_txtasks.fast import mariadb, postgresql
from django_txtasks.models import Status, Task
from django_txtasks.operations import pausing

pytestmark = pytest.mark.usefixtures("rows")
on_postgres = pytest.mark.skipif(
    connection.vendor != "postgresql", reason="PostgreSQL does a turn in one statement"
)
on_mariadb = pytest.mark.skipif(connection.vendor != "mysql", reason="MariaDB has blocks")


def register():
    return workers.register(
        "default", queues=["default"], threads=1, listening=None, lease=get_config().lease
    )


@pytest.mark.parametrize(
    "sql", [statements.CHOOSE_DUE.replace("{after}", ""), statements.CHOOSE_BY_ID]
)
def test_the_columns_of_a_candidate_are_those_of_the_statements(sql):
    params = {"queue": "default", "priority": 0, "limit": 1, "names": registry.names(),
              "ids": [uuid.uuid4()], "queues": ["default"]}  # fmt: skip
    text, values = bound(connections["default"], sql, params)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(text, values)
        assert (*(column for column, *_ in cursor.description), "headers") == Candidate._fields


@on_postgres
def test_a_dedicated_session_gets_statements_as_the_server_reads_them():
    sql = "SELECT %(one)s || %(two)s || %(one)s WHERE x {in_names}"
    values = {"one": "1", "two": "%(2)s $1", "names": ("a", 'b"')}
    text, params = bound(connections["default"], sql, values)
    assert params == {**values, "names": '{"a","b\\""}'}
    sessions.dedicate("default", timedelta(seconds=9))
    try:
        text, params = bound(connections["default"], sql, values)
        assert "$1 || $2 || $1" in text
        assert params == ["1", "%(2)s $1", '{"a","b\\""}']
    finally:
        sessions.close_dedicated("default")


# ---- both ways over the same rows


def enqueue_some(dice):
    """Write rows of each kind that a worker may meet; return their ids."""
    found = []
    for _ in range(dice.randrange(12)):
        function = dice.choice([tasks.quick, tasks.quick, tasks.note, tasks.slow_once])
        options = {
            "priority": dice.choice([0, 0, 5]),
            "queue_name": dice.choice(["default", "default", "mail"]),
            "run_after": timedelta(seconds=dice.choice([-500, -5, -5, -1, 60])),
        }
        if dice.random() < 0.1:
            options["expires"] = timedelta(seconds=-1)
        found.append(function.using(**options).enqueue().id)
    return found


def put_some_into_lanes(dice, ids):
    """Put some of the tasks into lanes; turns for lanes claim only these."""
    for one in dice.sample(ids, len(ids) // 3):
        Task.objects.filter(pk=one).update(lane=dice.choice(["a", "b"]))


def pause_some(dice):
    """Pause one of the queues, or none, or both."""
    for queue in dice.choice([(), (), ("mail",), ("default",), ("default", "mail")]):
        pausing.pause("default", queue)


def some_request(dice, ids):
    short = frozenset(dice.choice([[], ["probe.tasks.quick"]]))
    limit = dice.choice([1, 3, 100])
    capacity = Capacity(dice.randrange(5), dice.choice([0, 0, 2, 9]), limit, short)
    hinted = dice.sample(ids, dice.randrange(len(ids) + 1)) + [uuid.uuid4()] * dice.randrange(2)
    buckets = tuple(Bucket(priority, queue) for priority in (5, 0) for queue in ("mail", "default"))
    recent = dice.choice([None, None, RecentWindow(buckets, 60.0)])
    scan = Scan(dice.choice([("default", "mail"), ("mail", "default")]), {}, recent)
    scans = capacity.width and dice.random() < 0.7  # who has no room does not scan
    return TurnRequest(capacity, hinted, scan if scans else None)


def seen(result):
    """Return the facts of a result, without seconds."""
    return {
        "claimed": [(one.task_id, one.number, one.may_share) for one in result.claimed],
        "later": {task_id: wait > 0 for task_id, wait in result.later.items()},
        "absent": list(result.absent),
        "left": result.rest.width,
        "scan": (result.scan and result.scan.cursors, result.has_more),
        "blocked": result.blocked_queue,
        "settled": (result.settled, result.not_ours, dict(result.in_lanes)),
    }


def claimed_from_paused():
    claimed = Task.objects.filter(status=Status.CLAIMED)
    return claimed.filter(queue_name__in=buckets.paused_queues("default")).count()


def rows():
    return sorted(Task.objects.values_list("id", "status", "attempt", "worker"))


@pytest.mark.about("two_blocks")
@on_mariadb
@pytest.mark.parametrize("seed", range(60))
def test_a_turn_in_two_blocks_claims_what_one_of_several_statements_does(seed):
    dice = random.Random(seed)
    ids, worker = enqueue_some(dice), register()
    put_some_into_lanes(dice, ids)
    pause_some(dice)
    subscription = helpers.subscription("default", "mail")
    state = workers.state_of("default", running=0, listening=None)
    cursors = {}
    for _ in range(4):
        request = some_request(dice, ids)
        if request.scan is not None:
            request = replace(request, scan=replace(request.scan, cursors=cursors))
        with transaction.atomic():
            several, before = portable.claim(subscription, worker, request), rows()
            transaction.set_rollback(True)
        order = TurnOrder(
            subscription, worker, state, request, [], keep=True, limit=timedelta(seconds=9)
        )
        at_once = mariadb.turn(order)
        assert seen(at_once) == seen(several), request
        assert rows() == before, request
        assert not claimed_from_paused()
        cursors = at_once.scan.cursors if at_once.scan else {}


@on_postgres
@pytest.mark.parametrize("seed", range(60))
def test_both_ways_claim_the_same(seed):
    dice = random.Random(seed)
    ids, worker = enqueue_some(dice), register()
    put_some_into_lanes(dice, ids)
    pause_some(dice)
    subscription = helpers.subscription("default", "mail")
    for _ in range(4):
        request, found = some_request(dice, ids), []
        for engine in (portable, postgresql):
            with transaction.atomic():
                result = engine.claim(subscription, worker, request)
                found.append((seen(result), rows()))
                assert not claimed_from_paused()
                transaction.set_rollback(True)
        (several, after), (one, after_one) = found
        assert several == one, request
        assert after == after_one, request


@on_postgres
@pytest.mark.about("one_statement")
def test_claims_that_the_statement_and_python_count_differently_are_released(monkeypatch):
    """The rule stands in both languages. Should they ever differ, nothing runs that does not fit."""
    writer = TurnWriter(get_config(), helpers.subscription(), threads=1)

    writer.write(Plan(Capacity(0)), helpers.Running(), None)
    handle = tasks.note.enqueue()
    with monkeypatch.context() as patched:
        patched.setattr(Capacity, "admit", lambda self, attempts: Admission([], self, None))
        with pytest.raises(OperationalError, match="rows claimed: 1, where 0 should be") as caught:
            writer.write(Plan(Capacity(1), scans=True), helpers.Running(), None)
    assert helpers.row(handle.id).status == Status.CLAIMED
    writer.failed(caught.value)
    writer.write(Plan(Capacity(0)), helpers.Running(), None)
    assert helpers.row(handle.id).status == Status.PENDING
