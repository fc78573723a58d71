"""Figures: workers count and append, a cleaner adds up, readers see each count once at any moment."""

import contextlib
import json
import math
import threading
import time
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise

import helpers
import pytest
from django.db import DatabaseError, OperationalError, connection, connections, transaction
from django.test.utils import CaptureQueriesContext
from probe import tasks

from django_txtasks import enqueue_many, signals, stats
from django_txtasks.conf import get_config
from django_txtasks.core.cleaning.cleaner import Cleaner
from django_txtasks.core.rows import workers
from django_txtasks.core.rows.attempts import Arrow, Ended
from django_txtasks.core.rows.turn import Capacity
from django_txtasks.core.working.registration import release_of
from django_txtasks.core.working.schedule import Plan
from django_txtasks.core.working.turn_writer import TurnWriter
from django_txtasks.exceptions import ConfigError, InvalidOption
from django_txtasks.features.figures import adding_up, appending, histogram
from django_txtasks.features.figures import writer as figures
from django_txtasks.features.figures.cleaning import Figures
from django_txtasks.features.figures.tally import MAX_COUNT, MAX_NAMES, OF_PROCESSES, OTHERS, Tally
from django_txtasks.features.figures.writer import FigureWriter
from django_txtasks.insight.load import backlog
from django_txtasks.models import EndedWorker, RawStat, Stat, Status, Task, Worker
from django_txtasks.operations import operators
from django_txtasks.stats import reading

pytestmark = pytest.mark.usefixtures("rows")
HOUR = timedelta(hours=1)


def tally_of(*names, queue="default", succeeded=1):
    tally = Tally()
    for name in names:
        counts = tally.of(queue, name)
        counts.succeeded += succeeded
        counts.took(0.03, 0.5)
    return tally


def appended(number=1, queue="default"):
    """Append rows of a number of functions, as a process without a worker's row does."""
    with transaction.atomic():
        appending.append("default", tally_of(*(f"f{n}" for n in range(number)), queue=queue))


def figures_step(emit=lambda signal, **facts: None):
    return Figures(get_config(), "default", emit=emit, clock=lambda: 0.0)


def raw():
    """Return the appended rows of tasks."""
    return RawStat.objects.exclude(queue_name=OF_PROCESSES)


def add_up():
    for _ in figures_step().add_up():
        pass


def succeeded(width, **only):
    rows = Stat.objects.filter(width=width, **only)
    return sum(rows.values_list("succeeded", flat=True))


def sums():
    """Return the successes by width: of whole queues and of task functions."""
    found = {("queue", width): succeeded(width, task_name="") for width in adding_up.OF_QUEUES}
    for width in adding_up.OF_FUNCTIONS:
        found["function", width] = succeeded(width, task_name__gt="")
    return found


def total(using="default"):
    return sum(one.succeeded for one in stats.totals(using).functions)


def registered():
    config = get_config()
    return workers.register(
        "default", queues=["default"], threads=1, listening=None, lease=config.lease
    )


# -- histograms -------------------------------------------------------------------------------------


@pytest.mark.once
def test_a_histogram_is_written_and_read_as_sparse_text():
    counts = histogram.empty()
    for seconds in (0.0, 0.02, 0.021, 0.5, 1e9):
        counts[histogram.bucket_of(seconds)] += 1
    text = histogram.text_of(counts)
    assert text == "0:2 1:1 9:1 26:1"
    again = histogram.empty()
    histogram.add_text(again, text)
    histogram.add_text(again, f"{text} 99:5 x")
    assert again == [2 * count for count in counts]
    assert len(histogram.BOUNDS) == 26


@pytest.mark.once
def test_a_quantile_is_the_end_of_a_bucket():
    counts = histogram.empty()
    counts[3], counts[26] = 95, 5
    found = stats.Histogram(tuple(counts))
    assert found.quantile(0.95) == histogram.BOUNDS[3]
    assert found.quantile(1.0) == math.inf, "of runs of ten hours, nobody may read 5 min 35 s"
    assert stats.Histogram(tuple(histogram.empty())).quantile(0.5) is None


# -- a worker ---------------------------------------------------------------------------------------


def test_a_worker_counts_each_end_and_writes_it_at_its_own_end(txtasks):
    txtasks(retry_base=0.01, retry_ceiling=0.01, release="2026.11")
    enqueue_many([(tasks.quick, [])] * 3)
    tasks.atomic_quick.enqueue()
    with helpers.working():
        helpers.wait_until(lambda: not Task.objects.exists(), 30)
    rows = {one.task_name: one for one in raw()}
    assert {name.rpartition(".")[2]: one.succeeded for name, one in rows.items()} == {
        "quick": 3,
        "atomic_quick": 1,
    }
    (quick,) = [one for name, one in rows.items() if name.endswith(".quick")]
    for text in (quick.wait, quick.run):
        counts = histogram.empty()
        histogram.add_text(counts, text)
        assert sum(counts) == 3
    assert quick.seq == 1
    assert [one.release for one in stats.deploys()] == ["2026.11"]


def test_without_figures_nothing_is_written(txtasks):
    txtasks(stats=False)
    tasks.quick.enqueue()
    handle = tasks.quick.using(run_after=1000).enqueue()
    with helpers.working():
        helpers.wait_until(lambda: Task.objects.count() == 1, 30)
    operators.cancel("default", [handle.id], keep=True)
    Cleaner(get_config()).run_once()
    assert not RawStat.objects.exists()
    assert not Stat.objects.exists()


@pytest.mark.parametrize("kind", ["threads", "loop"])
def test_each_way_to_an_end_is_counted(kind, quick):
    failing = tasks.fail_async if kind == "loop" else tasks.fail
    attempts = 1 if failing is tasks.fail_async else 3
    handle = failing.enqueue()
    slots = {"async_tasks": 2} if kind == "loop" else {}
    with helpers.working(kind=kind, **slots):
        helpers.wait_until(lambda: helpers.row(handle.id).status == Status.DEAD, 30)
    add_up()
    (found,) = stats.functions(HOUR).functions
    assert (found.failed, found.died) == (attempts - 1, 1)
    assert (found.succeeded, found.other) == (0, 0)
    assert found.run.count == found.wait.count == attempts
    assert found.run_seconds >= 0.0


class Flushing:
    """A figure writer of a registered worker, without the worker's loop."""

    def __init__(self):
        self.id = registered()
        self.writer = FigureWriter("default", self, timedelta(seconds=5))

    def count(self, number=1):
        self.writer.tally.of("default", "f").succeeded += number


@contextmanager
def refusing(text, after=False):
    """Fail in a statement with this text; with ``after``, once it was executed."""

    def refuse(execute, sql, params, many, context):
        if text not in sql:
            return execute(sql, params, many, context)
        if after:
            execute(sql, params, many, context)
        raise DatabaseError("refused by the test")

    with connection.execute_wrapper(refuse):
        yield


def test_a_failed_write_is_repeated_under_the_same_number(caplog):
    one = Flushing()
    one.count(2)
    with (
        refusing("INTO txtasks_rawstat"),
        refusing('INTO "txtasks_rawstat'),
        refusing("`txtasks_rawstat"),
    ):
        one.writer.write()
        one.writer.write()
    assert not raw().exists()
    assert len([line for line in caplog.messages if "figures" in line]) == 1
    one.count(3)
    one.writer.write()
    assert sorted(raw().values_list("seq", "succeeded")) == [(1, 2), (2, 3)]
    assert Worker.objects.get().stats_seq == 2


def test_between_two_writes_a_worker_sends_no_statement():
    one = Flushing()
    one.count()
    with CaptureQueriesContext(connection) as seen:
        assert one.writer.next <= time.monotonic()
        one.writer.look()  # only chooses the time of the first write
        first = one.writer.next
        assert time.monotonic() < first <= time.monotonic() + figures.WRITE_SECONDS
    assert len(seen) == 0
    one.writer.look()
    assert raw().count() == 1
    assert one.writer.next > time.monotonic() + figures.WRITE_SECONDS
    one.count()
    assert time.monotonic() < one.writer.next


def test_a_turn_sends_the_same_statements_with_and_without_figures(txtasks):
    counted = []
    for stats_on in (True, False):
        txtasks(stats=stats_on)
        writer = helpers.turn_writer()
        writer.write(Plan(Capacity(0)), helpers.Running(), None)
        tasks.quick.enqueue()
        with CaptureQueriesContext(connection) as seen:
            (attempt,) = writer.write(
                Plan(Capacity(4), scans=True), helpers.Running(), None
            ).claimed
            writer.buffer.add([Ended(attempt=attempt, arrow=Arrow.FINISH)])
            writer.write(Plan(Capacity(0)), helpers.Running(), None)
        counted.append(len(seen))
        assert bool(writer.parts.ended_lately()) is stats_on
        writer.registration.leave()
    assert counted[0] == counted[1]


def test_a_write_whose_commit_was_not_answered_is_not_repeated(monkeypatch):
    one = Flushing()
    one.count(2)
    real = figures.own_transaction

    @contextmanager
    def without_answer(*args, **kwargs):
        with real(*args, **kwargs):
            yield
        raise OperationalError("the answer to COMMIT was lost")

    with monkeypatch.context() as patched:
        patched.setattr(figures, "own_transaction", without_answer)
        one.writer.write()
    add_up()  # the first copy is gone
    assert total() == 2
    one.writer.write()
    assert total() == 2
    one.count()
    one.writer.write()
    assert total() == 3


def test_figures_of_a_worker_without_row_are_dropped():
    one = Flushing()
    one.count()
    Worker.objects.all().delete()
    one.writer.write()
    assert not raw().exists()
    one.id = registered()
    one.count()
    one.writer.write()
    assert total() == 1


def test_names_beyond_the_limit_are_counted_together():
    tally = tally_of(*(f"f{n}" for n in range(MAX_NAMES + 5)))
    found = dict(tally.items())
    assert len(found) == MAX_NAMES + 1
    assert found["default", OTHERS].succeeded == 5


# -- a cleaner --------------------------------------------------------------------------------------


def test_all_widths_agree_with_what_was_appended():
    appended(3)
    appended(2, queue="mail")
    assert total() == 5
    add_up()
    assert not raw().exists()
    assert set(sums().values()) == {5}
    appended(3)
    add_up()
    assert set(sums().values()) == {8}
    assert total() == 8
    (queue,) = [one for one in stats.totals().queues if one.queue == "default"]
    assert queue.run.count == queue.wait.count == 6


class Killed(BaseException):
    """The end of the process, as far as the database notices."""


def kill_at(number, work):
    """Run the work until its statement of this number was executed; then its transaction is rolled back."""
    count = 0

    def execute(call, sql, params, many, context):
        nonlocal count
        result = call(sql, params, many, context)
        count += not sql.startswith("BEGIN")  # of SQLite, which would leave its transaction open
        if count == number:
            raise Killed
        return result

    with connection.execute_wrapper(execute):
        work()


def test_a_cleaner_that_is_killed_at_any_statement_loses_nothing_and_counts_nothing_twice():
    appended()
    add_up()
    appended(2)
    number, expected = 0, 3
    while True:
        number += 1
        try:
            kill_at(number, add_up)
        except Killed:
            assert total() == expected, number
            assert len({*sums().values()}) == 1, number
            if not raw().exists():  # its first transaction was committed
                appended()
                expected += 1
        else:
            break
    assert number > 8
    add_up()
    assert set(sums().values()) == {expected}


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has one writer at a time")
def test_of_two_cleaners_at_once_one_passes_by():
    appended()
    add_up()
    appended(2)
    with transaction.atomic():
        assert adding_up.enter("default")

        def other():
            try:
                add_up()
            finally:
                connections.close_all()

        thread = threading.Thread(target=other)
        thread.start()
        thread.join(helpers.PATIENCE)
        assert not thread.is_alive()
        assert raw().count() == 2
        adding_up.add_up("default", 10)
    assert total() == 3
    assert set(sums().values()) == {3}


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has one writer at a time")
def test_the_second_of_the_first_two_cleaners_waits_and_reads_anew():
    """Neither finds the row that only one cleaner has at a time, so both create it."""
    first_is_in = threading.Event()

    def second():
        assert first_is_in.wait(helpers.PATIENCE)
        with transaction.atomic():
            assert adding_up.enter("default")
            adding_up.add_up("default", 10)

    appended()
    with helpers.second_session(second):
        with transaction.atomic():
            assert adding_up.enter("default")
            first_is_in.set()
            helpers.wait_until(helpers.somebody_waits)
            adding_up.add_up("default", 10)
        appended(3)
    add_up()
    assert total() == 4
    assert set(sums().values()) == {4}


def test_counters_never_fall_while_cleaners_add_up_and_workers_append():
    seen, end = [], threading.Event()

    def read():
        try:
            while not end.is_set():
                seen.append(helpers.patiently(total))
        finally:
            connections.close_all()

    def clean():
        try:
            while not end.is_set():
                helpers.patiently(add_up)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=one) for one in (read, clean, clean)]
    for one in threads:
        one.start()
    for _ in range(20):
        helpers.patiently(lambda: appended(3))
    end.set()
    for one in threads:
        one.join(helpers.PATIENCE)
    assert seen == sorted(seen)
    add_up()
    assert set(sums().values()) == {60}


@pytest.mark.parametrize("most", [1, 4])
def test_a_slice_takes_exactly_the_rows_that_it_has_read(most):
    for number in (6, 3, 3, 1):
        appended(number)
    worker = registered()
    for seq in (1, 2):
        with transaction.atomic():
            appending.append_once("default", worker, seq, tally_of("f0", "f1", "f2"))
    while raw().exists():
        before = raw().count()
        with transaction.atomic():
            adding_up.enter("default")
            assert adding_up.add_up("default", most).has_more is (before >= most)
        assert raw().count() == max(0, before - most)
        assert len({*sums().values()}) == 1
        assert total() == 19
    assert set(sums().values()) == {19}


def test_a_slice_that_does_not_get_through_is_halved():
    appended(8)
    step = figures_step()
    sizes = []

    def too_slow(execute, sql, params, many, context):
        if "DELETE FROM txtasks_rawstat" in sql and raw().count() == 8:
            sizes[:] = dict.fromkeys(
                [*sizes, step._rows]
            )  # a slice deletes rows of its own cost, too
            if step._rows > 3:
                raise DatabaseError("the test: too slow")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(too_slow):
        for _ in range(10):
            with contextlib.suppress(DatabaseError):
                list(step.add_up())
    halves = [adding_up.MAX_ROWS]
    while halves[-1] > 3:
        halves.append(halves[-1] // 2)
    assert sizes == halves
    assert step._rows > 3
    assert set(sums().values()) == {8}


def test_figures_that_fail_keep_no_other_step_from_its_work():
    """If the database has ended the session of a step, the pass goes no further. So they are the last step."""
    cleaner = Cleaner(get_config())
    last = cleaner.passes._steps[-1]
    assert last.__qualname__ == "Figures.add_up"
    appended()
    with refusing("DELETE FROM txtasks_rawstat"), pytest.raises(DatabaseError, match="add up"):
        cleaner.run_once()
    cleaner.run_once()
    assert set(sums().values()) == {1}


INVALID = {
    "a negative count": {"succeeded": -5},
    "a count beyond all": {"failed": 2**63 - 1},
    "a time beyond all": {"run_ms": 2**63 - 1},
    "a text": {"died": "many"},
    "bytes": {"run": b"\xff"},
    "bytes as name": {"task_name": b"\xff"},
}


@pytest.mark.parametrize("changes", INVALID.values(), ids=INVALID)
def test_invalid_rows_are_dropped_and_named(changes):
    texts = [one for one in changes.values() if not isinstance(one, int)]
    if texts and connection.vendor != "sqlite":
        pytest.skip("this database refuses the value")
    appended(3)
    for column, value in changes.items():
        helpers.execute(f"UPDATE txtasks_rawstat SET {column} = %s WHERE task_name = 'f1'", value)
    told = []
    list(figures_step(lambda signal, **facts: told.append((signal, facts))).add_up())
    assert not raw().exists()
    assert set(sums().values()) == {2}
    ((signal, facts),) = told
    assert signal is signals.figures_dropped
    assert facts["number"] == 1
    assert "'default'" in facts["rows"]


def test_readers_pass_over_invalid_rows():
    appended(2)
    raw().filter(task_name="f1").update(succeeded=-5)
    assert total() == 1


@pytest.mark.parametrize("text", ["1:" + "9" * 590, "x", "99:1 1:2:3 é:4"])
def test_odd_texts_and_sums_beyond_a_column_stop_no_cleaner(text):
    appended()
    RawStat.objects.update(wait=text, succeeded=MAX_COUNT, run_ms=MAX_COUNT)
    add_up()
    appended()
    RawStat.objects.update(wait=text, succeeded=MAX_COUNT)
    add_up()
    assert not raw().exists()
    assert max(Stat.objects.values_list("succeeded", flat=True)) == MAX_COUNT


@pytest.mark.once
def test_the_longest_texts_fit_in_their_column():
    text = histogram.text_of([10**30] * histogram.BUCKETS)
    assert len(text) <= RawStat._meta.get_field("wait").max_length
    again = histogram.empty()
    histogram.add_text(again, text)
    assert set(again) == {histogram.MAX_COUNT}


def test_a_cleaner_without_figures_adds_up_those_of_others(txtasks):
    appended(2)
    txtasks(stats=False)
    add_up()
    assert not raw().exists()
    assert set(sums().values()) == {2}
    assert not Stat.objects.filter(due__isnull=False).exists()


def test_old_rows_are_deleted_by_width():
    appended()
    add_up()
    for width, age in adding_up.KEPT.items():
        rows = Stat.objects.filter(width=width)
        (old, *_) = rows.values("starts_at", "queue_name", "task_name")
        Stat.objects.create(
            width=width,
            succeeded=7,
            queue_name="old",
            starts_at=old["starts_at"] - age - timedelta(days=1),
        )
    add_up()
    assert not Stat.objects.filter(queue_name="old").exists()
    assert set(sums().values()) == {1}


def test_a_cleaner_notes_what_is_due(txtasks):
    enqueue_many([(tasks.quick, [])] * 3)
    tasks.quick.using(priority=3).enqueue()
    tasks.quick.using(run_after=1000).enqueue()
    Task.objects.filter(priority=3).update(lane="one")
    add_up()
    note = Stat.objects.get(width=60, queue_name="default")
    assert note.due == 4
    assert note.oldest > 0.0
    point = stats.chart("default", HOUR).points[-1]
    assert point.due in (4, None)  # None = a minute has begun since
    assert any(one.due == 4 for one in stats.chart(None, HOUR).points)


def test_a_backlog_is_read_in_parts_up_to_its_highest_count(monkeypatch):
    for name, value in (("FIRST", 2), ("FACTOR", 2), ("MAX_DUE", 9)):
        monkeypatch.setattr(backlog, name, value)
    for priority, number in ((5, 2), (3, 5), (0, 6)):
        enqueue_many([(tasks.quick.using(priority=priority), [])] * number)
    tasks.quick.using(queue_name="mail").enqueue()
    enqueue_many([(tasks.quick.using(queue_name="mail", run_after=1000), [])] * 20)
    found = backlog.backlog("default", ["default", "mail", "empty"])
    assert {queue: due for queue, (due, _) in found.items()} == {
        "default": 9,
        "mail": 1,
        "empty": 0,
    }
    assert found["mail"][1] > 0.0
    read, count, _ = backlog._due_of("default", "mail", 0, 1000)
    assert read <= 2
    assert count == 1


def test_a_backlog_of_many_queues_is_read_in_bounds(monkeypatch, txtasks):
    monkeypatch.setattr(backlog, "MAX_READ", 4)
    queues = ["default", "mail", "third"]
    txtasks(queues=queues)
    for queue in queues:
        enqueue_many([(tasks.quick.using(queue_name=queue), [])] * 3)
    seen = [set(backlog.backlog("default", queues)) for _ in range(50)]
    assert all(0 < len(one) < 3 for one in seen)  # PostgreSQL reads into the next queue
    assert set().union(*seen) == set(queues)


def test_a_note_and_counts_share_a_row():
    appended()
    add_up()
    appended()
    add_up()
    (row,) = {
        (one.due is not None, one.succeeded)
        for one in Stat.objects.filter(width=60, task_name="", queue_name="default")
    }
    assert row == (True, 2)


def test_what_cleaners_and_people_end_is_counted_in_their_transaction(txtasks):
    handle = tasks.quick.using(run_after=1000).enqueue()
    operators.cancel("default", [handle.id], keep=True)
    lost = tasks.note.enqueue()
    worker = registered()
    with transaction.atomic():
        helpers.claim(worker)
    Worker.objects.update(lost=True)
    Cleaner(get_config()).run_once()
    assert helpers.row(lost.id).status == Status.DEAD
    found = {one.task.rpartition(".")[2]: one for one in stats.totals().functions}
    assert found["quick"].other == 1
    assert found["note"].died == 1


# -- readers ----------------------------------------------------------------------------------------


def test_a_chart_has_a_point_for_each_step():
    appended(2)
    for span, step in (
        (HOUR, 60),
        (timedelta(days=1), 600),
        (timedelta(days=7), 3600),
        (timedelta(days=30), 86_400),
    ):
        for _ in range(2):  # not added up, and added up
            found = stats.chart("default", span)
            assert found.step == step
            assert sum(one.succeeded for one in found.points) == 2
            starts = [one.starts_at.timestamp() for one in found.points]
            assert {b - a for a, b in pairwise(starts)} == {step}
            assert len(starts) == span.total_seconds() // step + 1
            add_up()
    assert sum(one.succeeded for one in stats.chart("mail", HOUR).points) == 0


@pytest.mark.parametrize("span", [HOUR, timedelta(hours=5), timedelta(days=20)])
def test_functions_are_read_from_rows_that_fit_the_span(span):
    appended(2)
    before = stats.functions(span)
    add_up()
    after = stats.functions(span)
    assert before == after
    assert [one.task for one in after.functions] == ["f0", "f1"]
    assert after.functions[0].mean_seconds == pytest.approx(0.5)


def test_too_many_rows_that_nobody_has_added_up_are_said(monkeypatch):
    monkeypatch.setattr(reading, "MAX_RAW_ROWS", 3)
    appended(3)
    assert not stats.totals().is_behind
    appended(1)
    assert stats.totals().is_behind
    assert stats.functions(HOUR).is_behind
    assert stats.chart(None, HOUR).is_behind
    add_up()
    assert not stats.totals().is_behind


def test_each_answer_is_json():
    appended()
    registered()
    Worker.objects.update(release="one")
    answers = [stats.functions(HOUR), stats.totals(), stats.chart(None, HOUR), *stats.deploys()]
    assert len(answers) == 4
    for one in answers:
        assert json.loads(json.dumps(one.as_json()))


@pytest.mark.parametrize("span", [timedelta(0), 60, timedelta(days=401)])
def test_a_span_without_figures_is_refused(span):
    for read in (stats.functions, lambda span: stats.chart(None, span)):
        with pytest.raises(InvalidOption, match="it must be a datetime"):
            read(span)


# -- releases ---------------------------------------------------------------------------------------


def test_a_release_is_remembered_when_its_worker_has_ended(txtasks):
    txtasks(release=lambda: "2026.11" + "x" * 200)
    writer = TurnWriter(get_config(), helpers.subscription(), threads=1)
    writer.write(Plan(Capacity(0)), helpers.Running(), None)
    assert Worker.objects.get().release == ("2026.11" + "x" * 200)[:100]
    (before,) = stats.deploys()
    writer.registration.leave()
    assert EndedWorker.objects.get().release == before.release
    assert stats.deploys() == (before,)


@pytest.mark.parametrize("release", [lambda: 1 / 0, lambda: None], ids=["raises", "no text"])
def test_a_function_that_fails_leaves_the_release_empty(release, txtasks, caplog):
    txtasks(release=release)
    assert release_of(get_config()) == ""
    (line,) = caplog.messages
    assert "TXTASKS['release'] failed" in line


@pytest.mark.parametrize("release", [7, None, ["x"]])
def test_a_release_that_is_neither_text_nor_function_is_refused(release, txtasks):
    txtasks(release=release)
    with pytest.raises(ConfigError, match=r"TXTASKS\['release'\] is"):
        get_config()
