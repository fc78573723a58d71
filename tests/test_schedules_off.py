"""Schedules that a person has turned off: who, since when and why, on each page and in each command."""

import re
from datetime import timedelta
from io import StringIO

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db.models import F
from django.urls import reverse
from django.utils import translation
from probe import tasks

from django_txtasks import periodic
from django_txtasks.conf import get_config
from django_txtasks.features.schedules import changes, off
from django_txtasks.features.schedules import periodic as scheduling
from django_txtasks.insight.audit import audit
from django_txtasks.metrics.samples import samples_of
from django_txtasks.models import DatabaseNow, Schedule
from django_txtasks.overview import overview

pytestmark = pytest.mark.usefixtures("rows", "quick")
PAGE = "admin:txtasks_schedule_"


@pytest.fixture
def nightly(monkeypatch):
    """A schedule of the code, in the database, and its task of now."""
    monkeypatch.setattr(scheduling, "_declared", {})
    periodic(every=86_400, args=["x"], name="nightly")(tasks.note)
    changes.sync("default", scheduling.declared(), keep=True)


@pytest.fixture
def ada():
    """The first superuser, whom entries of commands get."""
    return User.objects.create_superuser("ada")


def command(*arguments):
    output = StringIO()
    call_command("txtasks_schedules", *arguments, stdout=output, stderr=output)
    return output.getvalue()


def later(**age):
    """Let this time pass for schedules that are off."""
    Schedule.objects.update(watched_from=F("watched_from") - timedelta(**age))
    LogEntry.objects.update(action_time=F("action_time") - timedelta(**age))


def sentences():
    return [one.text for one in overview(max_age=0).problems if one.name == "schedule_off"]


def findings():
    return [one.name for one in audit("default", get_config()) if one.name == "schedules_off"]


def test_a_schedule_that_is_off_for_a_day_is_a_warning_everywhere(nightly, ada):
    assert command("off", "nightly", "--reason", "the provider moves") == "nightly: is off.\n"
    later(hours=23)
    assert (sentences(), findings()) == ([], [])
    assert re.match(
        r"Schedules that are well: 0, off: 1.\nnightly: .*, off for 23 h.* \(ada, turned off: the provider moves",
        command("check"),
    )
    later(hours=2)
    (problem,) = (one for one in overview(max_age=0).problems if one.name == "schedule_off")
    assert (problem.is_warning, problem.subject) == (True, "nightly")
    begin = "Schedule nightly has been off for 1 d 1 h, so none of its tasks is enqueued. The admin's log has: "
    assert problem.text.startswith(begin + "ada, turned off: the provider moves")
    assert (
        "It has had no task yet. Turn it on on its page, or by manage.py txtasks_schedules on nightly."
        in problem.text
    )
    assert findings() == ["schedules_off"]
    assert "\nWarning: nightly: " in command("check")
    said = StringIO()
    call_command("txtasks_status", stdout=said)
    assert begin in said.getvalue()
    labels = [
        dict(one.labels) for one in samples_of("default") if one.metric == "txtasks_schedule_late"
    ]
    assert labels == [{"schedule": "nightly", "reason": "off"}]
    command("on", "nightly")
    assert (sentences(), findings()) == ([], [])
    assert "Schedules that are well: 1, off: 0." in command("check")


def test_the_admin_asks_for_the_reason_and_shows_it(nightly, client, person):
    person("view_schedule", "change_schedule", "view_task")
    url = reverse(f"{PAGE}change", args=["nightly"])
    assert b'name="reason" maxlength="200"' in client.get(url).content
    chosen = {"action": "turn_off", "_selected_action": ["nightly"], "reason": "no paper"}
    client.post(reverse(f"{PAGE}changelist"), chosen)
    assert LogEntry.objects.get().get_change_message() == "turned off: no paper"
    later(days=3)
    user = User.objects.get()
    assert f"{user}, turned off: no paper." in sentences()[0]
    for page in (client.get(reverse(f"{PAGE}changelist")), client.get(url)):
        assert f"for 3 d: {user}, turned off: no paper" in page.content.decode()
    glance = client.get(reverse("admin:txtasks_overview_changelist")).content.decode()
    assert "Schedule nightly has been off for 3 d" in glance and "off for 3 d" in glance


def test_an_entry_of_another_language_is_known(nightly, client, person):
    person("view_schedule", "change_schedule")
    with translation.override("de"):
        said = off.said_when_off("")
    assert said != off.said_when_off("")
    chosen = {"action": "turn_off", "_selected_action": ["nightly"], "reason": "Umzug"}
    client.post(reverse(f"{PAGE}changelist"), chosen, headers={"accept-language": "de"})
    entry = LogEntry.objects.get()
    LogEntry.objects.update(change_message=f"{said}: Umzug")
    later(days=2)
    assert f"{entry.user}, {said}: Umzug." in sentences()[0]


def test_a_change_of_a_schedule_that_is_off_changes_neither_who_nor_when(nightly, ada):
    command("off", "nightly")
    later(days=2)
    before = sentences()
    changes.configure("default", "nightly", {"every": 3600.0}, keep=True, by="bob")
    LogEntry.objects.create(
        user=ada, content_type=LogEntry.objects.get().content_type, object_id="nightly",
        action_flag=2, change_message="every",
    )  # fmt: skip
    assert sentences() == before != []


def test_an_older_entry_accuses_nobody(nightly, ada):
    """It was turned off again later, by code that leaves no entry."""
    command("off", "nightly", "--reason", "old")
    later(days=9)
    command("on", "nightly")
    changes.disable("default", "nightly", keep=True)
    Schedule.objects.update(watched_from=F("watched_from") - timedelta(days=2))
    assert "Nothing tells by whom." in sentences()[0]


def test_without_a_user_the_command_says_that_nobody_will_know(nightly):
    assert "the admin's log could not be written" in command("off", "nightly")
    later(days=2)
    assert "Nothing tells by whom." in sentences()[0]


def test_what_a_cleaner_or_sync_has_turned_off_is_no_decision_of_a_person(nightly):
    Schedule.objects.update(
        enabled=False, error="bad cron", watched_from=DatabaseNow() - timedelta(days=9)
    )
    assert sentences() == []
    Schedule.objects.update(error="", enabled=True)
    changes.sync("default", {}, keep=True)
    later(days=9)
    assert sentences() == []


def test_an_imported_schedule_is_new_until_it_is_turned_on(nightly, ada):
    columns = {**scheduling.declared()["nightly"].configuration, "enabled": False}
    changes.add("default", "from beat", columns, is_import=True)
    later(days=9)
    assert sentences() == []
    assert "off (imported, and not turned on yet)" in command("list", "from beat")
    assert "changed by people" not in command("list", "from beat")
    changes.sync(
        "default",
        {**scheduling.declared(), "from beat": scheduling.declared()["nightly"]},
        keep=True,
    )
    assert not Schedule.objects.get(pk="from beat").edited


def test_reset_gives_a_schedule_back_to_the_code(nightly, ada):
    changes.configure("default", "nightly", {"every": 60.0}, keep=True)
    changes.disable("default", "nightly", keep=True)
    assert "changed by people" in command("list")
    assert command("reset", "nightly") == (
        "nightly: is as in the code. It stays off, until manage.py txtasks_schedules on nightly\n"
    )
    row = Schedule.objects.get()
    assert (row.every, row.edited, row.enabled, row.from_code) == (86_400, False, False, True)
    assert "changed by people" not in command("list")
    columns = scheduling.declared()["nightly"].configuration
    changes.add("default", "of people", columns)
    with pytest.raises(CommandError, match="this code declares no such schedule"):
        command("reset", "of people")


@pytest.mark.parametrize("verb", ["check", "list", "on", "off", "run", "reset"])
def test_a_misspelt_name_is_no_schedule_that_is_well(nightly, verb):
    with pytest.raises(
        CommandError, match=r"no schedule 'nihgtly' \(did you mean 'nightly'\?\)"
    ) as raised:
        command(verb, "nightly", "nihgtly")
    assert raised.value.returncode == 1
    assert Schedule.objects.get().enabled and not LogEntry.objects.exists()


def test_a_reason_is_for_off_and_short(nightly):
    for arguments in (
        ["on", "nightly", "--reason", "x"],
        ["off", "nightly", "--reason", "x" * 201],
    ):
        with pytest.raises(CommandError, match="reason"):
            command(*arguments)
    assert Schedule.objects.get().enabled
