"""What a turn costs the database: by its own counters, since a clock tells nothing on a busy machine."""

import helpers
import pytest
from django.db import OperationalError, connection, transaction
from probe import tasks

from django_txtasks import enqueue_many
from django_txtasks.conf import get_config
from django_txtasks.lifecycle import engines, workers
from django_txtasks.lifecycle.turn import Capacity, Scan, TurnRequest
from django_txtasks.models import Status, Worker
from django_txtasks.worker.schedule import Plan
from django_txtasks.worker.turn_writer import TurnWriter

pytestmark = pytest.mark.usefixtures("rows")
on_mariadb = pytest.mark.skipif(connection.vendor != "mysql", reason="MariaDB has blocks")


def _rows_read() -> int:
    return sum(int(n) for _, n in helpers.execute("SHOW SESSION STATUS LIKE 'Handler_read%%'"))


@pytest.mark.skipif(
    connection.vendor != "mysql",
    reason="test_lifecycle counts the pages that PostgreSQL reads; SQLite does not tell",
)
def test_a_scan_reads_no_more_of_a_backlog_than_it_claims():
    config = get_config()
    worker = workers.register(
        "default", queues=["default"], threads=1, listening=None, lease=config.lease
    )
    for priority in (3, 0):
        enqueue_many([(tasks.note.using(priority=priority), ["x"])] * 3000)
    request = TurnRequest(Capacity(2), scan=Scan(("default", "mail"), seconds=10.0))
    with transaction.atomic():
        before = _rows_read()
        result = engines.claim(helpers.subscription("default", "mail"), worker, request)
        read = _rows_read() - before
    assert len(result.claimed) == 2
    assert read < 500, f"{read} rows of 6,000 were read"


class Running(set):
    """What runs in slots."""

    running = property(len)
    holds = set.copy


@pytest.fixture
def writer():
    """A registered worker's."""
    writer = TurnWriter(get_config(), helpers.subscription(), threads=4)
    writer.write(Plan(Capacity(0)), Running(), None)
    yield writer
    writer.registration.leave()


def turn(writer, room=4):
    return writer.write(Plan(Capacity(room), scans=bool(room)), Running(), None)


@on_mariadb
def test_a_turn_whose_second_block_fails_is_rolled_back(writer):
    handle, beat = tasks.note.enqueue(), Worker.objects.get().beat

    def refuse(execute, sql, params, many, context):
        if "UPDATE txtasks_task" in sql:
            raise OperationalError("the second block was never sent")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(refuse), pytest.raises(OperationalError):
        turn(writer)
    assert helpers.execute("SELECT @@in_transaction") == [(0,)]
    assert helpers.row(handle.id).status == Status.PENDING
    assert Worker.objects.get().beat == beat


@on_mariadb
def test_a_turn_waits_for_no_lock_for_long(writer):
    handle = tasks.note.enqueue()
    lock = "UPDATE txtasks_worker SET beat = beat"
    with helpers.locked(lock), pytest.raises(OperationalError, match="Lock wait timeout"):
        turn(writer)
    assert helpers.execute("SELECT @@in_transaction") == [(0,)]
    assert helpers.row(handle.id).status == Status.PENDING


@on_mariadb
def test_a_worker_that_leaves_leaves_no_limits_behind(writer):
    limit = "SELECT @@session.max_statement_time > 0"
    turn(writer)
    assert helpers.execute(limit) == [(1,)]
    writer.registration.leave()
    assert helpers.execute(limit) == [(0,)]
