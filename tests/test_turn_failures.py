"""A worker after a turn that failed or took too long: it continues with less work, and never stops."""

import bisect
import itertools
import random
import re
import threading
import time
import uuid
from contextlib import contextmanager
from datetime import timedelta

import helpers
import pytest
from django.db import DatabaseError, OperationalError, connection, transaction
from probe import tasks

from django_txtasks import signals
from django_txtasks.conf import get_config
from django_txtasks.core.cleaning.cleaner import Cleaner
from django_txtasks.core.rows import workers
from django_txtasks.core.rows.attempts import Arrow, Attempt, Ended
from django_txtasks.core.rows.engines import portable
from django_txtasks.core.rows.turn import Bucket, Capacity, Scan, TurnRequest, TurnResult
from django_txtasks.core.working.running.slots import Slots
from django_txtasks.core.working.schedule import Plan, TurnSchedule
from django_txtasks.core.working.turn_writer import TurnWriter
from django_txtasks.database.time_limits import fetch_within, try_within
from django_txtasks.database.transactions import own_transaction
from django_txtasks.fast import ranges
from django_txtasks.fast.sweep import PART_LIMIT_SECONDS, Size, Sweep
from django_txtasks.models import FinishedTask, Status, Task, Worker
from django_txtasks.signals import outage

pytestmark = pytest.mark.usefixtures("rows")
on_postgres = pytest.mark.skipif(connection.vendor != "postgresql", reason="PostgreSQL's own way")
BUCKET = Bucket(0, "default")
NO_SLOTS = Slots(0, run=None, wake=None, patience=1.0, took=None)
SLOW = {
    "postgresql": "SELECT pg_sleep(60)",
    "mysql": "SELECT count(*) FROM seq_1_to_1000000 a, seq_1_to_1000000 b",
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
}[connection.vendor]


def subscription(*queues):
    return helpers.subscription(*queues)


def register():
    return workers.register(
        "default", queues=["default"], threads=1, listening=None, lease=get_config().lease
    )


def ids(attempts):
    return [one.task_id for one in attempts]


# ---- time limits


@pytest.mark.parametrize("seconds", [0.05, 0.0])
def test_a_statement_that_takes_too_long_ends_and_its_transaction_goes_on(seconds):
    with own_transaction("default", limit=timedelta(seconds=60)):
        handle = tasks.note.enqueue()
        assert try_within("default", SLOW, seconds).rows is None
        assert try_within("default", "SELECT 1", 30.0).rows == [(1,)]
    assert helpers.row(handle.id)


def test_no_limit_of_a_scan_is_left_to_the_statements_of_others():
    kept = {"postgresql": "SHOW statement_timeout", "mysql": "SELECT @@max_statement_time"}
    asked = kept.get(connection.vendor, "SELECT 1")
    with own_transaction("default", limit=timedelta(seconds=50)):
        before = helpers.execute(asked)
        assert fetch_within("default", "SELECT 2", 0.5) == [(2,)]
        assert try_within("default", "SELECT 1", 0.5).rows == [(1,)]
        assert try_within("default", SLOW, 0.01).rows is None
        assert helpers.execute(asked) == before
    if connection.vendor == "sqlite":  # a handler that was left would end this
        time.sleep(0.02)
        counted = SLOW.replace("FROM n)", "FROM n WHERE i < 100000)")
        assert helpers.execute(counted) == [(100000,)]


def test_what_is_no_time_out_is_an_error():
    with pytest.raises(DatabaseError), transaction.atomic():
        try_within("default", "SELECT there_is_no_such_column", 5.0)


def test_a_scan_of_several_statements_takes_no_longer_than_it_may():
    tasks.note.enqueue()
    with pytest.raises(OperationalError), transaction.atomic():
        scan = Scan(("default",), seconds=-1.0)
        portable.claim(subscription(), register(), TurnRequest(Capacity(5), scan=scan))


# ---- parts of what is due


def due_rows(count, **changes):
    found = sorted(tasks.note.enqueue().id for _ in range(count))
    Task.objects.filter(pk__in=found).update(**changes)
    return found


@pytest.mark.parametrize("more", [timedelta(0), timedelta(microseconds=123)], ids=str)
def test_the_parts_of_a_pass_leave_nothing_out_and_take_nothing_twice(more):
    """Ends of parts at any time and at any id: of 12 rows that are due at the same moment, too."""
    now = ranges.now("default")
    of_all = [tasks.note.enqueue().id]
    helpers.execute("UPDATE txtasks_task SET run_after = '1971-02-03 04:05:06'")
    moment = (now // ranges.SECOND - 5) * ranges.SECOND + int(
        more / timedelta(microseconds=1)
    ) * ranges.MICROSECOND
    text = ranges._time_at("default", moment)
    several = sorted(tasks.note.enqueue().id for _ in range(12))
    for one in several:
        helpers.execute("UPDATE txtasks_task SET run_after = %s WHERE id = %s", text, one.hex)
    of_all += [*several, tasks.note.enqueue().id]
    tasks.note.using(run_after=timedelta(seconds=60)).enqueue()
    cuts = [0, ranges.SECOND, moment - 7 * ranges.MICROSECOND, moment]
    cuts += [moment + one.int for one in several[2:9:3]] + [moment + several[-1].int + 1]
    cuts += [moment + ranges.MICROSECOND, now, None]
    found = []
    with transaction.atomic():
        for begin, end in itertools.pairwise(cuts):
            rows = ranges.choose(
                subscription(), BUCKET, 20, begin=begin, end=end, cursor=None, seconds=30.0
            ).rows
            found.append([uuid.UUID(str(task_id)) for task_id, *_ in rows])
    assert [one for part in found for one in part] == of_all
    assert [len(part) for part in found] == [1, 0, 0, 2, 3, 3, 4, 0, 0, 1]


@pytest.mark.once
def test_a_part_ends_at_a_time_or_lies_within_one():
    time_, id_ = 5 * ranges.MICROSECOND, 1 << 100
    for begin, end, expected in [
        (time_, time_ + id_, time_ + id_),
        (time_, 9 * ranges.MICROSECOND + id_, 9 * ranges.MICROSECOND),
        (time_ + id_, 9 * ranges.MICROSECOND, 6 * ranges.MICROSECOND),
        (time_ + id_, time_ + 2 * id_, time_ + 2 * id_),
        (0, id_, ranges.MICROSECOND),  # all that is due before 2000
    ]:
        assert ranges.part_end(begin, end) == expected


def test_a_part_that_did_not_fit_goes_on_behind_what_was_taken():
    first = due_rows(5)
    worker, sweep, found = register(), sweep_of(), []
    while not sweep.is_over:
        with transaction.atomic():
            result = sweep.claim(worker, Capacity(2))
        found += ids(result.claimed)
        assert len(result.claimed) <= 2 and result.scan.backlog is (len(result.claimed) == 2)
    assert sorted(found) == first and len(found) == 5


def sweep_of(*buckets, queues=("default",), longest=30.0, before=None):
    return Sweep(subscription(*queues), buckets or [BUCKET], longest=longest, before=before or {})


def test_a_sweep_finds_priorities_that_nobody_declared_and_takes_the_highest_first():
    handles = {
        (queue, priority): tasks.note.using(priority=priority, queue_name=queue).enqueue().id
        for priority in (100, 3, 0, -1, -100)
        for queue in ("default", "mail")
    }
    helpers.execute("UPDATE txtasks_task SET priority = 32767 WHERE priority = 100")
    tasks.note.using(priority=50, run_after=timedelta(seconds=60)).enqueue()
    worker, sweep, found = (
        register(),
        sweep_of(Bucket(0, "mail"), Bucket(7, "mail"), queues=("mail", "default")),
        [],
    )
    while not sweep.is_over:
        with transaction.atomic():
            found += ids(sweep.claim(worker, Capacity(50)).claimed)
    expected = [
        handles[queue, priority]
        for priority in (100, 3, 0, -1, -100)
        for queue in ("mail", "default")
    ]
    assert found == expected
    assert {(32767, "mail"), (50, "default"), (7, "mail")} <= sweep.buckets


def test_what_a_sweep_claimed_in_a_turn_that_was_rolled_back_is_found_again():
    (handle,) = due_rows(1)
    worker, sweep, found = register(), sweep_of(), []
    for fails in (True, False):
        while not (sweep.is_over or (found and fails)):
            with transaction.atomic():
                found += ids(sweep.claim(worker, Capacity(5)).claimed)
                transaction.set_rollback(bool(found) and fails)
        sweep.rolled_back()
    assert found == [handle, handle]


# ---- how large a part is


def passes(rows, now, *, seconds_per_row=2e-5, limit=3.0):
    """Look at all of ``rows``, which are positions, in parts; give (ends, time-outs, seconds of each)."""
    size, at, ends, ended, took = Size(limit), 0, [], 0, []
    while at < now:
        end = ranges.part_end(at, size.end_of(at, now))
        seconds = (bisect.bisect_left(rows, end) - bisect.bisect_left(rows, at)) * seconds_per_row
        if seconds > size.limit:
            took.append(size.limit)
            ended += 1
            assert not size.is_smallest(at, end)
            size.took_too_long(at, end)
        else:
            took.append(seconds + 0.001)
            size.took(took[-1], at, end, now)
            ends.append(end)
            at = end
    return ends, ended, took


def several_moments(now):
    def at(age, spread=0):
        return now - int((age + random.random() * spread) * 1_000_000) * ranges.MICROSECOND

    one_moment = at(600)
    lately = at(0.001)
    return {
        "nothing": [],
        "hours, evenly": [at(0, 4 * 3600) for _ in range(50_000)],
        "all at once, random ids": [one_moment + random.getrandbits(128) for _ in range(50_000)],
        "all at once, ids by time": [
            one_moment + (0x0199 << 112) + (random.randrange(5000) << 80) + random.getrandbits(74)
            for _ in range(50_000)
        ],
        "a moment ago": [lately + random.getrandbits(128) for _ in range(20_000)],
        "long ago, and now": [
            now - 20 * 365 * 86400 * ranges.SECOND + number for number in range(20_000)
        ]
        + [at(0, 5) for _ in range(20_000)],
    }


@pytest.mark.once
@pytest.mark.parametrize("name", list(several_moments(ranges.SECOND * 10**9)))
def test_wherever_the_rows_are_a_pass_reaches_all_of_them_in_parts_that_take_a_moment(name):
    """Dead rows cannot be counted: their number in a part shows in its time alone."""
    now = 26 * 365 * 86400 * ranges.SECOND
    rows = sorted(several_moments(now)[name])
    ends, ended, took = passes(rows, now)
    assert ends[-1] == now and ends == sorted(set(ends))
    assert ended <= 20 and len(ends) <= 2000
    assert max(took) <= PART_LIMIT_SECONDS * 4.1 and sum(took) < 2 * len(rows) * 2e-5 + 4.0


@pytest.mark.once
def test_the_next_pass_has_the_parts_of_the_last_one_and_joins_small_ones():
    at = ranges.SECOND * 10**8
    parts = [
        (at + number * ranges.SECOND, seconds)
        for number, seconds in enumerate([0.001] * 9 + [0.02, 0.02, 0.5])
    ]
    sweep = sweep_of(before={(0, "default"): parts})
    assert sweep._known[0, "default"] == [parts[8][0], *(end for end, _ in parts[9:])]


# ---- a scan that took too long


OF_A_PART = re.compile(
    r"%\((begin_time|age)\)s|run_after >?= \$|\(run_after, id\) (>=|<) \(\$|make_interval\(secs => \$"
)


def slow_scan(execute, sql, params, many, context):
    """Do as a database does in which a scan walks past many rows, unless it looks at a part."""
    if "ORDER BY run_after, id" in sql and not OF_A_PART.search(sql):
        with connection.cursor() as cursor, connection.wrap_database_errors:
            cursor.cursor.execute(_limited(sql))
    return execute(sql, params, many, context)


def _limited(sql):
    return sql[: sql.index("FOR ") + 4] + SLOW if sql.startswith("SET STATEMENT") else SLOW


@contextmanager
def scans_that_take_too_long():
    with connection.execute_wrapper(slow_scan):
        yield


@pytest.fixture
def turn_writer(txtasks):
    txtasks(lease=2, heartbeat_interval=0.2, poll_interval=0.001)
    writer = TurnWriter(get_config(), subscription(), threads=4)
    writer.write(Plan(Capacity(0)), NO_SLOTS, None)
    return writer


def write(writer, *hinted, scan=True):
    return writer.write(Plan(Capacity(4), hinted, scan), NO_SLOTS, None)


def claimed(writer, *hinted, scan=True):
    """Write a turn; return its claims, or None if it failed."""
    try:
        return ids(write(writer, *hinted, scan=scan).claimed)
    except OperationalError as error:
        writer.failed(error)


@pytest.mark.skipif(
    connection.vendor == "sqlite", reason="its statements are ended from Python, below the wrapper"
)
def test_after_a_scan_that_took_too_long_the_next_ones_look_at_parts(turn_writer):
    writer, found = turn_writer, set()
    old = tasks.note.using(run_after=timedelta(seconds=-600)).enqueue().id
    with scans_that_take_too_long():
        assert claimed(writer) is None
        new = tasks.note.enqueue().id
        hinted = tasks.note.enqueue().id
        assert claimed(writer, hinted, scan=False) == [hinted]
        end = time.monotonic() + helpers.PATIENCE
        while not {old, new} <= found:  # others, too, if the claims expire on a slow machine
            assert time.monotonic() < end, found
            found.update(claimed(writer) or [])


@pytest.mark.once
def test_after_a_pass_in_parts_that_took_no_time_a_scan_looks_at_all_again(
    turn_writer, monkeypatch
):
    monkeypatch.setattr(
        "django_txtasks.core.working.scan_cursor.SLOW_SCAN_SECONDS", 600.0
    )  # however slow this machine is
    writer = turn_writer
    writer.scans.begin()
    writer.scans.failed(too_long=True)
    assert writer.scans._is_slow  # so that a pass in parts comes, which may end in one turn
    turns = [write(writer)]
    helpers.wait_until(lambda: not (turns.append(write(writer)) or turns[-1].scan.is_partial))
    late = tasks.note.using(run_after=timedelta(seconds=-1000)).enqueue()
    found = []
    helpers.wait_until(lambda: found.extend(ids(write(writer).claimed)) or found)
    assert found == [late.id]


# ---- a back-off for each kind of turn


def kinds(plan):
    return (bool(plan.hinted), plan.scans)


NOTHING_FOUND = TurnResult(Capacity(3))


@pytest.mark.once
def test_after_a_failure_what_the_turn_did_is_tried_one_by_one():
    schedule, hint, now = TurnSchedule(get_config()), uuid.uuid4(), 1.0
    error = RuntimeError("it took too long")
    seen = []
    for fails in (True, False, False, False, False):
        plan = schedule.plan(Capacity(3), [hint], now)
        seen.append(kinds(plan))
        if fails:
            schedule.failed(error, now)
        else:
            schedule.written(NOTHING_FOUND, now, busy=False)
            schedule.look_again()
    assert seen == [(True, True), (False, False), (True, False), (False, True), (True, True)]


@pytest.mark.once
def test_a_claim_that_always_fails_backs_off_while_beats_go_on():
    config = get_config()
    schedule, hint, now = TurnSchedule(config), uuid.uuid4(), 1.0
    error, tries, beats, gaps = RuntimeError("no such column"), [], [], []
    while now < 61.0:
        now = max(now, schedule.next_turn(Capacity(3), hinted=True, unrecorded=False))
        plan = schedule.plan(Capacity(3), [hint], now)
        now += 0.001
        if any(kinds(plan)):
            tries.append(now)
            schedule.failed(error, now)
        else:
            gaps.append(now - beats[-1] if beats else 0.0)
            beats.append(now)
            schedule.written(NOTHING_FOUND, now, busy=False)
    ceiling = min(5.0, config.lease.total_seconds() / 5)
    assert len(tries) <= 2 * (60 / (ceiling / 2)) + 20  # of both kinds
    assert max(gaps) <= config.heartbeat_interval.total_seconds() + 0.1
    assert max(after - before for before, after in itertools.pairwise(tries)) <= ceiling + 0.1


@contextmanager
def tables_of_an_older_release():
    rename = "ALTER TABLE txtasks_task RENAME COLUMN {} TO {}"
    helpers.execute(rename.format("expires_at", "not_there_yet"))
    try:
        yield
    finally:
        helpers.execute(rename.format("not_there_yet", "expires_at"))


def test_before_migrate_a_worker_beats_says_what_to_do_and_does_not_hammer(txtasks):
    txtasks(lease=3, heartbeat_interval=0.05, poll_interval=0.05)
    said = []

    def note(error, **_):
        said.append(error)

    handle = tasks.note.enqueue()
    signals.database_failed.connect(note)
    try:
        with helpers.working(threads=1):
            helpers.wait_until(lambda: helpers.finished(handle.id))
            with tables_of_an_older_release():
                second = tasks.note.enqueue()
                helpers.wait_until(lambda: len(said) > 1)
                before, count = Worker.objects.get().beat, len(said)
                helpers.wait_until(lambda: Worker.objects.get().beat > before + 20)
                tried = len(said) - count
            helpers.wait_until(lambda: helpers.finished(second.id))
    finally:
        signals.database_failed.disconnect(note)
    assert tried < 20  # not with each beat
    assert "run 'manage.py migrate'" in said[0]


def told_of(records):
    """Return the levels of the events about the database, and whether one said that it can be used again."""
    texts = [(one.levelname, one.getMessage()) for one in list(records)]
    levels = [level for level, text in texts if "cannot use database" in text]
    return levels, any("can use database 'default' again" in text for _, text in texts)


def test_an_outage_is_a_warning_then_errors_and_its_end_is_told(txtasks, monkeypatch, caplog):
    txtasks(lease=3, heartbeat_interval=0.05, poll_interval=0.05)
    monkeypatch.setattr(outage, "ERROR_EVERY_SECONDS", 0.2)
    monkeypatch.setattr(outage, "OVER_AFTER_SECONDS", 5)
    caplog.set_level("INFO", "django_txtasks")
    with helpers.working(threads=1):
        helpers.wait_until(Worker.objects.exists)
        with tables_of_an_older_release():
            tasks.note.enqueue()
            helpers.wait_until(lambda: told_of(caplog.records)[0].count("ERROR") > 1)
            assert not told_of(caplog.records)[1]  # though its beats succeed
        helpers.wait_until(lambda: told_of(caplog.records)[1])
    warnings = [
        one.error
        for one in list(caplog.records)
        if one.levelname == "WARNING" and "cannot use" in one.getMessage()
    ]
    assert warnings and len(set(warnings)) == len(warnings)


def test_a_single_failure_is_over_without_a_word(monkeypatch, caplog):
    caplog.set_level("INFO", "django_txtasks")
    one = outage.Outage("default", lambda: "Worker x")
    one.failed("a deadlock", 0.0)
    monkeypatch.setattr(outage, "OVER_AFTER_SECONDS", 0)
    one.succeeded()
    one.failed("a deadlock", 0.0)
    assert told_of(caplog.records) == (["WARNING", "WARNING"], False)


def test_the_end_of_an_outage_tells_failures_and_their_span(monkeypatch, caplog):
    caplog.set_level("INFO", "django_txtasks")
    one = outage.Outage("default", lambda: "Worker x")
    one.failed("a deadlock", 0.0)
    one.failed("a deadlock", 0.0)
    monkeypatch.setattr(outage, "OVER_AFTER_SECONDS", 0)
    one.succeeded()
    assert "again. Failures: 2, the last one 0.0 s after the first." in caplog.messages[-1]


def test_another_reason_is_another_warning(caplog):
    caplog.set_level("INFO", "django_txtasks")
    one = outage.Outage("default", lambda: "Worker x")
    for error in ("refused", "refused", "read-only", "refused"):
        one.failed(error, 1.0)
    assert told_of(caplog.records) == (["WARNING", "WARNING"], False)


def test_a_cleaner_tells_of_an_outage_and_of_its_end(monkeypatch, caplog):
    monkeypatch.setattr(outage, "OVER_AFTER_SECONDS", 0)
    caplog.set_level("INFO", "django_txtasks")
    rename, turns = "ALTER TABLE {} RENAME TO {}", []

    def wait(seconds):
        turns.append(seconds)
        if len(turns) == 3:
            helpers.execute(rename.format("elsewhere", "txtasks_worker"))
        return told_of(caplog.records)[1]

    helpers.execute(rename.format("txtasks_worker", "elsewhere"))
    Cleaner(get_config()).run(wait, turns.append)
    assert told_of(caplog.records) == (["WARNING"], True)


# ---- no second run beside the first


@pytest.mark.parametrize("attempt", ["attempt - 1", "attempt + 5"], ids=["the same", "another"])
def test_a_task_that_the_database_offers_again_does_not_run_twice_at_once(txtasks, attempt):
    """As after a failover to a replica that lacks the last commits."""
    txtasks(poll_interval=0.05)
    told = []

    def note(what, **_):
        told.append(what)

    signals.second_claim.connect(note)
    tasks.DOOR.clear()
    try:
        with helpers.working(threads=3):
            with transaction.atomic():
                handle = tasks.at_the_door.enqueue("held")
                Task.objects.filter(pk=handle.id).update(timeout=600)
            helpers.wait_until(lambda: helpers.runs("held"))
            helpers.execute(
                "UPDATE txtasks_task SET status = 'pending', worker = NULL, claimed_at = NULL, started_at = NULL, "
                f"attempt = {attempt}"
            )
            helpers.wait_until(lambda: helpers.row(handle.id).status == Status.CLAIMED)
            helpers.wait_until(lambda: told)
            other = tasks.note.enqueue("other")
            helpers.wait_until(lambda: helpers.finished(other.id))
            assert helpers.runs("held") == 1
            tasks.DOOR.set()
            helpers.wait_until(lambda: helpers.finished(handle.id))
    finally:
        tasks.DOOR.set()
        signals.second_claim.disconnect(note)
    assert FinishedTask.objects.count() == 2
    assert helpers.runs("held") == (1 if attempt == "attempt - 1" else 2)


@pytest.mark.once
def test_a_claim_that_is_kept_back_is_not_given_back_as_unknown():
    """Another worker would run it beside the first one."""
    task_id, worker, goes_on = uuid.uuid4(), uuid.uuid4(), threading.Event()

    def run(attempt, limit):
        goes_on.wait(helpers.PATIENCE)
        return Ended(attempt=attempt, arrow=Arrow.FINISH)

    slots = Slots(1, run=run, wake=bool, patience=1.0, took=lambda name, seconds: None)
    try:
        slots.start([Attempt(task_id, 1, worker)])
        assert slots.in_hand.without_second([Attempt(task_id, 6, worker)], set()) == []
        assert slots.holds() == {(task_id, 1), (task_id, 6)}
    finally:
        goes_on.set()
        slots.close()


@pytest.mark.once
def test_a_database_that_asks_for_the_same_again_for_ever_is_not_asked_without_a_pause():
    """Such as an isolation level at which some neighbour always wins; the first ones come at once."""
    schedule, now = TurnSchedule(get_config()), 1.0
    error = OperationalError("deadlock detected")
    error.__cause__ = MySQLdb1213()
    pauses = [schedule.failed(error, now) for _ in range(12)]
    assert not any(pauses[:9]) and all(pauses[9:])


class MySQLdb1213(Exception):
    """A deadlock, as the drivers of MariaDB tell it."""

    def __init__(self) -> None:
        super().__init__(1213, "Deadlock found")
