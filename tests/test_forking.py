"""A worker that is a copy of the supervisor's process says nothing twice, and its end is seen in any case."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.once

FORK = """
import os, sys, time
from django_txtasks.processes.forking import fork
{before}
process = fork()
if process is None:
    sys.exit(3)
while (code := process.poll()) is None:
    time.sleep(0.01)
print("code", code)
"""


def said_by(code: str) -> str:
    """Return what a process prints that runs this code; its output is a file or a pipe, as in a container."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    env.pop("PYTHONUNBUFFERED", None)
    return subprocess.check_output([sys.executable, "-c", code], text=True, env=env)


def test_a_fork_prints_nothing_again_that_was_printed_before_it():
    assert said_by(FORK.format(before="print('loaded')")) == "loaded\ncode 3\n"


def test_the_end_of_a_fork_is_seen_where_somebody_else_reaps_children():
    """Whoever starts the supervisor may have told the system to; its exit code is unknown then."""
    ignored = "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
    assert said_by(FORK.format(before=ignored)) == "code 0\n"


def test_what_tasks_have_printed_is_written_before_a_process_ends_at_once():
    code = """
import django; django.setup()
from django_txtasks.management.console import end_process
print("by a task")
end_process(0)
"""
    assert said_by(code) == "by a task\n"
