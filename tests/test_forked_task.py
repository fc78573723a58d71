"""Task functions that fork: what the child does at its end is no business of the worker that it is a copy of."""

import subprocess
import sys

import helpers
import pytest
from probe import sessions, tasks
from test_sessions_of_slots import MINE, has_sessions

from django_txtasks.core.working.running import limits
from django_txtasks.guards.forked_task import forking

pytestmark = pytest.mark.usefixtures("rows", "quick")
ENDS = {"return": 0, "raise": 1, "exit": 7}


@pytest.mark.parametrize(
    "function",
    [tasks.fork, tasks.fork_atomic, tasks.fork_async],
    ids=["default", "atomic", "async"],
)
@pytest.mark.parametrize("end", ENDS)
def test_a_child_ends_with_the_function_and_commits_nothing(processes, function, end):
    handle = function.enqueue("key", end)
    worker = processes.start("runworkers", "--threads=1", "--batch")
    assert worker.wait(helpers.PATIENCE) == 0
    done = helpers.finished(handle.id)
    assert done.result == ["parent", ENDS[end]]
    assert (helpers.runs("key parent"), helpers.runs("key child")) == (1, 0)
    assert ("ZeroDivisionError" in processes.log_of(worker)) is (end == "raise")


def run_beside_others(function, processes):
    """Run a task in a worker whose other threads have sessions, too; return its result."""
    others = [sessions.see.enqueue(MINE) for _ in range(3)]
    handle = function.enqueue(MINE)
    worker = processes.start("runworkers", "--threads=4", "--batch")
    assert worker.wait(helpers.PATIENCE) == 0
    assert all(helpers.finished(one.id) for one in others)
    assert helpers.finished(handle.id), helpers.row(handle.id).errors
    return helpers.finished(handle.id).result


def test_a_child_of_a_commit_hook_ends_with_the_attempt(processes):
    sessions.fork_at_commit.enqueue()
    worker = processes.start("runworkers", "--threads=1", "--batch")
    assert worker.wait(helpers.PATIENCE) == 0
    assert helpers.runs("exit code 0") == 1


@pytest.mark.once
@pytest.mark.parametrize("error", ["None", "ValueError()", "SystemExit('text')"])
def test_a_child_ends_although_a_thread_of_its_parent_was_writing_to_stderr(error):
    script = f"""
import os, signal, sys, threading, time
from django_txtasks.guards import forked_task

read_end, write_end = os.pipe()
sys.stderr = open(write_end, "w")
writer = threading.Thread(target=sys.stderr.write, args=["." * 1_000_000], daemon=True)
writer.start()
os.read(read_end, 1)  # the writer has the lock of the stream, and waits for a reader
if not (child := os.fork()):
    signal.alarm(60)
    forked_task.end_child({error})
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
os._exit(0 if code == {int(error != "None")} else 9)
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, timeout=120)


@pytest.mark.once
def test_a_time_limit_does_not_strike_inside_a_fork():
    script = """
import os, sys, threading, time
from django_txtasks.exceptions import TimedOut
from django_txtasks.guards import forked_task
from django_txtasks.core.working.running import limits

limits.FORK_SECONDS = 60.0
is_in_hook, goes_on, has_ended = threading.Event(), threading.Event(), threading.Event()

def hook():  # Python swallows what is raised here
    is_in_hook.set()
    goes_on.wait()

os.register_at_fork(before=hook)
forked_task.watch_forks()
limit = limits.TimeLimit(0.001)

def attempt():
    try:
        with limit:
            if not (child := os.fork()):
                os._exit(0)
            os.waitpid(child, 0)
            while True:
                pass
    except TimedOut:
        has_ended.set()

threading.Thread(target=attempt, daemon=True).start()
is_in_hook.wait()
enforcing = threading.Thread(target=limit.enforce, args=[float("inf")], daemon=True)
enforcing.start()
enforcing.join(0.5)  # it goes on waiting
goes_on.set()
os._exit(0 if has_ended.wait(15) else 9)
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, timeout=120)


@pytest.mark.once
def test_where_nothing_can_fork_tasks_are_enqueued(tmp_path):
    script = """
import os, sys
import django
from django.conf import settings

del os.register_at_fork, os.fork
for name in ["fcntl", "grp", "pwd", "resource", "termios"]:
    sys.modules[name] = None  # Windows has no such module
database = {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}
settings.configure(INSTALLED_APPS=["django_txtasks"], DATABASES={"default": database}, USE_TZ=True)
django.setup()
from django.core.management import call_command
from django_txtasks.models import Task
from notes import note
call_command("migrate", verbosity=0)
note.enqueue()
assert Task.objects.count() == 1
"""
    module = "from django_txtasks import task\n\n@task\ndef note():\n    pass\n"
    (tmp_path / "notes.py").write_text(module)
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120, cwd=tmp_path)


@has_sessions
@pytest.mark.parametrize(
    "function",
    [
        sessions.start_processes,
        sessions.start_processes_in_transaction,
        sessions.start_processes_in_thread,
    ],
    ids=lambda one: one.function.__name__,
)
def test_processes_that_a_task_forks_have_sessions_of_their_own(processes, function):
    [before, after], codes = run_beside_others(function, processes)
    assert (before, codes) == (after, [0, 0, 0])
    assert helpers.runs() == 30


@has_sessions
def test_a_forked_child_that_leaves_its_parents_blocks_touches_no_transaction(processes):
    [before, after], codes = run_beside_others(sessions.fork_and_leave_block, processes)
    assert (before, codes) == (after, [0])
    assert (helpers.runs("parent"), helpers.runs("child"), helpers.runs("undone")) == (1, 1, 0)


def test_all_limits_that_pass_during_one_fork_wait_once(monkeypatch):
    """Else a few limits in a fork that hangs would keep the worker from its beats for a lease."""
    monkeypatch.setattr(limits, "FORK_SECONDS", 0.05)
    wait = limits._ForkWait()
    forking.append(None)
    try:
        wait()
        end = wait._until
        wait()
        assert wait._until == end
    finally:
        forking.clear()
    wait()
    assert wait._until == limits.NEVER
