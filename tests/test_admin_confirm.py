"""Actions that cannot be undone are confirmed on a page of their own, which names their effect."""

from __future__ import annotations

import re
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone

from django_txtasks.admin import bounded, bulk, filters
from django_txtasks.models import FinishedTask, Status, Task

pytestmark = pytest.mark.django_db

TASKS = "/admin/txtasks/task/"
STATES = {"cancel": Status.PENDING, "discard": Status.DEAD}


def user(*codes: str) -> tuple[User, Client]:
    one = User.objects.create(username=uuid.uuid4().hex, is_staff=True)
    one.user_permissions.set(
        Permission.objects.filter(
            content_type__app_label="txtasks", codename__in=["view_task", *codes]
        )
    )
    client = Client()
    client.force_login(one)
    return one, client


def task(status: str, **columns: Any) -> Task:
    return Task.objects.create(
        id=uuid.uuid4(), status=status, **{"task_name": "orders.tasks.send_receipt", **columns}
    )


def ask(client: Client, action: str, tasks: list[Task], query: str = "", **more: str) -> str:
    """Send the action as the list does, and return the page that asks."""
    data = {"action": action, "index": "0", "_selected_action": [str(one.pk) for one in tasks]}
    response = client.post(f"{TASKS}{query}", {**data, **more})
    assert response.status_code == 200
    return response.content.decode()


def form_of(html: str) -> dict[str, list[str]]:
    """Return the values that the form of that page would send."""
    form = html[html.rindex("<form") :]
    sent: dict[str, list[str]] = {}
    for name, value in re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form):
        sent.setdefault(name, []).append(value)
    return sent


def breadcrumbs(html: str) -> list[str]:
    """Return the tags of a page's breadcrumbs, and the links among them without their texts."""
    found = re.search(r'<(ol|div) class="breadcrumbs">.*?</\1>', html, re.DOTALL)
    assert found is not None
    return re.findall(r"</?(?:ol|div|li)\b[^>]*>|<a href=[^>]*>", found[0])


def test_breadcrumbs_have_the_elements_that_this_django_styles() -> None:
    """Django's own page before a deletion is the measure: since 6.1 its CSS styles a list, before that a div."""
    one = task(Status.DEAD)
    staff = User.objects.create_superuser("root")
    client = Client()
    client.force_login(staff)
    data = {"action": "delete_selected", "_selected_action": [str(staff.pk)]}
    users = client.post("/admin/auth/user/", data).content.decode()
    django_own = [tag.replace("/auth/user/", TASKS[len("/admin") :]) for tag in breadcrumbs(users)]
    django_own = [tag.replace("/admin/auth/", "/admin/txtasks/") for tag in django_own]
    assert breadcrumbs(ask(client, "discard", [one])) == django_own


@pytest.mark.parametrize("action", STATES)
def test_nothing_is_done_before_it_is_confirmed(action: str) -> None:
    one, other = task(STATES[action]), task(Status.HELD, task_name="orders.tasks.other")
    _user, client = user(f"{action}_task")
    html = ask(client, action, [one, other])
    assert "1 task is chosen." in html and "1 more is not" in html
    assert str(one.pk) in html and "send_receipt" in html and "orders.tasks.other" not in html
    assert Task.objects.count() == 2
    response = client.post(TASKS, form_of(html), follow=True)
    assert f"1 task {action}" in response.content.decode()
    assert Task.objects.get().pk == other.pk
    assert FinishedTask.objects.get().pk == one.pk


@pytest.mark.parametrize("action", STATES)
def test_nothing_is_asked_where_nothing_would_be_done(action: str) -> None:
    _user, client = user(f"{action}_task")
    data = {"action": action, "index": "0", "_selected_action": [str(task(Status.HELD).pk)]}
    html = client.post(TASKS, data, follow=True).content.decode()
    assert "1 task unchanged" in html and "tasks are chosen" not in html
    assert Task.objects.exists()


@pytest.mark.parametrize("action", STATES)
def test_the_button_of_a_task_asks_too(action: str) -> None:
    one = task(STATES[action])
    _user, client = user(f"{action}_task")
    page = client.get(f"{TASKS}{one.pk}/change/").content.decode()
    assert f'name="action" value="{action}"' in page
    html = ask(client, action, [one])
    assert "1 task is chosen." in html and Task.objects.exists()


@pytest.mark.parametrize("action", STATES)
def test_the_permission_is_asked_again_for_the_confirmed_action(action: str) -> None:
    one = task(STATES[action])
    someone, client = user(f"{action}_task")
    form = form_of(ask(client, action, [one]))
    someone.user_permissions.set(
        Permission.objects.filter(content_type__app_label="txtasks", codename="view_task")
    )
    client.post(TASKS, form)
    assert Task.objects.get().status == STATES[action]
    assert "is chosen" not in ask(client, action, [one])


@pytest.mark.parametrize("action", STATES)
@pytest.mark.parametrize(
    "query", ["?queue=mail", "?queue=mail&state={state}", "?q={id}", "?task=rare"]
)
def test_all_that_match_are_never_shown_as_none(
    monkeypatch: pytest.MonkeyPatch, action: str, query: str
) -> None:
    """What was chosen may stand behind the rows that a page looks at."""
    monkeypatch.setattr(bounded, "MAX_ROWS", 2)
    state = STATES[action]
    later = timezone.now() + timedelta(days=1)
    for day in range(4):
        task(state, run_after=later - timedelta(days=2 + day if state == Status.DEAD else 9))
    one = task(state, queue_name="mail", task_name="rare", run_after=later - timedelta(days=7))
    monkeypatch.setattr(filters.TaskFilter, "known", lambda self: ["rare"])
    monkeypatch.setattr(bulk.registry, "names", lambda: ["rare"])
    _user, client = user(f"{action}_task")
    query = query.format(state=state.value, id=one.pk)
    html = ask(client, action, [one], query, select_across="1")
    assert (
        "None of them matches, but others may." in html
        or "1 task is chosen." in html
        or "1+ task" in html
    )
    assert "<strong>0+" not in html and "<strong>0 task" not in html
    client.post(f"{TASKS}{query}", {**form_of(html), "way": "hand"})
    assert FinishedTask.objects.get().pk == one.pk


def test_markup_in_a_name_is_shown_as_text() -> None:
    _user, client = user("cancel_task")
    html = ask(client, "cancel", [task(Status.PENDING, task_name="<script>alert(1)</script>")])
    assert "<script>alert(1)" not in html and "&lt;script&gt;alert(1)" in html
