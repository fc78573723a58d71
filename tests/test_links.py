"""Links from tasks to business objects: written, read, refused and removed."""

import uuid
from datetime import timedelta

import helpers
import pytest
from asgiref.sync import async_to_sync
from django.core.paginator import Paginator
from django.db import NotSupportedError, connection, transaction
from django.db.models import Exists, OuterRef, Subquery
from orders.models import Order
from probe import framework, tasks
from probe.models import Country, LargeParcel, Parcel, Place, UrgentParcel
from test_enqueue_cost import in_transaction, statements_of

from django_txtasks import enqueue_many, external, status_of, tasks_of
from django_txtasks.conf import get_config
from django_txtasks.core.cleaning.cleaner import Cleaner
from django_txtasks.exceptions import InvalidOption
from django_txtasks.features.links.subjects import MOST_CHARACTERS
from django_txtasks.models import FinishedTask, Link, Task
from django_txtasks.testing import run_due_tasks

pytestmark = [pytest.mark.usefixtures("rows")]


@pytest.fixture
def order():
    return Order.objects.create(customer="Ada")


def ids_of(subject):
    return [link.task_id for link in tasks_of(subject)]


# -- written


@pytest.mark.smoke
def test_a_task_is_found_by_its_object_while_it_waits_and_after_it_has_run(order):
    other = Order.objects.create(customer="Bob")
    handle = tasks.note.using(subject=order).enqueue("a")
    assert [(one.task_id, one.task_name, one.task_state) for one in tasks_of(order)] == [
        (handle.id, "probe.tasks.note", "pending")
    ]
    run_due_tasks()
    assert [(one.task_id, one.task_name, one.task_state) for one in tasks_of(order)] == [
        (handle.id, "probe.tasks.note", "succeeded")
    ]
    assert not tasks_of(other)


def test_the_newest_task_is_first(order):
    handles = [tasks.note.using(subject=order).enqueue(str(n)) for n in range(4)]
    assert ids_of(order) == [one.id for one in reversed(handles)]
    assert [one.task_id for one in tasks_of(order)[1:3]] == [handles[2].id, handles[1].id]
    pages = Paginator(tasks_of(order), 3)
    assert (pages.count, [one.task_id for one in pages.page(2)]) == (4, [handles[0].id])


def test_a_task_may_be_about_several_objects(order):
    parcel, other = Parcel.objects.create(), Order.objects.create(customer="Bob")
    handle = tasks.note.using(subject=[order, parcel, other, order]).enqueue()
    assert Link.objects.count() == 3
    for one in (order, parcel, other):
        assert ids_of(one) == [handle.id]


def test_what_rolls_back_is_linked_to_nothing(order):
    with transaction.atomic():
        tasks.note.using(subject=order).enqueue()
        transaction.set_rollback(True)
    assert not Link.objects.exists()


def test_without_a_transaction_a_task_and_its_link_are_written_together(order):
    def fail(execute, sql, params, many, context):
        if "txtasks_link" in sql:
            raise RuntimeError("the process dies")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(fail), pytest.raises(RuntimeError):
        tasks.note.using(subject=order).enqueue()
    assert not Task.objects.exists()


def test_a_task_with_an_object_takes_two_statements_and_one_without_takes_one(order):
    for around in (in_transaction, statements_of):
        found = around(tasks.note.using(subject=order).enqueue)
        assert ["txtasks_link" in one for one in found] == [False, True], around.__name__
        (only,) = around(tasks.note.enqueue)
        assert "txtasks_link" not in only, around.__name__


@pytest.mark.parametrize("count", [2, 300])
def test_many_tasks_take_one_statement_more(count):
    orders = [Order.objects.create(customer="Ada") for _ in range(3)]
    calls = [(tasks.note.using(subject=orders[n % 3]), (str(n),)) for n in range(count)]
    handles = []
    found = in_transaction(lambda: handles.extend(enqueue_many([*calls, (tasks.note, ())])))
    copies = connection.vendor == "postgresql" and count >= 20
    starts = [one.removesuffix(" IGNORE")[:4] for one in found]
    assert starts == (["COPY"] * 2 if copies else ["INSE"] * 2)
    expected = [one.id for one in handles[:count:3]]
    assert ids_of(orders[0]) == expected[::-1]
    assert Link.objects.count() == count


def test_text_with_signs_that_copy_escapes():
    countries = [Country.objects.create(code=code) for code in ("a\tb\\", "n\nl\r", "ä", "\\N")]
    handles = enqueue_many(
        [(tasks.note.using(subject=one), ()) for one in countries for _ in range(20)]
    )
    for n, one in enumerate(countries):
        assert sorted(ids_of(one)) == sorted(each.id for each in handles[20 * n : 20 * n + 20])


def test_the_loser_of_once_has_no_link(order):
    other = Order.objects.create(customer="Bob")
    first = tasks.note.using(subject=order, once="k").enqueue()
    again = tasks.note.using(subject=other, once="k").enqueue()
    assert (again.id, again.is_new) == (first.id, False)
    handles = enqueue_many([(tasks.note.using(subject=other, once=key), ()) for key in ("k", "l")])
    assert [one.is_new for one in handles] == [False, True]
    assert ids_of(order) == [first.id]
    assert ids_of(other) == [handles[1].id]
    assert Link.objects.count() == 2


@pytest.mark.parametrize("function", [tasks.tidy, tasks.tidy_oldest])
def test_a_merged_task_shows_the_state_of_the_task_that_runs_instead(function, order):
    other = Order.objects.create(customer="Bob")
    first = function.using(subject=order).enqueue("1")
    second = function.using(subject=other).enqueue("2")
    run_due_tasks()
    assert FinishedTask.objects.get(pk=second.id).merged_into == first.id
    for subject, handle in ((order, first), (other, second)):
        (link,) = tasks_of(subject)
        assert (
            (link.task_id, link.task_state)
            == (handle.id, "succeeded")
            == (handle.id, status_of(handle.id))
        )


def test_a_task_that_was_merged_into_a_live_task_has_its_state(order):
    first, second = (tasks.tidy.using(subject=order).enqueue(str(n)) for n in range(2))
    run_due_tasks()
    helpers.execute("DELETE FROM txtasks_finishedtask WHERE id = %s", first.id.hex)
    assert ids_of(order) == []  # like each task without a row
    assert status_of(second.id) == "gone"
    Task.objects.create(id=first.id, task_name="probe.tasks.tidy", status="dead")
    assert [(one.task_id, one.task_state) for one in tasks_of(order)] == [
        (second.id, "dead"), (first.id, "dead"),
    ]  # fmt: skip


def test_calls_with_the_same_key_or_lane_keep_their_own_objects(txtasks):
    txtasks(lanes={"*": {"at_most": 2}})
    orders = [Order.objects.create(customer=name) for name in ("Ada", "Bob")]
    keyed = [tasks.tidy.using(subject=one).enqueue("1") for one in orders]
    in_lane = tasks.note.using(lane="a")
    handles = enqueue_many([(in_lane.using(subject=one), ()) for one in orders] * 2)
    for n, order in enumerate(orders):
        assert ids_of(order) == [handles[n + 2].id, handles[n].id, keyed[n].id]


def test_each_object_is_checked_also_where_the_other_options_were_checked_before(order):
    base = tasks.note.using(priority=3)
    base.using(subject=order).enqueue()
    helpers.execute("DELETE FROM txtasks_task")
    refused(base.using(subject=Order(customer="Ada")).enqueue, "is not saved")


@pytest.mark.smoke
def test_a_running_task_links_itself(order):
    handle = tasks.link_order.enqueue(order.pk)
    assert not tasks_of(order)
    run_due_tasks(until=timedelta(minutes=1))
    assert ids_of(order) == [handle.id]
    assert FinishedTask.objects.get(pk=handle.id).attempt == 2  # the second attempt links it again


def test_an_async_task_links_itself(order):
    handle = tasks.link_order_async.enqueue(order.pk)
    run_due_tasks()
    assert ids_of(order) == [handle.id]


def test_a_task_of_django_and_one_from_async_code(order):
    result = framework.note.using(subject=[order]).enqueue()
    handle = async_to_sync(tasks.note.using(subject=order).aenqueue)()
    assert ids_of(order) == [handle.id, uuid.UUID(result.id)]


def test_a_task_of_another_system_is_linked_too(order, txtasks):
    txtasks(hand_over={"mail": "probe.relay.send"})
    handle = external("billing.invoice", queue_name="mail").using(subject=order).enqueue(1)
    assert ids_of(order) == [handle.id]


# -- keys


def test_keys_of_any_kind_are_found_alone_and_in_a_query():
    objects = [
        Order.objects.create(customer="Ada"),
        Parcel.objects.create(),
        Country.objects.create(code="Österreich's"),
    ]
    for one in objects:
        handle = tasks.note.using(subject=one).enqueue()
        found = type(one).objects.get(pk=one.pk)
        assert ids_of(found) == [handle.id]
        assert ids_of(type(one).objects.all()) == [handle.id], type(one)


def test_a_proxy_is_the_object_itself():
    parcel = Parcel.objects.create()
    handle = tasks.note.using(subject=UrgentParcel.objects.get()).enqueue()
    assert ids_of(parcel) == ids_of(UrgentParcel.objects.all()) == [handle.id]


def test_a_child_is_an_object_of_its_own():
    child = LargeParcel.objects.create()
    handle = tasks.note.using(subject=LargeParcel.objects.get()).enqueue()
    assert ids_of(child) == ids_of(LargeParcel.objects.all()) == [handle.id]
    assert not ids_of(child.parcel_ptr)
    assert list(LargeParcel.objects.filter(Exists(tasks_of(LargeParcel)))) == [child]


def test_a_key_that_was_given_as_text_is_the_same_key(order):
    order.pk = str(order.pk)
    handle = tasks.note.using(subject=order).enqueue()
    assert ids_of(Order.objects.get()) == [handle.id]


def test_small_and_capital_letters_differ():
    small, capital = (Country.objects.create(code=code) for code in ("xa", "XB"))
    tasks.note.using(subject=small).enqueue()
    capital.code = "XA"
    assert ids_of(small) and not ids_of(capital)


# -- joins


def test_the_tasks_of_many_objects_in_one_query():
    ada, bob, eve = (Order.objects.create(customer=name) for name in ("Ada", "Bob", "Eve"))
    first = tasks.note.using(subject=ada).enqueue()
    second = tasks.fail.using(subject=bob, max_attempts=1).enqueue()
    tasks.note.using(subject=eve).enqueue()
    run_due_tasks(reraise=False)
    chosen = Order.objects.filter(customer__in=["Ada", "Bob"]).order_by("customer")
    rows = []
    (sql,) = statements_of(lambda: rows.extend(tasks_of(chosen)))
    assert "orders_order" in sql
    assert [(one.task_id, one.subject_id, one.task_state) for one in rows] == [
        (second.id, str(bob.pk), "dead"), (first.id, str(ada.pk), "succeeded"),
    ]  # fmt: skip


def test_objects_by_the_state_of_their_tasks_in_one_query():
    ada, bob, eve = (Order.objects.create(customer=name) for name in ("Ada", "Bob", "Eve"))
    tasks.note.using(subject=ada).enqueue()
    handle = tasks.fail.using(subject=bob, max_attempts=1).enqueue()
    run_due_tasks(reraise=False)
    dead = Order.objects.filter(Exists(tasks_of(Order).filter(task_state="dead")))
    assert list(dead) == [bob]
    newest = tasks_of(Order)[:1]
    rows = Order.objects.order_by("customer").values_list(
        "customer", Subquery(newest.values("task_id")), Subquery(newest.values("task_state"))
    )
    assert [(name, state) for name, _, state in rows] == [
        ("Ada", "succeeded"), ("Bob", "dead"), ("Eve", None),
    ]  # fmt: skip
    assert rows[1][1] in (handle.id, handle.id.hex)
    assert list(Order.objects.exclude(Exists(tasks_of(Order)))) == [eve]


def test_a_queryset_chooses_by_its_own_order():
    orders = [Order.objects.create(customer=name) for name in ("Ada", "Ada", "Bob")]
    handles = [tasks.note.using(subject=one).enqueue() for one in orders]
    newest = Order.objects.order_by("-pk")
    if connection.vendor == "mysql":  # it has no LIMIT in such a subquery
        with pytest.raises(NotSupportedError):
            ids_of(newest[:2])
    else:
        assert ids_of(newest[:2]) == [handles[2].id, handles[1].id]
        assert ids_of(newest[2:]) == [handles[0].id]
    if connection.vendor == "postgresql":
        newest_of_each = Order.objects.order_by("customer", "-pk").distinct("customer")
        assert ids_of(newest_of_each) == [handles[2].id, handles[1].id]


def test_links_follow_a_model_to_its_new_name(order):
    handle = tasks.note.using(subject=order).enqueue()
    parcel_links = Link.objects.filter(subject_type="probe.parcel")
    assert Link.objects.filter(subject_type="orders.order").update(subject_type="probe.parcel") == 1
    assert not ids_of(order)
    assert [one.task_id for one in parcel_links] == [handle.id]


def test_links_beside_a_subquery_of_ones_own(order):
    """The model is public: its columns are text, and any query may use them."""
    handle = tasks.note.using(subject=order).enqueue()
    links = Link.objects.filter(task_id=OuterRef("pk"), subject_type="orders.order")
    assert list(Task.objects.filter(Exists(links))) == [Task.objects.get(pk=handle.id)]


# -- refused


class Elsewhere:
    """A router with a replica: what is read there is written to the default database."""

    def db_for_write(self, model, **hints):
        return "default"


def refused(call, *words):
    def fail():
        with pytest.raises(InvalidOption) as error:
            call()
        for word in words:
            assert word in str(error.value)

    assert not statements_of(fail)
    assert not Task.objects.exists()


def in_another_database():
    order = Order(pk=1, customer="Ada")
    order._state.adding, order._state.db = False, "second"
    return order


def a_place():
    place = Place(shelf="a", number=1)
    place._state.adding = False
    return place


def long_key():
    country = Country(code="x" * (MOST_CHARACTERS + 1))
    country._state.adding = False
    return country


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        (lambda: Order(customer="Ada"), ("orders.order", "is not saved", "Save it first")),
        (lambda: Order(pk=5, customer="Ada"), ("is not saved",)),
        (in_another_database, ("'second'", "the task is in 'default'", "using='second'")),
        (a_place, ("probe.place", "several columns")),
        (long_key, ("201 characters", "200 is the most")),
        (lambda: 5, ("probe.tasks.note has subject=", "int", "an object of a model")),
        (lambda: Order, ("Order", "an object of a model")),
        (lambda: ["5", Order(pk=1)], ("str",)),
        (Order.objects.all, ("QuerySet",)),
        (lambda: [Order(pk=n) for n in range(101)], ("101 objects", "100 is the most")),
    ],
)
def test_what_cannot_be_linked_is_refused_before_anything_is_written(subject, words):
    using = tasks.note.using(subject=subject())
    refused(using.enqueue, "probe.tasks.note has subject=", *words)
    refused(lambda: enqueue_many([(tasks.note, ()), (using, ())]), *words)


def test_a_deleted_object_is_refused(order):
    Order.objects.get().delete()
    order.delete()
    refused(tasks.note.using(subject=order).enqueue, "is not saved")


def test_an_object_that_was_read_from_a_replica_is_linked_where_it_is_written(order, settings):
    settings.DATABASE_ROUTERS = [Elsewhere()]
    order._state.db = "replica"
    handle = tasks.note.using(subject=order).enqueue()
    assert ids_of(order) == [handle.id]


def test_an_object_is_linked_in_its_own_database(second_database):
    from django.core.management import call_command

    call_command("migrate", database="second", verbosity=0)
    order = Order.objects.using("second").create(customer="Ada")
    handle = tasks.note.using(subject=order, using="second").enqueue()
    assert ids_of(order) == [handle.id]
    assert ids_of(Order.objects.using("second").all()) == [handle.id]
    assert not Link.objects.exists()
    with pytest.raises(InvalidOption, match="using='second'"):
        tasks.note.using(subject=order).enqueue()


@pytest.mark.parametrize(
    "subject", [None, 5, "text", Order(customer="Ada"), [], Place, Place.objects.all(), a_place()]
)
def test_tasks_of_what_cannot_be_linked_is_refused(subject):
    with pytest.raises(InvalidOption, match=r"tasks_of\(\) was called with"):
        tasks_of(subject)


@pytest.mark.parametrize("subject", ["5", "unsaved", "elsewhere", [], ["5"]])
def test_a_running_task_is_told_what_cannot_be_linked(subject):
    tasks.link_anything.enqueue(subject)
    (ran,) = run_due_tasks(reraise=False)
    assert ran.status == "dead"
    assert "InvalidOption" in str(Task.objects.get().errors)
    assert not Link.objects.exists()


def test_a_hook_has_no_object(order):
    with pytest.raises(InvalidOption, match="as it was declared"):
        tasks.note.using(on_success=tasks.mail.using(subject=order)).enqueue()


# -- removed


def clean():
    Cleaner(get_config()).run_once()


def test_links_go_with_the_finished_task(order):
    tasks.note.using(subject=order).enqueue()
    live = tasks.note.using(subject=order, run_after=3600).enqueue()
    run_due_tasks()
    clean()
    assert Link.objects.count() == 2
    FinishedTask.objects.update(finished_at="2020-01-01T00:00Z")
    clean()
    assert ids_of(order) == [live.id]
    assert Link.objects.count() == 1


def test_links_of_tasks_that_are_not_kept_go_with_the_next_pass(order, txtasks):
    txtasks(keep_finished=0)
    done = tasks.note.using(subject=order).enqueue()
    live = tasks.note.using(subject=order, run_after=3600).enqueue()
    with helpers.working():
        helpers.wait_until(lambda: not Task.objects.filter(pk=done.id).exists())
    assert ids_of(order) == [live.id]
    assert Link.objects.count() == 2
    clean()
    assert Link.objects.get().task_id == live.id


def test_the_object_may_be_deleted(order):
    handle = tasks.note.using(subject=order).enqueue()
    order.delete()
    assert Link.objects.get().task_id == handle.id
    run_due_tasks()
    assert status_of(handle.id) == "succeeded"
