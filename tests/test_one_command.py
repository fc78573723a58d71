"""``runworkers`` keeps a cleaner running beside its workers, which is enough for every kind of crash."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import helpers
import pytest
from django.core.management import call_command
from probe import tasks
from process_tree import children

from django_txtasks import signals
from django_txtasks.models import Cleaner, Status, Worker
from django_txtasks.processes.orders import PIPE

pytestmark = [
    pytest.mark.usefixtures("rows"),
    pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="Linux alone forks workers"),
]
NEVER = 600
FORKED, BY_COMMAND_LINE = "--threads=2", "--reload"


@pytest.fixture
def endless_leases(txtasks):
    """Endless leases, so that only two signs can prove a crash."""
    txtasks(heartbeat_interval=0.3, lease=NEVER, poll_interval=0.1, clean_interval=NEVER)


@pytest.fixture
def start(processes, endless_leases):
    """Start ``runworkers`` with its cleaner; return it when both are registered."""

    def start(*options, **env):
        known = pids(Cleaner)
        command = processes.start("runworkers", *options, env=env, with_cleaner=True)
        helpers.wait_until(
            lambda: pids(Cleaner) - known and Worker.objects.filter(lost=False, beat__gt=0),
            what=lambda: processes.log_of(command),
        )
        return command

    return start


def pids(model):
    return set(model.objects.values_list("pid", flat=True))


def command_of(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def has_ended(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def running(key):
    """Enqueue a task that sleeps in its first attempt only; return its handle once it runs."""
    handle = tasks.slow_once.enqueue(key)
    helpers.wait_until(lambda: helpers.runs(key))
    return handle


def ends_in_its_second_attempt(handle, key):
    helpers.wait_until(lambda: helpers.finished(handle.id))
    assert helpers.runs(key) == 2


# -- every kind of crash ------------------------------------------------------------------------------


def test_a_killed_workers_task_starts_again(start):
    start()
    handle = running("worker")
    os.kill(Worker.objects.get().pid, signal.SIGKILL)
    ends_in_its_second_attempt(handle, "worker")


@pytest.mark.parametrize("option", [FORKED, BY_COMMAND_LINE])
def test_a_killed_cleaner_is_started_again(start, option):
    start(option)
    (first,) = pids(Cleaner)
    os.kill(first, signal.SIGKILL)
    helpers.wait_until(lambda: pids(Cleaner) - {first})
    handle = running("cleaner")
    os.kill(Worker.objects.get().pid, signal.SIGKILL)
    ends_in_its_second_attempt(handle, "cleaner")


@pytest.mark.parametrize("option", [FORKED, BY_COMMAND_LINE])
def test_after_the_supervisor_was_killed_its_children_end(start, option):
    command = start(option)
    below = children(command.pid)
    assert len(below) == 2
    command.kill()
    helpers.wait_until(lambda: all(map(has_ended, below)))
    assert not Cleaner.objects.exists()  # both have ended in good order
    assert not Worker.objects.exists()


def test_after_all_was_killed_one_command_is_enough(start):
    command = start()
    handle = running("all")
    default = tasks.slow.enqueue("default")
    helpers.wait_until(lambda: helpers.runs("default"))
    for pid in (command.pid, *pids(Cleaner), *pids(Worker)):
        os.kill(pid, signal.SIGKILL)
    command.wait(60)
    start()
    ends_in_its_second_attempt(handle, "all")
    helpers.wait_until(lambda: helpers.row(default.id).status == Status.DEAD)


# -- the end ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", [FORKED, BY_COMMAND_LINE])
def test_a_worker_that_is_killed_while_it_stops_is_recovered_before_the_cleaner_stops(
    start, txtasks, processes, option
):
    txtasks(grace=NEVER)
    command = start(option)
    handle = running("stopping")
    worker = Worker.objects.get()
    command.terminate()
    helpers.wait_until(lambda: "Tasks still running" in processes.log_of(command))
    os.kill(worker.pid, signal.SIGKILL)
    helpers.wait_until(lambda: helpers.row(handle.id).status == Status.PENDING)
    assert command.wait(60) == 1
    assert not Cleaner.objects.exists()


@pytest.mark.parametrize("option", [FORKED, BY_COMMAND_LINE])
def test_an_orderly_stop_leaves_neither_worker_nor_cleaner(start, processes, option):
    command = start(option)
    command.terminate()
    assert command.wait(60) == 0, processes.log_of(command)
    assert not Cleaner.objects.exists()
    assert not Worker.objects.exists()


# -- who has none -------------------------------------------------------------------------------------


def test_without_a_cleaner_there_is_one_child(processes):
    command = processes.start("runworkers")  # this adds --no-cleaner
    helpers.wait_until(Worker.objects.exists)
    assert set(children(command.pid)) == pids(Worker)


@pytest.mark.once
@pytest.mark.parametrize("option", ["--batch", "--max-tasks=1"])
def test_a_command_that_ends_by_itself_has_no_cleaner(processes, option):
    tasks.note.enqueue()
    command = processes.start("runworkers", option, with_cleaner=True)
    assert command.wait(60) == 0
    log = processes.log_of(command)
    assert "started worker process" in log
    assert "cleaner process" not in log


@pytest.mark.once
def test_a_call_of_the_command_starts_no_process():
    started = []

    def note(**facts):
        started.append(facts)

    signals.child_started.connect(note)
    try:
        call_command("runworkers", max_tasks=1, batch=True, verbosity=0)
    finally:
        signals.child_started.disconnect(note)
    assert not started


@pytest.mark.once
def test_a_worker_that_has_a_supervisor_starts_no_cleaner(processes):
    """Somebody else keeps it running, as ``txtasks_verify`` does."""
    reader, writer = os.pipe()
    try:
        worker = subprocess.Popen(
            [sys.executable, "-m", "django", "runworkers"],
            env={**processes._environment(), PIPE: str(reader)},
            pass_fds=[reader],
            stderr=subprocess.DEVNULL,
        )
        helpers.wait_until(Worker.objects.exists)
        assert pids(Worker) == {worker.pid}
        assert not children(worker.pid)
    finally:
        os.close(writer)
        os.close(reader)
        assert worker.wait(60) == 0


# -- forks --------------------------------------------------------------------------------------------


def test_the_cleaner_is_a_fork_like_the_workers(start):
    command = start()
    below = children(command.pid)
    assert set(below) == pids(Worker) | pids(Cleaner)
    assert {command_of(pid) for pid in below} == {command_of(command.pid)}


def test_without_a_fork_the_cleaner_has_a_command_line(start):
    start(BY_COMMAND_LINE)
    (cleaner,) = pids(Cleaner)
    assert "--child-role=cleaner" in command_of(cleaner)


@pytest.mark.once
@pytest.mark.parametrize(("seconds", "may_fork"), [(0.03, True), (NEVER, False)])
def test_a_thread_that_is_about_to_end_is_waited_for(seconds, may_fork):
    """The look at the database has a thread, which the system lists for a moment after its end."""
    code = f"""
import threading, time
from django_txtasks.processes.forking import can_fork
threading.Thread(target=time.sleep, args=[{seconds}], daemon=True).start()
print(can_fork())
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    said = subprocess.check_output([sys.executable, "-c", code], text=True, env=env)
    assert said == f"{may_fork}\n"
