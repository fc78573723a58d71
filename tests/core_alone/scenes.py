"""The core alone: it enqueues, claims, runs, finishes, retries, compensates, recovers and prunes."""

import uuid
from datetime import timedelta

from core_shop import functions
from core_shop.models import Done
from core_shop.waiting import wait_until
from core_worker import run
from django.db import transaction

from django_txtasks.core.cleaning import Cleaner
from django_txtasks.core.enqueueing import enqueue_many
from django_txtasks.core.ground.config import get_config
from django_txtasks.models import FinishedTask, Outcome, Status, Task, Worker


def done():
    return sorted(Done.objects.values_list("what", flat=True))


def test_a_committed_task_runs_and_a_rolled_back_one_never_does():
    with transaction.atomic():
        kept = functions.note.enqueue("kept")
    with transaction.atomic():
        functions.note.enqueue("gone")
        transaction.set_rollback(True)
    run()
    assert done() == ["kept"]
    assert FinishedTask.objects.get().pk == kept.id
    assert FinishedTask.objects.get().result == "kept"


def test_many_tasks_run_in_the_order_of_their_priority():
    enqueue_many([(functions.note, (str(n),)) for n in range(30)])
    first = functions.note.using(priority=5).enqueue("first")
    run(threads=1)
    assert Done.objects.count() == 31
    assert FinishedTask.objects.order_by("started_at").first().pk == first.id


def test_a_task_that_fails_is_tried_again_and_then_dead():
    twice, never = functions.fail_twice.enqueue("tea"), functions.fail.enqueue("milk")
    wait_until(lambda: run() and not Task.objects.filter(status=Status.PENDING).exists())
    assert list(Done.objects.filter(what="tea").values_list("attempt", flat=True)) == [1, 2, 3]
    assert FinishedTask.objects.get(pk=twice.id).outcome == Outcome.SUCCEEDED
    dead = Task.objects.get(pk=never.id)
    assert (dead.status, dead.failures) == (Status.DEAD, 2)
    assert dead.errors[-1]["message"] == "no milk"
    assert "failure of core_shop.fail" in done()


def test_a_hook_runs_after_its_task():
    functions.told.enqueue("tea")
    wait_until(lambda: run() and Done.objects.count() == 2)
    assert done() == ["success of core_shop.told", "tea"]


def test_an_atomic_task_that_fails_leaves_nothing():
    functions.write_and_fail.using(max_attempts=1).enqueue("tea")
    run()
    assert (done(), Task.objects.get().status) == ([], Status.DEAD)


def test_a_time_limit_ends_an_attempt():
    functions.too_long.enqueue()
    run()
    assert Task.objects.get().errors[-1]["type"].endswith("TimedOut")


def test_a_task_waits_for_its_time():
    functions.note.using(run_after=timedelta(hours=1)).enqueue("later")
    run()
    assert (done(), Task.objects.get().status) == ([], Status.PENDING)


def test_rows_of_features_wait_and_are_never_run_wrongly():
    in_lane, with_key = functions.note.enqueue("lane"), functions.note.enqueue("key")
    Task.objects.filter(pk=in_lane.id).update(lane="slow")
    Task.objects.filter(pk=with_key.id).update(unique_key=uuid.uuid4())
    functions.note.enqueue("plain")
    run()
    assert done() == ["plain"]
    assert Task.objects.count() == 2


def test_a_killed_worker_is_noticed_and_each_policy_is_kept(kill_worker):
    """One may run again and does, one is dead, and one is undone."""
    again, dead, undone = (
        one.enqueue(one.declaration.name)
        for one in (functions.again, functions.once_only, functions.compensated)
    )
    Task.objects.filter(pk=undone.id).update(priority=1)
    first = kill_worker()
    wait_until(lambda: Done.objects.count() == 2)
    second = kill_worker()
    wait_until(lambda: Done.objects.count() == 3)
    first()
    second()
    cleaner = Cleaner(get_config())
    wait_until(lambda: cleaner.run_once() and not Task.objects.filter(status=Status.CLAIMED))
    wait_until(lambda: run() and not Task.objects.filter(status=Status.PENDING).exists())
    attempts = Done.objects.filter(what=functions.again.declaration.name)
    killed, finished = attempts.order_by("id").values_list("attempt", flat=True)
    assert finished == killed + 1
    assert FinishedTask.objects.filter(pk=again.id).exists()
    assert Task.objects.get(pk=dead.id).status == Status.DEAD
    assert f"undone: {functions.compensated.declaration.name}" in done()
    assert Done.objects.filter(what=functions.once_only.declaration.name).count() == 1
    assert not Worker.objects.filter(lost=False).exists()


def test_the_cleaner_prunes_finished_tasks():
    functions.note.enqueue("old")
    run()
    FinishedTask.objects.update(finished_at="2020-01-01T00:00:00+00:00")
    Cleaner(get_config()).run_once()
    assert not FinishedTask.objects.exists()
