"""A function or a database that behaves badly keeps no other row back, and gets no row again and again."""

import threading
import urllib.error
from contextlib import contextmanager

import handing
import helpers
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from probe import relay

from django_txtasks import Refused, enqueue_many, enqueue_task, external, signals
from django_txtasks.conf import get_config
from django_txtasks.exceptions import Away, ConfigError
from django_txtasks.features.hand_over import passes
from django_txtasks.features.hand_over.drain import TRIES
from django_txtasks.features.hand_over.process import DrainProcess
from django_txtasks.features.hand_over.targets import calling
from django_txtasks.models import Task, Worker
from django_txtasks.operations import operators

pytestmark = pytest.mark.usefixtures("rows", "quick_target")
good = external("good", queue_name="events")
bad = external("bad", queue_name="events")


def hand_over_beside(first):
    """Hand over good rows behind one that does not go. Return the reason in its row."""
    with handing.handing_over() as drain:
        enqueue_many([(good, (number,)) for number in range(3)])
        helpers.wait_until(lambda: drain.handed == 3)
        helpers.wait_until(lambda: helpers.row(first.id).errors)
    return helpers.row(first.id).errors[-1]["message"]


class Mute(Exception):
    """Its text cannot be read."""

    def __str__(self):
        raise SystemExit(3)


class MuteRefused(Refused, Mute):
    """The same of an answer."""

    __str__ = Mute.__str__


class MuteAway(Away, Mute):
    """The same of an outage."""

    __str__ = Mute.__str__


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError("order.pdf"),
        urllib.error.HTTPError("http://shop", 422, "no such order", {}, None),
        SystemExit(3),
        BrokenPipeError("too large"),
        TimeoutError("no answer"),
        Mute(),
    ],
    ids=["file", "HTTP", "exit", "reset", "time", "mute"],
)
def test_an_error_of_one_row_keeps_no_other_row_back(error):
    """Most errors of libraries for HTTP and mail are an OSError, as those of a network are.

    A server may also end the connection, or not answer, because of one row.
    """
    relay.answers["bad"] = error
    assert type(error).__name__ in hand_over_beside(enqueue_task(bad, 1))


@pytest.mark.parametrize("answer", [MuteRefused(), MuteAway()], ids=["refused", "away"])
def test_an_answer_whose_text_cannot_be_read_ends_no_drain(answer):
    relay.answers["bad"] = answer
    enqueue_task(bad, 1)
    with handing.handing_over() as drain:
        helpers.wait_until(
            lambda: any(row.task_name == "bad" for rows in relay.got for row in rows)
        )
        relay.answers.clear()
        enqueue_task(good, 1)
        helpers.wait_until(lambda: drain.handed >= 1)


UNSTORABLE = "400 \x00 \ud83d"
"""An answer with NUL and half an emoji, which databases refuse as text."""


@pytest.mark.parametrize(
    "answer",
    [UNSTORABLE, Refused(UNSTORABLE), ValueError(UNSTORABLE), BrokenPipeError(UNSTORABLE)],
    ids=["reason", "Refused", "error", "network"],
)
def test_an_answer_that_no_database_stores_keeps_no_row_back(answer, txtasks):
    txtasks(dead_notices={"task": "probe.tasks.note"})
    relay.answers["bad"] = answer
    assert r"400 \x00 \ud83d" in hand_over_beside(enqueue_task(bad, 1))
    sent = sum(row.task_name == "bad" for rows in relay.got for row in rows)
    assert sent <= (4 if isinstance(answer, OSError) else 2), "each of them was postponed or buried"
    if isinstance(answer, Refused):
        (notice,) = Task.objects.filter(task_name="probe.tasks.note")
        assert r"400 \x00 \ud83d" in notice.args[0]["error"]["message"]


def test_a_reason_that_the_target_is_away_with_any_text_shows_in_the_row_of_the_drain():
    relay.answers["good"] = Away(UNSTORABLE)
    enqueue_task(good, 1)
    process = DrainProcess(get_config(), ["default"], ["events"])
    ended = threading.Thread(target=process.run)
    ended.start()
    try:
        helpers.wait_until(lambda: [row for row in Worker.objects.all() if row.progress])
    finally:
        process.stop.request()
        ended.join(helpers.PATIENCE)
    assert not ended.is_alive()


def _behind(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        urllib.error.URLError("refused"),
        _behind(RuntimeError("no answer"), ConnectionRefusedError("closed")),
        OSError(113, "No route to host"),
    ],
    ids=["no", "cause", "route"],
)
def test_an_error_of_the_network_leaves_the_rows_as_they_are(error):
    if isinstance(error, urllib.error.URLError):
        error.__context__ = TimeoutError("timed out")
    relay.answers["good"] = error
    enqueue_many([(good, (number,)) for number in range(3)])
    drain = handing.new_drain()
    drain._turn()
    drain._turn()
    assert drain._away_count == 2
    assert {(one.snoozes, str(one.errors)) for one in Task.objects.all()} == {(0, "[]")}


def postponed(count):
    """A row that was postponed so often, and is due."""
    first = enqueue_task(bad, 1)
    Task.objects.filter(pk=first.id).update(snoozes=count)
    return first


def test_a_row_that_breaks_the_connection_again_does_not_make_the_others_wait():
    relay.answers["bad"] = BrokenPipeError("too large")
    first = postponed(1)
    enqueue_many([(good, (number,)) for number in range(3)])
    drain = handing.new_drain()
    assert drain._turn() == 0
    assert (drain.handed, drain._away_count) == (3, 0)
    left = helpers.row(first.id)
    assert left.snoozes == 2 and "too large" in left.errors[-1]["message"]


def test_while_a_target_is_away_no_row_is_to_blame_however_often_it_is_tried():
    relay.answers["good"] = ConnectionRefusedError("closed")
    enqueue_many([(good, (number,)) for number in range(5)])
    drain = handing.new_drain()
    for _ in range(8):
        drain._turn()
    assert drain._away_count == 8
    assert {(one.snoozes, str(one.errors)) for one in Task.objects.all()} == {(0, "[]")}
    relay.reset()
    while Task.objects.exists():
        assert drain._turn() == 0
    assert drain.away == ""


def test_any_number_of_rows_that_break_the_connection_is_passed():
    """Only a row that goes shows that they are the reason, and the target is not."""
    relay.answers["bad"] = BrokenPipeError("too large")
    enqueue_many([(bad if number < 4 else good, (number,)) for number in range(6)])
    drain = handing.new_drain()
    for number in range(1, 6):
        drain._turn()
        assert (drain._away_count, drain.handed) == (number, 0)
        assert not Task.objects.filter(snoozes__gt=0).exists()
    assert drain._turn() == 0
    assert (drain._away_count, drain.handed) == (0, 1)
    assert {
        (one.snoozes, one.errors[-1]["message"]) for one in Task.objects.filter(task_name="bad")
    } == {(1, "BrokenPipeError: too large")}
    drain._turn()
    assert drain.handed == 2


def test_behind_a_call_that_hangs_no_other_row_is_tried(monkeypatch):
    monkeypatch.setattr(calling, "CALL_SECONDS", 0.2)
    calls, over = [], threading.Event()

    def send(rows):
        calls.append(rows)
        if len(calls) == TRIES:
            over.wait(helpers.PATIENCE)
        raise BrokenPipeError("too large")

    monkeypatch.setattr(relay, "send", send)
    enqueue_many([(good, (number,)) for number in range(2)])
    drain = handing.new_drain()
    for _ in range(TRIES):
        drain._turn()
    over.set()
    assert len(calls) == TRIES
    found = sorted((one.args, one.snoozes) for one in Task.objects.all())
    assert found == [([0], 1), ([1], 0)], (
        "the row whose call hangs may be the reason, the other not"
    )


def test_a_target_that_is_away_is_told_once():
    relay.answers["bad"] = ConnectionRefusedError("closed")
    first = enqueue_task(bad, 1)
    back = []

    def note(**facts):
        back.append(facts)

    signals.target_back.connect(note)
    try:
        with handing.handing_over() as drain:
            helpers.wait_until(lambda: drain._away_count >= 5)
            assert not back and not helpers.row(first.id).snoozes
            relay.answers.clear()
            helpers.wait_until(lambda: not Task.objects.exists())
            helpers.wait_until(lambda: drain._away_since is None)
    finally:
        signals.target_back.disconnect(note)
    assert len(back) == 1


def test_a_batch_gets_past_a_row_that_breaks_the_connection():
    relay.answers["bad"] = BrokenPipeError("too large")
    first = enqueue_task(bad, 1)
    enqueue_many([(good, (number,)) for number in range(3)])
    call_command("rundrain", batch=True)
    assert [(row.id, row.snoozes) for row in Task.objects.all()] == [(first.id, 1)]


def test_a_batch_whose_target_is_away_ends_with_code_3_and_leaves_the_row():
    relay.answers["bad"] = ConnectionRefusedError("closed")
    postponed(5)
    with pytest.raises(CommandError, match="closed") as ended:
        call_command("rundrain", batch=True)
    assert (ended.value.returncode, Task.objects.get().snoozes) == (3, 5)


def test_a_batch_tells_of_a_row_whose_call_has_not_returned(monkeypatch):
    """The row is postponed, so that nothing is due any more."""
    monkeypatch.setattr(calling, "CALL_SECONDS", 0.2)
    monkeypatch.setattr(calling, "GIVE_UP_SECONDS", 0.0)
    over = threading.Event()
    monkeypatch.setattr(relay, "send", lambda rows: over.wait(helpers.PATIENCE))
    first = enqueue_task(good, 1)
    with pytest.raises(CommandError, match="has not returned") as ended:
        call_command("rundrain", batch=True)
    over.set()
    assert (ended.value.returncode, helpers.row(first.id).snoozes) == (3, 1)


def test_a_row_that_is_never_taken_is_dead_at_last_while_others_go():
    relay.answers["bad"] = "too large"
    first = postponed(passes.MOST_TRIES - 1)
    enqueue_task(good, 1)
    handing.hand_over()
    dead = helpers.row(first.id)
    assert dead.status == "dead"
    assert dead.errors[-1]["message"] == "not taken in 1000 tries: too large"
    operators.revive("default", [first.id])
    handing.hand_over()
    again = helpers.row(first.id)
    assert (again.status, again.snoozes) == ("pending", 1)


def test_no_row_is_dead_while_the_target_takes_none():
    relay.answers["bad"] = "a full queue"
    first = postponed(passes.MOST_TRIES + 7)
    handing.hand_over()
    left = helpers.row(first.id)
    assert (left.status, left.snoozes) == ("pending", passes.MOST_TRIES + 8)


def test_a_row_that_takes_too_long_keeps_no_other_row_back(monkeypatch):
    monkeypatch.setattr("django_txtasks.features.hand_over.targets.calling.CALL_SECONDS", 0.2)
    over = threading.Event()

    def send(rows):
        if any(row.task_name == "bad" for row in rows):
            over.wait(0.5)

    monkeypatch.setattr(relay, "send", send)
    assert "has not returned" in hand_over_beside(enqueue_task(bad, 1))


def test_behind_a_call_that_does_not_return_no_rows_are_sent_that_nobody_holds(monkeypatch):
    monkeypatch.setattr("django_txtasks.features.hand_over.targets.calling.CALL_SECONDS", 0.2)
    over, sent = threading.Event(), []

    def send(rows):
        sent.extend(row.task_name for row in rows)
        if "bad" in sent:
            over.wait(helpers.PATIENCE)

    monkeypatch.setattr(relay, "send", send)
    enqueue_task(bad, 1)
    again = enqueue_task(good, 1)
    Task.objects.filter(pk=again.id).update(snoozes=1)
    drain = handing.new_drain()
    drain._turn()
    assert helpers.row(again.id).snoozes == 1
    over.set()
    helpers.wait_until(lambda: drain._turn() is not None and drain.handed == 2)
    assert sent == ["bad", "good", "bad"]


def test_a_coroutine_function_is_refused_at_the_start(txtasks):
    async def send(rows):
        pass

    txtasks(hand_over={"events": send})
    with pytest.raises(ConfigError, match="async"):
        handing.new_drain()


TRIGGERS = {
    "postgresql": (
        """CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN RAISE EXCEPTION 'read only'; END $$""",
        "CREATE TRIGGER refuse BEFORE DELETE ON txtasks_task FOR EACH ROW EXECUTE FUNCTION refuse()",
    ),
    "mysql": (
        """CREATE TRIGGER refuse BEFORE DELETE ON txtasks_task FOR EACH ROW
           SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'read only'""",
    ),
    "sqlite": (
        """CREATE TRIGGER refuse BEFORE DELETE ON txtasks_task FOR EACH ROW
           BEGIN SELECT RAISE(ABORT, 'read only'); END""",
    ),
}


@contextmanager
def keeping_its_rows():
    """A database that lets rows be locked and refuses to delete them, as MariaDB does before a failover."""
    for sql in TRIGGERS[connection.vendor]:
        helpers.execute(sql)
    try:
        yield
    finally:
        is_postgres = connection.vendor == "postgresql"
        helpers.execute(f"DROP TRIGGER refuse{' ON txtasks_task' if is_postgres else ''}")
        if is_postgres:
            helpers.execute("DROP FUNCTION refuse()")


@contextmanager
def keeping_bad_rows():
    """A database that refuses to delete the rows of one task."""
    when = {
        "postgresql": ("FOR EACH ROW EXECUTE", "FOR EACH ROW WHEN (OLD.task_name = 'bad') EXECUTE"),
        "mysql": (
            "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'read only'",
            "IF OLD.task_name = 'bad' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'read only'; END IF",
        ),
        "sqlite": ("FOR EACH ROW", "FOR EACH ROW WHEN OLD.task_name = 'bad'"),
    }
    before = TRIGGERS[connection.vendor]
    TRIGGERS[connection.vendor] = tuple(sql.replace(*when[connection.vendor]) for sql in before)
    try:
        with keeping_its_rows():
            yield
    finally:
        TRIGGERS[connection.vendor] = before


def test_a_row_whose_end_the_database_refuses_is_dead_and_the_others_go():
    enqueue_many([(good, (0,)), (bad, (1,)), (good, (2,))])
    with keeping_bad_rows():
        drain = handing.hand_over()
    assert drain.handed == 2 and len(relay.got) == 1
    (dead,) = Task.objects.all()
    assert (dead.task_name, dead.status) == ("bad", "dead")
    assert "has this task, but the database refused" in dead.errors[-1]["message"]


def test_a_row_whose_end_the_database_refuses_alone_lets_the_next_ones_go_at_last(monkeypatch):
    monkeypatch.setattr("django_txtasks.features.hand_over.drain.DATABASE_SECONDS", 0.1)
    monkeypatch.setattr(passes, "MOST_REFUSALS", 3)
    first = enqueue_task(bad, 1)
    with keeping_bad_rows(), handing.handing_over() as drain:
        helpers.wait_until(lambda: drain._failures >= 2)
        enqueue_many([(good, (number,)) for number in range(3)])
        helpers.wait_until(lambda: drain.handed == 3)
    assert "has this task" in helpers.row(first.id).errors[-1]["message"]


def test_a_database_that_refuses_each_pass_floods_no_target():
    enqueue_many([(good, (number,)) for number in range(100)])
    with keeping_its_rows(), handing.handing_over() as drain:
        helpers.wait_until(lambda: drain._failures >= 4)
    assert [len(rows) for rows in relay.got][:4] == [100, 1, 1, 1]
    handing.hand_over()
    assert not Task.objects.exists()
