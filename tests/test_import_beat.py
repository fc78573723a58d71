"""``manage.py txtasks_import_beat``: the periodic tasks of the real django-celery-beat become schedules."""

from datetime import datetime, timedelta, timezone
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

pytest.importorskip("django_celery_beat", reason="django-celery-beat is not installed")
from celery_site import SETTINGS
from django.apps import apps
from django.conf import settings
from django.db import connection
from test_schedules import tick

from django_txtasks.features.schedules import changes
from django_txtasks.features.schedules.rules import parse_schedule_rule, ticks_after
from django_txtasks.features.schedules.status import status_of_schedules
from django_txtasks.models import Schedule, Task

pytestmark = [pytest.mark.usefixtures("beat"), pytest.mark.smoke]
UTC = timezone.utc
NOTE = "probe.tasks.note"
AHEAD = datetime(2100, 1, 1, tzinfo=UTC)
MODELS = (
    "IntervalSchedule", "CrontabSchedule", "SolarSchedule", "ClockedSchedule", "PeriodicTasks", "PeriodicTask",
)  # fmt: skip


@pytest.fixture
def beat(rows, txtasks):
    """The tables of django-celery-beat, and a function that writes a periodic task."""
    txtasks(**SETTINGS)
    with override_settings(INSTALLED_APPS=[*settings.INSTALLED_APPS, "django_celery_beat"]):
        models = {name: apps.get_model("django_celery_beat", name) for name in MODELS}
        with connection.schema_editor() as editor:
            for model in models.values():
                editor.create_model(model)

        def add(name, kind="", task="shop.tasks.report", schedule=None, **columns):
            if kind:
                model = models[f"{kind.capitalize()}Schedule"]
                columns[kind] = model.objects.create(**(schedule or {}))
            return models["PeriodicTask"].objects.create(name=name, task=task, **columns)

        yield add
        with connection.schema_editor() as editor:
            for model in reversed(models.values()):
                editor.delete_model(model)


def importing(*options):
    """Run the command; return what it prints, and what it refuses."""
    out = StringIO()
    try:
        call_command("txtasks_import_beat", *options, stdout=out)
    except CommandError as error:
        return out.getvalue(), str(error)
    return out.getvalue(), ""


def test_without_write_nothing_is_written(beat):
    beat("each", "interval", schedule={"every": 10, "period": "minutes"})
    shown, _ = importing()
    assert shown == "each: every 600 s, shop.tasks.report in the queue celery\n"
    assert not Schedule.objects.exists()


def test_an_interval_and_a_crontab_become_schedules_that_are_off(beat):
    beat(
        "each", "interval", schedule={"every": 2, "period": "hours"}, kwargs='{"a": [1]}',
        expire_seconds=90,
    )  # fmt: skip
    beat(
        "at night", "crontab", "probe.tasks.note", args='["x"]', enabled=False,
        schedule={"minute": "30", "hour": "3", "timezone": "Europe/Vienna"},
    )  # fmt: skip
    shown, refused = importing("--write")
    assert refused == ""
    assert shown.splitlines() == [
        "at night: cron 30 3 * * * (Europe/Vienna), probe.tasks.note in the queue default, off in beat: "
        "written, off",
        "each: every 7200 s, shop.tasks.report in the queue celery, its task left out if it would be "
        "enqueued 90 s late: written, off",
    ]
    night, each = Schedule.objects.order_by("pk")
    assert (night.cron, night.tz, night.args, night.queue_name) == (
        "30 3 * * *", "Europe/Vienna", ["x"], "default",
    )  # fmt: skip
    assert (each.every, each.grace, each.kwargs, each.queue_name) == (
        7200,
        90,
        {"a": [1]},
        "celery",
    )
    assert not night.enabled and not each.enabled


def test_a_second_import_changes_nothing(beat):
    beat("each", "interval", schedule={"every": 10, "period": "minutes"})
    beat("once", "clocked", one_off=True, schedule={"clocked_time": AHEAD})
    importing("--write")
    Schedule.objects.update(every=5, enabled=True)
    shown, _ = importing("--write")
    assert shown.count("is there already") == 2
    assert Schedule.objects.get().every == 5
    assert Task.objects.count() == 1


def test_a_name_that_no_code_has_may_be_misspelt(beat):
    each = {"schedule": {"every": 10, "period": "minutes"}}
    beat("ours", "interval", "probe.tasks.note", **each)
    beat("elsewhere", "interval", "other.site.clean", **each)
    assert importing()[1] == ""
    beat("wrong", "interval", "probe.tasks.notee", **each)
    shown, doubt = importing("--write")
    assert "wrong: every 600 s, probe.tasks.notee in the queue celery: written, off" in shown
    assert doubt.startswith(
        "wrong: no code here has the task 'probe.tasks.notee'; did you mean 'probe.tasks.note'?"
    )


def test_a_cleaner_ticks_for_a_task_of_celery(beat):
    beat("each", "interval", schedule={"every": 365, "period": "days"}, args='["x"]')
    importing("--write")
    changes.enable("default", "each", keep=True)
    past = Schedule.objects.get().next_at - timedelta(days=365)
    Schedule.objects.update(next_at=past)
    assert tick()[0] == 1
    task = Task.objects.get()
    assert (task.task_name, task.queue_name, task.args) == ("shop.tasks.report", "celery", ["x"])
    assert [one.problem for one in status_of_schedules("default")] == [""]


def test_a_schedule_of_an_undeclared_task_in_a_queue_of_workers_does_not_tick(beat):
    beat("each", "interval", schedule={"every": 365, "period": "days"})
    importing("--write")
    changes.enable("default", "each", keep=True)
    Schedule.objects.update(queue_name="mail", next_at=datetime(2020, 1, 1, tzinfo=UTC))
    assert tick()[0] == 0
    assert not Task.objects.exists()


def test_a_moment_becomes_a_held_task(beat):
    beat("once", "clocked", one_off=True, args="[7]", schedule={"clocked_time": AHEAD})
    shown, _ = importing("--write")
    task = Task.objects.get()
    assert (task.status, task.run_after, task.args) == ("held", AHEAD, [7])
    assert "once at 2100-01-01 00:00:00 UTC" in shown and str(task.pk) in shown


def test_a_moment_that_beat_has_sent_is_no_refusal(beat):
    past = datetime(2020, 1, 1, tzinfo=UTC)
    beat("once", "clocked", one_off=True, enabled=False, schedule={"clocked_time": past})
    shown, refused = importing("--write")
    assert "beat has sent it, so there is nothing to import" in shown and not refused
    assert not Task.objects.exists()


def test_the_limit_of_a_late_task_is_shown(beat):
    beat("each", "interval", schedule={"every": 10, "period": "minutes"}, expire_seconds=90)
    assert "left out if it would be enqueued 90 s late" in importing()[0]


@pytest.mark.parametrize(
    ("kind", "schedule", "columns", "reason"),
    [
        ("solar", {"event": "sunrise", "latitude": 48, "longitude": 16}, {}, "follows the sun"),
        ("interval", {"every": 1, "period": "days"}, {"start_time": AHEAD}, "it starts at 2100"),
        ("interval", {"every": 1, "period": "days"}, {"expires": AHEAD}, "it ends at 2100"),
        ("interval", {"every": 1, "period": "days"}, {"one_off": True}, "it is to run once"),
        ("interval", {"every": 1, "period": "days"}, {"queue": "fast"}, "it has queue 'fast'"),
        ("interval", {"every": 1, "period": "days"}, {"priority": 0}, "it has priority 0"),
        ("interval", {"every": 1, "period": "days"}, {"headers": '{"a": 1}'}, "it has headers"),
        ("interval", {"every": 1, "period": "days"}, {"args": "{}[]"}, "is not JSON"),
        ("interval", {"every": 1, "period": "days"}, {"kwargs": "[1]"}, "is list, not dict"),
        ("interval", {"every": 10, "period": "microseconds"}, {}, "use a timedelta or seconds, of a second"),
        ("interval", {"every": 1, "period": "days"}, {"task": NOTE, "args": "[1, 2]"}, NOTE),
        ("crontab", {"day_of_month": "13", "day_of_week": "fri"}, {}, "wants both to fit"),
        ("clocked", {"clocked_time": datetime(2020, 1, 1, tzinfo=UTC)}, {"one_off": True}, "has passed"),
    ],
)  # fmt: skip
def test_what_has_no_match_is_refused_with_its_reason(kind, schedule, columns, reason, beat):
    beat("odd", kind, schedule=schedule, **columns)
    beat("sound", "interval", schedule={"every": 1, "period": "minutes"})
    _, refused = importing("--write")
    assert refused.startswith("odd: refused: ") and reason in refused
    assert [one.pk for one in Schedule.objects.all()] == ["sound"]
    assert not Task.objects.exists()


def test_without_a_queue_that_goes_to_celery_a_foreign_name_is_refused(beat, txtasks):
    beat("each", "interval", schedule={"every": 10, "period": "minutes"})
    txtasks(hand_over={})
    assert "no queue of TXTASKS['hand_over'] goes to a Celery app" in importing("--write")[1]


@pytest.mark.parametrize(
    ("crontab", "cron"),
    [
        ({}, "* * * * *"),
        ({"minute": "*/10", "hour": "8-17"}, "*/10 8-17 * * *"),
        ({"minute": "0,30", "hour": "1,2,3,9"}, "0,30 1-3,9 * * *"),
        ({"minute": "0", "day_of_week": "sunday"}, "0 * * * 0"),
        ({"minute": "0", "day_of_week": "fri-mon"}, "0 * * * 0,1,5,6"),
        ({"minute": "0", "day_of_week": "mon,wed"}, "0 * * * 1,3"),
        ({"minute": "0", "hour": "22-4"}, "0 0-4,22,23 * * *"),
        ({"minute": "0", "hour": "0", "day_of_month": "1-7/2"}, "0 0 1,3,5,7 * *"),
        ({"minute": "0", "hour": "0", "month_of_year": "*/3"}, "0 0 * */3 *"),
    ],
)
def test_a_crontab_ticks_when_celery_would(crontab, cron, beat):
    row = beat("c", "crontab", schedule=crontab)
    importing("--write")
    assert Schedule.objects.get().cron == cron
    begin = datetime(2026, 2, 27, 23, 58, tzinfo=UTC)
    ours = ticks_after(parse_schedule_rule(cron, None, "UTC"), begin)
    theirs = row.crontab.schedule
    moment = begin
    for _ in range(40):
        ahead = theirs.remaining_delta(moment, tz=UTC)
        moment = ahead[0] + ahead[1]
        assert next(ours) == moment


def test_without_beat_it_says_so():
    without = [one for one in settings.INSTALLED_APPS if one != "django_celery_beat"]
    with override_settings(INSTALLED_APPS=without):
        assert "django_celery_beat is not in INSTALLED_APPS" in importing()[1]
