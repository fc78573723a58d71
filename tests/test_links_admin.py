"""Business objects in the admin: their tasks on their pages, and the objects on the pages of tasks."""

import re

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from orders.models import Order
from probe import tasks
from probe.models import Country, Parcel

from django_txtasks.models import FinishedTask, Link, Task
from django_txtasks.testing import run_due_tasks

pytestmark = [pytest.mark.usefixtures("rows")]
MOST_LINKS = "django_txtasks.admin.subjects.section.MOST_LINKS"


@pytest.fixture(autouse=True)
def site(settings):
    settings.ROOT_URLCONF = "urls_for_links"


@pytest.fixture
def person(client, rows):
    """A staff user; ``person("view_task", …)`` gives permissions of any app."""
    user = User.objects.create_user("ann", is_staff=True)
    client.force_login(user)

    def may(*names):
        user.user_permissions.set(Permission.objects.filter(codename__in=names))

    yield may
    user.delete()


@pytest.fixture
def order():
    return Order.objects.create(customer="Ada")


def page_of(client, found):
    meta = found._meta
    return client.get(f"/admin/{meta.app_label}/{meta.model_name}/{found.pk}/change/").text


def section(html):
    """Return the section of tasks as (link, text) of each line."""
    (field,) = re.findall(
        r'field-txtasks_of_object.*?<div class="readonly">(.*?)</div>\s*</div>', html, re.S
    )
    return [
        (link, " ".join(re.sub("<[^>]+>", " ", text).split()))
        for link, text in re.findall(r'<div><a href="([^"]*)">(.*?)(?=<div>|$)', field, re.S)
    ]


# ---- the tasks of an object


def test_the_page_of_an_object_lists_its_tasks_with_links_to_them(client, person, order):
    person("view_order", "view_task", "view_finishedtask")
    done = tasks.note.using(subject=order).enqueue()
    run_due_tasks()
    waits = tasks.mail.using(subject=order).enqueue()
    tasks.note.using(subject=Order.objects.create(customer="Bob")).enqueue()
    (first, second) = section(page_of(client, order))
    assert first[0] == f"/admin/txtasks/task/{waits.id}/change/"
    assert first[1].startswith("probe.tasks.mail pending")
    assert second[0] == f"/admin/txtasks/finishedtask/{done.id}/change/"
    assert second[1].startswith("probe.tasks.note succeeded")
    assert client.get(first[0]).status_code == client.get(second[0]).status_code == 200


def test_a_page_with_chosen_fields_has_the_section_behind_them(client, person):
    parcel = Parcel.objects.create()
    person("view_parcel", "change_parcel", "view_task")
    tasks.note.using(subject=parcel).enqueue()
    html = page_of(client, parcel)
    assert html.index("field-label") < html.index("field-txtasks_of_object")
    assert len(section(html)) == 1


def test_the_section_writes_nothing_and_the_form_still_saves(client, person, order):
    person("view_order", "change_order", "view_task", "view_finishedtask")
    tasks.note.using(subject=order).enqueue()
    html = page_of(client, order)
    assert html.count("field-txtasks_of_object") == 1
    assert 'name="txtasks_of_object"' not in html
    client.post(
        f"/admin/orders/order/{order.pk}/change/", {"customer": "Eve", "txtasks_of_object": "x"}
    )
    order.refresh_from_db()
    assert order.customer == "Eve"
    assert (Task.objects.count(), Link.objects.count()) == (1, 1)


@pytest.mark.parametrize(
    ("permissions", "states"),
    [
        ((), None),
        (("view_task",), ["pending"]),
        (("view_finishedtask",), ["succeeded"]),
        (("view_task", "view_finishedtask"), ["pending", "succeeded"]),
    ],
)
def test_the_section_shows_what_the_user_may_view(client, person, order, permissions, states):
    person("view_order", *permissions)
    tasks.note.using(subject=order).enqueue()
    run_due_tasks()
    tasks.note.using(subject=order).enqueue()
    html = page_of(client, order)
    if states is None:
        assert "txtasks" not in html and "probe.tasks" not in html
    else:
        assert [text.split()[1] for _, text in section(html)] == states


def test_an_object_without_tasks_says_so_and_the_page_to_add_one_has_no_section(
    client, person, order
):
    person("view_order", "add_order", "view_task")
    assert section(page_of(client, order)) == []
    assert "txtasks_of_object" not in client.get("/admin/orders/order/add/").text


def test_the_section_is_bounded_and_takes_four_statements(client, person, order):
    person("view_order", "view_task", "view_finishedtask")
    tasks.note.using(subject=order).enqueue()
    with CaptureQueriesContext(connection) as one:
        page_of(client, order)
    for n in range(30):
        tasks.note.using(subject=order).enqueue(str(n))
    with CaptureQueriesContext(connection) as many:
        html = page_of(client, order)
    assert len(many) == len(one)
    assert sum("txtasks_" in sql["sql"] for sql in many) == 4
    assert len(section(html)) == 20 and "and others" in html


def test_the_section_reads_a_bounded_number_of_links(client, person, order, monkeypatch):
    """Otherwise it would look at each of 100,000 tasks that the user may not view."""
    monkeypatch.setattr(MOST_LINKS, 5)
    person("view_order", "view_task")
    old, recent = (
        tasks.note.using(subject=order, run_after=3600).enqueue(one) for one in ("old", "recent")
    )
    for n in range(4):
        tasks.note.using(subject=order).enqueue(str(n))
    run_due_tasks()
    html = page_of(client, order)
    assert [link for link, _ in section(html)] == [f"/admin/txtasks/task/{recent.id}/change/"]
    assert "and others" in html
    Task.objects.filter(pk=old.id).delete()
    Link.objects.filter(task_id=old.id).delete()
    assert "and others" not in page_of(client, order)


# ---- the objects of a task


def about(html):
    found = re.findall(
        r'field-subjects.*?<div class="readonly">(.*?)</div>\s*</div>\s*</div>', html, re.S
    )
    return [one.strip() for one in re.split("</?div>", found[0]) if one.strip()] if found else None


def task_page(client, handle, kind="task"):
    return client.get(f"/admin/txtasks/{kind}/{handle.id}/change/").text


def test_the_page_of_a_task_links_to_the_objects_that_it_is_about(client, person, order):
    person("view_task", "view_finishedtask", "view_order", "view_country")
    country = Country.objects.create(code="a/b_<i>")
    handle = tasks.note.using(subject=[order, country]).enqueue()
    for _ in range(2):
        kind = "task" if Task.objects.exists() else "finishedtask"
        html = task_page(client, handle, kind)
        assert about(html) == [
            f'<a href="/admin/orders/order/{order.pk}/change/">order Order object ({order.pk})</a>',
            '<a href="/admin/probe/country/a_2Fb_5F_3Ci_3E/change/">'
            "country Country object (a/b_&lt;i&gt;)</a>",
        ]  # fmt: skip
        run_due_tasks()
    assert "Country object" in client.get("/admin/probe/country/a_2Fb_5F_3Ci_3E/change/").text


def test_an_object_that_is_not_to_be_viewed_is_named_and_not_linked(client, person, order):
    person("view_task", "view_parcel")
    secret, open_ = Parcel.objects.create(label="secret"), Parcel.objects.create()
    gone, gone_key = Country.objects.create(code="xy"), "xy"
    handle = tasks.note.using(subject=[order, secret, open_, gone]).enqueue()
    gone.delete()
    Link.objects.create(task_id=handle.id, subject_type="shop.gone", subject_id="7")
    Link.objects.create(task_id=handle.id, subject_type="nonsense", subject_id="<8>")
    lines = about(task_page(client, handle))
    assert len(lines) == 6
    linked = [one for one in lines if "<a" in one]
    assert len(linked) == 1 and f"parcel Parcel object ({open_.pk})" in linked[0]
    assert {
        f"orders.order {order.pk}",
        f"probe.country {gone_key}",
        "shop.gone 7",
        "nonsense &lt;8&gt;",
    } < set(lines)
    assert str(secret.pk).replace("-", "") in "".join(lines).replace("-", "")


def test_a_task_without_objects_has_no_such_field(client, person):
    person("view_task")
    assert about(task_page(client, tasks.note.enqueue())) is None


def test_the_page_of_the_task_that_runs_names_the_objects_of_those_that_were_merged(
    client, person, order
):
    person("view_finishedtask", "view_order")
    other = Order.objects.create(customer="Bob")
    winner = tasks.tidy.using(subject=order).enqueue("1")
    tasks.tidy.using(subject=other).enqueue("2")
    run_due_tasks()
    assert FinishedTask.objects.filter(merged_into=winner.id).count() == 1
    lines = about(task_page(client, winner, "finishedtask"))
    assert [re.search(r"order/(\d+)/", one)[1] for one in lines] == [str(order.pk), str(other.pk)]


def test_many_objects_are_bounded(client, person):
    person("view_task", "view_order")
    orders = [Order.objects.create(customer="Ada") for _ in range(30)]
    html = task_page(client, tasks.note.using(subject=orders).enqueue())
    assert len(about(html)) == 21 and "and others" in html
