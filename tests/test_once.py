"""Keys of once: a request that comes again, such as a webhook, writes no second task."""

import threading
from contextlib import ExitStack
from datetime import timedelta

import helpers
import pytest
from django.core.management import call_command
from django.db import OperationalError, connection, transaction
from probe import framework, tasks

from django_txtasks import enqueue_many, signals, task
from django_txtasks.exceptions import InvalidDeclaration, InvalidOption
from django_txtasks.models import Once, Task
from django_txtasks.testing import run_due_tasks

pytestmark = pytest.mark.usefixtures("rows")


@pytest.mark.smoke
def test_the_second_one_is_the_first():
    first, second = tasks.receive.enqueue("e1"), tasks.receive.enqueue("e1")
    assert (first.id, first.is_new) == (second.id, True)
    assert not second.is_new
    assert tasks.receive.enqueue("e2").is_new
    run_due_tasks()
    assert (helpers.runs("paid e1"), helpers.runs("paid e2")) == (1, 1)
    assert tasks.receive.enqueue("e1").status() == "succeeded"  # also after it has run
    assert not Task.objects.exists()


def test_what_rolls_back_takes_no_key():
    with transaction.atomic():
        tasks.receive.enqueue("e1")
        transaction.set_rollback(True)
    assert not Once.objects.exists()
    assert tasks.receive.enqueue("e1").is_new


def test_a_savepoint_that_rolls_back_takes_no_key():
    with transaction.atomic():
        with transaction.atomic():
            tasks.receive.enqueue("e1")
            transaction.set_rollback(True)
        assert tasks.receive.enqueue("e1").is_new
    assert Task.objects.count() == 1


def test_no_key_no_memory():
    assert tasks.receive.enqueue("").is_new
    assert tasks.receive.enqueue("").is_new
    assert not Once.objects.exists()


def test_a_key_belongs_to_a_function_and_capitals_count():
    assert tasks.note.using(once="k").enqueue("1").is_new
    assert tasks.note.using(once="K").enqueue("2").is_new
    assert tasks.give.using(once="k").enqueue("3").is_new
    assert not tasks.note.using(once="k", queue_name="mail").enqueue("4").is_new
    assert Task.objects.count() == 3


def test_after_its_time_a_key_is_free_again():
    first = tasks.note.using(once="k", once_for=3600).enqueue("1")
    until = Once.objects.get().until
    assert 3500 < (until - helpers.row(first.id).enqueued_at).total_seconds() < 3700
    assert not tasks.note.using(once="k").enqueue("2").is_new
    assert Once.objects.get().until == until
    Once.objects.update(until="2020-01-01T00:00Z")
    third = tasks.note.using(once="k", once_for=timedelta(hours=2)).enqueue("3")
    assert third.is_new
    assert Once.objects.get().task_id == third.id


def test_in_enqueue_many_the_first_of_a_key_counts():
    told = []

    def note(signal, **facts):
        told.append(facts["task_id"])

    signals.task_enqueued.connect(note)
    try:
        before = tasks.receive.enqueue("e0")
        handles = enqueue_many(
            [(tasks.receive, [f"e{n % 3}"]) for n in range(60)] + [(tasks.note, ["other"])]
        )
    finally:
        signals.task_enqueued.disconnect(note)
    assert [one.is_new for one in handles[:4]] == [False, True, True, False]
    assert handles[0].id == before.id
    assert handles[4].id == handles[1].id
    assert Task.objects.count() == 4
    assert len(told) == 4
    run_due_tasks()
    assert helpers.runs() == 4


def test_many_keys_at_once():
    handles = enqueue_many([(tasks.receive, [f"e{n}"]) for n in range(1200)])
    assert all(one.is_new for one in handles)
    again = enqueue_many([(tasks.receive, [f"e{n}"]) for n in range(1200)])
    assert [one.id for one in again] == [one.id for one in handles]
    assert Task.objects.count() == 1200


def test_two_at_once_write_one():
    """The second waits for the first: it is the first's if that commits, and its own if not."""
    if connection.vendor == "sqlite":
        pytest.skip("one writer at a time")
    inside, go_on, handles = threading.Event(), threading.Event(), {}

    def first(commits):
        with transaction.atomic():
            handles["first"] = tasks.receive.enqueue(f"e {commits}")
            inside.set()
            go_on.wait(10)
            transaction.set_rollback(not commits)

    def second(commits):
        handles["second"] = tasks.receive.enqueue(f"e {commits}")

    for commits in (True, False):
        inside.clear(), go_on.clear()
        with helpers.second_session(lambda commits=commits: first(commits)):
            inside.wait(10)
            with helpers.second_session(lambda commits=commits: second(commits)):
                go_on.wait(0.2)
                go_on.set()
        assert handles["second"].is_new is not commits
        assert (handles["second"].id == handles["first"].id) is commits
    assert Task.objects.count() == 2


def number_of_waiting():
    """Return how many sessions of the test's database wait for a lock."""
    if connection.vendor == "postgresql":
        sql = (
            "SELECT COUNT(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
    else:  # information_schema.innodb_trx is not brought up to date while somebody reads it often
        sql = (
            "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND command = 'Query'"
            " AND info LIKE '%%txtasks_once%%' AND id <> CONNECTION_ID() AND time_ms > 100"
        )
    return helpers.execute(sql)[0][0]


@pytest.mark.parametrize(
    "way", ["autocommit", "atomic", "atomic, after other work", "many", "many, atomic"]
)
@pytest.mark.parametrize("rollbacks", [1, 2])
def test_of_those_who_wait_for_one_that_rolls_back_one_gets_the_key(way, rollbacks):
    """The others get its handle, and nobody an error: also where the next one rolls back, too."""
    if connection.vendor == "sqlite":
        pytest.skip("one writer at a time")
    keys = ["e1", "e2", "e3"] if way.startswith("many") else ["e1"]
    left, handles, turn = [rollbacks], [], threading.Lock()
    inside, go_on = threading.Event(), threading.Event()

    def enqueue():
        if way.startswith("many"):
            return enqueue_many([(tasks.receive, [key]) for key in keys])
        return [tasks.receive.enqueue("e1")]

    def rolls_back():
        with turn:
            left[0] -= 1
            return left[0] >= 0

    def first():
        with transaction.atomic():
            enqueue()
            inside.set()
            go_on.wait(helpers.PATIENCE)
            transaction.set_rollback(rolls_back())

    def other():
        if "atomic" not in way:
            handles.append(enqueue())
            return
        with transaction.atomic():
            if "other work" in way:
                tasks.note.enqueue("beside")
            made = enqueue()
            if made[0].is_new and rolls_back():
                transaction.set_rollback(True)
            else:
                handles.append(made)

    with ExitStack() as threads:
        threads.enter_context(helpers.second_session(first))
        assert inside.wait(helpers.PATIENCE)
        for _ in range(6):
            threads.enter_context(helpers.second_session(other))
        helpers.wait_until(lambda: number_of_waiting() == 6)
        go_on.set()
    assert len(handles) == (6 if rollbacks == 1 or "atomic" not in way else 5)
    for n in range(len(keys)):
        assert sum(made[n].is_new for made in handles) == 1
        assert len({made[n].id for made in handles}) == 1
    assert Task.objects.filter(task_name="probe.tasks.receive").count() == len(keys)


def test_opposite_orders_do_not_wait_for_each_other():
    """In bulk: keys are taken in the same order by all."""
    if connection.vendor == "sqlite":
        pytest.skip("one writer at a time")
    errors, together = [], threading.Barrier(2, timeout=30)

    def send(order):
        try:
            for part in range(5):
                together.wait()
                with transaction.atomic():  # which nobody repeats
                    enqueue_many([(tasks.receive, [f"{part} {n}"]) for n in order])
        except OperationalError as error:  # a deadlock
            errors.append(error)
            together.abort()

    with helpers.second_session(lambda: send(range(250))):  # several statements
        send(range(249, -1, -1))
    assert not errors
    assert Task.objects.count() == 1250


@pytest.mark.skipif(
    connection.vendor != "postgresql", reason="E012 allows no other level elsewhere"
)
@pytest.mark.parametrize("is_bulk", [False, True])
def test_an_enqueue_in_no_transaction_is_repeated_where_the_database_asks_for_it(is_bulk):
    """At REPEATABLE READ PostgreSQL ends those who waited (40001): nobody else could repeat the request."""
    from psycopg import IsolationLevel

    inside, go_on, handles = threading.Event(), threading.Event(), []

    def first():
        with transaction.atomic():
            handles.append(tasks.receive.enqueue("e1"))
            inside.set()
            go_on.wait(helpers.PATIENCE)

    def second():
        call = (
            enqueue_many([(tasks.receive, ["e1"])])[0] if is_bulk else tasks.receive.enqueue("e1")
        )
        handles.append(call)

    connection.close()
    options = connection.settings_dict["OPTIONS"]
    options["isolation_level"] = IsolationLevel.REPEATABLE_READ
    try:
        with helpers.second_session(first):
            assert inside.wait(helpers.PATIENCE)
            with helpers.second_session(second):
                helpers.wait_until(lambda: number_of_waiting() == 1)
                go_on.set()
    finally:
        del options["isolation_level"]
        connection.close()
    assert [one.is_new for one in handles] == [True, False]
    assert handles[0].id == handles[1].id


@pytest.mark.parametrize("count", [1, 5, 30])
def test_nobody_waits_for_keys_that_others_take(count):
    if connection.vendor == "sqlite":
        pytest.skip("one writer at a time")
    inside, go_on, told = threading.Event(), threading.Event(), []

    def first():
        with transaction.atomic():
            enqueue_many([(tasks.receive, [f"a{n}"]) for n in range(count)])
            inside.set()
            told.append(go_on.wait(30))

    with helpers.second_session(first):
        inside.wait(30)
        enqueue_many([(tasks.receive, [f"b{n}"]) for n in range(count)])
        go_on.set()
    assert told == [True]  # the first one was still open
    assert Task.objects.count() == 2 * count


def test_nobody_waits_for_who_repeats_what_was_committed():
    if connection.vendor == "sqlite":
        pytest.skip("one writer at a time")
    enqueue_many([(tasks.receive, [f"e{n}"]) for n in range(5)])
    inside, go_on, told = threading.Event(), threading.Event(), []

    def first():
        with transaction.atomic():
            assert not tasks.receive.enqueue("e1").is_new
            inside.set()
            told.append(go_on.wait(30))

    with helpers.second_session(first):
        inside.wait(30)
        assert not tasks.receive.enqueue("e1").is_new
        go_on.set()
    assert told == [True]


def test_a_transaction_of_many_has_one_commit_hook(txtasks):
    txtasks(database_hints=True)
    with transaction.atomic():
        for n in range(20):
            tasks.receive.enqueue(f"e{n}")
        assert len(connection.run_on_commit) <= 1
        transaction.set_rollback(True)


def test_with_a_unique_key_beside_it():
    one = tasks.note.using(once="a", unique_key="k").enqueue("1")
    two = tasks.note.using(once="b", unique_key="k").enqueue("2")
    assert (one.is_new, two.is_new) == (True, True)
    run_due_tasks()
    assert helpers.runs() == 1


def test_through_django_s_tasks():
    first, second = framework.received.enqueue("e1"), framework.received.enqueue("e1")
    assert first.id == second.id
    run_due_tasks()
    assert framework.received.enqueue("e1").status.name == "SUCCESSFUL"
    assert Task.objects.count() == 0
    helpers.execute("DELETE FROM txtasks_finishedtask")
    assert framework.received.enqueue("e1").id == first.id


def test_the_cleaner_forgets_old_keys():
    for n in range(3):
        tasks.receive.enqueue(f"e{n}")
    Once.objects.filter(text="paid e1").update(until="2020-01-01T00:00Z")
    call_command("runcleaner", once=True)
    assert sorted(Once.objects.values_list("text", flat=True)) == ["paid e0", "paid e2"]


@pytest.mark.parametrize("key", ["", "x" * 201, "a\n", 7])
def test_what_is_no_key_is_refused(key):
    with pytest.raises(InvalidOption):
        tasks.note.using(once=key).enqueue("x")
    with pytest.raises(InvalidOption):
        tasks.note.using(once=lambda **_: key).enqueue("x")
    assert not Once.objects.exists()


def test_wrong_spans_are_refused():
    with pytest.raises(InvalidOption, match="more than zero"):
        tasks.note.using(once="k", once_for=0).enqueue("x")
    with pytest.raises(InvalidOption, match="100 years at most"):
        tasks.note.using(once="k", once_for=timedelta.max).enqueue("x")
    with pytest.raises(InvalidOption, match="without once="):
        tasks.note.using(once_for=60).enqueue("x")
    with pytest.raises(InvalidDeclaration, match="a hook is enqueued each time"):
        task(on_success=tasks.receive)(tasks.plain)
    with pytest.raises(InvalidDeclaration, match="without once="):
        task(once_for=60)(tasks.plain)


def test_a_call_that_cannot_be_takes_no_key():
    with pytest.raises(Exception, match="cannot be called like that"):
        tasks.receive.enqueue("e1", nonsense=1)
    assert not Once.objects.exists()
