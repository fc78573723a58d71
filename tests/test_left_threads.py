"""A worker ends although a task has left a thread behind."""

import signal

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
