"""A function or a database that behaves badly keeps no other row back, and gets no row again and again."""

import threading
import urllib.error
from contextlib import contextmanager

import handing
import helpers
import pytest
from django.db import connection
from probe import relay

from django_txtasks import enqueue_many, enqueue_task, external
from django_txtasks.exceptions import ConfigError
from django_txtasks.models import Task

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


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError("order.pdf"),
        urllib.error.HTTPError("http://shop", 422, "no such order", {}, None),
        SystemExit(3),
    ],
    ids=["file", "HTTP", "exit"],
)
def test_an_error_of_one_row_keeps_no_other_row_back(error):
    """Most errors of libraries for HTTP and mail are an OSError, as those of a network are."""
    relay.answers["bad"] = error
    assert type(error).__name__ in hand_over_beside(enqueue_task(bad, 1))


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
    with handing.handing_over() as drain:
        helpers.wait_until(lambda: drain._away_count >= 2)
    assert {(one.snoozes, str(one.errors)) for one in Task.objects.all()} == {(0, "[]")}


def test_a_row_that_takes_too_long_keeps_no_other_row_back(monkeypatch):
    monkeypatch.setattr("django_txtasks.hand_over.targets.functions.CALL_SECONDS", 0.2)
    over = threading.Event()

    def send(rows):
        if any(row.task_name == "bad" for row in rows):
            over.wait(0.5)

    monkeypatch.setattr(relay, "send", send)
    assert "has not returned" in hand_over_beside(enqueue_task(bad, 1))


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


def test_a_database_that_refuses_each_pass_floods_no_target():
    enqueue_many([(good, (number,)) for number in range(100)])
    with keeping_its_rows(), handing.handing_over() as drain:
        helpers.wait_until(lambda: drain._failures >= 4)
    assert [len(rows) for rows in relay.got][:4] == [100, 1, 1, 1]
    handing.hand_over()
    assert not Task.objects.exists()
