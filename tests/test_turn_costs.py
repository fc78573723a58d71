"""The cost of a turn for the database, by the database's counters, because times vary on a busy machine."""

import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import helpers
import pytest
from django.db import OperationalError, connection, connections, transaction
from probe import tasks

from django_txtasks import enqueue_many
from django_txtasks.conf import get_config
from django_txtasks.core.rows import engines, workers
from django_txtasks.core.rows.attempts import Arrow, Ended
from django_txtasks.core.rows.turn import Capacity, Scan, TurnRequest
from django_txtasks.core.working.running.limits import NO_LIMIT
from django_txtasks.core.working.schedule import Plan
from django_txtasks.models import Status, Worker

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


@pytest.fixture
def writer():
    """A registered worker's."""
    writer = helpers.turn_writer(threads=4)
    writer.write(Plan(Capacity(0)), helpers.Running(), None)
    yield writer
    writer.registration.leave()


def turn(writer, room=4):
    return writer.write(Plan(Capacity(room), scans=bool(room)), helpers.Running(), None)


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


# -- how many statements ----------------------------------------------------------------------------

PAGE = Path(__file__).parent.parent / "docs/explanation/performance.md"


class Count:
    """Round trips to the server; on SQLite, which has no server, statements."""

    value = 0


@contextmanager
def counted():
    """Count for this thread's session: by libpq's trace, MariaDB's own counter, SQLite's trace."""
    connection.ensure_connection()
    count, raw = Count(), connection.connection
    if connection.vendor == "postgresql":
        with tempfile.TemporaryFile() as file:
            raw.pgconn.trace(file.fileno())
            yield count
            raw.pgconn.untrace()
            file.seek(0)
            file.seek(0)
            count.value = len(re.findall(rb"\tF\t\d+\t(?:Query|Sync)\b", file.read()))
    elif connection.vendor == "mysql":
        before = _questions()
        yield count
        count.value = _questions() - before - 1  # that it asks is counted, too
    else:
        seen: list[str] = []
        raw.set_trace_callback(seen.append)
        yield count
        raw.set_trace_callback(None)
        count.value = len(seen)


def _questions():
    return int(helpers.execute("SHOW SESSION STATUS LIKE 'Questions'")[0][1])


def count_of(work):
    with counted() as count:
        work()
    return count.value


def costs_of_turns(writer):
    """Count the turns of tasks that succeed, and have nothing to follow."""
    result = []

    def write(**plan):
        result[:] = [writer.write(Plan(Capacity(4), **plan), helpers.Running(), None)]

    def end():
        claimed = result.pop().claimed
        writer.buffer.add(Ended(attempt=one, arrow=Arrow.FINISH) for one in claimed)

    found = {"the beat alone": count_of(write)}
    handle = tasks.quick.enqueue()
    by_id = "a turn that claims the only task, by its id"
    found[by_id] = count_of(lambda: write(hinted=[handle.id]))
    end()
    found["a turn that records it"] = count_of(write)
    tasks.quick.enqueue()
    found["a turn that claims the only task, by a scan"] = count_of(lambda: write(scans=True))
    end()
    write()
    enqueue_many([(tasks.quick, [])] * 8)
    write(scans=True)
    end()
    both = "a turn of a backlog: records four tasks, claims four"
    found[both] = count_of(lambda: write(scans=True))
    end()
    write()
    return found


def cost_in_a_slot(writer):
    """Count what a slot takes for an atomic task that asks the database for nothing."""
    runner = helpers.runner()
    for _ in range(3):
        tasks.atomic_quick.enqueue()
    *earlier, last = turn(writer).claimed

    def run():
        try:
            for (
                one
            ) in earlier:  # it connects, what is asked once is asked, and the finish is prepared
                runner.run(one, NO_LIMIT)
            return count_of(lambda: runner.run(last, NO_LIMIT))
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as slot:
        count = slot.submit(run).result()
    assert not any(helpers.row(one.task_id) for one in (*earlier, last))
    return count


def costs(writer):
    """Return what the page has a line for."""
    turn(writer, room=0)  # the first one is another
    costs_of_turns(writer)  # PostgreSQL prepares each statement once
    atomic = "in its slot, an atomic task: beside its own statements"
    return {**costs_of_turns(writer), atomic: cost_in_a_slot(writer)}


def table():
    """Return the numbers of the page: what, with history or not, on this database."""
    text = PAGE.read_text().split("<!-- statements -->")[1].strip().split("\n\n")[0]
    head, _, *lines = [line for line in text.splitlines() if line.startswith("|")]
    names = {"PostgreSQL": "postgresql", "MariaDB": "mysql", "SQLite": "sqlite"}
    titles = [cell.strip() for cell in head.strip("|").split("|")]
    column = [names.get(title) for title in titles].index(connection.vendor)
    found = {}
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        found[cells[0]] = cells[column]
    return found


@pytest.mark.about("one_statement")
@pytest.mark.about("two_blocks")
def test_the_statements_of_each_policy_are_those_of_the_page(txtasks):
    found = []
    for keep in (0, 60):
        txtasks(keep_finished=keep)
        writer = helpers.turn_writer(threads=4)
        found.append(costs(writer))
        writer.registration.leave()
    without, with_history = found
    told = {
        what: str(count) if count == with_history[what] else f"{count}, {with_history[what]}"
        for what, count in without.items()
    }
    assert table() == told
