"""A task whose name no living worker declares is reported in the log, by status and audit, and in the admin."""

from __future__ import annotations

import dataclasses
import json
import logging
import uuid
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.utils import timezone

from django_txtasks.conf import get_config
from django_txtasks.core.cleaning import Cleaner
from django_txtasks.core.declaring import registry
from django_txtasks.features.reports import names
from django_txtasks.models import Status, Task, Worker

TASKS = "/admin/txtasks/task/"
KNOWN, UNKNOWN = "orders.tasks.send_receipt", "reports.jobs.monthly"
pytestmark = pytest.mark.usefixtures("rows")


def task(name: str = UNKNOWN, **columns: Any) -> Task:
    return Task.objects.create(id=uuid.uuid4(), task_name=name, **columns)


def worker(*declared: str, **columns: Any) -> Worker:
    values = {"host": "h", "pid": 1, "queues": ["default"], "threads": 1, "lease": 15.0, **columns}
    return Worker.objects.create(id=uuid.uuid4(), task_names=list(declared), **values)


def test_a_name_counts_as_declared_while_a_worker_that_declares_it_lives() -> None:
    task()
    task()
    task(KNOWN)
    assert names.undeclared("default", ["default"]) == {}  # nobody works: that is said otherwise
    worker(KNOWN)
    assert names.undeclared("default", ["default"]) == {"default": {UNKNOWN: 2}}
    assert names.undeclared("default", ["default"], [UNKNOWN]) == {}
    other = worker(UNKNOWN)
    assert names.undeclared("default", ["default"]) == {}
    Worker.objects.filter(pk=other.pk).update(seen_at=timezone.now() - timedelta(minutes=1))
    assert names.undeclared("default", ["default"]) == {"default": {UNKNOWN: 2}}
    Worker.objects.filter(pk=other.pk).update(seen_at=timezone.now(), lost=True)
    assert names.undeclared("default", ["default"]) == {"default": {UNKNOWN: 2}}
    theirs = worker()  # of a release that does not say what it declares
    assert names.undeclared("default", ["default"]) == {}
    assert names.undeclared("default", ["default"], [KNOWN]) == {}
    theirs.delete()
    worker(UNKNOWN, queues="default")  # no list: somebody has written into the row
    assert names.undeclared("default", ["default"]) == {"default": {UNKNOWN: 2}}
    worker()
    assert names.undeclared("default", ["default"]) == {}


def test_a_worker_of_another_queue_declares_nothing_for_this_queue() -> None:
    """Each queue asks its own workers, whatever others know, and those of another release count for their own."""
    worker(KNOWN)
    worker(UNKNOWN, queues=["mail"])
    worker(queues=["old"])
    task()
    task(KNOWN, queue_name="mail", lane="a")
    task(queue_name="old")
    task(queue_name="unserved")
    found = names.undeclared("default", ["default", "mail", "old", "unserved"])
    assert found == {"default": {UNKNOWN: 1}, "mail": {KNOWN: 1}}
    both = names.undeclared("default", ["default", "unserved"], [KNOWN])
    assert both == {"default": {UNKNOWN: 1}, "unserved": {UNKNOWN: 1}}


def test_the_page_of_a_task_asks_the_workers_of_its_queue() -> None:
    worker(UNKNOWN, queues=["mail"])
    worker(KNOWN)
    waiting = task()
    client = Client()
    user = User.objects.create_superuser(uuid.uuid4().hex)
    client.force_login(user)
    note = "no living worker of its queue declares this name"
    assert note in client.get(f"{TASKS}{waiting.pk}/change/").content.decode()
    user.delete()


def test_each_queue_and_priority_is_looked_at_from_its_oldest_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(names, "MOST_ROWS", 2)
    worker(KNOWN, queues=["default", "mail", "empty"])
    old = timezone.now() - timedelta(hours=1)
    for queue, priority in (("default", 0), ("default", 7), ("mail", -3)):
        for _ in range(5):
            task(KNOWN, queue_name=queue, priority=priority)
            task(f"late.{queue}", queue_name=queue, priority=priority)
        task(f"{queue}.{priority}", queue_name=queue, priority=priority, run_after=old)
    task("held", status=Status.HELD)
    task("elsewhere", queue_name="elsewhere")
    found = names.undeclared("default", ["default", "mail", "empty"])
    seen = [name for names_of in found.values() for name in names_of]
    assert {"default.0", "default.7"} <= found["default"].keys() and "mail.-3" in found["mail"]
    assert sum(map(sum, (one.values() for one in found.values()))) <= 6
    assert not {"held", "elsewhere"} & set(seen)


def test_the_oldest_row_of_each_lane_is_looked_at() -> None:
    worker(KNOWN)
    task(lane="a")
    task(lane="a", priority=5)
    task(KNOWN, lane="b")
    task("elsewhere", lane="b", queue_name="elsewhere")
    assert names.undeclared("default", ["default"]) == {"default": {UNKNOWN: 2}}


def test_a_backlog_is_not_read() -> None:
    """The head of each priority, in the order of its index, whatever the statistics are."""
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL says how many rows a statement read")
    worker(KNOWN, queues=["default", "mail"])
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE txtasks_task")
        cursor.execute(
            "INSERT INTO txtasks_task (id, task_name, queue_name, priority) SELECT gen_random_uuid(), %s,"
            " CASE WHEN mod(i, 2) = 0 THEN 'mail' ELSE 'default' END, mod(i, 3)"
            " FROM generate_series(1, 20000) i",
            [UNKNOWN],
        )
    read: list[int] = []

    def explain(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "task_name, COUNT(*)" in sql:
            with connection.cursor() as cursor:
                cursor.cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", params)
                read.append(scanned(cursor.cursor.fetchone()[0][0]["Plan"]))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(explain):
        assert names.undeclared("default", ["default", "mail"]) == {
            queue: {UNKNOWN: 3 * names.MOST_ROWS} for queue in ("default", "mail")
        }
    assert len(read) == 1 and read[0] <= 6 * names.MOST_ROWS


def scanned(plan: dict[str, Any]) -> int:
    """Return the number of rows of the table that a plan has read."""
    rows = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
    own = rows * plan["Actual Loops"] if "Relation Name" in plan else 0
    return int(own + sum(map(scanned, plan.get("Plans", ()))))


def test_with_many_priorities_fewer_rows_of_each_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "FEWEST_ROWS", 1)
    monkeypatch.setattr(names, "MOST_ROWS_READ", 4)
    worker(KNOWN)
    for priority in range(2):
        for _ in range(3):
            task(priority=priority)
    assert names.undeclared("default", ["default"]) == {"default": {UNKNOWN: 4}}


def test_status_and_audit_say_so() -> None:
    worker(KNOWN)
    task(run_after=timezone.now() + timedelta(hours=1))
    text, machine, findings = StringIO(), StringIO(), StringIO()
    call_command("txtasks_status", stdout=text)
    said = f"No living worker of queue default runs {UNKNOWN}, so at least 1 task waits"
    assert said in text.getvalue()
    call_command("txtasks_status", json=True, stdout=machine)
    assert json.loads(machine.getvalue())["undeclared"] == {"default": {UNKNOWN: 1}}
    with pytest.raises(SystemExit):
        call_command("txtasks_audit", json=True, stdout=findings)
    found = {one["name"]: one for one in json.loads(findings.getvalue())["findings"]}
    assert found["undeclared"]["examples"] == [f"{UNKNOWN} in queue default"]


def test_the_admin_says_so_above_the_list_and_on_the_page_of_the_task() -> None:
    waiting, known = task(), task(KNOWN)
    client = Client()
    user = User.objects.create_superuser(uuid.uuid4().hex)
    client.force_login(user)
    assert "no living worker of their queue" not in client.get(TASKS).content.decode()
    worker(KNOWN)
    said = f"no living worker of their queue declares: {UNKNOWN} (1 or more in queue default)"
    assert said in client.get(TASKS).content.decode()
    note = "no living worker of its queue declares this name"
    assert note in client.get(f"{TASKS}{waiting.pk}/change/").content.decode()
    assert note not in client.get(f"{TASKS}{known.pk}/change/").content.decode()
    user.delete()


def test_a_worker_says_so_when_it_starts(caplog: pytest.LogCaptureFixture) -> None:
    task()
    with caplog.at_level(logging.WARNING, logger="django_txtasks"):
        call_command("runworkers", batch=True)
    [line] = told(caplog)
    assert f"{UNKNOWN} (1 or more in queue default)" in line
    assert Task.objects.exists()


def test_a_cleaner_says_once_what_no_worker_has_declared_for_a_pass(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Workers that run when such a task is enqueued look no more: whoever sees their log waits in silence."""
    worker(KNOWN)
    task()
    task(KNOWN)
    cleaner = Cleaner(get_config())
    cleaner.run_once()
    assert not told(caplog)  # a deploy may be under way
    cleaner.run_once()
    cleaner.run_once()
    assert (
        len(told(caplog)) == 1
        and f"declares: {UNKNOWN} (1 or more in queue default). Check" in told(caplog)[0]
    )
    task("another")
    task(queue_name="mail")  # known there, and in no other queue
    worker(UNKNOWN, queues=["mail"])
    cleaner.run_once()
    cleaner.run_once()
    assert len(told(caplog)) == 2 and "declares: another (1 or more in" in told(caplog)[1]


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one for one in caplog.messages if "no living worker of their queue declares" in one]


def test_workers_start_for_the_tasks_of_a_storm_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A site without a task function of its own can verify; its plain workers refuse to start."""
    notices = [name for name in registry.names() if name.startswith("django_txtasks.")]
    monkeypatch.setattr(registry, "names", lambda: notices)
    with pytest.raises(CommandError, match="No task function is declared"):
        call_command("runworkers", batch=True)
    theirs = dataclasses.replace(
        registry.get(KNOWN), name="django_txtasks.contrib.verify.tasks.work"
    )
    monkeypatch.setitem(registry._declarations, theirs.name, theirs)
    monkeypatch.setattr(registry, "names", lambda: [*notices, theirs.name])
    call_command("runworkers", batch=True)
