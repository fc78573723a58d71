"""A task of five steps, killed, failed and frozen at every boundary and inside each step: each effect once.

Real workers and a cleaner; each task says at which place it meets its fault, once.
"""

import helpers
import pytest
from django.db import connection, transaction
from failpoints import steps
from probe.models import Run

from django_txtasks.models import Step, Task, Worker

QUICK = {
    "heartbeat_interval": 0.2,
    "lease": 3,
    "poll_interval": 0.1,
    "clean_interval": 1,
    "retry_base": 0.01,
    "retry_ceiling": 0.01,
}


@pytest.fixture
def started(processes, txtasks):
    """Workers and a cleaner; gives their log."""
    txtasks(**QUICK)
    env = {"DJANGO_SETTINGS_MODULE": "failpoints.settings", "TXTASKS_STEP_FAULTS": "1"}
    return start(processes, 3, env)


def start(processes, count, env):
    """Start workers and a cleaner, and wait for the workers; return a function that returns all logs."""
    arguments = ("runworkers", f"--processes={count}", "--threads=1")
    all_ = [processes.start(*arguments, env=env), processes.start("runcleaner", env=env)]

    def log():
        return "\n".join(processes.log_of(one) for one in all_)

    helpers.wait_until(lambda: Worker.objects.count() == count, what=log)
    return log


def faults():
    """Only PostgreSQL's driver shows the socket that is to be cut."""
    return ["kill", "raise", *(["cut"] if connection.vendor == "postgresql" else [])]


def kind_of(key):
    return key.rpartition(" ")[2]


def check(kinds, directory, log):
    """Run a task for each place and fault. Each step has one effect, which matches its returned value."""
    from failpoints import tasks  # declares tasks, which other tests do not know

    with transaction.atomic():  # else a frozen worker would hold SQLite's lock before all are there
        handles = {
            f"{place} {kind}": tasks.five_steps.enqueue(
                f"{place} {kind}", place, kind, str(directory)
            )
            for kind in kinds
            for place in steps.PLACES
        }
    helpers.wait_until(lambda: helpers.patiently(lambda: not Task.objects.exists()), what=log)
    for key, handle in handles.items():
        assert (directory / key).exists(), f"{key}: the fault has not struck"
        effects = {one.key: one.pk for one in Run.objects.filter(key__startswith=f"{key} ")}
        done = helpers.finished(handle.id)
        assert [effects[f"{key} {number}"] for number in steps.NUMBERS] == done.result, key
        assert Run.objects.filter(key__startswith=f"{key} ").count() == len(steps.NUMBERS), key
        assert done.attempt >= 2 or kind_of(key) in ("cut", "stop"), (
            key
        )  # which need not end an attempt
        assert Step.objects.filter(task_id=handle.id).count() == len(steps.NUMBERS)


def test_each_step_happens_once_whatever_kills_or_fails_an_attempt(started, tmp_path):
    check(faults(), tmp_path, started)


def test_each_step_happens_once_where_workers_freeze_and_wake_up(started, tmp_path):
    """For two leases: they are declared lost, their tasks go on elsewhere, and they come back with their step."""
    check(["stop"], tmp_path, started)
