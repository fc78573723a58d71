"""The page of one task: order, empty fields, the tasks beside it, enqueue again; and the slots of a worker."""

from __future__ import annotations

import json
import re
import uuid
from datetime import timedelta
from typing import Any

import helpers
import pytest
from django.contrib.admin.models import LogEntry
from django.utils import timezone
from probe import tasks

from django_txtasks import enqueue_task
from django_txtasks.admin import again, one_task
from django_txtasks.features.redaction import declaring as redaction
from django_txtasks.models import FinishedTask, Outcome, Task, Worker

pytestmark = pytest.mark.usefixtures("rows")
LIST = "/admin/txtasks/task/"
NOTE = "probe.tasks.note"


def make(status: str = "dead", **columns: Any) -> uuid.UUID:
    handle = enqueue_task(tasks.note, "x")
    Task.objects.filter(pk=handle.id).update(status=status, **columns)
    return handle.id


def labels(html: str) -> list[str]:
    """Return the classes of the fields that a page shows, in order."""
    return re.findall(r'class="[^"]*\bfield-(\w+)', html)


# ---- order and empty fields


def test_the_page_says_first_what_one_wants_first_and_leaves_out_what_is_empty(client, person):
    person("view_task")
    one = make(errors=[{"type": "KeyError", "message": "a", "attempt": 1}], attempt=1, failures=1)
    found = labels(client.get(f"{LIST}{one}/change/").text)
    assert found[:3] == ["full_name", "state", "reasons"]
    wanted = ["state", "arguments", "error_list", "timeline", "queue", "enqueued_moment"]
    assert [name for name in found if name in wanted] == wanted
    empty = {"keywords", "progress", "worker_link", "snoozes", "late", "steps", "in_lane", "batch_link", "merged",
             "hook_names", "unique", "time_limit", "expiry", "notified", "history", "cancel_asked"}  # fmt: skip
    assert empty.isdisjoint(found)
    Task.objects.filter(pk=one).update(kwargs={"a": 1}, timeout=5, snoozes=2, lane="acme")
    found = labels(client.get(f"{LIST}{one}/change/").text)
    assert {"keywords", "time_limit", "snoozes", "in_lane"} <= set(found)


# ---- the tasks beside it


def beside(html: str) -> list[str | None]:
    found = [re.search(rf'href="([^"]*)" rel="{rel}"', html) for rel in ("prev", "next")]
    return [one and one[1] for one in found]


def test_a_page_leads_to_the_tasks_beside_it_in_the_list(client, person):
    person("view_task")
    now = timezone.now()
    first, second, third = (make(run_after=now - timedelta(hours=hours)) for hours in (1, 2, 3))
    make("held", run_after=now)
    came = "?_changelist_filters=state%3Ddead"
    html = client.get(f"{LIST}{second}/change/{came}").text
    assert beside(html) == [f"{LIST}{one}/change/{came}" for one in (first, third)]
    assert beside(client.get(f"{LIST}{first}/change/{came}").text)[0] is None
    assert beside(client.get(f"{LIST}{third}/change/{came}").text)[1] is None
    assert beside(client.get(f"{LIST}{second}/change/").text) == [None, None]


@pytest.mark.parametrize("filters", ["state%3Dheld", "no%3D1", "%00", "state%3Ddead%26cause%3Dx"])
def test_a_list_that_does_not_have_the_task_has_no_neighbours(filters, client, person):
    person("view_task")
    one, _ = make(), make()
    html = client.get(f"{LIST}{one}/change/?_changelist_filters={filters}").text
    assert beside(html) == [None, None]


def test_few_rows_of_the_list_are_searched(client, person, monkeypatch):
    monkeypatch.setattr(one_task, "MAX_ROWS", 2)
    person("view_task")
    now = timezone.now()
    ids = [make(run_after=now - timedelta(hours=hours)) for hours in range(4)]
    html = client.get(f"{LIST}{ids[2]}/change/?_changelist_filters=state%3Ddead").text
    assert beside(html) == [None, None]


# ---- enqueue again


def new_task(answer):
    assert answer.status_code == 302, answer.text
    return Task.objects.get(pk=answer.url.split("/")[-3])


def test_a_call_is_enqueued_again_with_other_arguments(client, person, operated):
    person("view_task", "again_task")
    one = make(args=["x"], queue_name="mail", priority=7)
    page = f"{LIST}{one}/again/"
    assert f'href="{page}"' in client.get(f"{LIST}{one}/change/").text
    assert "&quot;[redacted]&quot;" in client.get(page).text  # its parameter is named key
    new = new_task(client.post(page, {"args": '["y"]', "kwargs": "{}"}))
    assert (new.args, new.queue_name, new.priority, new.status) == (["y"], "mail", 7, "pending")
    assert helpers.row(one).status == "dead"
    entry = LogEntry.objects.get()
    assert entry.object_id == str(new.pk) and str(one) in entry.change_message
    assert [(one["verb"], one["by"]) for one in operated] == [("again", "ann")]


def test_a_finished_call_is_enqueued_again(client, person):
    person("view_task", "view_finishedtask", "again_task")
    done = FinishedTask.objects.create(
        id=uuid.uuid4(),
        task_name=NOTE,
        args=["z"],
        outcome=Outcome.SUCCEEDED,
        finished_at=timezone.now(),
    )
    page = f"/admin/txtasks/finishedtask/{done.pk}/again/"
    assert f'href="{page}"' in client.get(page.replace("again", "change")).text
    assert new_task(client.post(page, {"args": '["z"]', "kwargs": "{}"})).args == ["z"]


def test_redacted_values_are_kept_and_not_shown(client, person):
    person("view_task", "again_task")
    kwargs = {"key": "x", "extra": {"password": "hunter2", "n": 1}}
    one = make(args=[], kwargs=kwargs)
    page = f"{LIST}{one}/again/"
    html = client.get(page).text
    assert "hunter2" not in html and "[redacted]" in html
    typed = {"key": "[redacted]", "extra": {"password": "[redacted]", "n": 2}}
    answer = client.post(page, {"args": "[]", "kwargs": json.dumps(typed)})
    assert "hunter2" not in answer.text
    assert again.restored(typed, shown_of(kwargs), kwargs) == {
        "key": "x",
        "extra": {"password": "hunter2", "n": 2},
    }


def shown_of(value: Any) -> Any:
    return redaction.redacted(value)


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (["[redacted]"], []),
        ({"a": ["[redacted]"]}, {}),
        ({"password": "[redacted] 2"}, {"password": "p"}),
    ],
)
def test_a_redacted_value_in_another_place_is_refused(new, old):
    with pytest.raises(ValueError, match="Type the value"):
        again.restored(new, shown_of(old), old)


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [("[", "{}", "JSONDecodeError"), ("{}", "{}", "InvalidArguments"), ("[1, 2, 3, 4]", "{}", "InvalidArguments"),
     ('["a"]', "[]", "InvalidArguments"), ("[" * 5000, "{}", "Error")],
)  # fmt: skip
def test_a_wrong_call_is_refused_and_stays_in_the_form(args, kwargs, says, client, person):
    person("view_task", "again_task")
    one = make()
    answer = client.post(f"{LIST}{one}/again/", {"args": args, "kwargs": kwargs})
    assert answer.status_code == 200 and says in answer.text
    assert Task.objects.count() == 1


def test_only_ended_tasks_are_enqueued_again(client, person):
    person("view_task", "again_task")
    one = make("held")
    assert "/again/" not in client.get(f"{LIST}{one}/change/").text
    answer = client.post(f"{LIST}{one}/again/", {"args": '["x"]', "kwargs": "{}"})
    assert "is not dead or finished" in answer.text and Task.objects.count() == 1


def test_nobody_enqueues_again_without_the_permission(client, person):
    person("view_task", "revive_task")
    one = make()
    assert "/again/" not in client.get(f"{LIST}{one}/change/").text
    for answer in (
        client.get(f"{LIST}{one}/again/"),
        client.post(f"{LIST}{one}/again/", {"args": "[]"}),
    ):
        assert answer.status_code == 403
    person("again_task")
    assert client.get(f"{LIST}{one}/again/").status_code == 403
    assert Task.objects.count() == 1


# ---- slots


def test_a_worker_shows_what_each_slot_runs(client, person):
    person("view_worker", "view_task")
    worker = Worker.objects.create(
        id=uuid.uuid4(), host="h", pid=1, queues=[], threads=4, lease=60.0
    )
    started = timezone.now() - timedelta(hours=2)
    claims = {"worker": worker.pk, "claimed_at": started}
    running = make("claimed", started_at=started, **claims)
    make("claimed", **claims)
    make("claimed", worker=uuid.uuid4(), claimed_at=started)
    html = client.get(f"/admin/txtasks/worker/{worker.pk}/change/").text
    assert f'href="{LIST}{running}/change/"' in html and "for 2 h" in html
    assert html.count("waits for its slot") == 1 and "free slots: 2" in html
    person("view_worker")
    html = client.get(f"/admin/txtasks/worker/{worker.pk}/change/").text
    assert str(running) not in html and "free slots" not in html
