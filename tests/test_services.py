"""The private servers that other tests stop and start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest
import services

pytestmark = pytest.mark.once

SERVICES = Path(services.__file__)
IF_ASKED = [sys.executable, SERVICES, "--if-asked", "--"]


def test_a_server_keeps_its_port_and_data_while_stopped_and_nothing_when_closed():
    with services.Postgres() as server:
        directory, url = server.home.path, server.url
        with psycopg.connect(url) as session:
            session.execute("CREATE TABLE kept ()")
        server.stop()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url)
        server.start()
        assert server.url == url
        with psycopg.connect(url) as session:
            session.execute("TABLE kept")
    assert not directory.exists()


def test_no_port_is_given_twice_though_its_server_has_not_started():
    """Two of 1,000 random ones would be the same nearly always."""
    choose = "from servers import free_port; print(*[free_port() for _ in range(500)], flush=True); input()"
    command = [sys.executable, "-c", choose]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        subprocess.Popen(command, cwd=SERVICES.parent, **pipes) as first,
        subprocess.Popen(command, cwd=SERVICES.parent, **pipes) as second,
    ):
        ports = [port for one in (first, second) for port in one.stdout.readline().split()]
        for one in (first, second):
            one.communicate("\n")
    assert len(set(ports)) == 1000


def test_the_status_of_the_command_is_passed_on_and_what_it_left_running_is_ended():
    leave = "setsid sleep 60 > /dev/null & echo $!; exit 7"
    done = subprocess.run([*IF_ASKED, "sh", "-c", leave], stdout=subprocess.PIPE, check=False)
    assert done.returncode == 7
    wait_until(lambda: not lives(int(done.stdout)))


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_killed_takes_its_servers_and_its_command_along(sig):
    tell = "echo $TXTASKS_DATABASE_URL; echo $$; exec sleep 60"
    command = [*IF_ASKED, "sh", "-c", tell, "--postgres"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        url, pid = run.stdout.readline().strip(), int(run.stdout.readline())
        psycopg.connect(url).close()
        run.send_signal(sig)
    wait_until(lambda: not answers(url))
    wait_until(lambda: not lives(pid))


@pytest.mark.parametrize("environment", [{}, {"PYTHONHASHSEED": "1"}], ids=["forked", "new"])
def test_tests_that_are_killed_take_their_commands_along(environment):
    """A command is forked, or a new process if its environment needs one."""
    script = f"""
import django; django.setup()
import helpers, time
processes = helpers.Processes(dict)
started = processes.start("shell", "-c", "import time; time.sleep(60)", env={environment})
print(started.pid, flush=True)
time.sleep(60)
"""
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "settings_for_tests"}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as run:
        pid = int(run.stdout.readline())
        assert lives(pid)
        run.kill()
    wait_until(lambda: not lives(pid))


def answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


def lives(pid: int) -> bool:
    """Return True if the process is running; one that has ended may still wait for its parent."""
    try:
        os.kill(pid, 0)
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False


def wait_until(true) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)
