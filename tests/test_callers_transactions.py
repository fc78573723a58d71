"""Reads and operations inside a caller's transaction leave the settings of its session as they were."""

import uuid
from datetime import timedelta

import helpers
import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone
from probe import tasks

from django_txtasks import enqueue_many, operations
from django_txtasks.features.reports import names
from django_txtasks.insight.explain import explain
from django_txtasks.models import Status, Task, Worker
from django_txtasks.overview import overview
from django_txtasks.stats import causes

pytestmark = [
    pytest.mark.usefixtures("rows"),
    pytest.mark.skipif(connection.vendor == "sqlite", reason="a session has no such settings"),
]


def settings():
    if connection.vendor == "mysql":
        names = ("idle_transaction_timeout", "max_statement_time", "innodb_lock_wait_timeout")
        return helpers.execute(f"SELECT {', '.join(f'@@SESSION.{name}' for name in names)}")
    return helpers.execute("SELECT name, setting FROM pg_settings ORDER BY name")


def dead():
    ids = [one.id for one in enqueue_many([(tasks.note, ("a",)) for _ in range(3)])]
    Task.objects.filter(pk__in=ids).update(status=Status.DEAD, cause=5)
    return ids


def busy_worker():
    """Take all slots, and let a task wait for one."""
    worker = Worker.objects.create(
        id=uuid.uuid4(), host="web-1", pid=1, queues=["default"], threads=1, lease=60, running=1,
        task_names=["probe.tasks.note"], seen_at=timezone.now(),
    )  # fmt: skip
    Task.objects.create(
        id=uuid.uuid4(), task_name="probe.tasks.note", status=Status.CLAIMED, worker=worker.pk,
        claimed_at=timezone.now(),
    )  # fmt: skip
    Task.objects.create(
        id=uuid.uuid4(), task_name="probe.tasks.note", run_after=timezone.now() - timedelta(1)
    )


def explained():
    busy_worker()
    found = explain("default", Task.objects.get(status=Status.PENDING).pk)
    assert "slot" in str(found)


def pages_of_the_admin():
    user = User.objects.create_superuser(uuid.uuid4().hex)
    client = Client()
    client.force_login(user)
    for name in ("overview", "task", "finishedtask"):
        assert client.get(f"/admin/txtasks/{name}/").status_code in (200, 302)
    user.delete()


CALLS = {
    "overview": lambda: overview(max_age=0),
    "causes": causes,
    "undeclared names": lambda: names.undeclared("default", ["default"]),
    "dry run": lambda: operations.revive(queue="default", limit=9, dry_run=True),
    "revive": lambda: operations.revive(queue="default", limit=9),
    "revive by cause": lambda: operations.revive(queue="default", cause=5, limit=9),
    "spread": lambda: operations.revive(queue="default", limit=9, spread=60),
    "discard by error": lambda: operations.discard(error="a", limit=9),
    "again": lambda: operations.again(queue="default", limit=9),
    "hold": lambda: operations.hold(queue="default", limit=9),
    "by ids": lambda: operations.discard(dead()),
    "stop": lambda: operations.ask_to_stop(queue="default", limit=9),
    "explain": explained,
    "admin": pages_of_the_admin,
}


@pytest.mark.parametrize("name", CALLS)
def test_the_settings_of_a_caller_s_transaction_stay(name):
    dead()
    with transaction.atomic():
        before = settings()
        CALLS[name]()
        assert settings() == before
    assert settings() == before or connection.vendor == "postgresql"
