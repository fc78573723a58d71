"""A drain that must read past many dead rows, that ends by itself, or whose database or target answers oddly."""

import contextlib
import json
import uuid
from collections import Counter
from datetime import timedelta

import handing
import helpers
import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.utils.dateparse import parse_datetime
from probe import relay

from django_txtasks import Refused, enqueue_many, enqueue_task, external
from django_txtasks.exceptions import Away
from django_txtasks.features.hand_over import passes
from django_txtasks.features.hand_over.target import Answers
from django_txtasks.models import FinishedTask, PausedQueue, Task

pytestmark = pytest.mark.usefixtures("rows", "quick_target")
paid = external("billing.paid", queue_name="events")
lost = external("billing.lost", queue_name="events")
ORDERED = {"events": {"to": "probe.relay.send", "ordered": True}}


def numbers():
    """The first arguments of all rows that arrived, in their order."""
    return [row.args[0] for rows in relay.got for row in rows]


# -- the end of --batch ---------------------------------------------------------------------------


class Elsewhere:
    """An object of a project that makes its own target."""

    def __init__(self, *, is_there=True):
        self._is_there, self.calls = is_there, 0

    def __call__(self, rows):
        """As a Celery app, it can be called, too."""

    def txtasks_target(self, queue, *, ordered):
        return self

    def look_after(self):
        if not self._is_there:
            raise Away("the other office is closed")

    def send(self, rows, until):
        self.calls += 1
        return Answers()

    def close(self):
        pass


def test_a_batch_ends_with_code_3_while_the_target_is_away_and_rows_are_left(txtasks):
    relay.answers["billing.paid"] = Away("the shop is closed")
    handle = enqueue_task(paid, 1)
    with pytest.raises(CommandError, match=r"events \(default\): the shop is closed") as ended:
        call_command("rundrain", batch=True)
    assert ended.value.returncode == 3
    assert len(relay.got) == 3
    left = helpers.row(handle.id)
    assert (left.status, left.snoozes, left.errors) == ("pending", 0, [])
    Task.objects.update(run_after=left.enqueued_at)
    txtasks(hand_over={"events": Elsewhere(is_there=False)})
    with pytest.raises(CommandError, match="the other office is closed") as ended:
        call_command("rundrain", batch=True)
    assert ended.value.returncode == 3


def test_a_batch_ends_well_if_nothing_is_due_although_the_target_is_away(txtasks):
    txtasks(hand_over={"events": Elsewhere(is_there=False)})
    enqueue_task(paid.using(run_after=timedelta(hours=1)), 1)
    call_command("rundrain", batch=True)
    assert Task.objects.count() == 1


def test_a_batch_ends_with_code_3_if_an_ordered_queue_stops(txtasks):
    txtasks(hand_over=ORDERED)
    relay.answers["billing.lost"] = "closed"
    enqueue_many([(paid, (1,)), (lost, (2,)), (paid, (3,))])
    with pytest.raises(CommandError, match="is not taken: closed") as ended:
        call_command("rundrain", batch=True)
    assert ended.value.returncode == 3
    assert FinishedTask.objects.count() == 1 and Task.objects.count() == 2


def test_a_batch_goes_on_if_the_target_is_back_in_time(monkeypatch):
    calls = []

    def send(rows):
        calls.append(rows)
        if len(calls) < 3:
            raise Away("not yet")

    monkeypatch.setattr(relay, "send", send)
    enqueue_many([(paid, (number,)) for number in range(3)])
    call_command("rundrain", batch=True)
    assert not Task.objects.exists()


# -- answers that are odd ---------------------------------------------------------------------------


def test_a_target_that_answers_for_no_row_counts_as_away(txtasks):
    elsewhere = Elsewhere()
    txtasks(hand_over={"events": elsewhere})
    enqueue_task(paid, 1)
    drain = handing.new_drain()
    drain._turn()
    drain._turn()
    assert (elsewhere.calls, drain._away_count) == (2, 2)
    assert Task.objects.get().errors == []


def test_answers_to_other_rows_count_for_nothing(txtasks, monkeypatch):
    """As to a message of an earlier call that RabbitMQ returns after an alarm."""
    elsewhere = Elsewhere()
    txtasks(hand_over={"events": elsewhere})
    others = [uuid.uuid4() for _ in range(3)]
    said = Answers({others[0]}, {others[1]: "closed"}, {others[2]: "never"})
    monkeypatch.setattr(elsewhere, "send", lambda rows, until: said)
    enqueue_task(paid, 1)
    drain = handing.new_drain()
    drain._turn()
    assert (drain.handed, drain._away_count) == (0, 1)
    assert Task.objects.get().errors == []


def test_the_ids_that_a_function_returns_may_be_text(monkeypatch):
    calls = []

    def send(rows):
        calls.append(rows)
        lost_ones = [row for row in rows if row.task_name == "billing.lost"]
        reasons = ["closed", Refused("never")]
        return {str(row.id): why for row, why in zip(lost_ones, reasons, strict=False)}

    monkeypatch.setattr(relay, "send", send)
    enqueue_many([(lost, (1,)), (lost, (2,)), (paid, (3,))])
    handing.new_drain()._turn()
    assert len(calls) == 1 and len(calls[0]) == 3
    left = {one.args[0]: (one.status, one.errors[-1]["message"]) for one in Task.objects.all()}
    assert left == {1: ("pending", "closed"), 2: ("dead", "never")}
    assert FinishedTask.objects.count() == 1


@pytest.mark.parametrize("said", ["no id", 7, str(uuid.UUID(int=7))])
def test_an_id_that_is_of_no_row_postpones_the_row(monkeypatch, said):
    monkeypatch.setattr(relay, "send", lambda rows: {said: "closed"})
    enqueue_task(paid, 1)
    handing.hand_over()
    assert "the id of no row" in Task.objects.get().errors[-1]["message"]


# -- the session ------------------------------------------------------------------------------------


@pytest.fixture
def formats():
    """A site whose role has other formats of times, intervals, bytes and numbers."""
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL has such settings")
    name = connection.ops.quote_name(connection.settings_dict["NAME"])
    odd = {
        "DateStyle": "'German, DMY'", "IntervalStyle": "sql_standard", "bytea_output": "escape",
        "extra_float_digits": "-15", "TimeZone": "'Asia/Kolkata'",
    }  # fmt: skip
    for setting, value in odd.items():
        helpers.execute(f"ALTER DATABASE {name} SET {setting} = {value}")
    yield
    for setting in odd:
        helpers.execute(f"ALTER DATABASE {name} RESET {setting}")


@pytest.mark.parametrize("is_ordered", [False, True], ids=["any order", "ordered"])
def test_formats_of_the_role_change_no_message(formats, txtasks, monkeypatch, is_ordered):
    if is_ordered:
        txtasks(hand_over=ORDERED)
    monkeypatch.setattr("django_txtasks.features.hand_over.drain.MOST_ROWS", 2)
    handles = enqueue_many([(paid, (number, 1 / 3)) for number in range(7)])
    handing.hand_over()
    bodies = [json.loads(row.body) for rows in relay.got for row in rows]
    at = helpers.finished(handles[0].id).enqueued_at
    assert [parse_datetime(body["enqueued_at"]) for body in bodies] == [at] * 7
    assert all(body["enqueued_at"].endswith("+00:00") for body in bodies)
    assert [body["args"] for body in bodies] == [[number, 1 / 3] for number in range(7)]


def test_a_session_that_ends_between_passes_sends_no_row_twice():
    """As MySQL's wait_timeout ends the session of a drain that has waited for long."""
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has no sessions")
    with handing.handing_over() as drain:
        for number in range(3):
            enqueue_task(paid, number)
            helpers.wait_until(lambda: not Task.objects.exists())
            # the drain has heard of its commit, so its session is between two passes
            helpers.wait_until(lambda: drain.handed == number + 1)  # noqa: B023
            helpers.end_other_sessions()
        enqueue_task(paid, 3)
        helpers.wait_until(lambda: not Task.objects.exists())
        helpers.wait_until(lambda: drain.handed == 4)
        assert drain.handed == 4
    assert numbers() == [0, 1, 2, 3]


TRIGGERS = {
    "postgresql": [
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'read only'; END $$",
        "CREATE TRIGGER refuse BEFORE UPDATE OR DELETE ON txtasks_task"
        " FOR EACH ROW EXECUTE FUNCTION refuse()",
    ],
    "mysql": [
        f"CREATE TRIGGER refuse_{verb} BEFORE {verb} ON txtasks_task FOR EACH ROW"
        " SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'read only'"
        for verb in ("UPDATE", "DELETE")
    ],
    "sqlite": [
        f"CREATE TRIGGER refuse_{verb} BEFORE {verb} ON txtasks_task FOR EACH ROW"
        " BEGIN SELECT RAISE(ABORT, 'read only'); END"
        for verb in ("UPDATE", "DELETE")
    ],
}


@contextlib.contextmanager
def read_only():
    """A database that lets rows be locked, and no longer be written, as MariaDB with read_only = 1 does."""
    for sql in TRIGGERS[connection.vendor]:
        helpers.execute(sql)
    try:
        yield
    finally:
        if connection.vendor == "postgresql":
            helpers.execute("DROP TRIGGER refuse ON txtasks_task")
            helpers.execute("DROP FUNCTION refuse()")
        else:
            helpers.execute("DROP TRIGGER refuse_UPDATE")
            helpers.execute("DROP TRIGGER refuse_DELETE")


def test_a_database_that_became_read_only_gets_no_row_sent_again():
    enqueue_many([(paid, (number,)) for number in range(5)])
    with handing.handing_over() as drain:
        with read_only():
            enqueue_many([(paid, (number,)) for number in range(5, 10)])
            helpers.wait_until(lambda: drain._failures >= 4)
            sent = len(relay.got)
        helpers.wait_until(lambda: not Task.objects.exists())
    assert set(numbers()) == set(range(10))
    assert max(Counter(numbers()).values()) <= 2  # whatever the number of failures
    assert sent <= 3


def test_a_pass_without_rows_does_not_show_that_the_database_can_be_written():
    enqueue_task(paid, 1)
    drain = handing.new_drain()
    with read_only():
        drain._turn()
        PausedQueue.objects.create(queue_name="events")
        drain._turn()
        PausedQueue.objects.all().delete()
        drain._turn()
        assert len(relay.got) == 1
    handing.hand_over()
    assert numbers() == [1, 1]


# -- dead rows ----------------------------------------------------------------------------------------


def sweeping(drain):
    """Let a drain go on as after a search that took too long."""
    drain._passes._place.go_back(too_long=True)
    return drain


def sweep_all(drain, monkeypatch):
    monkeypatch.setattr(
        "django_txtasks.features.hand_over.choosing.SLOW_SEARCH_SECONDS", -1
    )  # for ever
    sweeping(drain)
    for _ in range(1000):
        drain._turn()
        if not Task.objects.filter(status="pending").exists():
            break
    assert drain._passes._place.is_swept


def several_priorities():
    handles = []
    for priority in (0, 7, -3):
        told = paid.using(priority=priority)
        handles += enqueue_many([(told, (100 * priority + number,)) for number in range(30)])
    return [*range(700, 730), *range(30), *range(-300, -270)]


@pytest.mark.parametrize("is_ordered", [False, True], ids=["any order", "ordered"])
def test_a_sweep_finds_all_rows_in_their_order(txtasks, monkeypatch, is_ordered):
    if connection.vendor == "sqlite":
        pytest.skip("on SQLite no search is ended")
    if is_ordered:
        txtasks(hand_over=ORDERED)
    expected = several_priorities()
    monkeypatch.setattr("django_txtasks.features.hand_over.drain.MOST_ROWS", 25)
    sweep_all(handing.new_drain(), monkeypatch)
    assert numbers() == expected


def test_a_sweep_keeps_the_bytes_of_a_pass(monkeypatch):
    if connection.vendor == "sqlite":
        pytest.skip("on SQLite no search is ended")
    monkeypatch.setattr("django_txtasks.features.hand_over.choosing.MOST_BYTES", 3000)
    enqueue_many([(paid, ("x" * 1000,)) for _ in range(5)] + [(paid, ("x" * 9000,))])
    sweep_all(handing.new_drain(), monkeypatch)
    assert [len(rows) for rows in relay.got] == [2, 2, 1, 1]


def test_after_a_failed_pass_a_sweep_finds_its_rows_again(monkeypatch):
    if connection.vendor == "sqlite":
        pytest.skip("on SQLite no search is ended")
    monkeypatch.setattr("django_txtasks.features.hand_over.drain.MOST_ROWS", 10)
    enqueue_many([(paid, (number,)) for number in range(30)])
    Task.objects.update(run_after="2020-01-01 00:00Z")
    drain = sweeping(handing.new_drain())
    with read_only():
        while not drain._failures:
            drain._turn()
    sweep = drain._passes._place.sweep
    while not sweep.is_over:
        drain._turn()
    assert FinishedTask.objects.count() == 30


def test_new_rows_do_not_wait_for_the_end_of_a_sweep(monkeypatch):
    if connection.vendor == "sqlite":
        pytest.skip("on SQLite no search is ended")
    monkeypatch.setattr("django_txtasks.fast.sweep.TURN_SECONDS", 0.0)
    old = enqueue_many([(paid, (number,)) for number in range(5)])
    Task.objects.filter(pk__in=[one.id for one in old]).update(run_after="2020-01-01 00:00Z")
    drain = sweeping(handing.new_drain())
    place = drain._passes._place
    while not (place.sweep and place.sweep.now):
        drain._turn()
    assert not place.sweep.is_over
    enqueue_task(paid, 7)
    drain._turn()
    assert 7 in numbers()
    assert not place.sweep.is_over


def test_two_drains_that_sweep_share_the_rows(monkeypatch):
    if connection.vendor == "sqlite":
        pytest.skip("on SQLite there is one drain")
    monkeypatch.setattr("django_txtasks.features.hand_over.choosing.SLOW_SEARCH_SECONDS", -1)
    monkeypatch.setattr("django_txtasks.features.hand_over.drain.MOST_ROWS", 10)
    enqueue_many([(paid, (number,)) for number in range(30)])
    Task.objects.update(run_after="2020-01-01 00:00Z")  # new rows go beside a sweep
    relay.may_go_on.clear()
    with sweeping_over(), sweeping_over():
        helpers.wait_until(lambda: len(relay.got) == 2)
        relay.may_go_on.set()
        helpers.wait_until(lambda: not Task.objects.exists())
    assert sorted(numbers()) == list(range(30))


def test_one_drain_of_an_ordered_queue_is_active_while_both_sweep(txtasks, monkeypatch):
    if connection.vendor == "sqlite":
        pytest.skip("on SQLite there is one drain")
    txtasks(hand_over=ORDERED)
    monkeypatch.setattr("django_txtasks.features.hand_over.choosing.SLOW_SEARCH_SECONDS", -1)
    monkeypatch.setattr("django_txtasks.features.hand_over.drain.MOST_ROWS", 10)
    enqueue_many([(paid, (number,)) for number in range(50)])
    relay.may_go_on.clear()
    with sweeping_over(), sweeping_over():
        helpers.wait_until(lambda: relay.got)
        helpers.wait_until(helpers.somebody_waits)
        assert len(relay.got) == 1
        relay.may_go_on.set()
        helpers.wait_until(lambda: not Task.objects.exists())
    assert numbers() == list(range(50))


@contextlib.contextmanager
def sweeping_over():
    """A drain that runs meanwhile, and sweeps."""
    with handing.handing_over(set_up=sweeping) as drain:
        yield drain


@contextlib.contextmanager
def dead_rows(count):
    """Dead versions of due rows, which an old snapshot keeps from being removed."""
    postgresql = connection.vendor == "postgresql"
    begin = (
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"
        if postgresql
        else "SELECT COUNT(*) FROM txtasks_once"
    )
    with old_snapshot(begin):
        first = enqueue_task(paid, "dead")
        others = [
            one.attname
            for one in Task._meta.concrete_fields
            if one.attname not in {"id"} and not one.generated
        ]
        columns = ", ".join(connection.ops.quote_name(one) for one in others)
        ids = (
            "gen_random_uuid() FROM generate_series(1, %s)"
            if postgresql
            else "REPLACE(UUID(), '-', '') FROM seq_1_to_%s"
        )
        made, _, source = ids.partition(" FROM ")
        helpers.execute(
            f"INSERT INTO txtasks_task (id, {columns}) SELECT {made}, {columns}"
            f" FROM txtasks_task CROSS JOIN {source.replace('%s', str(count))} AS numbers"
        )
        assert Task.objects.count() == count + 1
        helpers.execute("DELETE FROM txtasks_task")
        assert first.status() == "gone"
        yield


@contextlib.contextmanager
def old_snapshot(begin):
    import threading

    holds, release = threading.Event(), threading.Event()

    def hold():
        with transaction.atomic():
            helpers.execute(begin)
            helpers.execute("SELECT COUNT(*) FROM txtasks_task")
            holds.set()
            release.wait(helpers.PATIENCE)

    with helpers.second_session(hold):
        assert holds.wait(helpers.PATIENCE)
        try:
            yield
        finally:
            release.set()


def limit_statements(monkeypatch, *, milliseconds):
    """Let the database end each statement of a drain that takes longer."""
    # on MariaDB a statement has half of it; on PostgreSQL a busy machine would be idle for so long
    monkeypatch.setattr(passes, "SESSION_LIMIT", timedelta(milliseconds=2 * milliseconds))
    limits = {"idle": "15000", "statement": str(milliseconds), "lock": "1000"}
    monkeypatch.setattr("django_txtasks.database.transactions._limits", lambda limit: limits)


@pytest.mark.parametrize("is_ordered", [False, True], ids=["any order", "ordered"])
def test_a_drain_gets_past_dead_rows_that_one_statement_cannot_pass(
    txtasks, monkeypatch, is_ordered
):
    if connection.vendor == "sqlite":
        pytest.skip("SQLite keeps no dead rows")
    if is_ordered:
        txtasks(hand_over=ORDERED)
    with dead_rows(100_000):
        enqueue_many([(paid, (number,)) for number in range(20)])
        limit_statements(monkeypatch, milliseconds=20)
        with handing.handing_over():
            for milliseconds in (40, 80, 160, 320, 640, 1280):  # a busy machine needs longer
                with contextlib.suppress(AssertionError):
                    helpers.wait_until(lambda: not Task.objects.exists(), 10)
                    break
                limit_statements(monkeypatch, milliseconds=milliseconds)
            helpers.wait_until(lambda: not Task.objects.exists())
    assert sorted(set(numbers())) == list(range(20))
    if is_ordered:
        assert list(dict.fromkeys(numbers())) == list(range(20))
