"""Durable steps: effects and value of a step are committed together, and the next attempt goes on behind it."""

import threading
import time
import uuid
from datetime import timedelta

import helpers
import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client
from probe import framework, tasks
from test_lifecycle import claim_one, claimed_twice, clean, declare_lost, new_worker

from django_txtasks.conf import get_config
from django_txtasks.core.ground.retention import Horizon
from django_txtasks.core.rows import cleaning
from django_txtasks.exceptions import ClaimLost, StepRefused
from django_txtasks.features.steps.context import Steps
from django_txtasks.models import FinishedTask, Status, Step, Task
from django_txtasks.operations import operators
from django_txtasks.testing import run_due_tasks

pytestmark = pytest.mark.usefixtures("rows", "quick")


def run_all():
    """Run the due tasks, and those that they put off for a moment."""
    ran = []
    while Task.objects.filter(status=Status.PENDING).exists():
        ran += run_due_tasks(reraise=False)
    return ran


def do(attempt, name, function, *args):
    """Do a step of an attempt."""
    return Steps("default", attempt).run(name, function, args, {})


def claimed():
    tasks.slow_once.enqueue("x")
    return claim_one(new_worker())


@pytest.mark.smoke
@pytest.mark.parametrize("function", [tasks.two_steps, tasks.two_steps_async])
def test_the_next_attempt_goes_on_behind_the_steps_that_are_done(function):
    handle = function.enqueue("k")
    first, second = run_all()
    assert (first.status, second.status) == ("pending", "succeeded")
    assert second.result[1] == 2
    assert (helpers.runs("k first"), helpers.runs("k second")) == (1, 1)
    done = Step.objects.filter(task_id=handle.id).order_by("name")
    assert [(one.name, one.attempt) for one in done] == [("first", 1), ("second", 2)]
    assert all(one.done_at for one in done)


@pytest.mark.parametrize(
    "value",
    [None, "é 'x' \\ %s {now}", 1e16, -0.0, 10**20, {"b": 1, "a": [None, True]}, "x" * 200_000],
)
def test_a_value_comes_back_as_it_was(value):
    tasks.two_steps.enqueue("k", repr(value))
    first, second = run_all()
    assert str(first.error) == second.result[0] == repr(value)


def test_a_tuple_is_a_list_the_first_time_too():
    tasks.two_steps.enqueue("k", "(1, 2)")
    first, second = run_all()
    assert str(first.error) == second.result[0] == "[1, 2]"


@pytest.mark.parametrize("how", tasks.WRONG_STEPS)
def test_what_cannot_be_a_step_is_refused_and_does_nothing(how):
    handle = tasks.wrong_step.enqueue(how)
    with helpers.working(threads=1):
        dead = helpers.wait_until(
            lambda: Task.objects.filter(pk=handle.id, status=Status.DEAD).first()
        )
    kind = "InvalidArguments" if how == "no JSON" else "StepRefused"
    assert dead.errors[-1]["type"] == kind, dead.errors
    kept = {"one"} if how == "twice" else set()
    assert set(Step.objects.values_list("name", flat=True)) == kept
    assert helpers.runs() == len(kept)


def test_an_atomic_task_has_no_steps():
    handle = tasks.atomic_step.enqueue()
    run_due_tasks(reraise=False)
    assert helpers.row(handle.id).errors[-1]["type"] == "StepRefused"
    assert "atomic=True" in helpers.row(handle.id).errors[-1]["message"]
    assert helpers.runs() == 0


def test_a_step_that_raises_leaves_nothing_and_has_used_its_name():
    attempt = claimed()
    steps = Steps("default", attempt)
    with pytest.raises(ValueError, match="lost"):
        steps.run("one", tasks.effect, ["one"], {"error": "lost"})
    assert helpers.runs("one") == Step.objects.count() == 0
    with pytest.raises(StepRefused, match="begun before"):
        steps.run("one", tasks.effect, ["one"], {})
    assert do(attempt._replace(number=1), "one", tasks.effect, "one", 7) == 7


def test_names_differ_by_their_capitals():
    attempt = claimed()
    assert [do(attempt, name, tasks.effect, name, name) for name in ("a", "A", "ä")] == [
        "a",
        "A",
        "ä",
    ]
    assert Step.objects.count() == 3


# -- the fence ------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_a_step_of_an_attempt_that_lost_its_claim_is_rolled_back():
    _, stale, current = claimed_twice()
    with pytest.raises(ClaimLost, match="rolled back"):
        do(stale, "one", tasks.effect, "one")
    assert helpers.runs("one") == Step.objects.count() == 0
    assert do(current, "one", tasks.effect, "one", 1) == 1
    assert helpers.runs("one") == 1


@pytest.mark.parametrize("field", ["number", "worker", "task_id"])
def test_each_part_of_the_fence_of_a_step_counts(field):
    attempt = claimed()
    other = {"number": attempt.number + 1}.get(field, uuid.uuid4())
    with pytest.raises(ClaimLost):
        do(attempt._replace(**{field: other}), "one", tasks.effect, "one")
    assert helpers.runs("one") == 0


def test_a_task_that_is_pending_again_keeps_no_step():
    attempt = claimed()
    helpers.execute("UPDATE txtasks_task SET status = 'pending', worker = NULL, claimed_at = NULL")
    with pytest.raises(ClaimLost):
        do(attempt, "one", tasks.effect, "one")


@pytest.mark.skipif(connection.vendor == "sqlite", reason="one writer at a time")
def test_until_a_step_has_committed_its_task_cannot_be_given_to_another():
    """W1 has kept a step, and hangs before its COMMIT; the cleaner leaves the row alone."""
    attempt = claimed()
    kept, go_on = threading.Event(), threading.Event()

    def slow_commit():
        with transaction.atomic():
            tasks.ran("one")
            from django_txtasks.features.steps import rows as steps

            steps.keep("default", attempt, "one", "1")
            kept.set()
            go_on.wait(30)

    declare_lost(attempt.worker)
    with helpers.second_session(slow_commit):
        kept.wait(30)
        clean()
        assert helpers.row(attempt.task_id).status == Status.CLAIMED
        go_on.set()
    clean()
    second = claim_one(new_worker())
    assert do(second, "one", tasks.effect, "one", 2) == 1
    assert helpers.runs("one") == 1


# -- keys -----------------------------------------------------------------------------------------


def test_keys_are_the_same_in_each_attempt_and_differ_by_name_and_task():
    tasks.steps_of_keys.enqueue(["charge", "mail"])
    other = tasks.steps_of_keys.enqueue(["charge", "mail"])
    *_, last, more = run_all()
    for one in (last, more):
        assert one.result[0] == one.result[1]
    keys = {*last.result[0], *more.result[0]}
    assert len(keys) == 4
    assert all(str(uuid.UUID(key)) == key for key in keys)
    assert other.id not in map(uuid.UUID, keys)


# -- what is kept, and for how long -----------------------------------------------------------------


def test_a_dead_task_keeps_its_steps_and_goes_on_behind_them_when_revived():
    handle = tasks.two_steps.using(max_attempts=1).enqueue("k")
    run_due_tasks(reraise=False)
    clean()
    assert helpers.row(handle.id).status == Status.DEAD
    assert Step.objects.count() == 1
    with transaction.atomic():
        operators.revive("default", [handle.id])
    run_due_tasks()
    assert (helpers.runs("k first"), helpers.runs("k second")) == (1, 1)


def test_steps_go_with_their_finished_task(txtasks):
    handle = tasks.two_steps.enqueue("k")
    run_all()
    clean()
    assert Step.objects.count() == 2
    FinishedTask.objects.filter(pk=handle.id).update(finished_at="2020-01-01T00:00Z")
    with transaction.atomic():
        cleaning.prune("default", Horizon(timedelta(days=1)))
    assert Step.objects.count() == 0


def test_steps_of_tasks_that_are_not_kept_are_purged_in_time(txtasks, monkeypatch):
    monkeypatch.setattr("django_txtasks.features.steps.rows.TASKS_PER_LOOK", 3)
    txtasks(keep_finished=0)
    kept = [tasks.two_steps.using(max_attempts=1).enqueue(f"dead {n}") for n in range(4)]
    run_due_tasks(reraise=False)
    for n in range(10):
        tasks.two_steps.enqueue(f"done {n}")
    run_all()
    assert Step.objects.count() == 24
    clean()
    assert set(Step.objects.values_list("task_id", flat=True)) == {one.id for one in kept}


def test_a_pass_looks_at_some_tasks_and_the_next_one_goes_on(monkeypatch):
    from django_txtasks.core.cleaning import parts
    from django_txtasks.features.steps import of_cleaner

    monkeypatch.setattr("django_txtasks.features.steps.rows.TASKS_PER_LOOK", 2)
    monkeypatch.setattr(parts, "LOOKS_WITHOUT_CHANGE", 1)
    for n in range(5):
        tasks.two_steps.using(max_attempts=1).enqueue(f"dead {n}")
    run_due_tasks(reraise=False)
    Step.objects.create(
        task_id=uuid.UUID(int=2**128 - 1),
        name="gone",
        value="1",
        attempt=1,
        done_at="2020-01-01T00:00Z",
    )
    context = parts.StepContext(
        config=get_config(), alias="default", notify=None, emit=print, clock=time.monotonic
    )
    ((_, forget_steps),) = of_cleaner.steps(context)
    left = []
    for _ in range(3):
        list(forget_steps())
        left.append(Step.objects.count())
    assert left == [6, 6, 5]
    list(forget_steps())  # from the first one on again
    assert Step.objects.count() == 5


# -- people -----------------------------------------------------------------------------------------


def test_the_page_of_a_task_shows_its_steps_and_after_which_one_it_failed():
    handle = tasks.two_steps.using(max_attempts=1).enqueue("k", "'a secret value'")
    run_due_tasks(reraise=False)
    client = Client()
    client.force_login(User.objects.create_superuser("boss"))
    try:
        page = client.get(f"/admin/txtasks/task/{handle.id}/change/").content.decode()
    finally:
        User.objects.all().delete()
    assert "<div>first: " in page
    assert "after step first" in " ".join(page.split())


# -- through Django's own Tasks ---------------------------------------------------------------------


def test_a_task_of_djangos_api_has_steps():
    framework.steps.enqueue("k")
    (ran,) = run_due_tasks()
    first, second, key, same = ran.result
    assert (first, second, key) == ([1], [2], same)
    assert helpers.runs("k") == 2
    assert Step.objects.count() == 2


@pytest.mark.smoke
def test_a_task_that_runs_at_once_has_no_row_and_does_its_steps():
    result = framework.steps.using(backend="immediate").enqueue("k")
    assert result.return_value[:2] == [[1], [2]]
    assert Step.objects.count() == 0
