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
from django_txtasks.processes import orders
from django_txtasks.processes.shutdown import Shutdown

orders.LOOP_END_SECONDS = 0.1
pipe, ours = os.pipe()
stop = Shutdown(0.1, wake=lambda: None)
{before}
orders.obey(pipe, stop)
time.sleep(3600)
"""


@pytest.mark.parametrize("order", ["os.write(ours, b's')", "os.close(ours)"], ids=["order", "end"])
@pytest.mark.parametrize("signal", ["", "stop.request()"], ids=["alone", "after a signal"])
def test_a_worker_whose_loop_hangs_ends_after_one_order_to_stop(order, signal):
    """As in a connection whose other end is gone: it never sees that its grace is over."""
    code = HANGS.format(before=f"{order}\n{signal}")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        timeout=60,
        check=False,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 1
    assert (
        "Traceback" not in process.stderr
    )  # it has ended by itself, not by an error of this script
