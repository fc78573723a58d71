"""A task that kills its process is dead in the end, and the tasks that run beside it are not.

The first test takes seconds. The others, which ``TXTASKS_TEST_POISON`` turns on, begin with first attempts, have
the default settings, and take a minute each:

    TXTASKS_TEST_POISON=1 python tests/services.py -- python tests/every_database.py tests/test_poison.py

``TXTASKS_TEST_POISON=20`` runs each 20 times. ``TXTASKS_TEST_OTHER_RELEASE`` is the directory of another release
of the package, of which a second ``runworkers`` then serves the same database.
"""

import itertools
import os

import helpers
import pytest
from probe import many, on_loop, tasks

from django_txtasks import enqueue_many
from django_txtasks.models import FinishedTask, Status, Task

pytestmark = pytest.mark.usefixtures("rows")
RUNS = int(os.environ.get("TXTASKS_TEST_POISON") or 0)
OTHER_RELEASE = os.environ.get("TXTASKS_TEST_OTHER_RELEASE")
POISON = tasks.poison.declaration.name


def run_all(processes, *arguments, seconds=280):
    """Run all tasks; return the names of the dead ones."""
    started = [processes.start("runworkers", *arguments, with_cleaner=True)]
    if OTHER_RELEASE:
        tree = [OTHER_RELEASE, f"{OTHER_RELEASE}/tests", f"{OTHER_RELEASE}/testproject"]
        env = {"PYTHONPATH": os.pathsep.join(tree)}
        started.append(processes.start("runworkers", *arguments, env=env, with_cleaner=True))
    helpers.wait_until(
        lambda: not Task.objects.exclude(status=Status.DEAD),
        seconds,
        what=lambda: "\n".join(map(processes.log_of, started)),
    )
    return sorted(Task.objects.filter(status=Status.DEAD).values_list("task_name", flat=True))


@pytest.mark.once
def test_the_last_chances_of_a_poison_and_of_its_neighbours_run_alone(processes):
    enqueue_many([(tasks.poison, ()), *((tasks.neighbour, (f"n{n}",)) for n in range(8))])
    Task.objects.update(crashes=2)
    assert run_all(processes, "--threads=4") == [POISON]
    assert FinishedTask.objects.count() == 8


CASES = {
    "one": lambda: [tasks.poison],
    "two at once": lambda: [tasks.poison, tasks.poison],
    "max_crashes 1 and 2": lambda: [tasks.poison.using(max_crashes=n) for n in (1, 2)],
    "in a lane": lambda: [tasks.poison.using(lane="customer:1")],
    "in a call of many": lambda: [(many.kill, ("kill",)), *((many.kill, (f"m{n}",)) for n in range(9))],
    "on the loop": lambda: [on_loop.poison_of_many, *((on_loop.neighbour_of_many, (f"l{n}",)) for n in range(9))],
}  # fmt: skip


@pytest.fixture(params=range(RUNS or 1))
def run(request):
    """Run the test as often as it is asked for."""


CELLS = list(itertools.product(("4", "16"), ("alone", "broker")))
"""Threads, and whether there is RabbitMQ."""


@pytest.mark.skipif(not RUNS, reason="TXTASKS_TEST_POISON is not set")
@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("cell", CELLS, ids=" ".join)
@pytest.mark.parametrize("case", CASES)
def test_forty_neighbours_run_to_their_end(processes, txtasks, request, case, cell):
    threads, broker = cell
    if broker == "broker":
        request.getfixturevalue("broker")
    txtasks(lanes={"customer:*": {"at_most": 2}})
    poisons = [one if isinstance(one, tuple) else (one, ()) for one in CASES[case]()]
    lane = [(tasks.neighbour.using(lane="customer:1"), (f"c{n}",)) for n in range(4)]
    others = [(tasks.neighbour, (f"n{n}",)) for n in range(40)]
    enqueue_many([*poisons, *(lane if case == "in a lane" else ()), *others])
    async_tasks = ["--async-tasks=100"] if case == "on the loop" else []
    dead = run_all(processes, f"--threads={threads}", *async_tasks)
    innocent = [name for name in dead if name.endswith(("neighbour", "neighbour_of_many"))]
    assert not innocent, f"{len(innocent)} innocent tasks are dead"
    assert FinishedTask.objects.filter(task_name=tasks.neighbour.declaration.name).count() >= 40
    assert 1 <= len(dead) <= 2
