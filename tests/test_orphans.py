"""A command that is process 1 of a container collects the processes that others have left.

Here the command asks the system to get orphans (a child subreaper), which needs no rights.
"""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import helpers
import pytest
from probe import programs
from process_tree import children

from django_txtasks import enqueue_task, external

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has child subreapers"),
]
PR_SET_CHILD_SUBREAPER = 36
MANAGE = """
import ctypes, os, subprocess, sys, threading
if "FIRST" in os.environ:
    del os.environ["FIRST"]
    ctypes.CDLL(None).prctl({subreaper}, 1, 0, 0, 0)
    subprocess.run(["sh", "-c", "(while [ ! -e end ]; do sleep 0.1; done) & echo $! > orphan"])
    {before}
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
A_THREAD = "threading.Thread(target=threading.Event().wait, daemon=True).start()"


@pytest.fixture
def first(processes, tmp_path):
    """Start a command that is like process 1, beside an orphan that ends when the file ``end`` is there."""
    started = []

    def start(*arguments, before=""):
        file = tmp_path / "manage.py"
        file.write_text(MANAGE.format(subreaper=PR_SET_CHILD_SUBREAPER, before=before))
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "manage.py", *arguments],
                cwd=tmp_path,
                env={**processes._environment(), "FIRST": "1"},
                stderr=log,
                start_new_session=True,
            )
        started.append(process)
        return process

    yield start
    for process in started:
        process.terminate()
        process.wait(helpers.PATIENCE)
        print((tmp_path / "log").read_text())


def orphan_is_collected(process, directory):
    orphan = int((directory / "orphan").read_text())
    assert orphan in children(process.pid)
    (directory / "end").touch()
    helpers.wait_until(lambda: not Path(f"/proc/{orphan}").exists())


def told(file):
    """Return the exit code that a program ended with, and the process that has heard it."""
    return tuple(map(int, helpers.wait_until(lambda: file.exists() and file.read_text()).split()))


@pytest.mark.parametrize("before", ["", A_THREAD], ids=["forked", "with a thread"])
def test_runworkers_collects_orphans_and_takes_no_exit_code_of_a_task(
    before, first, quick, tmp_path
):
    process = first("runworkers", "--no-cleaner", "--threads=4", before=before)
    codes = range(1, 9)
    for code in codes:
        programs.tell_exit_code.enqueue(str(tmp_path / str(code)), code)
    assert [told(tmp_path / str(code))[0] for code in codes] == list(codes)
    _, worker = told(tmp_path / "1")
    orphan_is_collected(process, tmp_path)
    process.terminate()
    assert process.wait(helpers.PATIENCE) == 0
    assert not Path(f"/proc/{worker}").exists()


def test_rundrain_collects_orphans_and_takes_no_exit_code_of_a_target(
    first, quick, txtasks, tmp_path
):
    txtasks(hand_over={"mail": "probe.programs.take"})
    process = first("rundrain")
    program = external("billing.program", queue_name="mail")
    for code in (7, 8):
        enqueue_task(program, str(tmp_path / str(code)), code)
        assert told(tmp_path / str(code))[0] == code
    orphan_is_collected(process, tmp_path)


def test_the_exit_code_of_a_command_that_was_killed_says_so(first, quick, tmp_path):
    process = first("runcleaner")
    helpers.wait_until((tmp_path / "orphan").exists)  # the work is the next child
    work = helpers.wait_until(
        lambda: [one for one in children(process.pid) if command_line(one)[-1:] == ["runcleaner"]],
        what="the work",
    )[0]
    orphan_is_collected(process, tmp_path)
    os.kill(work, signal.SIGKILL)
    assert process.wait(helpers.PATIENCE) == 128 + signal.SIGKILL


def command_line(pid):
    """Return the words of the command line of a process; none if it has just ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")
    return []
