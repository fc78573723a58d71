"""Real worker processes, killed, stopped, frozen and cut off: committed tasks run, and only once."""

import contextlib
import os
import re
import signal
import time
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import helpers
import pytest
from django.conf import settings as django_settings
from django.db import connection, transaction
from probe import many, programs, tasks
from probe.models import Run
from proxy import Proxy

from django_txtasks import enqueue_many
from django_txtasks.models import Status, Worker
from django_txtasks.processes import child as children
from django_txtasks.processes.child import Assignment
from django_txtasks.processes.supervisor import Supervisor

pytestmark = pytest.mark.usefixtures("rows")

on_server = pytest.mark.skipif(
    "sqlite3" in django_settings.DATABASES["default"]["ENGINE"],
    reason="SQLite is a file: there is no connection that could be cut and no clock but the worker's",
)

KILLED = "signal 9 (SIGKILL: sent by the kernel because memory ran out, by a person or by a service manager)"


@pytest.fixture
def short_leases(txtasks):
    """Times that fit a test, and that every machine keeps."""
    txtasks(
        heartbeat_interval=0.2,
        lease=3,
        poll_interval=0.1,
        clean_interval=1,
        retry_base=0.01,
        retry_ceiling=0.01,
    )


@pytest.fixture
def workers(processes, short_leases):
    """Start ``runworkers`` and wait until its worker is registered."""

    def start(*arguments, count=1, **options):
        before = Worker.objects.count()
        process = processes.start("runworkers", *arguments, **options)
        helpers.wait_until(
            lambda: Worker.objects.count() >= before + count, what=lambda: processes.log_of(process)
        )
        return process

    return start


def pid_of(key):
    """The process that ran the task last."""
    return helpers.wait_until(lambda: Run.objects.filter(key=key).order_by("-id").first()).pid


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_killed_workers_tasks_are_recovered_and_finished_by_another(processes, workers):
    workers("--threads=2")
    handles = [tasks.slow_once.enqueue(f"key {number}", seconds=60) for number in range(2)]
    victim = pid_of("key 1")
    pid_of("key 0")
    default = tasks.slow.enqueue("default", seconds=60)
    workers("--threads=4")
    pid_of("default")
    processes.start("runcleaner")
    os.kill(victim, signal.SIGKILL)
    for handle in handles:
        done = helpers.wait_until(lambda h=handle: helpers.finished(h.id))
        assert (done.attempt, done.crashes, done.failures) == (2, 1, 0)
    assert helpers.runs("key 0") == helpers.runs("key 1") == 2
    assert helpers.row(default.id).status == Status.CLAIMED


def test_of_a_call_of_many_tasks_only_those_without_a_recorded_outcome_run_again(
    processes, workers
):
    values = [*range(6), "hang", *range(7, 10)]
    handles = enqueue_many((many.hang_at, [value]) for value in values)
    workers("--threads=1")
    for handle in handles[:6]:  # while the call hangs
        helpers.wait_until(lambda h=handle: helpers.finished(h.id))
    assert helpers.row(handles[7].id).status == Status.CLAIMED
    os.kill(pid_of("hang"), signal.SIGKILL)
    processes.start("runcleaner")
    workers("--threads=2")
    ends = [helpers.wait_until(lambda h=one: helpers.finished(h.id)) for one in handles]
    assert [(one.attempt, one.crashes) for one in ends] == [(1, 0)] * 6 + [(2, 1)] * 4
    assert [helpers.runs(f"{value}") for value in values] == [1] * 6 + [2] + [1] * 3


def test_a_default_task_is_dead_after_its_worker_was_killed(processes, workers):
    workers()
    handle = tasks.slow.enqueue("default", seconds=60)
    os.kill(pid_of("default"), signal.SIGKILL)
    processes.start("runcleaner")
    helpers.wait_until(lambda: helpers.row(handle.id).status == Status.DEAD)
    assert helpers.runs("default") == 1


def test_a_poison_task_is_dead_after_max_crashes_and_its_neighbours_run(processes, workers):
    workers("--threads=1")
    processes.start("runcleaner")
    handle = tasks.die.enqueue()
    neighbours = [tasks.slow_once.enqueue(f"n{number}", seconds=0) for number in range(5)]
    helpers.wait_until(lambda: helpers.row(handle.id).status == Status.DEAD)
    dead = helpers.row(handle.id)
    assert (dead.crashes, helpers.runs("die")) == (2, 2)
    for neighbour in neighbours:
        helpers.wait_until(lambda n=neighbour: helpers.finished(n.id))


def test_an_atomic_task_of_a_killed_worker_leaves_its_effects_once(processes, workers):
    workers()
    processes.start("runcleaner")
    handle = tasks.atomic_slow.enqueue("effect", 1)
    helpers.wait_until(lambda: helpers.row(handle.id).status == Status.CLAIMED)
    os.kill(Worker.objects.get().pid, signal.SIGKILL)
    helpers.wait_until(lambda: helpers.finished(handle.id))
    assert helpers.runs("effect") == 1
    assert helpers.finished(handle.id).crashes == 1


@pytest.mark.once
def test_the_supervisor_starts_a_worker_again(workers):
    workers()
    first = Worker.objects.get().pid
    os.kill(first, signal.SIGKILL)
    helpers.wait_until(lambda: Worker.objects.exclude(pid=first).exists())


@pytest.mark.once
def test_a_worker_that_ends_by_itself_is_started_again(workers):
    workers()
    first = Worker.objects.get().pid
    os.kill(first, signal.SIGTERM)
    helpers.wait_until(lambda: Worker.objects.exclude(pid=first).exists())


@pytest.mark.once
def test_a_start_that_fails_is_tried_again(tmp_path):
    """No memory, no process to be had, or a deploy that is just writing the program."""
    program = tmp_path / "program"
    supervisor = Supervisor([Assignment([str(program)])], finite=True)
    codes = []
    with helpers.second_session(lambda: codes.append(supervisor.run())):
        helpers.wait_until(lambda: supervisor.children[0].start_at)
        program.write_text("#!/bin/sh\nexit 0\n")
        program.chmod(0o700)
    assert codes == [0]


@pytest.mark.once
def test_only_a_child_that_dies_young_waits_longer_each_time(caplog):
    """One that has worked is no crash loop at start, and its tasks wait for the next one."""
    supervisor = Supervisor([Assignment(["sleep", "600"])], finite=False)
    (child,) = supervisor.children
    with helpers.second_session(supervisor.run):
        for age in (7, 7, 7, 0, 0, 0):
            pid = helpers.wait_until(lambda: child.running and child.pid)
            child._worked_since = time.monotonic() - age
            os.kill(pid, signal.SIGKILL)
            helpers.wait_until(lambda pid=pid: child.running and child.pid != pid)
        supervisor.stop.request()
        os.kill(child.pid, signal.SIGTERM)  # it hears no orders
    pauses = [float(one) for one in re.findall(r"a new one starts in (\S+) s", caplog.text)]
    assert max(pauses[:3]) <= 0.2 < pauses[-1]


@pytest.mark.once
@pytest.mark.parametrize("begins", [True, False], ids=["at work", "in its start"])
def test_a_child_that_dies_in_a_long_start_waits_longer_each_time(
    begins, tmp_path, monkeypatch, caplog
):
    """Any life is long here. One that has begun its work is no crash loop at start."""
    monkeypatch.setattr(children, "HEALTHY_AFTER_SECONDS", 0.0)
    program = tmp_path / "program"
    sign = 'printf t > "/dev/fd/$TXTASKS_SIGNS_FD"\n' if begins else ""
    program.write_text(f"#!/bin/sh\n{sign}exec sleep 600\n")
    program.chmod(0o700)
    supervisor = Supervisor([Assignment([str(program)])], finite=False)
    (child,) = supervisor.children
    with helpers.second_session(supervisor.run):
        for _ in range(4):
            pid = helpers.wait_until(lambda: child.running and child.pid)
            helpers.wait_until(lambda: child._pipes.hearing.has_begun or not begins)
            os.kill(pid, signal.SIGKILL)
            helpers.wait_until(lambda pid=pid: child.running and child.pid != pid)
        supervisor.stop.request()
        os.kill(child.pid, signal.SIGTERM)  # it hears no orders
    pauses = [float(one) for one in re.findall(r"a new one starts in (\S+) s", caplog.text)]
    assert (max(pauses) <= 0.2) == begins


def supervised(tmp_path, script, act):
    """Run a supervisor of one process with this script; return its exit code."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    supervisor = Supervisor([Assignment([str(program)])], finite=False)
    codes = []
    with helpers.second_session(lambda: codes.append(supervisor.run())):
        helpers.wait_until(lambda: supervisor.children[0].running)
        act(supervisor.children[0].pid)
        supervisor.stop.request()
    return codes[0]


def kill_and_see_it_dead(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


@pytest.mark.once
def test_a_frozen_child_is_killed_after_the_second_request_to_stop(monkeypatch, caplog):
    monkeypatch.setattr(children, "FROZEN_SECONDS", 0.2)
    supervisor = Supervisor([Assignment(["sleep", "600"])], finite=False)
    (child,) = supervisor.children
    helpers.wait_until(lambda: supervisor._look_after(child) or child.running)
    os.kill(child.pid, signal.SIGSTOP)
    supervisor.stop.force()
    assert supervisor.run() == 1
    assert not child.running
    assert (
        "signal 9 (SIGKILL: the supervisor sent it, because the process was frozen)" in caplog.text
    )


@pytest.mark.once
def test_a_process_killed_just_before_a_stop_is_told_and_changes_no_exit_code(tmp_path, caplog):
    assert supervised(tmp_path, "exec sleep 60", kill_and_see_it_dead) == 0
    assert f"ended with {KILLED}" in caplog.text


@pytest.mark.once
@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("kill -9 $$", KILLED),
        ("exit 3", "exit code 3"),
    ],
    ids=["killed", "failed"],
)
def test_a_process_that_fails_in_a_stop_is_told_and_the_exit_code_is_1(tmp_path, caplog, end, said):
    script = f'head -c 1 "/dev/fd/$TXTASKS_SUPERVISOR_FD" > /dev/null; {end}'
    assert supervised(tmp_path, script, lambda pid: None) == 1
    assert f"ended with {said} instead of stopping" in caplog.text


@pytest.mark.once
def test_workers_end_when_their_supervisor_is_killed(workers):
    supervisor = workers("--processes=2", count=2)
    pids = helpers.worker_pids()
    assert supervisor.pid not in pids
    supervisor.kill()
    supervisor.wait()
    helpers.wait_until(lambda: all(gone(pid) for pid in pids))
    assert not Worker.objects.exists()


@pytest.mark.smoke
def test_the_first_sigterm_lets_running_tasks_end_and_claims_nothing_more(txtasks, workers):
    txtasks(grace=30)
    process = workers("--threads=1")
    running = tasks.slow.enqueue("running", seconds=1.5)
    pid_of("running")
    waiting = tasks.note.enqueue("waiting")
    process.terminate()
    assert process.wait(helpers.PATIENCE) == 0
    assert helpers.finished(running.id).outcome == "succeeded"
    task = helpers.row(waiting.id)
    assert (task.status, task.attempt) == (Status.PENDING, 0)
    assert not Worker.objects.exists()


@pytest.mark.once
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_the_second_signal_stops_now_and_counts_as_no_crash(number, txtasks, workers):
    txtasks(grace=60, lease=600)
    process = workers()
    handle = tasks.slow_once.enqueue("cut short", seconds=60)
    pid_of("cut short")
    process.send_signal(number)
    time.sleep(1.2)  # signals within a second count once
    assert process.poll() is None
    process.send_signal(number)
    assert process.wait(helpers.PATIENCE) == 1
    task = helpers.row(handle.id)
    assert (task.status, task.crashes) == (Status.PENDING, 0)
    assert "a second stop signal" in task.errors[0]["message"]
    assert not Worker.objects.exists()


@pytest.mark.once
def test_a_stop_longer_than_the_grace_cuts_tasks_short(txtasks, workers):
    txtasks(grace=0.5)
    process = workers()
    tasks.slow.enqueue("too long", seconds=60)
    pid_of("too long")
    process.terminate()
    assert process.wait(helpers.PATIENCE) == 1


@pytest.mark.once
def test_a_stop_longer_than_the_grace_leaves_a_call_of_many_tasks_its_outcomes(txtasks, workers):
    txtasks(grace=0.5)
    *done, hangs, last = enqueue_many((many.hang_at, [one]) for one in (0, 1, 2, "hang", 4))
    process = workers("--threads=1")
    pid_of("hang")
    process.terminate()
    assert process.wait(helpers.PATIENCE) == 1
    assert [helpers.finished(one.id).attempt for one in done] == [1, 1, 1]
    for one in (hangs, last):
        row = helpers.row(one.id)
        assert (row.status, row.failures, row.crashes) == (Status.PENDING, 0, 0)


@pytest.mark.once
def test_a_call_of_many_tasks_that_hangs_after_its_last_outcome_has_the_grace(txtasks, workers):
    txtasks(grace=0.5)
    handles = enqueue_many((many.hang_at, [value]) for value in (0, 1, "goodbye"))
    process = workers("--threads=1")
    for one in handles:
        helpers.wait_until(lambda h=one: helpers.finished(h.id))
    process.terminate()
    assert process.wait(helpers.PATIENCE) == 1


@pytest.mark.once
def test_a_burst_of_signals_counts_once(txtasks, workers):
    txtasks(grace=30)
    process = workers()
    handle = tasks.slow.enqueue("running", seconds=1.5)
    worker = pid_of("running")
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        os.kill(worker, signal.SIGTERM)
    assert process.wait(helpers.PATIENCE) == 0
    assert helpers.finished(handle.id).outcome == "succeeded"


@pytest.mark.once
def test_batches_and_max_tasks_end_by_themselves(processes, short_leases):
    enqueue_many((tasks.note, ()) for _ in range(40))
    assert (
        processes.start("runworkers", "--max-tasks=10", "--processes=3").wait(helpers.PATIENCE) == 0
    )
    assert helpers.runs() == 10
    assert processes.start("runworkers", "--batch", "--processes=2").wait(helpers.PATIENCE) == 0
    assert helpers.runs() == 40
    assert not Worker.objects.exists()


@pytest.mark.once
def test_reload_restarts_workers_when_code_changes(processes, workers, tmp_path):
    module = tmp_path / "watched.py"
    module.write_text("VALUE = 1\n")
    path = os.pathsep.join([str(tmp_path), processes._environment()["PYTHONPATH"]])
    (tmp_path / "settings_to_watch.py").write_text(
        "from settings_for_tests import *\nimport watched\n"
    )
    workers("--reload", env={"PYTHONPATH": path, "DJANGO_SETTINGS_MODULE": "settings_to_watch"})
    first = Worker.objects.get().pid
    future = time.time() + 10
    os.utime(module, (future, future))
    helpers.wait_until(lambda: Worker.objects.exclude(pid=first).exists())


@pytest.mark.usefixtures("broker")
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="Linux alone lists descriptors")
def test_programs_inherit_no_session_or_connection_of_their_worker(workers, tmp_path):
    """Otherwise the worker would seem to live as long as its programs."""
    workers("--threads=2")
    file = tmp_path / "inherited"
    programs.tell_inherited.enqueue(str(file))
    assert helpers.wait_until(lambda: file.exists() and file.read_text()) == "[]\n"


@pytest.mark.once
def test_a_wrong_setting_is_an_error_before_anything_starts(processes):
    process = processes.start("runworkers", env={"TXTASKS_SETTINGS": '{"leese": 3}'})
    assert process.wait(helpers.PATIENCE) == 1
    assert "unknown key 'leese'. Did you mean 'lease'?" in processes.log_of(process)


def test_a_worker_that_was_frozen_is_lost_and_goes_on_under_a_new_id(processes, workers):
    workers("--threads=1")
    processes.start("runcleaner")
    handle = tasks.slow_once.enqueue("frozen", seconds=1)
    victim = pid_of("frozen")
    first = Worker.objects.get().pk
    os.kill(victim, signal.SIGSTOP)
    helpers.wait_until(lambda: Worker.objects.filter(pk=first, lost=True))
    helpers.wait_until(lambda: helpers.row(handle.id).status == Status.PENDING)
    os.kill(victim, signal.SIGCONT)
    done = helpers.wait_until(lambda: helpers.finished(handle.id))
    assert (done.attempt, done.crashes) == (2, 1)
    assert helpers.runs("frozen") == 2
    helpers.wait_until(lambda: Worker.objects.filter(lost=False, pid=victim).exclude(pk=first))


@on_server
def test_an_atomic_task_that_was_frozen_in_its_transaction_leaves_its_effects_once(
    processes, workers
):
    """Not on SQLite, where the frozen transaction holds the only write lock, so that nobody goes on."""
    workers("--threads=1")
    handle = tasks.atomic_slow.enqueue("effect", 0.5)
    helpers.wait_until(lambda: helpers.row(handle.id).status == Status.CLAIMED)
    victim = Worker.objects.get().pid
    os.kill(victim, signal.SIGSTOP)
    processes.start("runcleaner")
    workers("--threads=1")
    helpers.wait_until(lambda: helpers.finished(handle.id))
    os.kill(victim, signal.SIGCONT)
    helpers.wait_until(lambda: Worker.objects.filter(pid=victim, lost=False))
    tasks.note.enqueue("marker")
    helpers.wait_until(lambda: helpers.runs("marker"))
    assert helpers.runs("effect") == 1


def commit_after(mark):
    """True for the bytes of the first COMMIT that follows a statement with ``mark``."""
    seen = []

    def asked(data):
        if mark in data:
            seen.append(True)
        return bool(seen) and b"COMMIT" in data

    return asked


def turn_with(task_id, *, finishes):
    """True for the parameters of a turn that finishes a task, or looks it up; its beat has sessions."""

    def asked(data):
        is_turn = task_id.hex.encode() in data and b'["' in data
        return is_turn and (b"succeeded" in data) is finishes

    return asked


@on_server
@pytest.mark.parametrize(
    "delivered", [False, True], ids=["before the server got it", "after the server did it"]
)
@pytest.mark.parametrize(
    ("mark", "attempts"),
    [
        (b"SET status = 'claimed'", {False: 1, True: 2}),
        (b"DELETE FROM txtasks_task", {False: 1, True: 1}),
    ],
    ids=["claim", "finish"],
)
def test_a_connection_cut_at_the_commit_loses_nothing_and_repeats_nothing(
    mark, attempts, delivered, processes, workers
):
    target = connection.settings_dict
    url = urlsplit(os.environ["TXTASKS_DATABASE_URL"])
    with Proxy("127.0.0.1", int(target["PORT"])) as proxy:
        through = url._replace(netloc=url.netloc.replace(f":{url.port}", f":{proxy.port}")).geturl()
        # neither a worker's first turn nor a finish that somebody is told of is one statement
        handle = tasks.told.enqueue("cut")
        proxy.cut_when(commit_after(mark), delivered=delivered)
        workers("--threads=1", env={"TXTASKS_DATABASE_URL": through})
        done = helpers.wait_until(lambda: helpers.finished(handle.id))
        helpers.wait_until(lambda: helpers.runs("success told"))
        assert proxy.cuts == 1
        assert helpers.runs("success told") == 1
        assert (done.attempt, done.failures, done.crashes) == (attempts[delivered], 0, 0)
        assert not Worker.objects.filter(lost=True).exists()
        processes.end()


@pytest.mark.about("one_statement")
@pytest.mark.usefixtures("broker")
@pytest.mark.skipif(connection.vendor != "postgresql", reason="others need more statements")
@pytest.mark.parametrize(
    "delivered", [False, True], ids=["before the server got it", "after the server did it"]
)
@pytest.mark.parametrize(
    ("finishes", "attempts"),
    [(False, {False: 1, True: 2}), (True, {False: 1, True: 1})],
    ids=["claim", "finish"],
)
def test_a_connection_cut_at_a_turn_in_one_statement_loses_nothing_and_repeats_nothing(
    finishes, attempts, delivered, processes, workers
):
    target = connection.settings_dict
    url = urlsplit(os.environ["TXTASKS_DATABASE_URL"])
    with Proxy("127.0.0.1", int(target["PORT"])) as proxy:
        through = url._replace(netloc=url.netloc.replace(f":{url.port}", f":{proxy.port}")).geturl()
        workers("--threads=1", env={"TXTASKS_DATABASE_URL": through})
        helpers.wait_until(lambda: Worker.objects.filter(listening=True))
        key = 0
        was_claimed_by_it = False
        while not was_claimed_by_it:  # now and then a scan finds it, before its hint is looked up
            key, cuts = key + 1, proxy.cuts
            with transaction.atomic():
                handle = tasks.note.enqueue(f"key {key}")
                proxy.cut_when(turn_with(handle.id, finishes=finishes), delivered=delivered)
            done = helpers.wait_until(lambda h=handle: helpers.finished(h.id))
            assert (done.failures, done.crashes) == (0, 0)
            assert done.attempt <= attempts[delivered]
            was_claimed_by_it = proxy.cuts > cuts and done.attempt == attempts[delivered]
        assert [helpers.runs(f"key {number + 1}") for number in range(key)] == [1] * key
        assert not Worker.objects.filter(lost=True).exists()
        processes.end()


@on_server
def test_sessions_that_the_database_ends_end_no_worker(processes, workers):
    workers("--threads=2")
    sql = {
        "postgresql": "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()",
        "mysql": "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()",
    }[connection.vendor]
    first = set(helpers.worker_pids())
    for number in range(5):
        for (session,) in helpers.execute(sql):
            if connection.vendor == "mysql":
                try:
                    helpers.execute(f"KILL {session}")
                except connection.Database.OperationalError:
                    continue
        handle = tasks.atomic_note.enqueue(f"after {number}")
        helpers.wait_until(lambda h=handle: helpers.finished(h.id))
    assert set(helpers.worker_pids()) == first
    assert not Worker.objects.filter(lost=True).exists()


def test_later_rows_of_unknown_names_hold_up_nobody(workers):
    """10,000 rows of an unknown name in front of 100 known ones."""
    enqueue_many((tasks.note, ()) for _ in range(10_000))
    helpers.execute("UPDATE txtasks_task SET task_name = 'nobody.knows.this'")
    enqueue_many((tasks.note, ()) for _ in range(100))
    late = tasks.note.using(run_after=timedelta(seconds=-60)).enqueue("committed late")
    workers()
    helpers.wait_until(lambda: helpers.finished(late.id))
    helpers.wait_until(lambda: helpers.counts()["finished"] == 101)
    assert helpers.counts()["pending"] == 10_000


@pytest.mark.skipif(
    connection.vendor != "sqlite", reason="elsewhere nobody can lock a whole database"
)
@pytest.mark.parametrize("command", ["runworkers", "runcleaner"])
def test_a_command_that_starts_while_the_database_is_locked_waits_for_it(command, processes):
    with helpers.locked("UPDATE txtasks_worker SET running = 0"):
        process = processes.start(command)
        helpers.wait_until(lambda: "is locked" in processes.log_of(process))
        assert process.poll() is None
    handle = tasks.note.enqueue()
    with contextlib.ExitStack() as stack:
        if command == "runcleaner":
            stack.enter_context(helpers.working())
        helpers.wait_until(lambda: helpers.finished(handle.id))
    assert process.poll() is None
