"""The end of an attempt: what comes after an async function changes no outcome, in threads and on a loop."""

import helpers
import pytest
from probe import ends

from django_txtasks.models import Status

pytestmark = [
    pytest.mark.usefixtures("rows", "quick"),
    pytest.mark.parametrize(
        "slots",
        [{"threads": 4}, {"kind": "loop", "async_tasks": 100, "threads": 2}],
        ids=["threads", "loop"],
    ),
]


@pytest.fixture(autouse=True)
def fresh():
    ends.kept.clear()


def ended(handle):
    """Wait until a task has no further attempt; return its row."""

    def found():
        row = helpers.row(handle.id)
        return helpers.finished(handle.id) or (row.status == Status.DEAD and row)

    helpers.wait_until(found, what="the end of the task")
    return found()


@pytest.mark.parametrize("how", ["none", "orm", "pinned", "cancelled"])
def test_a_retry_holds_its_lane_whatever_its_attempt_has_done(slots, how, txtasks):
    txtasks(lanes={"end:*": {"at_most": 2}})
    handle = ends.hold_lane.enqueue("a", how)
    with helpers.working(**slots):
        row = ended(handle)
    assert (row.attempt, [one["type"] for one in row.errors]) == (2, ["Retry"])
    [[is_held]] = helpers.execute(
        "SELECT held_until IS NOT NULL FROM txtasks_lane WHERE name = 'end:a'"
    )
    assert is_held


LEFT = {
    "return": 1, "break": 1, "error": 1, "snooze": 2, "global": 1, "cycle": 1, "nested": 1, "child": 1,
    "used by a child": 1, "kept by a child": 1,
}  # fmt: skip
"""Ways to leave an ``async for``, and how often a generator closes."""


@pytest.mark.parametrize(("how", "count"), LEFT.items())
def test_the_clean_up_of_a_generator_runs_to_its_end(slots, how, count):
    handle = ends.leave_generator.enqueue("g", how)
    with helpers.working(**slots):
        row = ended(handle)
    assert helpers.runs("g closed") == count
    assert helpers.runs("g flushed") == (how == "child")
    assert [one["type"] for one in row.errors] == ["ValueError"] * (how == "error")


def test_a_clean_up_that_fails_changes_no_outcome(slots, caplog):
    handle = ends.leave_generator.enqueue("g", "broken")
    with helpers.working(**slots):
        assert ended(handle).errors == []
    assert "an error occurred during closing of asynchronous generator" in caplog.text


def test_a_clean_up_that_does_not_end_is_cancelled(slots, monkeypatch):
    monkeypatch.setattr("django_txtasks.guards.generators.CLOSE_SECONDS", 0.2)
    handle = ends.leave_generator.enqueue("g", "endless")
    with helpers.working(**slots):
        assert ended(handle).errors == []
    assert ends.kept[-1] == "cancelled"


def test_an_error_of_a_tracer_changes_no_outcome(slots, monkeypatch, caplog, txtasks):
    """It comes after the function, which has used the database."""
    txtasks(lanes={"end:*": {"at_most": 2}})
    monkeypatch.setattr("django_txtasks.features.traces.tracing.TracedRun.end", None)
    monkeypatch.setattr("django_txtasks.features.traces.tracing.tracers", [ends.Follower()])
    handle = ends.hold_lane.enqueue("traced", "orm")
    with helpers.working(**slots):
        row = ended(handle)
    assert [one["type"] for one in row.errors] == ["Retry"]
    assert "The outcome of the attempt stays" in caplog.text
