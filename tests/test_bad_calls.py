"""Calls that are too large, too many, or for two databases at a time."""

import random
import unittest
import uuid
import warnings

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, connections, transaction
from django.test import TestCase
from django.test.utils import CaptureQueriesContext
from probe import tasks

from django_txtasks import enqueue_many, enqueue_task
from django_txtasks.core.enqueueing import NotTransactionalWarning
from django_txtasks.core.enqueueing.commit_hints import hooks_in
from django_txtasks.core.rows.enqueueing import (
    BYTES_PER_STATEMENT,
    NewTask,
    RowDefaults,
    _chunks,
    insert,
)
from django_txtasks.hints.sending.buffer import BUFFER_IDS
from django_txtasks.models import Task

pytestmark = pytest.mark.usefixtures("rows")


# -- bytes


def test_a_statement_is_bounded_by_bytes_as_well_as_by_rows():
    """Packets are: MariaDB refuses one of 16 MB, and ends the session and its transaction with it."""
    large = "'\"\\" * 40_000  # 200 kB of JSON, twice as much when it is quoted for SQL
    with transaction.atomic(), CaptureQueriesContext(connection) as captured:
        enqueue_many((tasks.note, [large]) for _ in range(19))
    sizes = [len(one["sql"]) for one in captured if "INSERT" in one["sql"]]
    assert len(sizes) == 4
    assert max(sizes) < 4 * BYTES_PER_STATEMENT
    assert [args for (args,) in Task.objects.values_list("args")] == [[large]] * 19


def test_rows_that_no_packet_would_take_together_are_written():
    large = f'["{"x" * 250_000}"]'
    template = RowDefaults("probe.tasks.note")
    with transaction.atomic():
        insert(connection, [NewTask(uuid.uuid4(), template, large) for _ in range(70)])
    assert Task.objects.count() == 70


@pytest.mark.once
@pytest.mark.parametrize(
    ("size", "most", "lengths"),
    [(100, 3, [3, 3, 1]), (300_000, 500, [4, 3]), (2_000_000, 500, [1] * 7), (0, 7, [7])],
)
def test_a_batch_ends_at_so_many_rows_or_bytes_and_leaves_none_out(size, most, lengths):
    rows = [NewTask(uuid.uuid4(), RowDefaults("any"), "x" * size) for _ in range(7)]
    batches = list(_chunks(rows, most))
    assert [len(batch) for batch in batches] == lengths
    assert [row for batch in batches for row in batch] == rows


# -- what a transaction holds for its hints


def hooks():
    return [hook for _, hook in hooks_in(connection.run_on_commit)]


@pytest.fixture
def far_broker(txtasks):
    """A broker that is not there."""
    txtasks(broker_url="amqp://127.0.0.1:1")


@pytest.mark.once
@pytest.mark.usefixtures("far_broker")
def test_a_transaction_holds_no_more_ids_than_hints_name():
    mail = tasks.note.using(queue_name="mail")
    with transaction.atomic():
        enqueue_many((one,) for one in [mail, tasks.note] * (BUFFER_IDS - 1))
        first = {queue: list(ids) for queue, ids in hooks()[0].of_queue.items()}
        assert [len(ids) for ids in first.values()] == [BUFFER_IDS - 1] * 2
        for _ in range(5):
            enqueue_task(tasks.note)
        enqueue_many([(mail,)] * 500)
        (hook,) = hooks()
        assert {queue: ids[: BUFFER_IDS - 1] for queue, ids in hook.of_queue.items()} == first
        # one more than hints name says to the publisher that there are more
        assert [len(ids) for ids in hook.of_queue.values()] == [BUFFER_IDS + 1] * 2
        transaction.set_rollback(True)


@pytest.mark.once
@pytest.mark.usefixtures("far_broker")
@pytest.mark.parametrize("seed", range(15))
def test_hints_are_those_of_the_rows_that_savepoints_have_left(seed):
    """Blocks in blocks, some with a savepoint, some rolled back: each task has a row and a hint, or neither."""
    dice = random.Random(seed)

    def block(depth):
        for _ in range(dice.randint(1, 4)):
            if depth < 3 and dice.random() < 0.5:
                try:
                    with transaction.atomic(savepoint=dice.random() < 0.8):
                        block(depth + 1)
                        if dice.random() < 0.4:
                            raise LookupError
                except LookupError:
                    if connection.needs_rollback:  # there was no savepoint to go back to
                        raise
            else:
                enqueue_task(tasks.note)

    with transaction.atomic():
        try:
            with transaction.atomic():
                block(0)
        except LookupError:
            pass
        told = [task_id for hook in hooks() for ids in hook.of_queue.values() for task_id in ids]
        assert len(told) == len(set(told))
        assert set(told) == set(Task.objects.values_list("pk", flat=True))
        transaction.set_rollback(True)


# -- two databases


@pytest.fixture
def second(second_database):
    """Another database, with our tables."""
    call_command("migrate", "txtasks", database="second", verbosity=0, skip_checks=True)


def there(function):
    return function.using(using="second")


def counts():
    return [Task.objects.using(alias).count() for alias in ("default", "second")]


def rename(old, new):
    with connections["second"].cursor() as cursor:
        cursor.execute(f"ALTER TABLE {old} RENAME TO {new}")


CALLS = [(tasks.note,), (there(tasks.note),)]


@pytest.mark.once
@pytest.mark.usefixtures("second")
def test_calls_for_two_databases_are_all_written_or_none():
    rename("txtasks_task", "away")
    with pytest.raises(DatabaseError):
        enqueue_many(CALLS)
    rename("away", "txtasks_task")
    assert counts() == [0, 0]
    enqueue_many(CALLS)
    assert counts() == [1, 1]


REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no commit''; END';
CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON txtasks_task
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse();
"""


@pytest.mark.once
@pytest.mark.usefixtures("second")
def test_two_databases_commit_one_after_the_other_as_the_documentation_says():
    if connection.vendor != "postgresql":
        return  # constraints of others do not wait for the COMMIT
    with connection.cursor() as cursor:
        cursor.execute(REFUSE)
        try:
            with pytest.raises(DatabaseError, match="no commit"):
                enqueue_many(CALLS)
        finally:
            cursor.execute("DROP FUNCTION refuse CASCADE")
    assert counts() == [0, 1]


@pytest.mark.once
@pytest.mark.usefixtures("second")
def test_transactions_of_two_databases_are_told_of_since_they_commit_apart():
    with transaction.atomic(using="second"), transaction.atomic():
        with pytest.warns(NotTransactionalWarning, match="'second' has one open, too") as warned:
            tasks.note.enqueue()
        assert warned[0].filename == __file__
        with pytest.warns(NotTransactionalWarning, match="'default' has one open, too"):
            there(tasks.note).enqueue()
    assert counts() == [1, 1]


@pytest.mark.once
@pytest.mark.usefixtures("second")
def test_the_transactions_of_a_test_case_are_no_reason_for_a_warning():
    class Case(TestCase):
        databases = {"default", "second"}

        def runTest(self):
            with warnings.catch_warnings(action="error"):
                tasks.note.enqueue()
                with transaction.atomic():
                    tasks.note.enqueue()
            with (
                transaction.atomic(using="second"),
                pytest.warns(NotTransactionalWarning, match="'second' has one open, too"),
            ):
                tasks.note.enqueue()
            assert counts() == [3, 0]

    result = unittest.TestResult()
    unittest.TestSuite([Case()]).run(result)
    assert [text for _, text in (*result.errors, *result.failures)] == []
    assert counts() == [0, 0]
