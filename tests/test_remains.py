"""The programs that tasks have started end after the process of these tasks, however it has ended."""

import os
import signal
import time
from pathlib import Path

import helpers
import pytest
from probe import programs

from django_txtasks.database.processes import is_there
from django_txtasks.models import Worker
from django_txtasks.processes import remains
from django_txtasks.processes.child import Assignment
from django_txtasks.processes.supervisor import Supervisor

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="Linux alone lists processes"),
]
FIRST_LEAVES = """
mkdir "$0.first" || exec sleep 600
sh -c "$1" "$0" &
while [ ! -e "$0" ]; do sleep 0.01; done
exit 3
"""
"""The first process of a child starts a program and ends; the second one stays."""


def pid_in(file):
    return helpers.wait_until(lambda: file.exists() and int(file.read_text()))


def started(directory):
    """Wait for the programs of ``start_programs``; return their ids by name."""
    return {name: pid_in(directory / name) for name in (*programs.NAMES, "own_session")}


def end_of_all(pids):
    """Wait for the end of all programs, but not of the one with its own session, which is ended here."""
    own = pids.pop("own_session")
    try:
        helpers.wait_until(
            lambda: not any(map(is_running, pids.values())),
            what=lambda: str([name for name, pid in pids.items() if is_running(pid)]),
        )
        assert is_running(own)
    finally:
        for pid in (own, *pids.values()):
            if is_running(pid):
                os.kill(pid, signal.SIGKILL)


def is_running(pid):
    return bool(is_there(pid, ""))


def kill_worker(command, worker):
    os.kill(worker.pid, signal.SIGKILL)


def stop_command(command, worker):
    command.terminate()
    assert command.wait(helpers.PATIENCE) == 1  # the task was cut short


def kill_supervisor(command, worker):
    command.kill()


@pytest.mark.parametrize("end", [kill_worker, stop_command, kill_supervisor])
def test_programs_end_after_their_process(end, processes, quick, tmp_path):
    command = processes.start("runworkers", "--threads=4")
    programs.start_programs.enqueue(str(tmp_path), 600)
    pids = started(tmp_path)
    end(command, Worker.objects.get())
    end_of_all(pids)


def test_programs_end_after_a_process_that_was_recycled(processes, quick, tmp_path):
    command = processes.start("runworkers", "--threads=4", "--max-tasks-per-process=1")
    handle = programs.start_programs.enqueue(str(tmp_path), 0)
    helpers.wait_until(lambda: helpers.finished(handle.id))
    end_of_all(started(tmp_path))
    assert "has left running processes behind" in processes.log_of(command)


def test_programs_end_after_the_process_of_the_event_loop(processes, quick, tmp_path):
    processes.start("runworkers", "--processes=0", "--async-tasks=4")
    programs.start_programs_async.enqueue(str(tmp_path))
    pids = started(tmp_path)
    os.kill(Worker.objects.get().pid, signal.SIGKILL)
    end_of_all(pids)


def test_the_fork_of_a_task_does_not_hide_the_end_of_its_worker(
    processes, quick, txtasks, tmp_path
):
    """It keeps the worker's session and its connection to RabbitMQ open as long as it lives."""
    txtasks(lease=600)
    processes.start("runworkers", "--threads=4", with_cleaner=True)
    handle = programs.start_programs.enqueue(str(tmp_path), 600)
    pids = started(tmp_path)
    os.kill(Worker.objects.get().pid, signal.SIGKILL)
    assert helpers.wait_until(lambda: helpers.finished(handle.id)).attempt == 2
    end_of_all(pids)


def test_a_replacement_does_not_wait_for_the_programs(monkeypatch, tmp_path):
    """Their session keeps its id meanwhile, because the ended child is collected last."""
    monkeypatch.setattr(remains, "GRACE_SECONDS", 600)
    file = tmp_path / "program"
    command = ["sh", "-c", FIRST_LEAVES, str(file), programs.STUBBORN]
    supervisor = Supervisor([Assignment(command)], finite=False)
    (child,) = supervisor.children
    with helpers.second_session(supervisor.run):
        try:
            program = pid_in(file)
            first = os.getsid(program)
            helpers.wait_until(lambda: child.running and child.pid != first)
            assert is_running(program)
            assert exit_code_of(first) == 3
            supervisor._remains[0]._kill_at = time.monotonic()
            helpers.wait_until(lambda: not (supervisor._remains or is_running(program)))
            with pytest.raises(ChildProcessError):
                exit_code_of(first)
        finally:
            supervisor.stop.request()
            os.kill(child.pid, signal.SIGTERM)  # it hears no orders


def exit_code_of(pid):
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT).si_status
