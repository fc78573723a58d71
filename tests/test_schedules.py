"""Schedules in the database: each tick one task, what people change, what code changes, what cannot be written."""

import threading
from datetime import datetime, timedelta, timezone
from io import StringIO
from itertools import pairwise

import helpers
import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from probe import tasks

from django_txtasks import periodic, signals
from django_txtasks.conf import get_config
from django_txtasks.core.cleaning import Cleaner
from django_txtasks.core.declaring import registry
from django_txtasks.exceptions import (
    InvalidArguments,
    InvalidDeclaration,
    InvalidSchedule,
    UnknownTask,
)
from django_txtasks.features.schedules import changes as schedule_changes
from django_txtasks.features.schedules import periodic as scheduling
from django_txtasks.features.schedules import ticks as schedules
from django_txtasks.features.schedules.rules import tick_of_id
from django_txtasks.features.schedules.status import next_ticks, status_of_schedules
from django_txtasks.features.schedules.ticker import Ticker
from django_txtasks.features.schedules.ticks import Scope
from django_txtasks.models import DatabaseNow, FinishedTask, Schedule, Task
from django_txtasks.testing import run_due_tasks

pytestmark = pytest.mark.usefixtures("rows", "quick")
UTC = timezone.utc
HOUR = timedelta(hours=1)
YEAR = timedelta(days=365)
SECONDS_OF_YEAR = YEAR.total_seconds()


def now():
    return Schedule.objects.annotate(now=DatabaseNow()).values_list("now", flat=True).first()


def add(name="s", every=SECONDS_OF_YEAR, due=None, **columns):
    """Write a schedule whose next tick is this far away; the tick after it is too far for a test."""
    values = {"task_name": "probe.tasks.note", "args": [name], "from_code": True, **columns}
    Schedule(name=name, every=None if values.get("cron") else every, **values).save(
        force_insert=True
    )
    if due is not None:
        moment = now() + due
        Schedule.objects.filter(pk=name).update(next_at=moment.replace(microsecond=0))
    return Schedule.objects.get(pk=name)


def tick():
    """Do the work of one cleaner."""
    with_events = []
    ticker = Ticker(
        get_config(), "default", notify=None,
        emit=lambda event, **facts: with_events.append((event, facts)), clock=lambda: 0.0,
    )  # fmt: skip
    return ticker.work(float("inf"))["scheduled"], with_events


def schedule(name="s"):
    return Schedule.objects.get(pk=name)


# -- ticks ----------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_a_tick_becomes_a_task_whose_id_tells_its_instant():
    row = add(due=-timedelta(seconds=2))
    assert tick()[0] == 1
    task = Task.objects.get()
    assert (task.task_name, task.args, task.run_after) == ("probe.tasks.note", ["s"], row.next_at)
    assert tick_of_id(task.pk) == row.next_at
    after = schedule()
    assert (after.last_at, after.last_task) == (row.next_at, task.pk)
    assert row.next_at < after.next_at <= row.next_at + YEAR
    assert tick()[0] == 0
    run_due_tasks()
    assert helpers.runs("s") == 1


def test_a_tick_is_written_some_seconds_ahead_and_runs_at_its_instant():
    row = add(due=timedelta(seconds=3))
    assert tick()[0] == 1
    task = Task.objects.get()
    assert task.run_after == row.next_at > now()
    add("later", due=timedelta(seconds=60))
    assert tick()[0] == 0


def test_a_schedule_without_a_next_tick_gets_one():
    add()
    assert tick()[0] == 0
    assert timedelta(0) < schedule().next_at - now() <= YEAR


def test_the_context_has_the_instant_also_after_a_failure():
    row = add(due=-timedelta(seconds=1), task_name="probe.tasks.fail_until_scheduled", args=[])
    tick()
    while Task.objects.exists():
        call_command("runworkers", batch=True, threads=1)
    done = FinishedTask.objects.get()
    assert datetime.fromisoformat(done.result) == row.next_at
    assert done.attempt == 2
    handle = tasks.fail_until_scheduled.enqueue()
    Task.objects.update(failures=1)
    call_command("runworkers", batch=True, threads=1)
    assert FinishedTask.objects.get(pk=handle.id).result is None


def test_while_a_task_waits_nothing_is_written_ahead():
    add(due=-timedelta(seconds=1))
    assert tick()[0] == 1
    Schedule.objects.update(next_at=now() + timedelta(seconds=4))
    assert tick()[0] == 0
    Task.objects.update(attempt=1)  # it has begun, and is to be tried again
    assert tick()[0] == 1


def test_ticks_pass_while_a_task_has_waited_for_long():
    add(due=-timedelta(seconds=70))
    tick()
    first = Task.objects.get()
    past = now() - timedelta(seconds=3)
    Schedule.objects.update(next_at=past, last_at=past - timedelta(seconds=20))
    count, events = tick()
    assert (count, Task.objects.count()) == (0, 1)
    assert [(event, facts["schedule"]) for event, facts in events] == [
        (signals.schedule_passed, "s")
    ]
    assert schedule().next_at > now()
    Task.objects.filter(pk=first.pk).update(attempt=1)
    Schedule.objects.update(next_at=now())
    assert tick()[0] == 1
    assert schedule().waiting_since is None


def test_a_paused_queue_keeps_few_tasks_however_often_it_ticks():
    """What waits since more than ten seconds counts, not what was written last."""
    add(every=1.0, due=-timedelta(seconds=1))
    tick()
    counts = []
    for seconds in range(20):
        at = now()
        Schedule.objects.update(next_at=at, last_at=at - timedelta(seconds=1))
        Schedule.objects.exclude(waiting_since=None).update(
            waiting_since=at - timedelta(seconds=seconds)
        )
        tick()
        counts.append(Task.objects.count())
    assert counts[5] > 2
    assert set(counts[11:]) == {counts[11]}


@pytest.mark.parametrize(("catch_up", "count"), [("last", 1), ("all", 5), ("none", 0)])
def test_what_was_missed(catch_up, count):
    add("x")
    half = (now() - HOUR / 2).replace(second=0, microsecond=0)
    add(cron=f"{half.minute} * * * *", catch_up=catch_up)
    Schedule.objects.filter(pk="s").update(next_at=half - 4 * HOUR)
    tick()
    assert Task.objects.count() == count
    assert schedule().next_at == half + HOUR


def test_many_that_are_due_at_once_are_written_in_batches():
    for number in range(2 * schedules.SCHEDULES_PER_TRANSACTION + 7):
        add(f"s{number}", due=-timedelta(seconds=1))
    assert tick()[0] == 507
    assert Task.objects.values("args").distinct().count() == 507


def test_the_task_has_the_options_of_its_function():
    row = add(due=-timedelta(seconds=1), task_name="probe.tasks.mail", queue_name="mail")
    tick()
    task = Task.objects.get()
    assert (task.queue_name, task.priority, task.max_attempts) == ("mail", 7, 2)
    assert row.queue_name == "mail"


def test_what_another_cleaner_is_writing_is_left_to_it():
    add("a", due=-timedelta(seconds=1))
    add("b", due=-timedelta(seconds=1))
    if connection.vendor == "sqlite":  # which has one writer at a time
        return
    with helpers.locked("UPDATE txtasks_schedule SET error = 'x' WHERE name = 'a'"):
        assert tick()[0] == 1
    assert tick()[0] == 1
    assert sorted(task.args[0] for task in Task.objects.all()) == ["a", "b"]


def test_cleaners_side_by_side_write_each_tick_once():
    for number in range(300):
        add(f"s{number}", every=1.0, due=-timedelta(seconds=1))
    begin = threading.Barrier(3)

    def work():
        begin.wait()
        for _ in range(5):
            helpers.patiently(tick)

    with helpers.second_session(work), helpers.second_session(work):
        work()
    seen = {(task.args[0], task.run_after) for task in Task.objects.all()}
    assert len(seen) == Task.objects.count() >= 300
    by_name = {}
    for name, at in sorted(seen):
        by_name.setdefault(name, []).append(at)
    for ticks in by_name.values():
        assert all(b - a == timedelta(seconds=1) for a, b in pairwise(ticks))


def test_what_fails_writes_neither_a_task_nor_a_step():
    row = add(due=-timedelta(seconds=1))

    def fail(row, ticks):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        schedules.write_ticks(
            "default", Scope(registry.names(), ("default",)), fail, limit=timedelta(seconds=5)
        )
    assert (schedule().next_at, Task.objects.count()) == (row.next_at, 0)


def test_the_cleaner_writes_ticks_also_when_it_cleans_once():
    add(due=-timedelta(seconds=1))
    output = StringIO()
    call_command("runcleaner", dry_run=True, stdout=output)
    assert "scheduled 1" in output.getvalue()
    assert not Task.objects.exists()
    call_command("runcleaner", once=True, stdout=output)
    assert Task.objects.count() == 1


# -- what cannot be written -----------------------------------------------------------------------

NONSENSE = [
    {"cron": "61 3 * * *"},
    {"every": None},
    {"every": -5.0},
    {"every": 0.001},
    {"args": {}},
    {"kwargs": []},
    {"catch_up": "some"},
    {"grace": -1.0},
]


@pytest.mark.parametrize("columns", NONSENSE, ids=str)
def test_a_bad_row_is_disabled_alone(columns):
    add("bad", due=-timedelta(seconds=1), **columns)
    add("good", due=-timedelta(seconds=1))
    count, events = tick()
    assert count == 1
    assert [(event, facts["schedule"]) for event, facts in events] == [
        (signals.schedule_disabled, "bad")
    ]
    bad = schedule("bad")
    assert not bad.enabled
    assert bad.error
    assert schedule("good").enabled


def test_a_zone_that_this_host_does_not_know_disables_nothing():
    add("elsewhere", due=-timedelta(seconds=1), cron="0 3 * * *", tz="Europe/Wien")
    add("good", due=-timedelta(seconds=1))
    count, events = tick()
    assert count == 1
    assert [(event, facts["schedule"]) for event, facts in events] == [
        (signals.schedule_not_written, "elsewhere")
    ]
    row = schedule("elsewhere")
    assert row.enabled
    assert "Europe/Wien" in row.error


def test_a_time_beyond_all_calendars_disables_its_row_alone():
    add("bad", due=HOUR, cron="0 3 * * *")
    Schedule.objects.update(next_at=None, last_at="9999-12-31 23:59:59+00:00")
    add("good", due=-timedelta(seconds=1))
    count, _ = tick()
    assert count == 1
    assert not schedule("bad").enabled


def test_a_change_leaves_what_is_due_and_what_was_missed(code):
    code("0 3 * * *")
    sync()
    due = now() - timedelta(minutes=5)
    Schedule.objects.update(next_at=due)
    forget()
    code("0 3 * * *", grace=3600)
    assert "1 changed" in sync()
    assert schedule("probe.tasks.note").next_at == due
    count, _ = tick()
    assert count == 1
    task = Task.objects.get()
    forget()
    code("0 3 * * *", grace=7200)
    assert "1 changed" in sync()
    assert Task.objects.get() == task


def test_run_now_before_a_tick_leaves_that_tick():
    add("daily", due=HOUR, cron="0 3 * * *")
    Schedule.objects.update(last_at=now() - timedelta(days=1))
    scheduling.run_now("default", "daily")
    Schedule.objects.update(next_at=now() - timedelta(seconds=1))
    count, _ = tick()
    assert count == 1
    assert Task.objects.count() == 2


def test_a_database_that_is_none_is_refused():
    with pytest.raises(InvalidSchedule, match="DATABASES"):
        periodic(every=5, using="defualt")(tasks.note)


def test_a_bad_row_goes_on_when_it_is_corrected(code):
    code("0 3 * * *")
    sync()
    Schedule.objects.update(cron="61 3 * * *", next_at=now())
    tick()
    assert not schedule("probe.tasks.note").enabled
    assert "1 changed" in sync()
    row = schedule("probe.tasks.note")
    assert (row.enabled, row.error, row.cron) == (True, "", "0 3 * * *")


@pytest.mark.parametrize("time", ["-infinity", "", "0000-00-00", "1970-01-01T00:00:00.5x"])
def test_a_time_that_is_none_disables_its_row_alone(time):
    add("bad", due=HOUR)
    add("good", due=-timedelta(seconds=1))
    fits = {"postgresql": "-infinity", "mysql": "0000-00-00", "sqlite": time}
    if fits[connection.vendor] != time:
        return
    if connection.vendor == "mysql":
        helpers.execute("SET SESSION sql_mode = ''")
    helpers.execute("UPDATE txtasks_schedule SET next_at = %s WHERE name = 'bad'", time)
    assert tick()[0] == 1
    assert not schedule("bad").enabled


def test_what_this_code_does_not_know_is_left_to_other_cleaners():
    add("unknown", due=-timedelta(seconds=1), task_name="shop.tasks.of_the_next_release")
    add("capital", due=-timedelta(seconds=1), task_name="probe.tasks.NOTE")
    add("queue", due=-timedelta(seconds=1), queue_name="of_the_next_release")
    assert tick() == (0, [])
    assert [row.enabled for row in Schedule.objects.all()] == [True] * 3
    (late,) = status_of_schedules("default", ["unknown"])
    assert "No task function" in late.problem


def test_arguments_that_do_not_fit_this_release_disable_nothing():
    add("changed", due=-timedelta(seconds=1), args=[1, 2, 3])
    add("good", due=-timedelta(seconds=1))
    count, events = tick()
    assert count == 1
    assert [event for event, _ in events] == [signals.schedule_not_written]
    assert schedule("changed").enabled
    assert "cannot be called like that" in schedule("changed").error
    Schedule.objects.filter(pk="changed").update(args=["x"])
    assert tick()[0] == 1
    assert schedule("changed").error == ""


def test_without_the_library_others_write_what_has_cron(monkeypatch):
    add("cron", due=-timedelta(seconds=1), cron="0 0 1 1 *")
    add("every", due=-timedelta(seconds=1))
    with monkeypatch.context() as patched:
        patched.setitem(__import__("sys").modules, "cronsim", None)
        assert tick()[0] == 1
    assert schedule("cron").enabled
    assert tick()[0] == 1


# -- code -----------------------------------------------------------------------------------------


def sync(*arguments):
    output = StringIO()
    call_command("txtasks_schedules", "sync", *arguments, stdout=output)
    return output.getvalue()


def forget(name="probe.tasks.note"):
    scheduling._declared.pop(name)


def test_the_command_brings_schedules_into_the_database(code):
    code("0 3 * * *", tz="Europe/Vienna", ready_by="07:00", args=("x",))
    code(every=timedelta(minutes=5), name="often", queue_name="mail", catch_up="all", grace=60)
    assert "Schedules in the code: 2; 2 added" in sync()
    assert "nothing to do" in sync()
    nightly, often = schedule("probe.tasks.note"), schedule("often")
    assert (nightly.cron, nightly.tz, nightly.ready_by) == ("0 3 * * *", "Europe/Vienna", "07:00")
    assert (often.every, often.queue_name, often.catch_up, often.grace) == (300, "mail", "all", 60)
    assert nightly.next_at > now()
    assert nightly.from_code and not nightly.edited


def test_arguments_that_json_changes_are_no_difference(code):
    code(every=5, function=tasks.give, name="tuples", args=[(1, ("x",))], kwargs={})
    sync()
    assert "nothing to do" in sync()
    assert schedule("tuples").args == [[1, ["x"]]]
    assert "Schedules that are well: 1" in command("check")


def test_a_dry_run_of_the_command_changes_nothing(code):
    code(every=5)
    assert "1 added" in sync("--dry-run")
    assert not Schedule.objects.exists()


def test_what_people_change_survives_a_deployment(code):
    code(every=300)
    sync()
    schedule_changes.configure("default", "probe.tasks.note", {"every": 60.0}, keep=True, by="ann")
    forget()
    code(every=600)
    assert "1 kept as people have changed them" in sync()
    assert schedule("probe.tasks.note").every == 60
    one = scheduling.declared()["probe.tasks.note"]
    schedule_changes.follow_code("default", "probe.tasks.note", one, keep=True)
    assert schedule("probe.tasks.note").every == 600
    assert "nothing to do" in sync()


def test_what_people_turn_off_stays_off(code):
    code(every=300)
    sync()
    assert schedule_changes.disable("default", "probe.tasks.note", keep=True)
    forget()
    code(every=600)
    assert "1 changed" in sync()
    assert not schedule("probe.tasks.note").enabled
    forget()
    sync()
    code(every=600)
    sync()
    assert not schedule("probe.tasks.note").enabled


def note_of_a_cleaner():
    """A cleaner of another release notes beside the row that it could not write the tick."""
    Schedule.objects.update(args=["1", "2", "3", "4"], next_at=now())
    assert tick()[0] == 0
    assert (schedule().enabled, "cannot be called" in schedule().error) == (True, True)


def end_by_a_cleaner():
    Schedule.objects.update(cron="what", every=None, next_at=now())
    tick()
    assert (schedule().enabled, bool(schedule().error)) == (False, True)


def end_by_sync():
    forget("s")
    sync()
    assert (schedule().enabled, schedule().error) == (False, schedule_changes.GONE)


@pytest.mark.parametrize("trouble", [note_of_a_cleaner, end_by_a_cleaner, end_by_sync])
@pytest.mark.parametrize("change", ["sync", "edit", "as in the code"])
def test_what_people_turn_off_stays_off_whatever_stands_beside_it(trouble, change, code):
    code(name="s", every=HOUR)(tasks.note)
    sync()
    trouble()
    assert schedule_changes.disable("default", "s", keep=False, by="ann") is True
    assert schedule_changes.disable("default", "s", keep=False, by="ann") is False
    scheduling._declared.pop("s", None)
    code(name="s", every=2 * HOUR)(tasks.note)
    if change == "sync":
        sync()
    elif change == "edit":
        good = {"every": 7200.0, "cron": "", "args": []}
        schedule_changes.configure("default", "s", good, keep=False, by="bob")
        sync()
    else:
        declared = scheduling.declared("default")["s"]
        schedule_changes.follow_code("default", "s", declared, keep=False, by="bob")
    assert (schedule().enabled, schedule().every) == (False, 7200)
    assert tick()[0] == 0
    assert schedule_changes.enable("default", "s", keep=False, by="ann") is True
    assert schedule().enabled is True


def test_what_vanishes_from_the_code_is_disabled_and_comes_back(code):
    code(every=300)
    sync()
    one = scheduling._declared.pop("probe.tasks.note")
    assert "1 disabled" in sync()
    row = schedule("probe.tasks.note")
    assert (row.enabled, row.from_code, row.error) == (False, False, schedule_changes.GONE)
    scheduling._declared["probe.tasks.note"] = one
    assert "1 enabled" in sync()
    row = schedule("probe.tasks.note")
    assert (row.enabled, row.from_code, row.error) == (True, True, "")


def test_an_older_release_takes_nothing_back(code):
    code(every=300)
    sync("--release", "7")
    forget()
    code(every=600)
    with pytest.raises(CommandError, match="those of release 7, and this code is release 6"):
        sync("--release", "6")
    assert schedule("probe.tasks.note").every == 300
    sync("--release", "8")
    assert schedule("probe.tasks.note").every == 600


def test_a_change_cancels_what_was_written_ahead_and_its_tick_comes_once(code):
    code(every=2, args=["old"])
    sync()
    Schedule.objects.update(next_at=(now() + timedelta(seconds=4)).replace(microsecond=0))
    tick()
    at = Task.objects.get().run_after
    forget()
    code(every=2, args=["new"])
    sync()
    assert not Task.objects.exists()
    assert FinishedTask.objects.get().outcome == "cancelled"
    assert now() < schedule("probe.tasks.note").next_at <= at


@pytest.mark.parametrize("every", [2, 1], ids=["other arguments", "other ticks"])
def test_a_tick_that_a_worker_is_taking_is_not_written_again(code, every):
    code(every=2, args=["old"])
    sync()
    Schedule.objects.update(next_at=(now() + timedelta(seconds=4)).replace(microsecond=0))
    tick()
    task = Task.objects.get()
    Task.objects.update(attempt=1)
    forget()
    code(every=every, args=["new"])
    sync()
    assert schedule("probe.tasks.note").next_at > task.run_after


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"every": 0}, InvalidSchedule),
        ({"every": 5, "ready_by": "07:00"}, InvalidSchedule),
        ({"every": 5, "catch_up": "some"}, InvalidSchedule),
        ({"every": 5, "name": " "}, InvalidSchedule),
        ({"every": 5, "args": [1, 2]}, InvalidArguments),
        ({"every": 5, "args": [object()]}, InvalidArguments),
        ({"every": 5, "args": "x"}, InvalidArguments),
        ({"every": 5, "function": print}, InvalidDeclaration),
        ({"every": 5, "function": tasks.receive, "args": ["x"]}, InvalidDeclaration),
        ({"every": 5, "grace": -1}, InvalidDeclaration),
        ({"every": 5, "grace": timedelta(days=12000)}, InvalidSchedule),
    ],
)
def test_what_cannot_be_declared(code, options, error):
    with pytest.raises(error):
        code(**options)
    assert not scheduling.declared()


def test_two_schedules_of_one_name_are_refused(code):
    code(every=5)
    with pytest.raises(InvalidDeclaration, match="Name one of them"):
        code(every=6)
    code(every=6, name="second")
    assert sorted(scheduling.declared()) == ["probe.tasks.note", "second"]


def test_the_command_refuses_before_it_changes_anything(code, txtasks):
    code(every=5)
    code(every=5, name="mail", queue_name="nowhere")
    with pytest.raises(CommandError, match="'nowhere' is not served"):
        sync()
    assert not Schedule.objects.exists()


def test_a_cleaner_tells_that_schedules_were_not_brought_into_the_database(code, told):
    code(every=5)
    cleaner = Cleaner(get_config())
    cleaner.run_once()
    cleaner.run_once()
    found = [facts for signal, facts in told if signal is signals.schedules_differ]
    assert len(found) == 1
    assert found[0]["differences"] == "probe.tasks.note is missing"


# -- people ---------------------------------------------------------------------------------------


def command(*arguments):
    output = StringIO()
    call_command("txtasks_schedules", *arguments, stdout=output)
    return output.getvalue()


def test_off_cancels_what_was_written_ahead_and_on_begins_with_the_next_tick():
    add(every=1.0, due=timedelta(seconds=3))
    tick()
    assert "s: is off" in command("off", "s")
    assert "s: was off already" in command("off", "s")
    assert not Task.objects.exists()
    Schedule.objects.update(next_at=now() - HOUR)
    assert tick()[0] == 0
    assert "s: is on" in command("on", "s")
    assert now() - timedelta(seconds=1) < schedule().next_at <= now() + timedelta(seconds=1)


def test_off_waits_for_a_cleaner_that_is_writing_and_cancels_its_task():
    if connection.vendor == "sqlite":  # which has one writer at a time
        return
    add(due=timedelta(seconds=3))
    has_locked, go_on = threading.Event(), threading.Event()

    def make(row, ticks):
        has_locked.set()
        assert go_on.wait(helpers.PATIENCE)
        return scheduling.tasks_of(row, ticks)

    def write():
        scope = Scope(registry.names(), ("default",))
        schedules.write_ticks("default", scope, make, limit=timedelta(seconds=60))

    with helpers.second_session(write):
        assert has_locked.wait(helpers.PATIENCE)
        with helpers.second_session(lambda: schedule_changes.disable("default", "s", keep=True)):
            go_on.set()
    assert not schedule().enabled
    assert not Task.objects.exists()
    assert FinishedTask.objects.get().outcome == "cancelled"


def test_what_has_begun_is_not_cancelled():
    add(due=timedelta(seconds=3))
    tick()
    Task.objects.update(attempt=1)
    command("off", "s")
    assert Task.objects.count() == 1


def test_run_now_is_no_tick():
    row = add(due=HOUR)
    assert "is enqueued" in command("run", "s")
    task = Task.objects.get()
    assert tick_of_id(task.pk) is None
    assert (schedule().next_at, schedule().last_task) == (row.next_at, task.pk)
    run_due_tasks()
    assert helpers.runs("s") == 1
    assert "last succeeded" in command("list")


def test_run_now_rolls_back_with_its_transaction():
    add(due=HOUR)
    with transaction.atomic():
        scheduling.run_now("default", "s")
        transaction.set_rollback(True)
    assert not Task.objects.exists()
    assert schedule().last_task is None


def test_what_cannot_run_now_says_why():
    add(task_name="shop.tasks.gone")
    with pytest.raises(CommandError, match="No installed app declares"):
        command("run", "s")
    with pytest.raises(UnknownTask):
        scheduling.run_now("default", "s")
    with pytest.raises(CommandError, match="There is no schedule 'x'"):
        command("on", "x")
    with pytest.raises(CommandError, match="Say which"):
        command("on")


def test_people_are_told_of(told):
    add(due=HOUR)
    schedule_changes.configure("default", "s", {"every": 9.0}, keep=True, by="ann")
    ((signal, facts),) = told
    assert signal is signals.schedule_changed
    assert (facts["schedule"], facts["by"], facts["what"]) == ("s", "ann", "every=9.0")


def test_the_command_lists_and_checks(code):
    add(due=HOUR)
    add("cron", cron="0 3 * * *", tz="Europe/Vienna", from_code=False)
    assert command("list", "s").startswith("s: every 31536000 s, on, next 20")
    assert "cron: 0 3 * * * (Europe/Vienna), on" in command("list")
    Schedule.objects.update(from_code=False)
    assert "Schedules that are well: 2" in command("check")
    Schedule.objects.filter(pk="s").update(next_at=now() - HOUR)
    with pytest.raises(CommandError, match="late by 3600 s"):
        command("check")
    audited = StringIO()
    with pytest.raises(SystemExit):
        call_command("txtasks_audit", stdout=audited)
    assert "schedules that are late" in audited.getvalue()
    Schedule.objects.filter(pk="s").update(next_at=now(), error="bad")
    with pytest.raises(CommandError, match="bad") as raised:
        command("check")
    assert raised.value.returncode == 1


def test_the_next_ticks():
    row = add(due=HOUR)
    row.now = now()
    ticks = next_ticks(row)
    assert len(ticks) == 5
    assert ticks[0] == row.next_at
