"""Workers beside a web server end with it, however it ends, and there is one supervisor for each server."""

import contextlib
import os
import signal
import socket
import subprocess
import sys

import helpers
import pytest
from probe import tasks
from process_tree import children
from servers import free_port

from django_txtasks import embedded
from django_txtasks.exceptions import ConfigError
from django_txtasks.models import Cleaner, Worker
from django_txtasks.processes.orders import PARENT_PIPE, PIPE

pytestmark = [pytest.mark.usefixtures("rows"), pytest.mark.once]

SERVER = """
import os, sys, time
from django_txtasks.embedded import start_workers

workers = start_workers("--threads=1", program=[sys.executable, "-m", "django"])
if os.fork() == 0:  # a web process, which outlives its parent
    time.sleep(600)
for order in sys.stdin:
    getattr(workers, order.strip())()
    print("done", flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def times(txtasks):
    txtasks(poll_interval=0.1, grace=30)


@pytest.fixture
def server(processes):
    """A process that has started workers, and then a child of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        env=processes._environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        one_is_there()
        yield process
    finally:
        end_group(process)
    none_is_there()


def tell(server, order):
    """Let the server call a method of its workers; return when the call has returned."""
    server.stdin.write(f"{order}\n".encode())
    server.stdin.flush()
    assert b"done\n" in iter(server.stdout.readline, b"")  # tasks print into it, too


def end_group(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in filter(None, (process.stdin, process.stdout)):
        pipe.close()


def pids(model):
    return list(model.objects.values_list("pid", flat=True))


def one_is_there(*, but=(), seconds=helpers.PATIENCE):
    """Wait until one worker and one cleaner are there, which are none of ``but``; return the pids of both."""

    def look():
        found = [*pids(Worker), *pids(Cleaner)]
        return found if len(found) == 2 and not set(found) & set(but) else None

    return helpers.wait_until(look, seconds)


def none_is_there():
    helpers.wait_until(lambda: not Worker.objects.exists() and not Cleaner.objects.exists())


# -- any server ---------------------------------------------------------------------------------------


def test_workers_run_tasks_and_stop_when_told(server):
    handle = tasks.slow_once.enqueue("running", seconds=0.5)
    helpers.wait_until(lambda: helpers.runs("running"))
    tell(server, "stop")
    assert helpers.finished(handle.id)  # it has been waited for
    assert not Worker.objects.exists()


def test_workers_end_with_a_killed_server_although_its_web_processes_live(server):
    server.kill()
    none_is_there()


def test_a_restart_starts_others_and_lets_running_tasks_end(server):
    old = one_is_there()
    handle = tasks.slow_once.enqueue("running", seconds=1)
    helpers.wait_until(lambda: helpers.runs("running"))
    tell(server, "restart")
    one_is_there(but=old)
    assert helpers.finished(handle.id).attempt == 1
    tell(server, "stop")
    assert not Worker.objects.exists()


def test_without_manage_py_the_error_says_what_to_pass(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"There is no manage\.py in .*program="):
        embedded.start_workers()


@pytest.mark.parametrize("pipe", [PARENT_PIPE, PIPE], ids=["supervisor", "its child"])
def test_workers_that_start_workers_are_refused(processes, tmp_path, pipe):
    """Each command that loads this app would start another one, without end."""
    (tmp_path / "endless.py").write_text(
        "from django.apps import AppConfig\n"
        "class Endless(AppConfig):\n"
        "    name = 'endless'\n"
        "    def ready(self):\n"
        "        from django_txtasks.embedded import start_workers\n"
        "        start_workers(program=['false'])\n"
    )
    (tmp_path / "settings_of_endless.py").write_text(
        "from settings_for_tests import *\nINSTALLED_APPS = [*INSTALLED_APPS, 'endless.Endless']\n"
    )
    environment = processes._environment()
    reader, writer = os.pipe()
    try:
        command = subprocess.run(
            [sys.executable, "-m", "django", "runworkers", "--batch"],
            env={
                **environment,
                "PYTHONPATH": os.pathsep.join([str(tmp_path), environment["PYTHONPATH"]]),
                "DJANGO_SETTINGS_MODULE": "settings_of_endless",
                pipe: str(reader),
            },
            pass_fds=[reader],
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(reader)
        os.close(writer)
    assert command.returncode == 1
    assert b"start_workers() was called in the process of the workers" in command.stderr


def test_windows_is_refused_in_a_sentence(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ConfigError, match="does not work on Windows"):
        embedded.start_workers(program=["manage"])


# -- runserver ----------------------------------------------------------------------------------------


@pytest.fixture
def runserver(processes, txtasks, tmp_path):
    """Start ``runserver`` with ``with_runserver``, and with an app whose file changes."""
    watched = tmp_path / "changing" / "models.py"
    watched.parent.mkdir()
    watched.write_text("")
    (watched.parent / "__init__.py").write_text("")
    (tmp_path / "settings_of_runserver.py").write_text(
        "from settings_for_tests import *\nINSTALLED_APPS = [*INSTALLED_APPS, 'changing']\n"
    )
    started, port = [], free_port()

    def answers():
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", port)) == 0

    def start(*options, on=True, by_option=False):
        """Args: by_option: the path of the settings is an option, not in the environment."""
        txtasks(with_runserver=on)
        environment = processes._environment()
        path = environment["PYTHONPATH"]
        if by_option:
            options = (*options, "--pythonpath", str(tmp_path))
        else:
            path = os.pathsep.join([str(tmp_path), path])
        process = subprocess.Popen(
            [sys.executable, "-m", "django", "runserver", f"127.0.0.1:{port}", *options],
            env={
                **environment,
                "PYTHONPATH": path,
                "PYTHONDONTWRITEBYTECODE": "1",
                "DJANGO_SETTINGS_MODULE": "settings_of_runserver",
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        started.append(process)
        return process

    def touch(text=""):
        watched.write_text(text)
        later = watched.stat().st_mtime + 10 * len(started)
        os.utime(watched, (later, later))
        started.append(None)

    start.touch, start.answers = touch, answers
    yield start
    for process in filter(None, started):
        end_group(process)
    none_is_there()


def child_of(process):
    """The process of ``runserver`` that serves."""
    return children(process.pid)[0]


def test_runserver_has_one_supervisor_after_each_reload(runserver):
    runserver()
    there = one_is_there()
    for _ in range(3):
        runserver.touch()
        there = one_is_there(but=there)
    handle = tasks.note.enqueue()
    helpers.wait_until(lambda: helpers.finished(handle.id))


def test_workers_have_the_python_path_of_runserver(runserver):
    runserver("--noreload", by_option=True)
    one_is_there()


def test_on_windows_runserver_says_that_it_starts_no_workers(monkeypatch, txtasks):
    txtasks(with_runserver=True)
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(sys, "argv", [__file__, "runserver", "--noreload"])
    with pytest.warns(RuntimeWarning, match="with_runserver.* does not work on Windows"):
        embedded.start_with_runserver()


def test_a_syntax_error_ends_the_workers_and_its_repair_starts_them(runserver):
    runserver()
    there = one_is_there()
    runserver.touch("(")
    none_is_there()
    for _ in range(10):  # Django's reloader misses a change between its start and its first look
        runserver.touch()
        with contextlib.suppress(AssertionError):
            one_is_there(but=there, seconds=helpers.PATIENCE / 10)
            return
    pytest.fail("no worker has started since the repair")


def test_without_the_setting_runserver_starts_none(runserver):
    process = runserver(on=False)
    helpers.wait_until(runserver.answers)
    assert children(child_of(process)) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_workers_end_with_runserver(runserver, number):
    process = runserver()
    one_is_there()
    os.killpg(process.pid, number)
    process.wait(60)
    none_is_there()


def test_workers_end_with_a_killed_server_of_runserver(runserver):
    process = runserver()
    one_is_there()
    os.kill(child_of(process), signal.SIGKILL)
    none_is_there()


def test_workers_end_with_runserver_without_its_reloader(runserver):
    process = runserver("--noreload")
    one_is_there()
    process.terminate()
    process.wait(60)
    none_is_there()


def test_a_frozen_supervisor_keeps_no_server_from_ending(monkeypatch, processes, txtasks):
    txtasks(grace=0)
    monkeypatch.setattr(embedded, "END_SECONDS", 0.1)
    for name, value in processes._environment().items():
        monkeypatch.setenv(name, value)
    workers = embedded.start_workers(program=[sys.executable, "-m", "django"])
    one_is_there()
    (supervisor,) = workers._processes
    supervisor.send_signal(signal.SIGSTOP)
    workers.stop()
    assert supervisor.returncode == -signal.SIGKILL
    none_is_there()
