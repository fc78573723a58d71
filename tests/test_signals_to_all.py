"""A stop signal that goes to all processes at once, as of systemd, ends a command well, whatever they do."""

import os
import signal
import sys
import threading
from pathlib import Path

import helpers
import pytest
from process_tree import children

from django_txtasks.models import Worker
from django_txtasks.processes.child import Assignment
from django_txtasks.processes.orders import PIPE
from django_txtasks.processes.supervisor import Supervisor


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGKILL, 1), (signal.SIGSEGV, 1)],
)
def test_a_child_may_end_by_a_stop_signal_and_by_no_other_one(number, code):
    """It has got the order, and knows no signal yet."""
    script = f"import os; os.read(int(os.environ['{PIPE}']), 1); os.kill(os.getpid(), {number:d})"
    supervisor = Supervisor([Assignment([sys.executable, "-c", script])], finite=False)
    codes = []
    thread = threading.Thread(target=lambda: codes.append(supervisor.run()))
    thread.start()
    helpers.wait_until(lambda: supervisor.children[0].running)
    supervisor.stop.request()
    thread.join()
    assert codes == [code]


@pytest.mark.usefixtures("rows")
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="Linux alone lists children")
@pytest.mark.parametrize("option", ["--threads=1", "--reload"], ids=["forked", "by command line"])
def test_a_worker_that_has_just_been_started_again_gets_the_signal_too(option, processes):
    command = processes.start("runworkers", option)
    first = helpers.wait_until(Worker.objects.filter(beat__gt=0).first)
    os.kill(first.pid, signal.SIGKILL)
    (again,) = helpers.wait_until(
        lambda: [one for one in children(command.pid) if one != first.pid]
    )
    for pid in (command.pid, again):
        os.kill(pid, signal.SIGTERM)
    assert command.wait(60) == 0, processes.log_of(command)
    processes.end()
