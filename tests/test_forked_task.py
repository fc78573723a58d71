"""Task functions that fork: what the child does at its end is no business of the worker that it is a copy of."""

import helpers
import pytest
from probe import tasks

pytestmark = pytest.mark.usefixtures("rows", "quick")
ENDS = {"return": 0, "raise": 1, "exit": 7}


@pytest.mark.parametrize(
    "function",
    [tasks.fork, tasks.fork_atomic, tasks.fork_async],
    ids=["default", "atomic", "async"],
)
@pytest.mark.parametrize("end", ENDS)
def test_a_child_ends_with_the_function_and_commits_nothing(processes, function, end):
    handle = function.enqueue("key", end)
    worker = processes.start("runworkers", "--threads=1", "--batch")
    assert worker.wait(helpers.PATIENCE) == 0
    done = helpers.finished(handle.id)
    assert done.result == ["parent", ENDS[end]]
    assert (helpers.runs("key parent"), helpers.runs("key child")) == (1, 0)
    assert ("ZeroDivisionError" in processes.log_of(worker)) is (end == "raise")
