"""Operations: many tasks changed from code, in slices, by ids or filters."""

import threading
import uuid
from datetime import datetime, timedelta, timezone

import helpers
import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from probe import tasks

from django_txtasks import enqueue_many, operations, signals
from django_txtasks.exceptions import InvalidChoice
from django_txtasks.features.bulk import NAME, ordering
from django_txtasks.features.lanes import buckets as lane_buckets
from django_txtasks.models import FinishedTask, Status, Task
from django_txtasks.operations import choice, operators, pages, slices, verbs
from django_txtasks.operations.choice import Choice
from django_txtasks.operations.slices import Order
from django_txtasks.testing.clock import Clock

pytestmark = pytest.mark.usefixtures("rows")


@pytest.fixture
def small(monkeypatch):
    """Slices of two tasks, read in pages of three."""
    monkeypatch.setattr(slices, "ROWS_PER_SLICE", 2)
    monkeypatch.setattr(pages, "ROWS_PER_PAGE", 3)


@pytest.fixture
def boss(rows):
    user = User.objects.create_superuser("boss")
    yield user
    LogEntry.objects.all().delete()
    user.delete()


def make(count, status="dead", function=tasks.note, **columns):
    """Enqueue tasks and put them into a state; return their ids, the first due first."""
    handles = enqueue_many([(function, (f"{n}",)) for n in range(count)])
    ids = [one.id for one in handles]
    Task.objects.filter(pk__in=ids).update(status=status, **columns)
    return ids


def claimed(count=1):
    ids = make(count, "pending")
    Task.objects.filter(pk__in=ids).update(
        status="claimed",
        worker=uuid.uuid4(),
        claimed_at=datetime.now(timezone.utc) - timedelta(seconds=1),
        attempt=1,
    )
    return ids


def states():
    return sorted(Task.objects.values_list("status", flat=True))


def replace(monkeypatch, name, move, **options):
    """Let something happen in each slice of a verb."""
    verb = verbs.VERBS[name]._replace(take=verbs._arrow(move, **options))
    monkeypatch.setitem(verbs.VERBS, name, verb)


IN_STATE = {
    "revive": ("dead", "pending"),
    "discard": ("dead", None),
    "hold": ("pending", "held"),
    "resume": ("held", "pending"),
    "cancel": ("pending", None),
    "run_now": ("pending", "pending"),
    "again": ("dead", "dead"),
}


@pytest.mark.parametrize("verb", IN_STATE)
def test_each_verb_moves_tasks_of_its_state(verb, small):
    before, after = IN_STATE[verb]
    later = datetime.now(timezone.utc) + timedelta(hours=1)
    ids = make(5, before, **({"run_after": later} if verb == "run_now" else {}))
    moved = getattr(operations, verb)(queue="default")
    assert (moved.changed, moved.skipped, moved.left_over, moved.has_more) == (5, 0, 0, False)
    assert [one.id for one in moved.samples] == sorted(ids)
    rows = Task.objects.filter(pk__in=ids)
    assert {row.status for row in rows} == ({after} if after else set())
    assert FinishedTask.objects.count() == (0 if after else 5)
    if verb == "run_now":
        assert Task.objects.due().count() == 5
    assert Task.objects.count() == (10 if verb == "again" else 5 if after else 0)


@pytest.mark.parametrize("verb", [*IN_STATE, "ask_to_stop"])
def test_each_verb_leaves_tasks_of_other_states(verb):
    wanted = IN_STATE.get(verb, ("claimed", ""))[0]
    others = {"dead", "held", "pending"} - {wanted}
    others -= {"held"} if verb == "cancel" else set()
    ids = {state: make(1, state)[0] for state in others}
    if wanted != "claimed":
        ids["claimed"] = claimed()[0]
    unknown = uuid.uuid4()
    moved = getattr(operations, verb)([*ids.values(), unknown])
    assert (moved.changed, moved.skipped) == (0, len(ids) + 1)
    said = {one.example: one.reason for one in moved.reasons}
    for state, task_id in ids.items():
        assert said[task_id].startswith(f"it is {state}, not {wanted}")
    assert "no such task" in said[unknown]
    assert states() == sorted(ids)


def test_running_tasks_are_asked_to_stop_once():
    ids = claimed(3)
    assert operations.ask_to_stop(task="probe.tasks.note").changed == 3
    moved = operations.ask_to_stop(ids)
    assert (moved.changed, moved.skipped) == (0, 3)
    assert "already asked" in moved.reasons[0].reason
    assert Task.objects.filter(cancel_asked_at__isnull=False).count() == 3


def test_held_tasks_are_cancelled_too():
    make(2, "held"), make(2, "pending")
    assert operations.cancel(queue="default").changed == 4
    assert FinishedTask.objects.filter(outcome="cancelled").count() == 4


# ---- filters


@pytest.mark.parametrize(
    "filters",
    [
        {"queue": "mail"},
        {"task": "probe.tasks.mail"},
        {"cause": -7},
        {"cause": -7, "queue": "mail"},
        {"lane": "few"},
        {"error": "zerodivision"},
        {"error": "BY ZERO"},
        {"since": timedelta(minutes=5)},
    ],
)
@pytest.mark.parametrize(
    ("verb", "state"), [("revive", "dead"), ("resume", "held"), ("hold", "pending")]
)
def test_a_filter_finds_its_tasks_alone(verb, state, filters, small):
    old = datetime.now(timezone.utc) - timedelta(hours=1)
    make(4, state, run_after=old)
    wanted = make(4, state, tasks.mail)
    error = [{"type": "ZeroDivisionError", "message": "division by zero"}]
    Task.objects.filter(pk__in=wanted).update(cause=-7, lane="few", errors=error)
    assert getattr(operations, verb)(**filters, dry_run=True).changed == 4
    moved = getattr(operations, verb)(**filters)
    assert moved.changed == 4 and {one.queue for one in moved.samples} == {"mail"}
    changed = Task.objects.exclude(status=state)
    assert set(changed.values_list("pk", flat=True)) == set(wanted)


def test_pending_tasks_of_all_lanes_queues_and_priorities_are_found(small):
    for lane in ("", "a", "b"):
        for priority in (0, 5):
            make(4, "pending", lane=lane, priority=priority)
            make(2, "pending", tasks.mail, lane=lane, priority=priority)
    assert operations.hold(queue="default", lane="a").changed == 8
    assert operations.hold(queue="default").changed == 16
    assert operations.hold(task="probe.tasks.mail").changed == 12


def test_pending_tasks_of_more_priorities_than_a_look_at_a_lane_reads_are_found():
    count = lane_buckets.BUCKETS_OF_LANE + 5
    rows = list(Task.objects.filter(pk__in=make(count, "pending")).only("priority"))
    for priority, row in enumerate(rows):
        row.priority = priority
    Task.objects.bulk_update(rows, ["priority"])
    assert operations.hold(queue="default").changed == count


def test_tasks_of_one_moment_are_all_found(small):
    make(9, run_after=in_hours(-1))
    assert operations.revive(queue="default").changed == 9


def test_since_is_a_time_too():
    make(1, run_after=datetime.now(timezone.utc) - timedelta(hours=2))
    now = datetime.now(timezone.utc)
    make(2)
    assert operations.discard(since=now - timedelta(hours=1)).changed == 2


def test_filters_leave_the_changes_of_other_people_unless_they_name_them(small):
    change = Order(name="hold", choice=Choice(), alias="default", status=Status.PENDING)
    other = ordering.enqueue(change, "default", 1)
    note = tasks.note.enqueue()
    assert operations.hold(queue="default").changed == 1
    assert {str(row.pk): row.status for row in Task.objects.all()} == {
        str(other.id): "pending", str(note.id): "held",
    }  # fmt: skip
    assert operations.cancel(task=NAME).changed == 1


def test_a_limit_takes_those_that_were_due_first(small):
    ids = make(7)
    moved = operations.revive(queue="default", limit=3)
    assert (moved.changed, moved.left_over, moved.has_more) == (3, 4, False)
    assert [one.id for one in moved.samples] == ids[:3]


def test_a_count_of_the_rest_is_bounded(small, monkeypatch):
    monkeypatch.setattr(slices, "MAX_COUNTED", 4)
    make(9)
    moved = operations.revive(queue="default", limit=2, dry_run=True)
    assert (moved.changed, moved.left_over, moved.has_more) == (2, 4, True)
    moved = operations.revive(queue="default", dry_run=True)
    assert (moved.changed, moved.left_over, moved.has_more) == (4, 0, True)
    assert operations.revive(queue="default", limit=2).left_over == 4
    assert operations.revive(queue="default").changed == 7


def test_errors_are_read_of_a_bounded_number_of_tasks(small, monkeypatch):
    monkeypatch.setattr(pages, "MAX_ROWS_WITH_ERRORS", 5)
    ids = make(9, errors=[{"type": "ValueError", "message": "no"}])
    moved = operations.revive(error="ValueError")
    assert (moved.changed, moved.has_more) == (5, True)
    assert set(ids[:5]) == set(Task.objects.filter(status="pending").values_list("pk", flat=True))


def test_nothing_matches(operated, boss):
    make(2)
    moved = operations.revive(queue="mail")
    assert moved == operations.Moved()
    assert operated == [] and not LogEntry.objects.exists()


def test_a_dry_run_changes_nothing(operated, boss):
    ids = make(7)
    before = list(Task.objects.order_by("pk").values())
    moved = operations.revive(task="probe.tasks.note", limit=6, dry_run=True)
    assert (moved.changed, moved.left_over, len(moved.samples), moved.dry_run) == (6, 1, 5, True)
    assert operations.hold(ids, dry_run=True).skipped == 7
    assert list(Task.objects.order_by("pk").values()) == before
    assert operated == [] and not LogEntry.objects.exists()
    found = moved.as_json()
    assert found["samples"][0]["id"] == str(ids[0]) and found["changed"] == 6


# ---- slices


def test_tasks_that_die_again_are_not_revived_again(small, monkeypatch):
    ids = make(9)
    times = []
    revive = operators.revive

    def revive_and_bury(alias, ids, spread=None):
        moved = revive(alias, ids, spread)
        times.extend(one for one, _ in moved)
        Task.objects.filter(pk__in=[one for one, _ in moved]).update(status="dead")
        return moved

    replace(monkeypatch, "revive", revive_and_bury, spreads=True)
    assert operations.revive(queue="default").changed == 9
    assert sorted(times) == sorted(ids)


def test_tasks_that_are_enqueued_meanwhile_are_left(small, monkeypatch):
    make(6, "pending")
    hold = operators.hold

    def hold_and_enqueue(alias, ids):
        now = pages.click_of(alias, 0)
        helpers.wait_until(lambda: pages.click_of(alias, 0) > now)
        tasks.note.using(run_after=timedelta(minutes=1)).enqueue("new")
        return hold(alias, ids)

    replace(monkeypatch, "hold", hold_and_enqueue)
    assert operations.hold(queue="default").changed == 6
    assert states().count("pending") == 3


def test_two_operators_at_once_share_the_tasks(small):
    ids, found = make(40), []
    start = threading.Barrier(2)

    def revive():
        start.wait()
        try:
            found.append(helpers.patiently(lambda: operations.revive(queue="default")))
        finally:
            connection.close()

    threads = [threading.Thread(target=revive) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(found) == 2
    operations.revive(queue="default")  # what both have skipped, because the other had it locked
    assert states() == ["pending"] * len(ids)
    assert sum(one.changed for one in found) <= len(ids)


def test_a_call_that_fails_between_slices_keeps_what_is_done_and_goes_on(
    small, monkeypatch, operated, boss
):
    make(7)
    revive, calls = operators.revive, []

    def fail_in_the_second(alias, ids, spread=None):
        calls.append(ids)
        if len(calls) == 2:
            raise DatabaseError("gone")
        return revive(alias, ids, spread)

    replace(monkeypatch, "revive", fail_in_the_second, spreads=True)
    with pytest.raises(DatabaseError):
        operations.revive(queue="default")
    assert states().count("pending") == 2
    assert [one["changed"] for one in operated] == [2]
    assert "2 (queue=default)" in LogEntry.objects.get().change_message
    assert operations.revive(queue="default").changed == 5


def test_a_slice_whose_commit_fails_leaves_no_trace(small, monkeypatch, boss):
    make(2)

    def fail(record, moved):
        raise DatabaseError("gone")

    monkeypatch.setattr("django_txtasks.operations.record.Record.note", fail)
    with pytest.raises(DatabaseError):
        operations.revive(queue="default")
    assert states() == ["dead", "dead"] and not LogEntry.objects.exists()


def test_a_caller_s_transaction_holds_one_slice_only():
    ids = make(3)
    with transaction.atomic():
        with pytest.raises(InvalidChoice, match="outside of atomic"):
            operations.revive(queue="default")
        assert operations.revive(queue="default", limit=2).changed == 2
        assert operations.revive(ids).changed == 1


def test_a_task_whose_compensation_was_enqueued_stays_dead():
    ids = make(2)
    Task.objects.filter(pk=ids[0]).update(on_crash="compensate", crashes=1)
    moved = operations.revive(queue="default")
    assert (moved.changed, moved.skipped) == (1, 1)
    assert "compensation" in moved.reasons[0].reason


# ---- spread


@pytest.mark.parametrize("verb", ["revive", "run_now"])
def test_each_task_gets_a_time_of_its_own(verb):
    ids = make(20, IN_STATE[verb][0], **{"run_after": in_hours(-1 if verb == "revive" else 2)})
    before = datetime.now(timezone.utc)
    assert getattr(operations, verb)(queue="default", spread=timedelta(hours=1)).changed == 20
    times = set(Task.objects.filter(pk__in=ids).values_list("run_after", flat=True))
    assert len(times) > 15
    slack = timedelta(minutes=1)
    assert min(times) >= before - slack and max(times) <= before + timedelta(hours=1) + slack
    assert max(times) - min(times) > timedelta(minutes=5)


def in_hours(hours):
    return datetime.now(timezone.utc) + timedelta(hours=hours)


def test_tasks_that_are_due_anyway_keep_their_place(small):
    due = make(3, "pending")
    soon = make(3, "pending", run_after=in_hours(0.5))
    later = make(3, "pending", run_after=in_hours(2))
    assert operations.run_now(queue="default", spread=3600).changed == 3
    assert operations.run_now(queue="default").changed == 6
    assert operations.run_now(queue="default").changed == 0
    assert Task.objects.due().count() == len([*due, *soon, *later])


@pytest.mark.parametrize("spread", [None, 60.0])
def test_a_clock_that_is_set_back_lets_no_task_be_revived_twice(spread, small, monkeypatch):
    """A revived task that dies again must be due after the click: otherwise the call would find it once more."""
    ids, taken = make(6, run_after=in_hours(-2)), []
    clock = Clock(connection.vendor)

    def revive_and_bury(alias, ids, spread=None):
        clock.skipped = -timedelta(hours=1)
        moved = operators.revive(alias, ids, spread)
        changed = [one for one, _ in moved]
        assert not set(changed) & set(taken)
        taken.extend(changed)
        Task.objects.filter(pk__in=changed).update(status="dead")
        return moved

    replace(monkeypatch, "revive", revive_and_bury, spreads=True)
    with connection.execute_wrapper(clock):
        assert operations.revive(queue="default", spread=spread).changed == 6
    assert sorted(taken) == sorted(ids)


# ---- again


def test_a_call_is_enqueued_again_as_a_new_task(small):
    (dead,) = make(1, priority=5)
    moved = operations.again(dead)
    (sample,) = moved.samples
    old, new = helpers.row(dead), helpers.row(sample.new_id)
    assert old.status == "dead" and new.status == "pending" and new.id != old.id
    assert (new.args, new.kwargs, new.priority, new.attempt) == (["0"], {}, 5, 0)


def test_a_finished_call_is_enqueued_again():
    ids = make(2)
    operations.discard(ids)
    assert operations.again(queue="default").changed == 0  # filters look for dead tasks
    assert operations.again(ids).changed == 2
    assert Task.objects.count() == 2 and FinishedTask.objects.count() == 2


def test_a_call_that_can_no_longer_be_enqueued_is_left():
    ids = make(4)
    Task.objects.filter(pk=ids[0]).update(task_name="shop.gone")
    Task.objects.filter(pk=ids[1]).update(args=["too", "many"])
    Task.objects.filter(pk=ids[2]).update(queue_name="elsewhere")
    moved = operations.again(ids)
    assert (moved.changed, moved.skipped) == (1, 3)
    said = {one.example: one.reason for one in moved.reasons}
    assert said[ids[0]].startswith("UnknownTask")
    assert said[ids[1]].startswith("InvalidArguments")
    assert said[ids[2]].startswith("UnknownQueue")


# ---- the trace


def test_one_entry_and_one_signal_for_each_call(small, operated, boss):
    make(5)
    told = []

    def note(**facts):
        told.append(facts["task_id"])

    signals.task_revived.connect(note)
    try:
        operations.revive(queue="default", by=boss)
    finally:
        signals.task_revived.disconnect(note)
    entry = LogEntry.objects.get()
    assert entry.user == boss and "5 (queue=default)" in entry.change_message
    assert [(one["verb"], one["changed"], one["by"]) for one in operated] == [("revive", 5, "boss")]
    assert len(told) == 5


def test_a_call_from_a_shell_names_the_user_of_the_system(boss):
    (task_id,) = make(1)
    operations.revive(task_id, by="night")
    entry = LogEntry.objects.get()
    assert entry.user == boss and "by night" in entry.change_message
    assert entry.object_id == str(task_id)
    namesake = User.objects.create_user("night")
    operations.hold(task_id, by="night")
    assert LogEntry.objects.latest("pk").user == namesake
    LogEntry.objects.all().delete()
    namesake.delete()


def test_without_a_user_there_is_the_signal_alone(operated):
    operations.revive(make(1))
    assert len(operated) == 1 and not LogEntry.objects.exists()


# ---- wrong calls


@pytest.mark.parametrize(
    ("ids", "options", "says"),
    [
        ((), {}, "Say which tasks"),
        ((), {"limit": 5}, "Say which tasks"),
        (["01a2"], {}, "is not the full id"),
        ([7], {}, "is not the full id"),
        ([uuid.uuid4()], {"queue": "mail"}, "Leave one of them out"),
        ([uuid.uuid4()], {"limit": 1}, "Leave one of them out"),
        ((), {"queue": ""}, "queue is ''"),
        ((), {"task": 5}, "task is 5"),
        ((), {"error": "a\0"}, "error is"),
        ((), {"cause": "x"}, "cause is 'x'"),
        ((), {"cause": 2**63}, "cause is"),
        ((), {"queue": "mail", "limit": 0}, "limit is 0"),
        ((), {"since": datetime(2026, 1, 1)}, "with a time zone"),
        ((), {"since": timedelta(0)}, "more than 0"),
        ((), {"since": "yesterday"}, "since is"),
        ((), {"queue": "mail", "spread": -1}, "spread is -1"),
        ((), {"queue": "mail", "spread": "1h"}, "spread is '1h'"),
    ],
)
def test_a_wrong_call_changes_nothing(ids, options, says):
    make(1)
    with pytest.raises(InvalidChoice, match=says):
        operations.revive(ids, **options)
    assert states() == ["dead"]


def test_an_unknown_option_is_refused():
    with pytest.raises(TypeError):
        operations.revive(colour="red")


def test_the_filters_are_those_of_the_options():
    assert set(choice.FILTERS) < set(operations.Options.__annotations__)


def test_another_database(second_database):
    call_command("migrate", database="second", verbosity=0)
    with transaction.atomic(using="second"):
        handle = tasks.note.using(using="second").enqueue("there")
    Task.objects.using("second").update(status="dead")
    assert operations.revive(handle.id).skipped == 1
    assert operations.revive(handle.id, using="second").changed == 1
    assert Task.objects.using("second").get().status == Status.PENDING
