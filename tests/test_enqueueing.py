"""A task is written with the caller's data, or not at all; bad input is refused before any SQL."""

import asyncio
import json
import math
import uuid
from datetime import datetime, timedelta, timezone

import helpers
import pytest
from asgiref.sync import sync_to_async
from django.db import IntegrityError, connection, connections, transaction
from django.db.models import F
from django.db.transaction import TransactionManagementError
from django.utils.timezone import now
from orders.models import Order
from probe import tasks
from probe.models import Run

from django_txtasks import aenqueue_task, enqueue_many, enqueue_task, signals
from django_txtasks.core.enqueueing import NotTransactionalWarning
from django_txtasks.core.enqueueing.commit_hints import hooks_in
from django_txtasks.core.rows.enqueueing import NewTask, RowDefaults, insert, new_id
from django_txtasks.exceptions import (
    InvalidArguments,
    InvalidOption,
    NotATask,
    TxTasksError,
    UnknownQueue,
)
from django_txtasks.models import Status, Task

pytestmark = [pytest.mark.usefixtures("rows"), pytest.mark.smoke]


def undecorated():
    pass


def test_a_committed_transaction_leaves_the_task_with_its_data():
    with transaction.atomic():
        order = Order.objects.create(customer="Ada")
        handle = enqueue_task(tasks.note, "a")
    task = helpers.row(handle.id)
    assert (task.status, task.args, task.kwargs, task.attempt) == (Status.PENDING, ["a"], {}, 0)
    assert Order.objects.filter(pk=order.pk).exists()


def test_the_row_is_written_in_the_transaction_and_not_after_its_commit():
    with transaction.atomic():
        handle = enqueue_task(tasks.note, "a")
        assert helpers.row(handle.id).status == Status.PENDING


def test_a_rolled_back_transaction_leaves_nothing():
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        Order.objects.create(customer="Bob")
        enqueue_task(tasks.note, "b")
        1 / 0  # noqa: B018
    assert not Task.objects.exists()


def test_outside_a_transaction_the_task_is_its_own():
    assert helpers.row(enqueue_task(tasks.note).id)


def test_the_row_says_what_the_declaration_and_the_options_say():
    declared = helpers.row(tasks.mail.enqueue().id)
    assert (declared.queue_name, declared.priority, declared.max_attempts) == ("mail", 7, 2)
    assert (declared.on_crash, declared.task_name) == ("dead", "probe.tasks.mail")
    changed = helpers.row(tasks.mail.using(queue_name="default", priority=-3).enqueue().id)
    assert (changed.queue_name, changed.priority) == ("default", -3)
    assert helpers.row(tasks.slow_once.enqueue("x").id).on_crash == "retry"
    assert helpers.row(tasks.atomic_note.enqueue().id).on_crash == "retry"


def test_what_the_statement_leaves_out_is_what_the_columns_are_by_default():
    by_hand = uuid.uuid4()
    name = "probe.tasks.note"
    helpers.execute("INSERT INTO txtasks_task (id, task_name) VALUES (%s, %s)", by_hand.hex, name)
    for number in (1, 2, 50):
        insert(connection, [NewTask(new_id(), RowDefaults(name)) for _ in range(number)])
    for column in (*NewTask._fields[2:], *RowDefaults._fields):
        if column != "run_after":
            assert len({str(value) for value in Task.objects.values_list(column, flat=True)}) == 1
    assert not Task.objects.exclude(run_after=F("enqueued_at")).exists()
    said = helpers.row(by_hand)
    for column, default in {**NewTask._field_defaults, **RowDefaults._field_defaults}.items():
        value = getattr(said, column)
        text = json.dumps(value) if isinstance(value, list | dict) else value
        assert default == (None if column == "run_after" else text), column


def test_run_after_is_an_instant_or_a_time_from_now():
    instant = now().replace(microsecond=0) + timedelta(hours=3)
    assert helpers.row(tasks.note.using(run_after=instant).enqueue().id).run_after == instant
    elsewhere = instant.astimezone(timezone(timedelta(hours=-5)))
    assert helpers.row(tasks.note.using(run_after=elsewhere).enqueue().id).run_after == instant
    later = helpers.row(tasks.note.using(run_after=timedelta(minutes=5)).enqueue().id)
    assert (
        timedelta(minutes=4, seconds=50)
        < later.run_after - later.enqueued_at
        < timedelta(minutes=5, seconds=10)
    )


def test_ids_are_fresh_version_7_uuids():
    ids = [tasks.note.enqueue().id for _ in range(20)]
    assert len(set(ids)) == 20
    assert {task_id.version for task_id in ids} == {7}
    assert {task_id.variant for task_id in ids} == {uuid.RFC_4122}


def nested(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


class Thing:
    """Anything that JSON does not know."""


BAD = {
    "an object": (Thing(), "args[0] is Thing"),
    "a datetime": (
        {"when": datetime(2030, 1, 1, tzinfo=timezone.utc)},
        "args[0]['when'] is datetime",
    ),
    "bytes": (b"bytes", "is bytes"),
    "a set": ({1, 2}, "is set"),
    "NaN": (math.nan, "is nan"),
    "Infinity": ([1, math.inf], "args[0][1] is inf"),
    "-Infinity": (-math.inf, "is -inf"),
    "NUL": ("a\x00b", "NUL"),
    "NUL in a key": ({"\x00": 1}, "NUL"),
    "a lone surrogate": ("\ud800", "lone surrogate"),
    "a lone surrogate inside": ({"k": ["\udfff"]}, "lone surrogate"),
    "an int key": ({1: "one"}, "key 1 of type int"),
    "a None key": ({None: 1}, "key None"),
    "a long text": ("x" * 300_000, "bytes of JSON"),
    "a long list": ([1] * 200_000, "bytes of JSON"),
    "nested 30 deep": (nested(30), "levels deep"),
    "nested 100,000 deep": (nested(100_000), "levels deep"),
    "400 digits": (10**400, "digits"),
    "6,000 digits": (10**6000, "digits"),
}


@pytest.mark.parametrize("what", BAD)
def test_arguments_that_cannot_be_stored_are_refused_by_name_and_the_transaction_goes_on(
    what, django_assert_num_queries
):
    value, says = BAD[what]
    with transaction.atomic():
        Order.objects.create(customer="before")
        with django_assert_num_queries(0), pytest.raises(InvalidArguments) as caught:
            enqueue_task(tasks.note, value)
        Order.objects.create(customer="after")
        with django_assert_num_queries(0), pytest.raises(InvalidArguments):
            enqueue_task(tasks.note, key=value)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert Order.objects.count() == 2


def test_a_list_that_holds_itself_is_too_deep():
    value = []
    value.append(value)
    with pytest.raises(InvalidArguments, match="levels deep"):
        enqueue_task(tasks.note, value)


def test_args_and_kwargs_count_together():
    with pytest.raises(InvalidArguments, match="together"):
        enqueue_task(tasks.slow, "x" * 200_000, seconds="y" * 200_000)


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (tasks.die, ["more"], {}),
        (tasks.note, ["a", "b"], {}),
        (tasks.note, ["a"], {"key": "b"}),
        (tasks.note, [], {"kee": "a"}),
        (tasks.fail_until, [], {}),
        (tasks.slow_once, ["context", "a", 1], {}),
        (tasks.pay, ["a"], {}),
        (tasks.pay, ["a", 1], {}),
        (tasks.note_async, ["a", "b"], {}),
    ],
    ids=str,
)
def test_what_the_function_could_not_be_called_with_is_refused(function, args, kwargs):
    with transaction.atomic():
        with pytest.raises(InvalidArguments, match="cannot be called like that"):
            enqueue_task(function, *args, **kwargs)
        with pytest.raises(InvalidArguments, match="cannot be called like that"):
            enqueue_many([(tasks.note, []), (function, args, kwargs)])
        enqueue_task(tasks.note, key="all the same")
    assert helpers.counts()["pending"] == 1


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (tasks.die, [], {}),
        (tasks.slow_once, ["a"], {}),
        (tasks.slow_once, [], {"seconds": 1, "key": "a"}),
        (tasks.pay, ["a"], {"amount": 1}),
        (tasks.whatever, [], {}),
        (tasks.whatever, [1, 2, 3], {"a": 4}),
    ],
    ids=str,
)
def test_what_it_can_be_called_with_is_taken(function, args, kwargs):
    row = helpers.row(enqueue_task(function, *args, **kwargs).id)
    assert (row.args, row.kwargs) == (args, kwargs)


@pytest.mark.parametrize(
    "value", [None, True, 0, -1, 2**70, 1.5, "", "ü€😀", [], {}, {"a": [1, {"b": None}]}], ids=repr
)
def test_json_comes_back_as_it_went(value):
    assert helpers.row(enqueue_task(tasks.give, value).id).args == [value]


@pytest.mark.parametrize(
    "function",
    [undecorated, None, "probe.tasks.note", print, Thing],
    ids=["function", "None", "name", "builtin", "class"],
)
def test_what_is_not_a_task_function_is_refused(function, django_assert_num_queries):
    with django_assert_num_queries(0), pytest.raises(NotATask, match="@task"):
        enqueue_task(function)


def test_an_unknown_queue_is_refused_with_the_known_ones(django_assert_num_queries):
    with django_assert_num_queries(0), pytest.raises(UnknownQueue) as caught:
        tasks.note.using(queue_name="mial").enqueue()
    assert str(caught.value).startswith(
        "Queue 'mial' is not served: TXTASKS['queues'] has 'default', 'mail'."
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"run_after": datetime(2030, 1, 1)}, "naive"),
        ({"run_after": "tomorrow"}, "aware datetime, a timedelta, or seconds"),
        ({"run_after": timedelta(days=10**6)}, "100 years"),
        ({"run_after": datetime(1, 1, 1, tzinfo=timezone.utc)}, "1970"),
        ({"priority": 101}, "from -100 to 100"),
        ({"priority": "high"}, "from -100 to 100"),
        ({"priority": True}, "from -100 to 100"),
    ],
    ids=str,
)
def test_a_bad_option_is_refused_before_any_sql(options, says, django_assert_num_queries):
    with django_assert_num_queries(0), pytest.raises(InvalidOption, match=says):
        tasks.note.using(**options).enqueue()


def test_one_task_is_one_statement(django_assert_num_queries):
    with transaction.atomic(), django_assert_num_queries(1):
        enqueue_task(tasks.note)


def test_thousands_of_tasks_are_few_statements(django_assert_max_num_queries):
    with transaction.atomic(), django_assert_max_num_queries(8):
        handles = enqueue_many((tasks.note, (str(n),)) for n in range(3000))
    assert Task.objects.count() == 3000
    assert helpers.row(handles[1234].id).args == ["1234"]


@pytest.mark.parametrize("more", [0, 40], ids=["few", "many"])
def test_many_calls_may_differ_in_everything(more):
    handles = enqueue_many(
        [
            (tasks.note,),
            (tasks.mail, ["a"]),
            (tasks.note, (), {"key": "k"}),
            (tasks.note.using(run_after=timedelta(hours=1), priority=5), ["b"]),
            (tasks.note.using(run_after=now()), ["c"]),
        ]
        + [(tasks.note,)] * more
    )
    stored = [helpers.row(handle.id) for handle in handles[:5]]
    assert Task.objects.count() == 5 + more
    assert [task.args for task in stored] == [[], ["a"], [], ["b"], ["c"]]
    ahead = [(task.run_after - stored[0].enqueued_at).total_seconds() for task in stored]
    assert [round(seconds / 3600) for seconds in ahead] == [0, 0, 0, 1, 0]
    assert all(task.run_after <= task.enqueued_at for task in stored[:3])
    assert [task.priority for task in stored] == [0, 7, 0, 5, 0]
    assert stored[2].kwargs == {"key": "k"}


AWKWARD = [
    "",
    "\\",
    "\\N",
    "\\.",
    "a\tb\nc\rd\x0b\x7f",
    "'\"%s%%",
    "ü€😀\u2028",
    None,
    "\\\\t",
    {"\\": "\t"},
]
OPTIONS = [
    {},
    {"queue_name": "mail"},
    {"priority": -7},
    {"expires": timedelta(hours=1)},
    {"expires": datetime(2099, 1, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=5)))},
    {"run_after": datetime(2099, 1, 1, tzinfo=timezone.utc), "expires": timedelta(0)},
]
UNLIKE = {"id", "enqueued_at", "run_after", "expires_at", "_state"}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_rows_of_many_are_the_same_as_those_of_one(options):
    """On PostgreSQL another statement writes them."""
    calls = [(tasks.die, (), {})]
    for value in AWKWARD:
        for kind in (tasks.note, tasks.mail, tasks.spin_too_long):
            calls += [(kind, (value,), {}), (kind, (), {"key": value})]
        calls.append((tasks.told.using(**options), (value,), {"failures": value}))
    one_by_one = [enqueue_task(kind, *args, **kwargs) for kind, args, kwargs in calls]
    for one, many in zip(one_by_one, enqueue_many(calls), strict=True):
        first, second = helpers.row(one.id), helpers.row(many.id)
        for column in set(vars(first)) - UNLIKE:
            assert getattr(first, column) == getattr(second, column)
        for column in ("run_after", "expires_at"):
            times = [getattr(row, column) for row in (first, second)]
            assert None in times or abs(times[0] - times[1]) < timedelta(minutes=1)
            assert times.count(None) != 1


def many(number=50):
    defaults = RowDefaults("probe.tasks.note")
    return [NewTask(new_id(), defaults, args=f"[{index}]") for index in range(number)]


def test_many_tasks_go_with_their_savepoint_and_leave_the_transaction_usable():
    twice = many()
    with transaction.atomic():
        Order.objects.create(customer="before")
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            enqueue_many([(tasks.note,)] * 50)
            1 / 0  # noqa: B018
        with pytest.raises(IntegrityError), transaction.atomic():
            insert(connection, [*twice, twice[0]])
        kept = enqueue_many([(tasks.note,)] * 50)
    assert Order.objects.count() == 1
    assert {task.pk for task in Task.objects.all()} == {handle.id for handle in kept}


def test_many_tasks_are_refused_in_a_transaction_that_is_broken():
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(TransactionManagementError):
            enqueue_many([(tasks.note,)] * 50)


@pytest.mark.parametrize("option", ["server_side_binding", "pool"])
def test_many_tasks_are_written_whatever_the_connection_is_like(option):
    other = connection.copy()
    if other.vendor == "postgresql":
        other.settings_dict["OPTIONS"][option] = True
    try:
        with other.cursor() as cursor:
            insert(other, many())
            later = RowDefaults("later", run_after=timedelta(1))
            insert(other, [NewTask(new_id(), later)])
            insert(other, [task._replace(defaults=later) for task in many()])
            cursor.execute("SELECT count(*) FROM txtasks_task")
            assert cursor.fetchone()[0] == 101
    finally:
        other.close()
        if other.vendor == "postgresql":
            other.close_pool()
    assert Task.objects.filter(run_after__gt=now() + timedelta(hours=23)).count() == 51


@pytest.mark.parametrize("number", [1, 1000])
def test_many_calls_with_one_bad_write_none(number):
    bad = [*[(tasks.note, ("ok",))] * number, (tasks.note, (Thing(),))]
    with pytest.raises(InvalidArguments):
        enqueue_many(bad)
    with transaction.atomic():
        Order.objects.create(customer="before")
        with pytest.raises(InvalidArguments):
            enqueue_many(bad)
        enqueue_many([(tasks.note, ("ok",))])
    assert (Order.objects.count(), Task.objects.count()) == (1, 1)


def test_a_scan_claims_many_in_the_order_of_their_calls():
    keys = [f"{number}" for number in range(300)]
    handles = enqueue_many((tasks.note, [key]) for key in keys)
    assert [one.id for one in handles] == sorted(one.id for one in handles)
    with helpers.working(threads=1):
        helpers.wait_until(lambda: helpers.counts()["finished"] == len(keys))
    assert list(Run.objects.order_by("id").values_list("key", flat=True)) == keys


def test_calls_may_come_from_the_same_connection_and_from_objects_made_for_them():
    """Such as a queryset that is read while the tasks are written, and ``using()`` for each row."""
    Order.objects.bulk_create([Order(customer=str(number)) for number in range(300)])
    with transaction.atomic():
        handles = enqueue_many(
            (tasks.note.using(priority=order.pk % 3), [order.customer])
            for order in Order.objects.iterator(chunk_size=10)
        )
    for order, handle in zip(Order.objects.order_by("pk"), handles, strict=True):
        row = helpers.row(handle.id)
        assert (row.priority, row.args) == (order.pk % 3, [order.customer])


@pytest.mark.parametrize(
    "call",
    [tasks.note, (), (tasks.note, "text"), (tasks.note, (), {}, 1), (tasks.note, (), [])],
    ids=str,
)
def test_a_call_of_another_shape_is_refused(call):
    with pytest.raises(TxTasksError):
        enqueue_many([call])
    assert not Task.objects.exists()


def test_async_code_enqueues_too():
    async def view():
        first = await aenqueue_task(tasks.note, "a")
        second = await tasks.note.aenqueue("b")
        await sync_to_async(connections.close_all)()
        return [first, second]

    assert [helpers.row(handle.id).args for handle in asyncio.run(view())] == [["a"], ["b"]]


def hooks():
    return [hook for _, hook in hooks_in(connection.run_on_commit)]


def test_a_hook_has_a_name_for_the_log(txtasks):
    """Django 5.2 asks for it, where a hook fails, without asking whether there is one."""
    txtasks(broker_url="amqp://127.0.0.1:1")
    with transaction.atomic():
        enqueue_task(tasks.note)
        ((_, hook, *_),) = connection.run_on_commit
        assert hook.__qualname__ == "CommitHook.send_hints"


def test_whoever_listens_hears_of_each_task():
    heard = []

    def receive(task_id, **_):
        heard.append(task_id)

    signals.task_enqueued.connect(receive)
    try:
        handles = [enqueue_task(tasks.note), *enqueue_many([(tasks.note,), (tasks.mail,)])]
    finally:
        signals.task_enqueued.disconnect(receive)
    assert heard == [handle.id for handle in handles]


def test_any_number_of_tasks_is_one_hook(txtasks):
    txtasks(broker_url="amqp://127.0.0.1:1")
    with transaction.atomic():
        for number in range(20):
            enqueue_task(tasks.note, str(number))
        enqueue_many((tasks.note, ()) for _ in range(20))
        assert len(hooks()) == 1
        assert len(hooks()[0].of_queue["default"]) == 40


def test_a_rolled_back_savepoint_takes_its_hints_along(txtasks):
    """Savepoints that roll back before, around and after other enqueues."""
    txtasks(broker_url="amqp://127.0.0.1:1")

    def rolled_back():
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            enqueue_task(tasks.note, "rolled back")
            with transaction.atomic():
                enqueue_task(tasks.note, "inside a rolled back one")
            1 / 0  # noqa: B018

    with transaction.atomic():
        rolled_back()
        kept = [enqueue_task(tasks.note, "first").id]
        rolled_back()
        with transaction.atomic():
            kept.append(enqueue_task(tasks.note, "in a savepoint").id)
            rolled_back()
            kept.append(enqueue_task(tasks.note, "still in it").id)
        kept.append(enqueue_task(tasks.note, "after").id)
        rolled_back()
        assert len(hooks()) == 2
        assert {task_id for hook in hooks() for task_id in hook.of_queue["default"]} == set(kept)
    assert set(Task.objects.values_list("pk", flat=True)) == set(kept)


def test_without_a_broker_there_is_no_hook():
    with transaction.atomic():
        enqueue_task(tasks.note)
        assert not connection.run_on_commit


@pytest.mark.parametrize(
    "enqueue",
    [
        lambda: enqueue_task(tasks.note),
        lambda: tasks.note.enqueue("note"),
        lambda: tasks.note.using(priority=1).enqueue(),
        lambda: enqueue_many([(tasks.note, ())]),
    ],
    ids=["enqueue_task", "enqueue", "using", "enqueue_many"],
)
def test_enqueueing_from_a_commit_hook_warns_whoever_does_it(enqueue):
    with (
        pytest.warns(NotTransactionalWarning, match="on_commit") as warned,
        transaction.atomic(),
    ):
        transaction.on_commit(enqueue)
    (warning,) = warned
    assert (warning.filename, warning.lineno) == (__file__, enqueue.__code__.co_firstlineno)


def test_a_transaction_by_hand_is_the_callers_own(txtasks):
    txtasks(broker_url="amqp://127.0.0.1:1")
    transaction.set_autocommit(False)
    try:
        enqueue_task(tasks.note)
        transaction.rollback()
        assert not Task.objects.exists()
        enqueue_task(tasks.note)
        transaction.commit()
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert Task.objects.count() == 1
