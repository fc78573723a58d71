"""The cost of an enqueue for its transaction: one statement; functions with the same name stay apart."""

import json
from datetime import timedelta

import helpers
import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils.timezone import now
from orders.models import Order
from probe import tasks

from django_txtasks import enqueue_many, enqueue_task
from django_txtasks.core.ground import payload
from django_txtasks.exceptions import InvalidOption, UnknownQueue

pytestmark = [pytest.mark.usefixtures("rows"), pytest.mark.smoke]


def statements_of(work):
    """Return the statements sent to the database, without the ends of transactions."""
    with CaptureQueriesContext(connection) as queries:
        work()
    ends = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE")
    return [one["sql"] for one in queries if not one["sql"].startswith(ends)]


def in_transaction(work):
    with transaction.atomic():
        Order.objects.create(customer="Ada")
        statements = statements_of(work)
    return statements


CALLS = {
    "one": lambda: enqueue_task(tasks.note, "a"),
    "nothing said": lambda: enqueue_task(tasks.note),
    "options": lambda: tasks.mail.using(priority=3, run_after=60, expires=120).enqueue("a"),
    "a moment": lambda: tasks.note.using(run_after=now()).enqueue(key="a"),
    "ten": lambda: enqueue_many([(tasks.note, ("a",)), (tasks.mail, (), {"key": "b"})] * 5),
}


@pytest.mark.parametrize("call", CALLS)
def test_to_enqueue_takes_one_insert_and_no_other_statement(call):
    for around in (in_transaction, statements_of):
        (only,) = around(CALLS[call])
        assert only.startswith("INSERT INTO txtasks_task"), around.__name__


def test_many_take_one_statement_where_there_is_copy():
    found = in_transaction(lambda: enqueue_many([(tasks.note, (str(key),)) for key in range(400)]))
    copies = connection.vendor == "postgresql"
    assert [one[:4] for one in found] == ["COPY" if copies else "INSE"]


def test_the_broker_costs_no_statement(broker):
    assert len(in_transaction(CALLS["one"])) == 1


def test_a_queue_that_the_settings_lose_is_refused_where_it_was_served_before(txtasks):
    txtasks(queues=["default", "mail"])
    enqueue_task(tasks.mail)
    txtasks(queues=["default"])
    with pytest.raises(UnknownQueue):
        enqueue_task(tasks.mail)
    txtasks(queues=["default", "mail"])
    assert helpers.row(enqueue_task(tasks.mail).id).queue_name == "mail"


def test_a_function_and_itself_with_options_are_not_taken_for_each_other():
    plain, changed = tasks.note, tasks.note.using(priority=5, run_after=3600)
    for _ in range(2):
        first, second = helpers.row(enqueue_task(plain).id), helpers.row(enqueue_task(changed).id)
        assert (first.priority, second.priority) == (0, 5)
        assert first.run_after == first.enqueued_at
        assert abs(second.run_after - second.enqueued_at - timedelta(hours=1)) < timedelta(
            milliseconds=2
        )


def test_delays_count_from_each_enqueueing_and_not_from_the_first():
    later = tasks.note.using(run_after=3600)
    first, second = (helpers.row(enqueue_task(later).id) for _ in range(2))
    assert first.enqueued_at < second.enqueued_at or connection.vendor == "sqlite"
    for row in (first, second):
        assert abs(row.run_after - row.enqueued_at - timedelta(hours=1)) < timedelta(milliseconds=2)


def test_an_option_that_is_wrong_is_refused_each_time():
    for _ in range(2):
        with pytest.raises(InvalidOption):
            tasks.note.using(run_after="soon").enqueue()
        with pytest.raises(InvalidOption):
            tasks.note.using(priority=[]).enqueue()


@pytest.mark.once
def test_plain_arguments_become_the_same_json_as_any():
    plain = (0, -1, 2**63 - 1, -(2**63), True, False, None, "", 'a "b" \\ c\n\t\x7f </script>')
    assert payload.encode(plain, name="args") == json.dumps(plain, separators=(",", ":"))
    for one in (*plain, 2**63, 1.5, "é", "x" * 2000, [1, [None]], {"a": 1}):
        assert json.loads(payload.encode((one,), name="args")) == [one]
    assert payload.encode((), name="args") == "[]"
