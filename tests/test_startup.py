"""The cost of starting: modules are imported only when they are needed, and worker processes are forks."""

import os
import subprocess
import sys
from pathlib import Path

import helpers
import pytest
from probe import tasks

from django_txtasks.models import Cleaner, Task, Worker

pytestmark = pytest.mark.once

WITHOUT_PEOPLE = """
import settings
for app in ("django_txtasks.contrib.people", "approvals"):
    settings.INSTALLED_APPS.remove(app)
"""
EARLY = """
from django.apps import AppConfig

class Early(AppConfig):
    name = "early"

    def ready(self):
        from django_txtasks.core.enqueueing import parts

        assert not parts.is_surrounded()
"""
WITHOUT_THE_APP = f"""{WITHOUT_PEOPLE}
for app in ("django_txtasks", "orders"):
    settings.INSTALLED_APPS.remove(app)
"""
NOT_AT_SETUP = (
    "admin.glance", "backends", "broker.connection", "cleaner", "contrib", "hints.channel", "inspection", "lanes",
    "lifecycle.cleaners", "lifecycle.cleaning", "lifecycle.engines", "lifecycle.turn", "management", "metrics",
    "overview",
    "schedules.changes", "schedules.periodic", "schedules.status", "schedules.ticks", "steps", "testing", "worker",
)  # fmt: skip
"""Rooms and modules that only single commands, pages, settings or features need."""
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
WITH_LATE_IMPORTS = """
from settings_for_tests import *
import atexit, os, pathlib, sys

def watch():
    before = set(sys.modules)

    def tell():
        late = sorted(set(sys.modules) - before)
        pathlib.Path(__file__).with_name(f"late-{os.getpid()}").write_text(" ".join(late))

    atexit.register(tell)

os.register_at_fork(after_in_child=watch)
"""
"""Each forked process writes the names of the modules that it has imported since."""
OF_CONNECTING = {"encodings.idna", "encodings.unicode_escape", "stringprep", "unicodedata"}
OF_DJANGO = {"django.core.cache.backends.locmem"}
OF_SCHEDULES = {"cronsim", "cronsim.cronsim", "django_txtasks.features.schedules.changes"}
"""Only the cleaner imports them."""


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


def test_setup_imports_no_library_that_django_does_not_import_itself():
    modules = imported_by(f"{WITHOUT_PEOPLE}\nimport django; django.setup()")
    without = imported_by(f"{WITHOUT_THE_APP}\nimport django; django.setup()")
    added = {name.split(".")[0]: name for name in modules - without}
    assert added.keys() - {"django_txtasks", "orders", "__future__"} <= {"django"}
    assert added.get("django") in (None, "django.contrib.admin.views.main")


def test_setup_imports_no_code_of_workers_cleaners_and_single_pages():
    """Each process of a project pays for the imports of the app's start: time, and memory."""
    modules = imported_by(f"{WITHOUT_PEOPLE}\nimport django; django.setup()")
    early = {
        name
        for name in modules
        for later in NOT_AT_SETUP
        if f"{name}.".startswith(f"django_txtasks.{later}.")
    }
    assert "django_txtasks.admin.schedules" in modules
    assert not early


def test_an_app_before_this_one_may_enqueue_in_its_ready(tmp_path):
    """What features add to an enqueueing is there before Django starts the first app."""
    (tmp_path / "early.py").write_text(EARLY)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import settings; settings.INSTALLED_APPS = ['early.Early', *settings.INSTALLED_APPS]\n"
        "import django; django.setup()"
    )
    modules = imported_by(code)
    assert "early" in modules
    assert {
        "django_txtasks.features.once.of_calls",
        "django_txtasks.features.links.of_calls",
    } <= modules


def test_without_a_broker_a_worker_never_imports_pika():
    modules = imported_by(
        "import django; django.setup()\n"
        "import django_txtasks.management.commands.runworkers\n"
        "import django_txtasks.management.commands.runcleaner"
    )
    assert "django_txtasks.core.working.worker" in modules
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


@pytest.mark.parametrize("has_broker", [False, True], ids=["database", "broker"])
def test_forked_processes_share_their_modules(request, rows, processes, tmp_path, has_broker):
    """A module that each of them imports for itself takes its memory and its time in each."""
    if has_broker:
        request.getfixturevalue("broker")
    (tmp_path / "late_settings.py").write_text(WITH_LATE_IMPORTS)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    env = {"DJANGO_SETTINGS_MODULE": "late_settings", "PYTHONPATH": path}
    supervisor = processes.start("runworkers", env=env, with_cleaner=True)
    helpers.wait_until(lambda: Cleaner.objects.filter(passed_at__isnull=False).exists())
    handles = [one.enqueue("x") for one in (tasks.note, tasks.atomic_note, tasks.enqueue_another)]
    failing = tasks.fail.enqueue()
    helpers.wait_until(lambda: all(helpers.finished(handle.id) for handle in handles))
    helpers.wait_until(lambda: Task.objects.get(id=failing.id).failures)
    supervisor.terminate()
    assert supervisor.wait(60) == 0
    late = [set(file.read_text().split()) for file in tmp_path.glob("late-*")]
    assert len(late) == 2  # worker and cleaner
    assert set().union(*late) <= OF_CONNECTING | OF_DJANGO | OF_SCHEDULES
    assert not set.intersection(*late) & OF_SCHEDULES


def test_a_forked_worker_ends_after_its_share_of_the_tasks(rows, processes):
    handles = [tasks.note.enqueue() for _ in range(3)]
    process = processes.start("runworkers", "--processes=2", "--max-tasks=3")
    assert process.wait(60) == 0
    assert all(helpers.finished(handle.id) for handle in handles)
