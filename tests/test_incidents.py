"""Incidents 1 to 9 of ``incidents.md``, told by the first sentence of At a glance. Rows stand for processes."""

from __future__ import annotations

import html
import re
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import incidents
import pytest
import scene
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from django.utils.html import strip_tags

from django_txtasks.models import Cleaner, Schedule, Status, Task, Worker
from django_txtasks.operations import pausing

pytestmark = [pytest.mark.django_db, pytest.mark.once]

TABLE = (Path(__file__).parent / "incidents.md").read_text()
LONG_AGO = timezone.now() - timedelta(hours=2)
CHARGE, BILL = "bakery.tasks.charge_card", "bakery.tasks.send_bill"


def nobody_serves_a_queue() -> None:
    scene.add(30, queue_name="mail", ago=60)


def a_queue_is_paused() -> None:
    pausing.pause("default", "mail", by="ada", reason="the mail provider moves today")
    scene.add(25, queue_name="mail", ago=60)


def a_deploy_has_renamed_a_function() -> None:
    scene.add(20, task_name=BILL, ago=60)


def a_release_fails() -> None:
    scene.add(
        200, task_name=CHARGE, status=Status.DEAD, cause=7, started_at=timezone.now(),
        errors=[scene.error("builtins.KeyError", "'rye bread'")],
    )  # fmt: skip


def a_lane_is_full() -> None:
    claim("bakery.tasks.print_label", timezone.now() - timedelta(minutes=5), lane="printer")
    scene.add(12, lane="printer", ago=60)


def a_task_runs_too_long() -> None:
    claim("bakery.tasks.rebuild_search_index", LONG_AGO)


def no_cleaner_runs() -> None:
    Cleaner.objects.all().delete()
    lost = scene.worker("web-2", 7, ["default"], seen_at=LONG_AGO)
    claim("bakery.tasks.rebuild_search_index", LONG_AGO, worker=lost.pk)


def rabbitmq_is_down() -> None:
    Worker.objects.update(listening=False)
    scene.add(10, ago=5)


def a_schedule_has_lost_its_function() -> None:
    Schedule.objects.create(name="stock", task_name="bakery.tasks.count_stock", every=3600.0)


MAKERS = [globals()[make.__name__] for make in incidents.INCIDENTS[:9]]
MEND = {
    "a_deploy_has_renamed_a_function": f"queue=default&amp;task={BILL}",
    "a_queue_is_paused": 'name="resume" value="mail"',
    "a_release_fails": "state=dead&amp;cause=7",
    "a_lane_is_full": "/admin/txtasks/task/{task}/change/",
    "a_task_runs_too_long": "/admin/txtasks/task/{task}/change/",
    "no_cleaner_runs": "manage.py runcleaner running",
    "rabbitmq_is_down": "/admin/txtasks/worker/",
    "a_schedule_has_lost_its_function": "/admin/txtasks/schedule/stock/change/",
}
"""The button or link beside the sentence; of the others the tasks that wait."""


def claim(name: str, since: Any, **columns: Any) -> None:
    times = {"claimed_at": since, "started_at": since, "attempt": 1}
    worker = {"worker": Worker.objects.earliest("host").pk}
    scene.add(1, task_name=name, status=Status.CLAIMED, **times | worker | columns)


@pytest.fixture(autouse=True)
def site(txtasks: Any) -> None:
    """A worker with code of release ``b``, a cleaner, and RabbitMQ."""
    lanes = {"printer": {"at_most": 1}}
    txtasks(queues=["default", "mail", "reports"], lanes=lanes, broker_url="amqp://rabbit")
    names = [scene.CHARGE, CHARGE]
    queues = ["default", "reports"]
    scene.worker("web-1", 5, queues, task_names=names, started_at=LONG_AGO, release="b", will=1)
    now = timezone.now()
    Cleaner.objects.create(
        id=uuid.uuid4(), host="web-1", pid=6, interval=30.0, lease=60.0, passed_at=now
    )


@pytest.mark.parametrize("number", range(1, 10))
def test_the_first_sentence_names_the_cause_and_leads_to_what_mends_it(number: int) -> None:
    make = MAKERS[number - 1]
    make()
    client = Client()
    client.force_login(User.objects.create_superuser("ann"))
    page = client.get("/admin/txtasks/overview/").content.decode()
    first = page.split('<ul class="txg-problems">')[1].split("</li>")[0]
    text = html.unescape(" ".join(strip_tags(first).split()))
    expected = re.search(rf"^\| {number} \|[^|]*\|[^|]*\| ([^|]*?) \|", TABLE, re.MULTILINE)
    running = Task.objects.filter(status=Status.CLAIMED).first()
    said = "more than 1 h" if make is a_task_runs_too_long else "more than 20 s"
    assert expected is not None
    assert expected[1].replace("more than 20 s", said) in text
    mend = MEND.get(make.__name__, "/admin/txtasks/task/?state=pending&amp;queue=")
    if make is no_cleaner_runs:
        assert "href" not in first  # the list of cleaners would be empty
        assert "has claimed 1 task." in page and "Its tasks are stuck until a cleaner runs" in page
    assert mend.format(task=running and running.pk) in first
