"""A child that does nothing is killed and replaced, and one request to stop ends it in any case."""

import os
import signal
from datetime import timedelta

import helpers
import pytest
from probe import tasks

from django_txtasks.conf import Config
from django_txtasks.models import Cleaner, Worker
from django_txtasks.processes import child as children
from django_txtasks.processes import patience, probes
from django_txtasks.processes.child import Assignment, Role
from django_txtasks.processes.patience import Patience
from django_txtasks.processes.probes import Liveness, LivenessOfAll
from django_txtasks.processes.supervisor import Supervisor

pytestmark = pytest.mark.once
THREADS, LOOP = ["--threads=4"], ["--processes=0", "--async-tasks=10"]


@pytest.fixture
def start(rows, txtasks, processes):
    """Start ``runworkers`` with short times; return the command when its worker is registered."""
    txtasks(heartbeat_interval=0.3, lease=2, grace=1, poll_interval=0.2)

    def start(*options, **more):
        command = processes.start("runworkers", *options, **more)
        helpers.wait_until(
            lambda: Worker.objects.filter(beat__gt=0), what=lambda: processes.log_of(command)
        )
        return command

    return start


@pytest.mark.parametrize(
    ("options", "keep_the_gil", "other"),
    [
        (THREADS, tasks.keep_the_gil, tasks.note),
        (LOOP, tasks.keep_the_gil_of_the_loop, tasks.note_async),
    ],
    ids=["threads", "loop"],
)
def test_a_process_whose_gil_a_c_call_keeps_is_replaced(
    start, processes, options, keep_the_gil, other
):
    command = start(*options)
    keep_the_gil.enqueue("gil")
    helpers.wait_until(lambda: helpers.runs("gil"))
    other.enqueue("other")
    helpers.wait_until(lambda: helpers.runs("other"), what=lambda: processes.log_of(command))
    assert "a C call such as a regular expression kept the GIL" in processes.log_of(command)


def test_one_signal_ends_a_command_whose_child_keeps_the_gil(start, processes):
    command = start()
    worker = Worker.objects.get().pid
    tasks.keep_the_gil.enqueue("gil")
    helpers.wait_until(lambda: helpers.runs("gil"))
    command.terminate()
    assert command.wait(60) == 1
    assert f"Supervisor: worker process {worker} ended with signal 9" in processes.log_of(command)


def test_a_stopped_worker_and_a_stopped_cleaner_are_replaced(start, processes):
    command = start(with_cleaner=True)
    helpers.wait_until(Cleaner.objects.exists)
    stopped = {Worker.objects.get().pid, Cleaner.objects.get().pid}
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    helpers.wait_until(
        lambda: (
            Worker.objects.exclude(pid__in=stopped) and Cleaner.objects.exclude(pid__in=stopped)
        ),
        what=lambda: processes.log_of(command),
    )
    assert processes.log_of(command).count("had given no sign of life") == 2


def test_a_stopped_watcher_of_the_load_is_replaced(start, processes):
    command = start("--processes=1..2")
    (line,) = [one for one in processes.log_of(command).splitlines() if "load watcher" in one]
    watcher = int(line.split()[-1].strip("."))
    os.kill(watcher, signal.SIGSTOP)
    helpers.wait_until(
        lambda: processes.log_of(command).count("started load watcher") == 2,
        what=lambda: processes.log_of(command),
    )


def program(directory, text):
    path = directory / "program"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return Assignment([str(path)])


def test_a_child_that_hangs_before_it_begins_is_replaced_and_has_more_time_then(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(patience, "START_SECONDS", 0.4)
    hangs_twice = "echo >> starts; [ `wc -l < starts` -gt 2 ] || exec sleep 600"
    supervisor = Supervisor(
        [program(tmp_path, f"cd {tmp_path}; {hangs_twice}")],
        finite=True,
        patience=Patience(silence=0.1),
    )
    assert supervisor.run() == 0
    assert "because it had not begun its work after 0 s" in caplog.text
    assert "because it had not begun its work after 1 s" in caplog.text


def test_a_child_that_does_not_heed_one_request_to_stop_is_killed(monkeypatch, caplog):
    monkeypatch.setattr(children, "FROZEN_SECONDS", 0.2)
    worker, cleaner = (
        Assignment(["sleep", "600"], role=role) for role in (Role.WORKER, Role.CLEANER)
    )
    supervisor = Supervisor([worker, cleaner], finite=False, patience=Patience(grace=0.2))
    for child in supervisor.children:
        supervisor._look_after(child)
    supervisor.stop.request()
    assert supervisor.run() == 1
    assert caplog.text.count("the supervisor sent it, because the process was frozen") == 2


def test_time_in_which_the_supervisor_itself_did_not_run_is_no_silence(monkeypatch):
    """A laptop that slept, a container that was paused."""
    supervisor = Supervisor(
        [Assignment(["sleep", "600"])], finite=False, patience=Patience(silence=60)
    )
    (child,) = supervisor.children
    supervisor._look_after(child)
    supervisor._heard_at -= 24 * 3600
    supervisor._watch()
    supervisor._look_after(child)
    try:
        assert child.running
        assert child._pipes.hearing.silent <= 1.0
    finally:
        os.kill(child.pid, signal.SIGKILL)
        helpers.wait_until(lambda: child.ended() is not None)
        helpers.wait_until(lambda: supervisor._end_programs() or not supervisor._remains)


def test_a_process_of_several_loops_hangs_if_one_of_them_does(monkeypatch):
    monkeypatch.setattr(probes, "TURN_TIMEOUT", timedelta(0))
    lasting, short = Liveness(timedelta(hours=1)), Liveness(timedelta(0))
    both = LivenessOfAll([lasting, short])
    states = [both.state()]
    lasting.turned()
    states.append(both.state())
    short.turned()
    assert [*states, both.state()] == [None, None, False]


def test_with_reload_no_child_is_killed_for_its_silence():
    """A debugger stops it for as long as a person likes."""
    config = Config(lease=timedelta(seconds=15), grace=timedelta(seconds=30))
    assert Patience.of(config, reloads=False) == (30, 45)
    assert Patience.of(config, reloads=True) == (30, float("inf"))


def test_a_breakpoint_in_a_thread_of_a_task_is_no_silence(start, processes):
    """Only this thread waits, so the loop turns."""
    command = start("--threads=2")
    worker = Worker.objects.get()
    tasks.slow.enqueue("breakpoint", 600)
    longer = worker.beat + 2 * patience.LEAST_SECONDS / 0.3
    helpers.wait_until(lambda: Worker.objects.filter(beat__gt=longer))
    assert Worker.objects.get().pid == worker.pid, processes.log_of(command)
