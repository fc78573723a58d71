"""The cost of starting: modules are imported only when they are needed, and worker processes are forks."""

import os
import subprocess
import sys
from pathlib import Path

import helpers
import pytest
from probe import tasks

from django_txtasks.models import Worker

pytestmark = pytest.mark.once

WITH_A_THREAD = """
from settings_for_tests import *
import threading, time
threading.Thread(target=time.sleep, args=[3600], daemon=True).start()
"""
WITH_A_CONNECTION = """
from settings_for_tests import *
import socket
LINKS = socket.socketpair()
"""


def imported_by(code: str) -> set[str]:
    """Return the names of the modules that a process of the example project has after this code."""
    shown = f"{code}\nimport sys; print(*sys.modules)"
    path = os.pathsep.join(filter(None, sys.path))
    env = {**os.environ, "PYTHONPATH": path, "DJANGO_SETTINGS_MODULE": "settings"}
    return set(subprocess.check_output([sys.executable, "-c", shown], text=True, env=env).split())


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def pipes_of(pid: int) -> set[str]:
    """Return the open pipes of a process, without its output, which it may share."""
    folder = Path(f"/proc/{pid}/fd")
    shown = {number.name: os.readlink(number) for number in folder.iterdir()}
    return {
        link
        for number, link in shown.items()
        if link.startswith("pipe:") and number not in ("0", "1", "2")
    }


def test_setup_imports_neither_pika_nor_the_rooms_of_other_processes():
    modules = imported_by("import django; django.setup()")
    ours = {name for name in modules if name.startswith("django_txtasks.")}
    assert "pika" not in modules
    assert not {name for name in ours if name.split(".")[1] in ("worker", "cleaner", "health")}


def test_without_a_broker_a_worker_never_imports_pika():
    modules = imported_by(
        "import django; django.setup()\n"
        "import django_txtasks.management.commands.runworkers\n"
        "import django_txtasks.management.commands.runcleaner"
    )
    assert "django_txtasks.worker.worker" in modules
    assert "pika" not in modules


def test_workers_are_forks_that_share_no_pipe(rows, processes):
    """A pipe's end tells them that the supervisor is gone: one that a neighbour has, too, would not end."""
    supervisor = processes.start("runworkers", "--processes=2")
    helpers.wait_until(lambda: Worker.objects.count() == 2)
    first = Worker.objects.first().pid
    os.kill(first, 9)  # the one that follows it is forked while its neighbour has a pipe
    helpers.wait_until(lambda: Worker.objects.exclude(pid=first).count() == 2)
    pids = list(Worker.objects.exclude(pid=first).values_list("pid", flat=True))
    assert {command_of(pid) for pid in pids} == {command_of(supervisor.pid)}
    assert not pipes_of(pids[0]) & pipes_of(pids[1])
    assert all(os.getsid(pid) == pid for pid in pids)
    handle = tasks.note.enqueue()
    helpers.wait_until(lambda: helpers.finished(handle.id))


@pytest.mark.parametrize("settings_module", [WITH_A_THREAD, WITH_A_CONNECTION])
def test_a_project_with_threads_or_connections_is_not_forked(
    rows, processes, tmp_path, settings_module
):
    """A copy would lack the thread, and read what is meant for the other process."""
    (tmp_path / "shared_settings.py").write_text(settings_module)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    env = {"DJANGO_SETTINGS_MODULE": "shared_settings", "PYTHONPATH": path}
    processes.start("runworkers", env=env)
    helpers.wait_until(Worker.objects.exists)
    assert "--child-of-database" in command_of(Worker.objects.get().pid)


def test_a_forked_worker_ends_after_its_share_of_the_tasks(rows, processes):
    handles = [tasks.note.enqueue() for _ in range(3)]
    process = processes.start("runworkers", "--processes=2", "--max-tasks=3")
    assert process.wait(60) == 0
    assert all(helpers.finished(handle.id) for handle in handles)
