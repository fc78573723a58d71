"""A task sees nothing of the one before it: neither its language nor its context, nor the errors of its hooks."""

import helpers
import pytest
from django.dispatch import receiver
from probe import sessions, tasks
from test_sessions_of_slots import results, run_one_after_the_other

from django_txtasks import signals

pytestmark = pytest.mark.usefixtures("rows", "quick")


@pytest.fixture
def told():
    """The events that were sent, with their facts."""
    found = []
    events = ("task_finished", "task_hook_failed", "task_retried", "task_died")
    receivers = []
    for name in events:

        def hear(name=name, **facts):
            found.append((name, facts))

        receiver(getattr(signals, name), weak=False)(hear)
        receivers.append((getattr(signals, name), hear))
    yield found
    for event, hear in receivers:
        event.disconnect(hear)


@pytest.mark.parametrize("seen_by", [sessions.see_thread, sessions.see_async], ids=["", "async"])
@pytest.mark.parametrize(
    "bend",
    [
        sessions.bend_thread,
        sessions.bend_async,
        sessions.bend_from_async,
        sessions.bend_at_commit,
        sessions.bend_and_fail,
    ],
    ids=lambda bend: bend.function.__name__,
)
def test_language_time_zone_and_context_end_with_their_task(bend, seen_by):
    ids = run_one_after_the_other((seen_by,), (bend,), (seen_by,))
    before, after = results([ids[0], ids[2]])
    assert before == after == ["en-us", "UTC", "nobody"]


@pytest.mark.parametrize("error", ["ValueError", "SystemExit"])
def test_a_task_whose_commit_hook_fails_has_finished_and_says_so(error, told, caplog):
    handle = sessions.fail_at_commit.enqueue("it", error)
    run_one_after_the_other()
    done = helpers.finished(handle.id)
    assert (done.outcome, done.attempt, done.failures) == ("succeeded", 1, 0)
    [entry] = done.errors
    assert (entry["attempt"], entry["type"], entry["after_commit"]) == (1, error, True)
    assert "it cannot be told" in entry["message"]
    assert "in fail" in entry["traceback"]
    of_it = [name for name, facts in told if facts["task_id"] == handle.id]
    assert sorted(of_it) == ["task_finished", "task_hook_failed"]
    [record] = [one for one in caplog.records if "is committed, but a function" in one.message]
    assert record.exc_info[0].__name__ == error
    assert helpers.runs("success it") == 1  # it counts as finished for its hooks, too


def test_without_finished_rows_a_failed_commit_hook_is_told_of_all_the_same(txtasks, told):
    txtasks(keep_finished=0)
    handle = sessions.fail_at_commit.enqueue("gone")
    run_one_after_the_other()
    assert helpers.row(handle.id) is helpers.finished(handle.id) is None
    of_it = [name for name, facts in told if facts["task_id"] == handle.id]
    assert sorted(of_it) == ["task_finished", "task_hook_failed"]
    assert helpers.runs("gone done") == 1


def test_hooks_before_the_one_that_fails_have_run_and_django_leaves_out_the_rest():
    run_one_after_the_other((sessions.fail_at_commit, "some"), (tasks.note, "after it"))
    ran = [helpers.runs(f"some {which} hook") for which in ("first", "second", "third")]
    assert (ran, helpers.runs("after it")) == ([1, 1, 0], 1)


def test_what_the_database_refuses_at_the_commit_is_a_failure(told):
    """A foreign key, which MariaDB alone looks at earlier."""
    handle = sessions.break_at_commit.enqueue("refused")
    run_one_after_the_other()
    dead = helpers.row(handle.id)
    assert (dead.status, dead.failures) == ("dead", 1)
    assert {one["type"] for one in dead.errors} == {"IntegrityError"}
    assert not helpers.runs("refused")
    assert sorted(name for name, _ in told) == ["task_died"]
