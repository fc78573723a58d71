"""Commands whose standard input, output or error is closed work as with ``/dev/null``."""

import os
import subprocess
import sys

import helpers
import pytest
from django.core.management import call_command
from probe import tasks

from django_txtasks.management.console import READER_GONE
from django_txtasks.models import Cleaner, Worker

pytestmark = [pytest.mark.usefixtures("rows"), pytest.mark.once]
ALL = "<&- >&- 2>&-"
STARTS_WORKERS = """
import sys, time
import django
django.setup()
from django_txtasks.embedded import start_workers
start_workers("--threads=1", program=[sys.executable, "-m", "django"])
time.sleep(600)
"""


@pytest.fixture
def start(txtasks, processes):
    """Start a Python process with these descriptors closed, and end it after the test."""
    txtasks(poll_interval=0.1)
    started = []

    def start(closed, *arguments):
        started.append(
            subprocess.Popen(
                ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, *arguments],
                env=processes._environment(),
                start_new_session=True,
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.terminate()
        process.wait(60)
    # What start_workers() has started ends a moment later, and the next test waits for a cleaner of its own.
    helpers.wait_until(lambda: not (Cleaner.objects.exists() or Worker.objects.exists()))


@pytest.mark.parametrize(
    ("closed", "options"),
    [("<&-", []), (ALL, []), (ALL, ["--reload"])],
)
def test_workers_run_tasks_with_closed_descriptors(start, closed, options):
    command = start(closed, "-m", "django", "runworkers", "--threads=2", *options)
    tasks.note.enqueue("closed")
    helpers.wait_until(lambda: helpers.runs("closed"))
    helpers.wait_until(Cleaner.objects.exists)
    command.terminate()
    assert command.wait(60) == 0


def test_start_workers_does_in_a_server_whose_descriptors_are_closed(start):
    start(ALL, "-c", STARTS_WORKERS)
    tasks.note.enqueue("embedded")
    helpers.wait_until(lambda: helpers.runs("embedded"))


def test_a_cleaner_cleans_with_closed_descriptors(start):
    command = start(ALL, "-m", "django", "runcleaner", "--json")
    helpers.wait_until(Cleaner.objects.exists)
    command.terminate()
    assert command.wait(60) == 0


FILE_AT_0 = """
import os, sys, time
log = open(sys.argv[1], "w")  # as the settings open a log file
assert log.fileno() == 0
from django_txtasks.processes import descriptors
from django_txtasks.processes.forking import fork
descriptors.open_closed_ones()
process = fork()
if process is None:
    print("by the child", file=log, flush=True)
    os._exit(0)
while process.poll() is None:
    time.sleep(0.01)
"""


def test_a_log_file_that_has_the_number_of_the_closed_input_stays_in_a_fork(start, tmp_path):
    file = tmp_path / "log"
    process = start("<&-", "-c", FILE_AT_0, str(file))
    assert process.wait(60) == 0
    assert file.read_text() == "by the child\n"


def test_a_child_that_ends_before_it_begins_is_told_as_such(tmp_path, caplog):
    from django_txtasks.processes.child import Assignment
    from django_txtasks.processes.supervisor import Supervisor

    supervisor = Supervisor([Assignment(["true"])], finite=False)
    (child,) = supervisor.children
    helpers.wait_until(lambda: supervisor._look_after(child) or "ended with" in caplog.text)
    helpers.wait_until(lambda: supervisor._end_programs() or not supervisor._remains)
    assert "ended with exit code 0, before it had begun its work; a new one starts" in caplog.text


PRINTING = [
    ["txtasks_status"],
    ["txtasks_status", "--json", "--watch", "0.1"],
    ["txtasks_explain"],
    ["txtasks_explain", "31"],
    ["txtasks_load", "--watch", "1"],
    ["txtasks_schedules", "check"],
    ["txtasks_preflight"],
    ["txtasks_task", "cancel", "--queue", "default", "--dry-run"],
    ["runcleaner", "--once", "--json"],
]


def test_a_command_whose_reader_has_gone_ends_without_a_traceback(processes):
    """As `| head -1` does: it has read what it wants, and leaves. A shell shows 141 for other programs, too."""
    tasks.note.enqueue()
    started = []
    for command in PRINTING:
        read, write = os.pipe()
        os.close(read)
        is_error = command[-1] == "31"
        process = subprocess.Popen(
            [sys.executable, "-m", "django", *command],
            env=processes._environment(),
            stdout=write,
            stderr=write if is_error else subprocess.PIPE,
            text=True,
        )
        os.close(write)
        started.append(process)
    said = [process.communicate(timeout=120)[1] or "" for process in started]
    ends = [(one.returncode, text[-200:]) for one, text in zip(started, said, strict=True)]
    assert [code for code, _ in ends] == [READER_GONE] * len(PRINTING), ends
    assert not [text for text in said if "Traceback" in text or "BrokenPipe" in text]


def test_a_code_of_a_result_stays_when_the_reader_has_gone(processes):
    """Else `txtasks_status --max-dead 0 | head -1` would not tell that tasks are dead."""
    tasks.reject.enqueue()
    call_command("runworkers", batch=True, threads=1)
    read, write = os.pipe()
    os.close(read)
    buffered = {**processes._environment(), "PYTHONUNBUFFERED": ""}
    command = [sys.executable, "-m", "django", "txtasks_status", "--max-dead", "0", "--json"]
    done = subprocess.run(
        command,
        check=False,
        env=buffered,
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(write)
    assert done.returncode == 1
    assert done.stderr.endswith("CommandError: Dead tasks: 1, more than 0.\n")
