"""Questions that a URL or a form of the admin may ask: none tells a hidden value, and none is a server error."""

from __future__ import annotations

import json
import uuid
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.db.models import Model
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from django_txtasks.admin.pages import Pages
from django_txtasks.models import (
    Batch,
    Cleaner,
    FinishedTask,
    Lane,
    Outcome,
    Overview,
    PausedQueue,
    Schedule,
    Task,
    Worker,
)

pytestmark = pytest.mark.django_db

SECRET = "hunter2"
HIDDEN: dict[str, Any] = {"args": [SECRET], "kwargs": {"password": SECRET}}
PAGES = [page for model, page in admin.site._registry.items() if model._meta.app_label == "txtasks"]
LISTS = [page for page in PAGES if page.model is not Overview]  # which has no rows of its own
EACH_LIST = pytest.mark.parametrize("page", LISTS, ids=lambda page: page.model.__name__)
EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.model.__name__)
DIGITS = "5" * 5_000
LOOKUPS = ("", "__exact", "__startswith", "__regex", "__isnull", "__password__startswith", "__0")
STRANGE = [DIGITS, "\0", "9" * 30, "💥_ZZ%00"]


def viewer(*more: str) -> Client:
    """Log in a user who may view each model of this app, with these further permissions."""
    user = User.objects.create(username=uuid.uuid4().hex, is_staff=True)
    views = [f"view_{page.model._meta.model_name}" for page in PAGES]
    user.user_permissions.set(
        Permission.objects.filter(content_type__app_label="txtasks", codename__in=[*views, *more])
    )
    client = Client(raise_request_exception=False)
    client.force_login(user)
    return client


def url(page: Any, view: str, *args: Any) -> str:
    return reverse(f"admin:txtasks_{page.model._meta.model_name}_{view}", args=args)


def make(model: type[Model]) -> Model:
    """Write a row whose hidden columns hold the secret. No app declares the task, so its arguments are hidden."""
    process: dict[str, Any] = {"id": uuid.uuid4(), "host": "web-1", "pid": 5, "lease": 15.0}
    task: dict[str, Any] = {"id": uuid.uuid4(), "task_name": "gone.tasks.run", **HIDDEN}
    values: dict[type[Model], dict[str, Any]] = {
        Task: {**task, "hooks": {"on_success": {"task_name": "x", **HIDDEN}}},
        FinishedTask: {**task, "outcome": Outcome.SUCCEEDED, "result": SECRET},
        Worker: {**process, "queues": [], "threads": 1, "progress": {"note": SECRET}},
        Cleaner: process,
        Batch: {"id": uuid.uuid4(), "hooks": {"on_success": {"task_name": "x", **HIDDEN}}},
        Lane: {"name": "api"},
        PausedQueue: {"queue_name": "default"},
        Schedule: {
            "name": "nightly", "task_name": "orders.tasks.send_receipt", "every": 3600.0,
            "next_at": timezone.now(), **HIDDEN,
        },
    }  # fmt: skip
    return model._default_manager.create(**values[Task if model is Overview else model])


def listed(client: Client, page: Any, **query: str) -> list[Any]:
    response = client.get(url(page, "changelist"), query)
    assert response.status_code == 200
    return [row.pk for row in response.context["cl"].result_list]


@EACH_LIST
def test_a_url_asks_no_column_that_is_not_a_filter_of_the_page(page: Any) -> None:
    """Else staff could guess a hidden value letter by letter."""
    make(page.model)
    client = viewer()
    filters = {one.parameter_name for one in page.list_filter}
    for name in [field.name for field in page.model._meta.get_fields()] + ["pk"]:
        asked = [f"{name}{lookup}" for lookup in LOOKUPS]
        assert [one for one in asked if page.lookup_allowed(one, "h")] == [name] * (name in filters)
        answer = client.get(url(page, "changelist"), {f"{name}__startswith": SECRET[0]})
        assert answer.status_code == 400, name


@EACH_LIST
def test_no_search_finds_a_hidden_value(page: Any) -> None:
    row = make(page.model)
    client = viewer()
    assert listed(client, page) == [row.pk]
    if page.search_fields:  # else there is no search, and Django shows all rows
        assert listed(client, page, q=SECRET) == listed(client, page, q=SECRET[:3]) == []


@EACH_LIST
def test_no_list_is_put_into_the_order_of_a_column_by_its_url(page: Any) -> None:
    make(page.model)
    request = viewer().get(url(page, "changelist")).wsgi_request
    changes = page.get_changelist_instance(request)
    assert [changes.get_ordering_field(name) for name in page.get_list_display(request)] == [
        None for _ in page.list_display
    ]


@EACH_PAGE
def test_no_look_up_of_another_page_reads_it(page: Any) -> None:
    """Nothing has a foreign key to it, so Django's view for choices refuses."""
    opts = page.model._meta
    for field in opts.fields:
        query = {
            "app_label": "txtasks",
            "model_name": opts.model_name,
            "field_name": field.name,
            "term": "h",
        }
        assert viewer().get(reverse("admin:autocomplete"), query).status_code == 403


@EACH_PAGE
def test_each_page_has_the_guards_of_the_common_base(page: Any) -> None:
    assert isinstance(page, Pages)
    assert page.date_hierarchy is None and not page.list_editable and not page.list_select_related


@EACH_PAGE
def test_any_search_and_any_parameter_is_answered(page: Any) -> None:
    make(page.model)
    client = viewer()
    filters = [one.parameter_name for one in page.list_filter]
    for name in ["q", "p", "o", "_to_field", "db", "fragment", *filters]:
        for text in STRANGE[: 2 if name in filters else 4]:
            answer = client.get(f"{url(page, 'changelist')}?{urlencode({name: text})}")
            assert answer.status_code in (200, 302, 400), (name, text[:9])


@EACH_PAGE
@pytest.mark.parametrize("view", ["change", "history", "delete"])
def test_any_key_in_a_url_is_answered(page: Any, view: str) -> None:
    client = viewer()
    for text in STRANGE:
        path = url(page, view, "KEY").replace("KEY", quote(text, safe=""))
        assert client.get(path).status_code in (302, 403, 404), text[:9]


@EACH_PAGE
def test_any_selection_of_rows_is_answered(page: Any) -> None:
    make(page.model)
    models = ("schedule", "task", "pausedqueue", "lane")
    every = [
        f"{verb}_{name}"
        for verb in ("change", "delete", "revive", "cancel", "hold")
        for name in models
    ]
    client = viewer(*every)
    for action in ("hold", "cancel", "turn_off", "delete_selected"):
        for text in (*STRANGE, "garbage"):
            data = {"action": action, "index": "0", "_selected_action": [text]}
            answer = client.post(url(page, "changelist"), data)
            assert answer.status_code in (200, 302, 400, 403), (action, text[:9])


@pytest.mark.parametrize(
    "text",
    [
        f"[{DIGITS}]",
        "[" * 5_000,
        f"[{'[' * 500}{']' * 500}]",
        '["\\u0000"]',
        '["\\ud800"]',
        "[NaN]",
    ],
    ids=["digits", "open", "deep", "nul", "surrogate", "nan"],
)
def test_any_text_for_arguments_of_a_schedule_is_answered(text: str) -> None:
    make(Schedule)
    page = next(one for one in PAGES if one.model is Schedule)
    client = viewer("change_schedule", "add_schedule")
    values = {
        "name": "new", "task_name": "orders.tasks.send_receipt", "queue_name": "default", "kwargs": "{}",
        "every": "60", "tz": "UTC", "catch_up": "last", "args": text,
    }  # fmt: skip
    answer = client.post(url(page, "add"), values)
    assert answer.status_code == 200
    assert answer.context["errors"]
    for name in ("args", "kwargs", "every", "grace", "cron"):
        answer = client.post(url(page, "change", "nightly"), {**values, name: DIGITS})
        assert answer.status_code == 200, name
    assert Schedule.objects.get().kwargs == HIDDEN["kwargs"]


def test_any_number_for_a_limit_of_a_lane_is_answered() -> None:
    make(Lane)
    page = next(one for one in PAGES if one.model is Lane)
    client = viewer("change_lane")
    for name in ("at_most", "burst", "weight", "rate", "reason"):
        for text in (DIGITS, "1e300", "2147483648"):
            answer = client.post(url(page, "change", "api"), {name: text})
            assert answer.status_code in (200, 302), (name, text[:9])


def test_the_rows_that_a_hidden_value_stands_in_are_really_there() -> None:
    """The tests above prove nothing if the secret is not stored."""
    for page in LISTS:
        make(page.model)
    with connection.cursor() as cursor:
        for table in ("txtasks_task", "txtasks_finishedtask", "txtasks_schedule"):
            cursor.execute(f"SELECT args, kwargs FROM {table}")
            assert SECRET in json.dumps(cursor.fetchone(), default=str)
