"""A time that Python has no datetime for is shown, and takes no page, action or command down."""

from __future__ import annotations

import ast
import json
import uuid
from contextlib import suppress
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import Min
from django.test import Client
from django.utils import timezone

import django_txtasks
from django_txtasks.models import (
    Cleaner,
    FinishedTask,
    Moment,
    Outcome,
    PausedQueue,
    Status,
    Task,
    Worker,
)
from django_txtasks.overview import overview
from django_txtasks.stats import causes

pytestmark = pytest.mark.django_db

TASKS, FINISHED = "/admin/txtasks/task/", "/admin/txtasks/finishedtask/"
TIMES = {
    "postgresql": ["infinity", "-infinity", "12026-01-02 00:00+00", "0044-03-15 00:00+00 BC"],
    "mysql": ["0000-00-00 00:00:00", "9999-12-31 23:59:59.999999"],
    "sqlite": [
        "infinity", "tomorrow", "", "12:00", "now", "2026-02-31 00:00:00", "2026-01-01 24:00:00",
        "2026-01-01T10:00:00+05:00", "0000-01-01 00:00:00", "9999-12-31 23:59:59.999999", "12026-01-02", "5",
        "2026-01-01 00:00:00.1234567890123456789", "2026-01-01 00:00:00 and more",
    ],
}[connection.vendor]  # fmt: skip
ODD_TIMEOUT = 1e300 if connection.vendor == "mysql" else float("inf")
COLUMNS = ("run_after", "enqueued_at", "expires_at", "started_at", "notified_at")


@pytest.fixture
def client() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    return client


def put(one: Any, when: str, *columns: str) -> Any:
    table, values = one._meta.db_table, ", ".join(f"{name} = %s" for name in columns)
    with connection.cursor() as cursor:
        key = one.pk if connection.vendor == "postgresql" else one.pk.hex
        cursor.execute(f"UPDATE {table} SET {values} WHERE id = %s", [when] * len(columns) + [key])
    return one


def task(when: str, status: str = Status.PENDING) -> Task:
    one = Task.objects.create(id=uuid.uuid4(), task_name="orders.tasks.send_receipt", status=status)
    return put(one, when, *COLUMNS)


@pytest.mark.parametrize("when", TIMES)
def test_pages_and_commands_show_it(when: str, client: Client) -> None:
    one = task(when)
    done = FinishedTask.objects.create(
        id=uuid.uuid4(), task_name="orders.tasks.send_receipt", outcome=Outcome.SUCCEEDED
    )
    put(done, when, "run_after", "enqueued_at", "started_at", "finished_at")
    worker = Worker.objects.create(id=uuid.uuid4(), host="h", pid=1, queues=[], threads=1, lease=15)
    if connection.vendor != "sqlite":  # whose rows nobody but us writes
        put(worker, when, "seen_at", "started_at", "suspected_at")
    for url in (TASKS, FINISHED, "/admin/txtasks/worker/"):
        assert client.get(url).status_code == 200
        assert len(client.get(url).context["cl"].result_list) == 1
    for url in (f"{TASKS}{one.pk}/change/", f"{FINISHED}{done.pk}/change/"):
        assert client.get(url).status_code == 200
    for query in ("due=due", "due=later", "due=overdue", "state=pending"):
        assert client.get(f"{TASKS}?{query}").status_code == 200
    put(task(when, Status.DEAD), when, *COLUMNS)
    Task.objects.filter(status=Status.DEAD).update(cause=7)
    Task.objects.create(id=uuid.uuid4(), task_name="a.b.c", status=Status.DEAD, cause=7)
    claimed = Task.objects.create(
        id=uuid.uuid4(),
        task_name="a.b.c",
        status=Status.CLAIMED,
        worker=worker.pk,
        timeout=ODD_TIMEOUT,
        claimed_at=timezone.now(),
    )
    put(claimed, when, "started_at", "claimed_at")
    assert client.get("/admin/txtasks/overview/").status_code == 200
    json.dumps(overview().as_json(), allow_nan=False)
    json.dumps(causes().as_json(), allow_nan=False)
    with suppress(CommandError):
        call_command("txtasks_status", max_age=1, stdout=StringIO())
    call_command("txtasks_status", stdout=StringIO())
    call_command("txtasks_status", json=True, stdout=StringIO())
    try:
        call_command("txtasks_audit", stdout=StringIO())
    except SystemExit as found:
        assert found.code == 1  # it waits for ever, which is worth a finding


@pytest.mark.parametrize("when", TIMES)
def test_commands_list_it(when: str) -> None:
    worker = Worker.objects.create(
        id=uuid.uuid4(), host="h", pid=1, queues=[], threads=1, lease=15, lost=True
    )
    put(worker, when, "seen_at")
    cleaner = Cleaner.objects.create(id=uuid.uuid4(), host="h", pid=2, interval=30, lease=15)
    put(cleaner, when, "seen_at", "started_at")
    PausedQueue.objects.create(queue_name="mail")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE txtasks_pausedqueue SET paused_at = %s", [when])
    output = StringIO()
    call_command("txtasks_status", lost=True, stdout=output)
    assert "h (pid 1), last seen " in output.getvalue()
    call_command("txtasks_queue", "list", stdout=output)
    assert "mail: paused since " in output.getvalue()


@pytest.mark.parametrize("when", TIMES[:2])
@pytest.mark.parametrize(
    ("action", "status"),
    [
        ("run_now", Status.PENDING), ("hold", Status.PENDING), ("cancel", Status.PENDING),
        ("resume", Status.HELD), ("revive", Status.DEAD), ("discard", Status.DEAD),
    ],
)  # fmt: skip
def test_people_can_act_on_it(action: str, status: str, when: str, client: Client) -> None:
    one = task(when, status)
    data = {"action": action, "index": "0", "_selected_action": str(one.pk), "confirmed": "yes"}
    assert client.post(TASKS, data, follow=True).status_code == 200
    assert not Task.objects.filter(pk=one.pk, status=status).exists() or action == "run_now"
    if action == "run_now":
        assert Task.objects.due().get().run_after - timezone.now() < timedelta(seconds=60)
    elif action in ("cancel", "discard"):
        assert FinishedTask.objects.get().pk == one.pk


def test_usual_times_are_read_to_the_microsecond() -> None:
    when = timezone.now().replace(microsecond=123_457)
    for exact in (when, when.replace(microsecond=0), when + timedelta(days=365 * 2000)):
        Task.objects.all().delete()
        Task.objects.create(id=uuid.uuid4(), task_name="n", run_after=exact)
        assert Task.objects.get().run_after == exact
        assert Task.objects.aggregate(first=Min("run_after")) == {"first": exact}
        assert Task.objects.get().expires_at is None
        assert Task.objects.filter(run_after=exact).exists()


@pytest.mark.once
def test_no_query_is_sorted_by_the_expression_that_makes_a_time_readable() -> None:
    """Django sorts ``values_list("ended_at")`` by the expression in its SELECT, which no index has."""
    moments = {
        one.name
        for model in apps.get_models()
        for one in model._meta.get_fields()
        if isinstance(one, Moment)
    }
    wrong = [
        f"{path.name}: {function.name}"
        for path in Path(django_txtasks.__file__).parent.rglob("*.py")
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef)
        if (texts(function, "order_by") & moments) & texts(function, "values_list", "values")
    ]
    assert wrong == [
        "explain.py: _before"
    ]  # two queries: one is sorted, and the other has the time


def texts(function: ast.FunctionDef, *methods: str) -> set[str]:
    """Return the texts in the arguments of these methods; of the whole function if a list is unpacked."""
    calls = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in methods
    ]
    is_unpacked = any(isinstance(one, ast.Starred) for call in calls for one in call.args)
    places: list[Any] = (
        [function] if is_unpacked else [argument for call in calls for argument in call.args]
    )
    return {
        node.value.removeprefix("-")
        for place in places
        for node in ast.walk(place)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
