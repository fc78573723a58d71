"""A tick that is to be done by its hour: its task, the batches that it opens, and what these lead to."""

import uuid
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO

import helpers
import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from probe import tasks

from django_txtasks import batch, cancel_task, get_handle, signals
from django_txtasks.conf import get_config
from django_txtasks.core.cleaning import Cleaner
from django_txtasks.core.rows import outcomes, workers
from django_txtasks.core.rows.attempts import Attempt
from django_txtasks.core.rows.running import run_of
from django_txtasks.core.working.running.limits import TimeLimit
from django_txtasks.features.results import task_states
from django_txtasks.features.schedules import periodic as scheduling
from django_txtasks.features.schedules import ticks as schedules
from django_txtasks.features.schedules.fan_out import unsettled
from django_txtasks.features.schedules.status import status_of_schedules
from django_txtasks.models import (
    Batch,
    DatabaseNow,
    FinishedTask,
    Outcome,
    Schedule,
    Status,
    Task,
)
from django_txtasks.operations import operators
from django_txtasks.testing import run_due_tasks
from django_txtasks.testing.threads import worker as real_worker

pytestmark = pytest.mark.usefixtures("rows", "quick")
HOUR = timedelta(hours=1)


def now():
    return Schedule.objects.annotate(now=DatabaseNow()).values_list("now", flat=True).first()


class TooManyStatements(Exception):
    pass


@contextmanager
def at_most(count):
    """Fail after this number of statements."""
    left = iter(range(count))

    def counted(execute, *statement):
        if next(left, None) is None:
            raise TooManyStatements
        return execute(*statement)

    with connection.execute_wrapper(counted):
        yield


def add(name, **columns):
    Schedule(name=name, task_name="probe.tasks.note", **columns).save(force_insert=True)
    return Schedule.objects.get(pk=name)


def command(*args):
    said = StringIO()
    call_command("txtasks_schedules", *args, stdout=said)
    return said.getvalue()


@pytest.fixture
def nightly():
    """A daily schedule whose hour was a minute ago, and whose tick was an hour before that."""
    add("x", every=1e6)
    due = now() - timedelta(minutes=1)
    at = (due - HOUR).replace(second=0, microsecond=0)
    Schedule.objects.all().delete()
    row = add(
        "s",
        cron=f"{at.minute} {at.hour} * * *", ready_by=f"{due:%H:%M}", last_at=at,
        last_task=uuid.uuid4(), next_at=at + timedelta(days=1),
    )  # fmt: skip
    Schedule.objects.update(watched_from=at - HOUR)
    return row


def clean():
    Cleaner(get_config()).run_once()


def unready(told):
    clean()
    clean()
    return [facts["state"] for signal, facts in told if signal is signals.schedule_not_ready]


def of_tick(task, *args, **options):
    """Enqueue the task of the tick."""
    handle = task.using(**options).enqueue(*args)
    Schedule.objects.update(last_task=handle.id)
    return handle


def status():
    (one,) = status_of_schedules("default")
    return one


def is_ready():
    return status().unready is None


def why():
    return "" if is_ready() else str(status().unsettled)


def work(**limits):
    """Run all due tasks with a real worker until none is left."""
    with real_worker(**limits) as working:
        working.wait_until_idle()


def run_one():
    """Run the first due task as a worker would, without the tasks that it enqueues or a look at its batch."""
    config = get_config()
    worker = workers.register(
        "default", queues=["default"], threads=1, listening=None, lease=config.lease
    )
    with transaction.atomic():
        (attempt,) = helpers.claim(worker, 1, with_keys=True).claimed
    ended = helpers.runner().run(attempt, TimeLimit(None))
    assert not ended.error
    with transaction.atomic():
        outcomes.record("default", [ended], config=config)
    workers.unregister("default", worker)


# -- the tick's own task --------------------------------------------------------------------------


def test_a_task_that_is_not_done_by_its_hour_is_told_of_once(nightly, told):
    of_tick(tasks.note, "s", run_after=HOUR)
    assert unready(told) == ["pending"]
    with CaptureQueriesContext(connection) as asked:
        clean()
    assert not [one for one in asked if "UPDATE txtasks_schedule" in one["sql"]]  # each pass
    assert status().unready == nightly.last_at
    with pytest.raises(CommandError, match="not done by"):
        command("check", "s")


def test_of_two_cleaners_that_look_at_the_same_time_one_tells(nightly):
    assert [schedules.tell_unready("default", "s", nightly.last_at) for _ in range(2)] == [
        True,
        False,
    ]


def test_a_task_that_is_done_is_not_told_of(nightly, told):
    of_tick(tasks.note, "s")
    run_due_tasks()
    assert unready(told) == []


def test_a_task_that_is_dead_is_told_of(nightly, told):
    of_tick(tasks.note, "s")
    Task.objects.update(status=Status.DEAD)
    assert unready(told) == ["dead"]


def test_a_tick_without_a_task_is_told_of(nightly, told):
    Schedule.objects.update(last_at=nightly.last_at - timedelta(days=1))
    assert unready(told) == ["not there"]


def test_a_tick_before_the_schedule_was_there_is_not_told_of(nightly, told):
    Schedule.objects.update(watched_from=now(), last_at=None, last_task=None)
    assert unready(told) == []


# -- who opens a batch ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fan_out", "fan_out_atomic", "fan_out_async"])
def test_a_batch_knows_the_task_that_opened_it(name):
    handle = getattr(tasks, name).enqueue()
    work()
    assert handle.status() == "succeeded"
    one = Batch.objects.get()
    assert (one.opened_by, one.root_task) == (handle.id, handle.id)


def test_a_batch_of_a_member_knows_the_first_task_too():
    handle = tasks.fan_out.enqueue(3)
    work()
    first, second, third = Batch.objects.order_by("-name")
    assert first.opened_by == handle.id
    members = FinishedTask.objects.filter(task_name="probe.tasks.fan_out")
    assert second.opened_by == members.get(batch=first.pk).pk
    assert third.opened_by == members.get(batch=second.pk).pk
    assert {one.root_task for one in (first, second, third)} == {handle.id}


def test_tasks_in_the_thread_of_a_test_are_told_apart():
    handles = [tasks.fan_out.enqueue() for _ in range(2)]
    run_due_tasks()
    assert {one.opened_by for one in Batch.objects.all()} == {one.id for one in handles}
    with batch():
        pass
    assert Batch.objects.filter(opened_by=None, root_task=None).count() == 1


def test_a_batch_of_another_database_names_no_opener(second_database):
    call_command("migrate", database="second", verbosity=0)
    handle = tasks.fan_out_elsewhere.enqueue()
    work()
    assert handle.status() == "succeeded"
    (one,) = Batch.objects.using("second")
    assert one.opened_by is None


def test_a_batch_that_a_task_opens_costs_no_more_statements():
    def statements_of_a_batch():
        with CaptureQueriesContext(connection) as asked, batch():
            tasks.note.enqueue()
        return len(asked)

    without = statements_of_a_batch()
    with run_of(Attempt(uuid.uuid4(), 1, uuid.uuid4(), batch=uuid.uuid4()), "default"):
        assert statements_of_a_batch() == without
    assert Batch.objects.exclude(opened_by=None).count() == 1


def test_a_member_whose_row_names_no_batch_that_is_one_opens_its_own():
    """SQLite keeps whatever somebody has written there."""
    opener = Attempt(uuid.uuid4(), 1, uuid.uuid4(), batch="mine")
    with run_of(opener, "default"), batch():
        pass
    assert Batch.objects.get().root_task == opener.task_id


def test_a_process_of_before_goes_on_to_write_batches(nightly):
    one = uuid.uuid4()
    helpers.execute("INSERT INTO txtasks_batch (id, name, hooks) VALUES (%s, 'b', '{}')", one.hex)
    helpers.execute("UPDATE txtasks_batch SET failed = %s, finished_at = created_at", True)
    of_tick(tasks.note)
    work()
    assert is_ready()


# -- a tick whose task opens batches --------------------------------------------------------------


def test_a_tick_is_not_done_while_a_batch_that_its_task_opened_goes_on(nightly, told):
    of_tick(tasks.fan_out)
    run_one()
    (one,) = Batch.objects.all()
    assert unready(told) == [f"done, but its batch {one.pk} has not ended"]
    with pytest.raises(CommandError, match=f"its batch {one.pk} has not ended"):
        command("check", "s")
    assert "last succeeded" in command("list")
    work()
    assert is_ready()
    assert "well: 1" in command("check", "s")


@pytest.mark.parametrize("kept", [0, None])
def test_a_batch_with_a_dead_member_is_not_done_and_stays_so(kept, nightly, txtasks):
    """Its on_success never comes: that a person revives the member and it succeeds does not make it ready."""
    txtasks(keep_finished=kept)
    of_tick(tasks.fan_out, 1, "fail")
    work()
    (one,) = Batch.objects.all()
    assert why() == f"its batch {one.pk} has failed"
    operators.revive("default", [Task.objects.get().pk])
    Task.objects.update(task_name="probe.tasks.note")
    work()
    assert not Task.objects.exists()
    assert why() == f"its batch {one.pk} has failed"


def test_what_a_person_runs_now_counts_in_the_place_of_a_failed_tick(nightly):
    of_tick(tasks.fan_out, 1, "fail")
    work()
    assert "has failed" in why()
    scheduling.run_now("default", "s")
    assert status().state == "pending"
    work()
    assert is_ready()


def test_a_cancelled_member_counts_as_failed_also_without_history(nightly, txtasks):
    txtasks(keep_finished=0)
    of_tick(tasks.fan_out)
    run_one()
    cancel_task(Task.objects.get().pk)
    clean()
    assert not FinishedTask.objects.exists()
    assert "has failed" in why()


@pytest.mark.parametrize("kept", [0, None])
def test_a_batch_that_a_member_opened_is_followed_though_members_leave_no_rows(
    kept, nightly, txtasks
):
    txtasks(keep_finished=kept)
    of_tick(tasks.fan_out, 3)
    for levels in (3, 2, 1):
        run_one()
        assert Batch.objects.filter(name=f"level {levels}").exists()
    clean()
    (last,) = Batch.objects.filter(finished_at=None)
    assert last.name == "level 1"
    assert why() == f"its batch {last.pk} has not ended"
    work()
    assert is_ready()


def test_several_batches_are_counted_and_a_failed_one_is_named():
    ids = sorted(uuid.uuid4() for _ in range(3))
    root = uuid.uuid4()
    for one in ids:
        Batch(id=one, root_task=root).save(force_insert=True)
    Batch.objects.filter(pk=ids[1]).update(finished_at="2026-01-01T00:00Z", failed=True)
    found = unsettled("default", [root, uuid.uuid4()])
    assert list(found) == [root]
    said = str(found[root])
    assert said == f"its batch {ids[1]} has failed, and 2 other batches of its work are not done"


# -- hooks ----------------------------------------------------------------------------------------


def test_a_hook_belongs_to_the_work_of_the_tick(nightly):
    of_tick(tasks.fan_out_in_stages)
    run_one()
    run_one()
    clean()  # ends the batch
    (one,) = Batch.objects.all()
    hook = Task.objects.get()
    assert one.hook_tasks == {"on_success": str(hook.pk)}
    assert (
        why()
        == f"its batch {one.pk} has ended, and the task {hook.pk} of its on_success is pending"
    )
    Task.objects.update(status=Status.DEAD)
    assert why().endswith("of its on_success is dead")
    operators.revive("default", [hook.pk])
    work()
    assert is_ready()


@pytest.mark.parametrize("kept", [0, None])
def test_batches_that_hooks_open_are_followed(kept, nightly, txtasks):
    txtasks(keep_finished=kept)
    of_tick(tasks.fan_out_in_stages, 3, "fail")
    work()
    last = Batch.objects.get(name="1 fail")
    assert Batch.objects.count() == 3
    assert why() == f"its batch {last.pk} has failed"


def test_stages_that_are_all_done_are_ready(nightly, txtasks):
    txtasks(keep_finished=0)
    of_tick(tasks.fan_out_in_stages, 3)
    work()
    assert helpers.runs("success 1 note fine") == 1
    assert is_ready()


def test_a_hook_of_a_batch_that_ends_with_its_block_is_known(nightly):
    """A batch without members ends at once."""
    handle = of_tick(tasks.note)
    with (
        run_of(Attempt(handle.id, 1, uuid.uuid4()), "default"),
        batch(on_finish=tasks.tell_of_batch),
    ):
        pass
    Task.objects.filter(pk=handle.id).delete()
    assert "of its on_finish is pending" in why()


def test_an_end_by_a_process_of_before_names_no_hook_and_is_ready(nightly):
    of_tick(tasks.fan_out)
    work()
    Batch.objects.update(hook_tasks=None)
    assert is_ready()


@pytest.mark.parametrize("text", ['"x"', "[1]", '{"on_success": 5}', '{"on_success": "x"}', "{}"])
def test_whatever_somebody_has_written_there_harms_nobody(text, nightly, client, person):
    of_tick(tasks.fan_out)
    work()
    helpers.execute("UPDATE txtasks_batch SET hook_tasks = %s", text)
    assert is_ready()
    person("view_batch")
    page = client.get(reverse("admin:txtasks_batch_change", args=[Batch.objects.get().pk]))
    assert page.status_code == 200


# -- rows that move or go ---------------------------------------------------------------------------


@pytest.mark.parametrize("hours", [25, 47])
def test_an_ended_batch_is_kept_as_long_as_a_tick_asks_for_it(hours, nightly, txtasks):
    txtasks(keep_finished=0)
    of_tick(tasks.fan_out, 1, "fail")
    work()
    at = now() - timedelta(hours=hours)
    Batch.objects.update(finished_at=at, created_at=at)
    clean()
    assert "has failed" in why()


def test_it_is_forgotten_then(txtasks):
    txtasks(keep_finished=0)
    add("x", every=1e6)
    with batch():
        pass
    Batch.objects.update(finished_at=now() - timedelta(days=3, minutes=1))
    clean()
    assert not Batch.objects.exists()


def test_a_tick_that_was_merged_follows_the_batches_of_the_row_in_its_place(nightly):
    other = tasks.fan_out.using(unique_key="k").enqueue()
    merged = of_tick(tasks.fan_out.using(unique_key="k"))
    Task.objects.filter(pk=other.id).update(priority=5)
    work()
    assert FinishedTask.objects.get(pk=merged.id).merged_into == other.id
    assert is_ready()
    Batch.objects.update(failed=True)
    assert status().state == "succeeded"
    assert "has failed" in why()


def merge_a_tick():
    """Have the tick's task merged into another task, which runs and opens a batch; no history is kept."""
    other = tasks.fan_out.using(unique_key="k").enqueue()
    merged = of_tick(tasks.fan_out.using(unique_key="k"))
    Task.objects.filter(pk=other.id).update(priority=5)
    run_one()
    assert FinishedTask.objects.get().pk == merged.id
    return other


@pytest.mark.parametrize("what", ["goes on", "has failed", "has a hook"])
def test_a_tick_that_was_merged_is_known_as_long_as_the_batches_of_the_row_in_its_place_count(
    nightly, txtasks, what
):
    """Although no history is kept, and the row in its place is gone."""
    txtasks(keep_finished=0)
    merge_a_tick()
    if what == "has a hook":
        Batch.objects.update(hook_tasks={"on_finish": str(tasks.note.enqueue("h").id)})
    if what != "goes on":
        Batch.objects.update(finished_at=DatabaseNow(), failed=what == "has failed")
    clean()
    assert FinishedTask.objects.exists()
    says = {
        "goes on": "has not ended",
        "has failed": "has failed",
        "has a hook": "of its on_finish",
    }
    assert says[what] in why()


def test_a_tick_that_was_merged_is_forgotten_once_the_work_is_done(nightly, txtasks):
    txtasks(keep_finished=0)
    merge_a_tick()
    work()
    assert is_ready()
    clean()
    assert not FinishedTask.objects.exists()
    assert is_ready()


def test_other_rows_that_were_merged_are_not_kept_for_batches(nightly, txtasks):
    """The row in their place has opened none."""
    txtasks(keep_finished=0)
    for _ in range(3):
        tasks.note.using(unique_key="k").enqueue()
    work()
    Batch(id=uuid.uuid4(), root_task=uuid.uuid4()).save(force_insert=True)
    assert FinishedTask.objects.count() == 2
    clean()
    assert not FinishedTask.objects.exists()


def test_hooks_that_were_merged_belong_to_the_work_of_each(nightly):
    first, second, merged, other = (uuid.uuid4() for _ in range(4))
    for root, hook in ((first, other), (second, merged)):
        Batch(
            id=uuid.uuid4(), root_task=root, finished_at=now(), failed=False,
            hook_tasks={"on_success": str(hook)},
        ).save(force_insert=True)  # fmt: skip
    FinishedTask(
        id=merged, task_name="x", outcome="merged", merged_into=other, finished_at=now()
    ).save(force_insert=True)
    Batch(id=uuid.uuid4(), root_task=other).save(force_insert=True)
    assert unsettled("default", [first, second]).keys() == {first, second}


# -- people -------------------------------------------------------------------------------------------


def test_pages_link_the_batch_its_opener_and_its_hooks(nightly, client, person):
    handle = of_tick(tasks.fan_out_in_stages)
    run_one()
    (one,) = Batch.objects.all()
    url = reverse("admin:txtasks_batch_change", args=[one.pk])
    person("view_schedule", "view_batch")
    page = client.get(reverse("admin:txtasks_schedule_changelist")).content.decode()
    assert f'its batch <a href="{url}">' in page
    assert "has not ended" in page
    page = client.get(url).content.decode()
    assert reverse("admin:txtasks_finishedtask_change", args=[handle.id]) in page
    run_one()
    clean()
    hook = Task.objects.get()
    page = client.get(url).content.decode()
    assert reverse("admin:txtasks_task_change", args=[hook.pk]) in page


def test_one_statement_asks_for_the_batches_of_all_schedules(nightly):
    def statements_of_status():
        with CaptureQueriesContext(connection) as asked:
            status_of_schedules("default")
        return len(asked)

    handle = of_tick(tasks.fan_out)
    run_one()
    one = statements_of_status()
    columns = {key: getattr(nightly, key) for key in ("cron", "ready_by", "last_at", "next_at")}
    for name in "abc":
        add(name, **columns, watched_from=nightly.watched_from - HOUR, last_task=handle.id)
    Schedule.objects.update(watched_from=nightly.last_at - HOUR)
    assert statements_of_status() == one
    assert all("has not ended" in str(each.unsettled) for each in status_of_schedules("default"))


# -- rows that somebody has written by hand ---------------------------------------------------------


def write_ended_batch(root, hook_task):
    """Write a batch of the work of one task, whose hook is another task, as its row says."""
    row = Batch(id=uuid.uuid4(), hooks={}, opened_by=root, root_task=root, failed=False)
    row.hook_tasks = {"on_finish": str(hook_task)}
    row.save(force_insert=True)
    Batch.objects.filter(pk=row.pk).update(finished_at=DatabaseNow())


@pytest.mark.parametrize("length", [1, 2, 3])
def test_batches_that_lead_back_to_their_task_are_followed_once(nightly, told, length):
    handle = of_tick(tasks.note)
    work()
    ring = [handle.id, *(uuid.uuid4() for _ in range(length - 1))]
    for root, hook_task in zip(ring, [*ring[1:], ring[0]], strict=True):
        write_ended_batch(root, hook_task)
    with at_most(2000):
        assert unready(told) == []
        assert is_ready()
    Batch.objects.filter(root_task=ring[-1]).update(failed=True)
    assert why().endswith("has failed")


def test_tasks_that_share_the_task_of_a_hook_are_each_followed_through_it():
    """One of them comes to that task later than the other."""
    first, second, step, shared = (uuid.uuid4() for _ in range(4))
    write_ended_batch(first, shared)
    write_ended_batch(second, step)
    write_ended_batch(step, shared)
    Batch(id=uuid.uuid4(), hooks={}, opened_by=shared, root_task=shared).save(force_insert=True)
    assert unsettled("default", [first, second]).keys() == {first, second}


def test_rows_that_were_merged_into_each_other_are_looked_at_once():
    one, other = uuid.uuid4(), uuid.uuid4()
    for task_id, merged_into in ((one, other), (other, one)):
        times = dict.fromkeys(("enqueued_at", "run_after"), timezone.now())
        row = FinishedTask(id=task_id, task_name="probe.tasks.note", **times)
        row.outcome, row.merged_into = Outcome.MERGED, merged_into
        row.save(force_insert=True)
    with at_most(20):
        assert get_handle(one).status() == "merged"
        assert task_states.ends_of("default", [one])[one].state == "merged"
