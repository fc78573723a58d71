"""A worker ends although a task has left a thread behind."""

import os
import signal
import subprocess
import sys

import helpers
import pytest
from probe import sessions

pytestmark = pytest.mark.once


def test_a_thread_that_a_task_has_left_keeps_no_worker_that_is_told_to_stop(processes):
    sessions.leave_a_thread.enqueue()
    process = processes.start("runworkers")
    helpers.wait_until(lambda: helpers.runs("thread"), what=lambda: processes.log_of(process))
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


HANGS = """
import os, time
from django_txtasks.worker import supervisor
from django_txtasks.worker.stopping import Stop

supervisor.PATIENCE_WITH_LOOP = 0.1
orders, ours = os.pipe()
os.write(ours, b"s")
supervisor.obey(orders, Stop(0.1, ring=lambda: None))
time.sleep(3600)
"""


def test_a_worker_whose_loop_hangs_ends_after_one_order_to_stop():
    """As in a connection whose other end is gone: it never sees that its grace is over."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.run([sys.executable, "-c", HANGS], env=env, timeout=60, check=False)
    assert process.returncode == 1
