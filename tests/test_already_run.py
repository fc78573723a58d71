"""A live row whose id is in history, as after half a restore, never runs: it becomes dead with the reason."""

import helpers
import pytest
from django.core.management import call_command
from django.db import transaction
from probe import tasks

from django_txtasks import enqueue_many
from django_txtasks.conf import get_config
from django_txtasks.core.rows import workers
from django_txtasks.core.rows.turn import Bucket, Capacity, RecentWindow
from django_txtasks.fast.sweep import Sweep
from django_txtasks.features.lanes import claiming as lanes
from django_txtasks.features.lanes.claiming import LanesRequest
from django_txtasks.models import FinishedTask, Status, Task
from django_txtasks.operations import operators
from django_txtasks.testing import run_due_tasks

pytestmark = pytest.mark.usefixtures("rows", "quick")
REASON = "this id has already run"
WAYS = {
    "plain": lambda: tasks.note,
    "atomic": lambda: tasks.atomic_note,
    "in a lane": lambda: tasks.note.using(lane="one"),
    "with a unique key": lambda: tasks.note.using(unique_key="key"),
    "in a lane, with a key": lambda: tasks.note.using(lane="one", unique_key="key"),
}


@pytest.fixture(autouse=True)
def rules(txtasks):
    txtasks(lanes={"one": {"at_most": 3}})


def run_and_written_anew(function, *arguments, **changes):
    """Run a task, write its row anew as it was, and return the id."""
    with transaction.atomic():  # before the commit no worker of the test can claim the row
        task_id = function.enqueue(*arguments).id
        row = helpers.row(task_id)
    run_due_tasks()
    helpers.wait_until(
        lambda: helpers.finished(task_id)
    )  # a worker of the test may have been faster
    for name, value in changes.items():
        setattr(row, name, value)
    row.save(force_insert=True)
    return task_id


def assert_is_dead(task_id, runs=1, key="again"):
    row = helpers.row(task_id)
    assert row.status == Status.DEAD
    assert row.errors[-1]["type"] == "AlreadyRun"
    assert row.errors[-1]["message"].startswith(REASON)
    assert helpers.runs(key) == runs
    assert helpers.finished(task_id).outcome == "succeeded"


@pytest.mark.smoke
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_idle", [True, False])
def test_a_worker_buries_it_and_runs_what_is_beside_it(way, is_idle):
    function = WAYS[way]()
    if not is_idle:
        task_id = run_and_written_anew(function, "again")
        other = function.enqueue("other")
    with helpers.working():
        if is_idle:
            helpers.wait_until(lambda: not Task.objects.exists())
            task_id = run_and_written_anew(function, "again")
            other = function.enqueue("other")
        helpers.wait_until(lambda: helpers.finished(other.id))
        helpers.wait_until(lambda: helpers.row(task_id).status == Status.DEAD)
    assert_is_dead(task_id)
    assert helpers.runs("other") == 1


def test_an_attempt_that_had_begun_is_no_exception():
    task_id = run_and_written_anew(tasks.note, "again", attempt=3, failures=2)
    call_command("runworkers", batch=True, verbosity=0)
    assert_is_dead(task_id)
    assert helpers.row(task_id).attempt == 4


def test_where_tasks_gain_priority_with_age(txtasks):
    txtasks(ageing=60)
    task_id = run_and_written_anew(tasks.note, "again")
    with helpers.working():
        helpers.wait_until(lambda: helpers.row(task_id).status == Status.DEAD)
    assert_is_dead(task_id)


def test_run_due_tasks_does_not_run_it():
    task_id = run_and_written_anew(tasks.note, "again")
    (ran,) = run_due_tasks(reraise=False)
    assert (ran.task_id, ran.status) == (task_id, "dead")
    assert_is_dead(task_id)


def test_in_its_key_it_takes_no_other_request_along():
    """It comes first of its key; what it absorbed would never be done."""
    task_id = run_and_written_anew(WAYS["with a unique key"](), "again")
    others = [WAYS["with a unique key"]().enqueue(f"other {n}") for n in range(3)]
    run_due_tasks(reraise=False)
    assert_is_dead(task_id)
    assert {one.status() for one in others} == {"succeeded"}
    assert helpers.runs("other 2") == 1


def test_its_place_in_a_lane_is_free_afterwards(txtasks):
    txtasks(lanes={"one": {"at_most": 1}})
    task_id = run_and_written_anew(tasks.note.using(lane="one"), "again")
    others = [tasks.note.using(lane="one").enqueue(f"other {n}") for n in range(3)]
    with helpers.working():
        helpers.wait_until(lambda: all(helpers.finished(one.id) for one in others))
        helpers.wait_until(lambda: helpers.row(task_id).status == Status.DEAD)
    assert_is_dead(task_id)


def register():
    lease = get_config().lease
    return workers.register("default", queues=["default"], threads=1, listening=None, lease=lease)


def by_scan(worker, task_id):
    return helpers.claim(worker, 5).claimed


def by_recent_scan(worker, task_id):
    window = RecentWindow((Bucket(0, "default"),), 3600.0)
    return helpers.claim(worker, 5, recent=window).claimed


def by_hint(worker, task_id):
    return helpers.claim(worker, 5, hinted=[task_id]).claimed


def by_sweep(worker, task_id):
    sweep = Sweep(helpers.subscription(), [], longest=9.0, before={})
    claimed = []
    while not sweep.is_over:
        claimed += sweep.claim(worker, Capacity(5)).claimed
    return claimed


def by_lane(worker, task_id):
    Task.objects.filter(pk=task_id).update(lane="one")
    lanes.create("default", ["one"])
    request = LanesRequest(["one"], 5, get_config().lanes)
    return lanes.claim(helpers.subscription(), worker, request)[0]


@pytest.mark.parametrize("claim", [by_scan, by_recent_scan, by_hint, by_sweep, by_lane])
def test_each_way_to_claim_says_that_it_has_ended(claim):
    task_id = run_and_written_anew(tasks.note, "again")
    worker = register()
    with transaction.atomic():
        (attempt,) = claim(worker, task_id)
    assert (attempt.task_id, attempt.has_ended) == (task_id, True)


def test_a_person_can_discard_it_and_history_stays():
    task_id = run_and_written_anew(tasks.note, "again")
    run_due_tasks(reraise=False)
    assert_is_dead(task_id)
    assert operators.discard("default", [task_id], keep=True) == [(task_id, "default")]
    assert not Task.objects.exists()
    assert FinishedTask.objects.get().outcome == "succeeded"


def test_a_backlog_of_them_keeps_no_worker_from_others():
    ids = [one.id for one in enqueue_many([(tasks.note, [f"old {n}"]) for n in range(30)])]
    rows = list(Task.objects.all())
    run_due_tasks()
    Task.objects.bulk_create(rows)
    other = tasks.note.enqueue("other")
    with helpers.working():
        helpers.wait_until(lambda: helpers.finished(other.id))
        helpers.wait_until(lambda: Task.objects.filter(status=Status.DEAD).count() == len(ids))
    assert helpers.runs() == 31
