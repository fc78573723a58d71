"""Schedules as people see and change them in the admin."""

import re
from datetime import timedelta

import helpers
import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.urls import reverse
from probe import tasks

from django_txtasks import periodic
from django_txtasks.admin import shown
from django_txtasks.features.schedules import changes as schedule_changes
from django_txtasks.features.schedules import periodic as scheduling
from django_txtasks.models import DatabaseNow, FinishedTask, Schedule, Task
from django_txtasks.testing import run_due_tasks

pytestmark = pytest.mark.usefixtures("rows", "quick")
PAGE = "admin:txtasks_schedule_"


@pytest.fixture
def nightly(monkeypatch):
    """A schedule of the code, in the database."""
    monkeypatch.setattr(scheduling, "_declared", {})
    periodic("0 3 * * *", tz="Europe/Vienna", args=["x"], name="nightly")(tasks.note)
    schedule_changes.sync("default", scheduling.declared(), keep=True)
    return Schedule.objects.get()


def form(row=None, **changes):
    """Return the values that a browser sends: the typed ones, and the initial ones."""
    values = {
        "task_name": "probe.tasks.note", "queue_name": "default", "args": '["x"]', "kwargs": "{}",
        "cron": "0 3 * * *", "every": "", "tz": "Europe/Vienna", "catch_up": "last", "grace": "",
        "ready_by": "",
    }  # fmt: skip
    before = {f"initial-{key}": value for key, value in values.items()} if row else {}
    return {
        **({"name": row.pk} if row else {}),
        "initial-name": "nightly",
        **before,
        **values,
        **changes,
    }


def act(client, name, *rows):
    chosen = {"action": name, "_selected_action": [row.pk for row in rows]}
    return client.post(reverse(f"{PAGE}changelist"), chosen, follow=True)


def now():
    return Schedule.objects.annotate(now=DatabaseNow()).first().now


def test_the_pages_show_how_schedules_are(client, person, nightly):
    person("view_schedule")
    page = client.get(reverse(f"{PAGE}changelist")).content
    for text in (b"nightly", b"0 3 * * * Europe/Vienna", b"probe.tasks.note", b">on<"):
        assert text in page
    page = client.get(reverse(f"{PAGE}change", args=["nightly"])).content
    assert page.count(b"<span class=quiet>") == 5
    assert b"in the code" in page
    Schedule.objects.update(next_at=now() - timedelta(minutes=5), error="<b>bad</b>")
    page = client.get(reverse(f"{PAGE}changelist")).content
    assert re.search(rb"late by 5 min", page)
    assert b"&lt;b&gt;bad" in page


def test_who_may_only_look_changes_nothing_and_sees_no_secret(client, person, nightly):
    person("view_schedule")
    Schedule.objects.update(kwargs={"password": "hunter2"})
    url = reverse(f"{PAGE}change", args=["nightly"])
    page = client.get(url)
    assert b"hunter2" not in page.content
    assert client.post(url, form(nightly, cron="* * * * *")).status_code == 403
    assert client.get(reverse(f"{PAGE}add")).status_code == 403
    act(client, "run_now", nightly)
    act(client, "turn_off", nightly)
    assert not Task.objects.exists()
    assert Schedule.objects.get().enabled
    assert Schedule.objects.get().cron == "0 3 * * *"


def test_what_was_changed_is_written_and_nothing_else(client, person, nightly):
    person("view_schedule", "change_schedule")
    url = reverse(f"{PAGE}change", args=["nightly"])
    assert client.get(url).status_code == 200
    Schedule.objects.update(grace=60)  # by somebody else meanwhile
    page = client.post(url, form(nightly, cron="30 4 * * *"), follow=True)
    assert page.status_code == 200
    row = Schedule.objects.get()
    assert (row.cron, row.grace, row.edited) == ("30 4 * * *", 60, True)
    assert row.next_at > now()
    assert LogEntry.objects.get().object_id == "nightly"
    assert b"changed by people" in client.get(url).content
    act(client, "follow_code", row)
    row = Schedule.objects.get()
    assert (row.cron, row.edited) == ("0 3 * * *", False)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"cron": "61 * * * *"}, b"Bad minute"),
        ({"every": "5"}, b"one of them"),
        ({"tz": "Europe/Wien"}, b"no time zone"),
        ({"args": "[1, 2]"}, b"cannot be called like that"),
        ({"args": "{}"}, b"args is a list"),
        ({"args": "["}, b"valid JSON"),
        ({"ready_by": "7"}, b"use an hour"),
        ({"grace": "-5"}, b"use seconds, from 0"),
        ({"grace": "1e300"}, b"use seconds, from 0"),
        ({"grace": "1000000000"}, b"use seconds, from 0"),
        ({"cron": "", "every": "1e300"}, b"use a timedelta or seconds"),
        ({"queue_name": "nowhere"}, b"not one of the available choices"),
        ({"task_name": "os.system"}, b"not one of the available choices"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(client, person, nightly, changes, text):
    person("view_schedule", "change_schedule")
    url = reverse(f"{PAGE}change", args=["nightly"])
    page = client.post(url, form(nightly, **changes))
    assert text in page.content
    row = Schedule.objects.get()
    assert (row.cron, row.every, row.edited, row.args) == ("0 3 * * *", None, False, ["x"])


def test_of_two_who_change_a_schedule_at_once_one_is_told_why_not(client, person, nightly):
    person("view_schedule", "change_schedule")
    url = reverse(f"{PAGE}change", args=["nightly"])
    Schedule.objects.update(cron="", every=60)  # by somebody else meanwhile
    page = client.post(url, form(nightly, cron="30 4 * * *"), follow=True)
    assert b"another user has changed" in page.content
    assert b"one of them" in page.content
    row = Schedule.objects.get()
    assert (row.cron, row.every, row.edited) == ("", 60, False)
    assert not LogEntry.objects.exists()


OF_TWO = {
    "an hour by which no such tick is ready": ({"cron": "", "every": 60}, {"ready_by": "07:00"}),
    "arguments that the function does not take": (
        {"task_name": "probe.tasks.give", "args": ["x"]},
        {"args": "[]"},
    ),
}
"""What somebody else has written meanwhile, and what a person changes on a page of before."""


@pytest.mark.parametrize(("before", "changes"), OF_TWO.values(), ids=OF_TWO)
def test_what_two_have_changed_is_checked_together(client, person, nightly, before, changes):
    """Each change alone is sound."""
    person("view_schedule", "change_schedule")
    url = reverse(f"{PAGE}change", args=["nightly"])
    Schedule.objects.update(**before)
    page = client.post(url, form(nightly, **changes), follow=True)
    assert b"another user has changed" in page.content
    row = Schedule.objects.get()
    assert {name: getattr(row, name) for name in before} == before
    assert not row.edited
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize("does", ["adds it", "deletes it"])
@pytest.mark.skipif(connection.vendor == "sqlite", reason="one writer at a time")
def test_a_schedule_that_somebody_else_adds_or_deletes_between_check_and_save(
    does, client, person, nightly
):
    person("view_schedule", "add_schedule", "change_schedule")

    def meanwhile():
        configuration = {**scheduling.declared()["nightly"].configuration}
        if does == "adds it":
            schedule_changes.add("default", "ours", configuration)
        else:
            Schedule.objects.filter(pk="nightly").delete()

    def before(execute, sql, params, many, context):
        if not done and ("INSERT INTO" in sql or "FOR UPDATE" in sql) and "txtasks_schedule" in sql:
            done.append(sql)
            with helpers.second_session(meanwhile):
                pass
        return execute(sql, params, many, context)

    done = []
    url = reverse(f"{PAGE}add") if does == "adds it" else reverse(f"{PAGE}change", args=["nightly"])
    values = form(None if does == "adds it" else nightly, cron="30 4 * * *")
    with connection.execute_wrapper(before):
        page = client.post(
            url, {**values, **({"name": "ours"} if does == "adds it" else {})}, follow=True
        )
    assert done
    assert page.status_code == 200
    assert b"Nothing was changed" in page.content
    assert not LogEntry.objects.exists()


def test_off_on_and_run_now(client, person, nightly):
    person("view_schedule", "change_schedule")
    act(client, "turn_off", nightly)
    assert not Schedule.objects.get().enabled
    assert b">off<" in client.get(reverse(f"{PAGE}changelist")).content
    act(client, "turn_on", nightly)
    assert Schedule.objects.get().enabled
    page = act(client, "run_now", nightly)
    assert b"runs now" in page.content
    run_due_tasks()
    assert helpers.runs("x") == 1
    page = client.get(reverse(f"{PAGE}changelist")).content
    assert (
        reverse("admin:txtasks_finishedtask_change", args=[FinishedTask.objects.get().pk]).encode()
        in page
    )
    assert LogEntry.objects.count() == 3
    Schedule.objects.update(args=[1, 2, 3])
    page = act(client, "run_now", nightly)
    assert b"cannot be called like that" in page.content


def test_the_page_has_a_button_that_turns_the_schedule_off_and_on(client, person, nightly):
    url = reverse(f"{PAGE}change", args=["nightly"])
    person("view_schedule")
    assert "txtasks-act" not in client.get(url).text
    person("view_schedule", "change_schedule")
    assert 'name="action" value="turn_off"' in client.get(url).text
    act(client, "turn_off", nightly)
    assert 'name="action" value="turn_on"' in client.get(url).text


def test_a_schedule_whose_function_is_gone_has_no_next_times(client, person, nightly):
    person("view_schedule")
    Schedule.objects.update(task_name="gone.tasks.run")
    page = client.get(reverse(f"{PAGE}change", args=["nightly"])).text
    assert (
        "No task function gone.tasks.run is declared" in page and "<span class=quiet>" not in page
    )
    assert re.search(
        f"field-next[^>]*>{shown.EMPTY}<", client.get(reverse(f"{PAGE}changelist")).text
    )


def test_people_add_schedules_and_delete_their_own_alone(client, person, nightly):
    person("view_schedule", "add_schedule", "delete_schedule", "change_schedule")
    url = reverse(f"{PAGE}add")
    assert client.get(url).status_code == 200
    client.post(url, {**form(cron="", every="90", tz="UTC"), "name": "ours"}, follow=True)
    ours = Schedule.objects.get(pk="ours")
    assert (ours.every, ours.from_code, ours.edited, ours.args) == (90, False, True, ["x"])
    schedule_changes.sync("default", scheduling.declared(), keep=True)
    assert Schedule.objects.get(pk="ours").enabled
    assert (
        client.post(reverse(f"{PAGE}delete", args=["nightly"]), {"post": "yes"}).status_code == 403
    )
    client.post(reverse(f"{PAGE}delete", args=["ours"]), {"post": "yes"})
    assert [row.pk for row in Schedule.objects.all()] == ["nightly"]
    act(client, "delete_selected", nightly)
    assert Schedule.objects.exists()


def test_a_page_of_many_schedules_takes_few_questions(
    client, person, nightly, django_assert_max_num_queries
):
    person("view_schedule")
    for number in range(40):
        Schedule(
            name=f"s{number}",
            task_name="probe.tasks.note",
            every=60.0,
            args=["x"],
            last_task=tasks.note.enqueue().id,
        ).save(force_insert=True)
    with django_assert_max_num_queries(25):
        page = client.get(reverse(f"{PAGE}changelist"))
    assert b"s39" in page.content
