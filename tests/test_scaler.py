"""``runworkers --processes 1..8``: processes come and go by the load, and nothing that runs is ended."""

import json
import os
import socket

import helpers
import pytest
from django.core.management import CommandError, call_command
from probe import tasks

from django_txtasks.conf import get_config
from django_txtasks.core.working.hint_inbox import HintInbox
from django_txtasks.core.working.worker import Exit
from django_txtasks.core.working.worker import Worker as RealWorker
from django_txtasks.insight.load.records import Look, QueueLoad, WorkerLoad
from django_txtasks.management.processes import limits_of
from django_txtasks.models import Status, Worker
from django_txtasks.processes import patience
from django_txtasks.processes import scaling_rule as rules
from django_txtasks.processes.child import Assignment, Role
from django_txtasks.processes.orders import obey
from django_txtasks.processes.scaling import Limits, ProcessScaler
from django_txtasks.processes.shutdown import Shutdown
from django_txtasks.processes.supervisor import Supervisor

HOST = socket.gethostname()
OBEYS = """#!/bin/sh
head -c 1 "/dev/fd/$TXTASKS_SUPERVISOR_FD" > {orders}/$$.part
mv {orders}/$$.part {orders}/$$
"""


# -- the order to retire ----------------------------------------------------------------------------


@pytest.fixture
def ordered(rows, txtasks):
    """A worker of one thread in this process, without a grace, and the pipe of its orders."""
    txtasks(grace=0, poll_interval=0.05)
    tasks.released.clear()
    reader, writer = os.pipe()
    inbox = HintInbox()
    stop = Shutdown(0.0, inbox.wake)
    obey(reader, stop)
    yield (
        RealWorker(get_config(), helpers.subscription(), threads=1, inbox=inbox, stop=stop),
        writer,
    )
    tasks.released.set()
    os.close(writer)


@pytest.fixture
def no_forced_end(monkeypatch):
    """The end of the pipe would end this process, which is not the worker's own."""
    from django_txtasks.processes import orders

    monkeypatch.setattr(orders, "end_soon", lambda *_: None)


@pytest.mark.usefixtures("no_forced_end")
def test_a_worker_that_retires_takes_nothing_more_and_ends_its_task_without_a_grace(ordered):
    worker, pipe = ordered
    handle, ends = tasks.until_released.enqueue("long"), []
    with helpers.second_session(lambda: ends.append(worker.run())):
        helpers.wait_until(lambda: helpers.runs("long"))
        other = tasks.note.enqueue("other")
        os.write(pipe, b"r")
        helpers.wait_until(lambda: worker.stop.asked)
        beat = Worker.objects.get().beat
        helpers.wait_until(lambda: Worker.objects.get().beat > beat + 1)
        assert helpers.row(handle.id).status == Status.CLAIMED
        assert helpers.row(other.id).status == Status.PENDING
        tasks.released.set()
    assert ends == [Exit.DONE]
    assert helpers.finished(handle.id).outcome == "succeeded"
    assert helpers.row(other.id).status == Status.PENDING
    assert not Worker.objects.exists()


@pytest.mark.usefixtures("no_forced_end")
def test_an_order_to_stop_counts_for_a_worker_that_retires(ordered):
    worker, pipe = ordered
    handle, ends = tasks.until_released.enqueue("long"), []
    with helpers.second_session(lambda: ends.append(worker.run())):
        helpers.wait_until(lambda: helpers.runs("long"))
        os.write(pipe, b"rs")
        helpers.wait_until(lambda: ends)
    assert ends == [Exit.CUT_SHORT]
    assert helpers.row(handle.id).status == Status.DEAD


# -- the supervisor ---------------------------------------------------------------------------------


class Stage:
    """A supervisor, turned by the test, with processes that only note their order, and looks of the test."""

    def __init__(self, directory, limits):
        self.orders = directory / "orders"
        self.orders.mkdir()
        program = directory / "program"
        program.write_text(OBEYS.format(orders=self.orders))
        program.chmod(0o700)
        worker = Assignment([str(program)])
        watcher = Assignment([str(program), "watcher"], role=Role.WATCHER)
        self.scaler = ProcessScaler(limits, worker, watcher, queues=["default"], threads=4)
        self.supervisor = Supervisor([worker] * limits.least, finite=False, scalers=[self.scaler])
        self.turn()

    def turn(self):
        self.supervisor._scale()
        for child in self.supervisor.children:
            self.supervisor._look_after(child)
        self.supervisor._end_programs()

    @property
    def pids(self):
        """The processes that run tasks and were not told to end."""
        return {
            one.pid
            for one in self.supervisor.children
            if one.assignment.role is Role.WORKER and one.running and not one.is_retiring
        }

    def order_of(self, pid):
        file = self.orders / str(pid)
        return file.read_text() if file.exists() else None

    def look(self, oldest, wanted, at_work, *, others=0, queue="default"):
        """Turn with a new look: these processes are at work. Return the number of processes then."""
        ours = [WorkerLoad(HOST, pid, ("default",), 4, running) for pid, running in at_work.items()]
        theirs = [WorkerLoad("elsewhere", pid, ("default",), 4, 0) for pid in range(1, others + 1)]
        load = QueueLoad(queue, 0, 0, oldest, wanted, 1.0, wanted)
        line = Look("default", (load,), (*ours, *theirs)).as_json()
        os.write(self.scaler.watcher.output, f"{line}\n".encode())
        self.turn()
        return len(self.pids)

    def idle(self):
        return dict.fromkeys(self.pids, 0)


@pytest.fixture
def stage(tmp_path):
    stages = []

    def make(least=1, most=4):
        stages.append(Stage(tmp_path, Limits(least, most)))
        return stages[0]

    yield make
    for stage in stages:
        stage.supervisor.stop.request()
        stage.supervisor.run()


@pytest.fixture
def no_window(monkeypatch):
    """Fewer processes need not have been enough for two minutes."""
    monkeypatch.setattr(rules, "WINDOW_SECONDS", 0.0)
    monkeypatch.setattr(rules, "STEP_SECONDS", 0.0)


@pytest.mark.once
def test_processes_start_by_the_load_up_to_the_most(stage):
    one = stage()
    assert one.look(5.0, 40, {}) == 1  # the first is not at work yet
    assert one.look(5.0, 40, one.idle(), queue="of others") == 1
    first = one.idle()
    assert one.look(5.0, 40, first) == 2
    assert one.look(5.0, 40, first) == 2  # the second one is not at work yet
    assert one.look(5.0, 40, one.idle()) == 4
    assert one.look(20.0, 400, one.idle()) == 4
    one.turn()  # without a look
    assert len(one.pids) == 4


@pytest.mark.once
def test_a_process_that_was_at_work_and_is_frozen_keeps_no_other_from_starting(stage):
    one = stage()
    first = one.idle()
    assert one.look(0.0, 0, first) == 1
    assert one.look(5.0, 40, {}) == 2  # the cleaner has declared the first one lost
    assert one.look(5.0, 40, {}) == 2  # the second one is not at work yet
    assert one.look(5.0, 40, dict.fromkeys(one.pids - {*first}, 0)) == 4


@pytest.mark.once
def test_a_process_that_hangs_before_its_work_keeps_others_from_starting_for_a_minute(
    stage, monkeypatch
):
    one = stage()
    assert one.look(5.0, 40, {}) == 1
    monkeypatch.setattr(patience, "START_SECONDS", 0.0)
    assert one.look(5.0, 40, {}) == 2


@pytest.mark.once
def test_processes_of_other_hosts_count(stage):
    one = stage()
    assert one.look(5.0, 8, one.idle(), others=1) == 1
    assert one.look(5.0, 9, one.idle(), others=1) == 2


@pytest.mark.once
@pytest.mark.usefixtures("no_window")
def test_the_least_busy_process_retires_and_is_not_started_again(stage, caplog):
    caplog.set_level("INFO")
    one = stage(most=2)
    assert one.look(5.0, 8, one.idle()) == 2
    busy, idle = sorted(one.pids)
    assert one.look(0.0, 3, {busy: 3, idle: 0}) == 1
    assert one.look(5.0, 8, {busy: 4, idle: 1}) == 1  # what still ends counts towards the most
    helpers.wait_until(lambda: one.order_of(idle))
    assert one.order_of(idle) == "r"
    helpers.wait_until(lambda: one.turn() or len(one.supervisor.children) == 2)  # with the watcher
    assert one.pids == {busy}
    assert one.look(0.0, 0, {busy: 0}) == 1  # the fewest stay
    assert one.look(5.0, 8, {busy: 4}) == 2
    assert one.order_of(busy) is None
    one.scaler.tell()
    assert f"worker process {idle} of database 'default' takes nothing more" in caplog.text


@pytest.mark.once
def test_a_broken_line_is_no_look(stage):
    one = stage()
    os.write(one.scaler.watcher.output, b'{"database": "default", "que')
    assert one.look(5.0, 40, one.idle()) == 1
    assert one.look(5.0, 40, one.idle()) == 2


# -- the command ------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--verbosity=1", "--reload"], ids=["forked", "by command line"])
def test_runworkers_starts_a_second_process_when_a_task_waits(processes, txtasks, option):
    txtasks(poll_interval=0.1)
    command = processes.start(
        "runworkers", "--processes=1..2", "--threads=1", "--within=10", option
    )
    for key in ("first", "second"):
        tasks.slow.enqueue(key)
    helpers.wait_until(
        lambda: helpers.runs("first") and helpers.runs("second"),
        what=lambda: processes.log_of(command),
    )
    assert Worker.objects.count() == 2
    assert "starts more worker processes for database 'default': 1, then there are 2" in (
        processes.log_of(command)
    )
    command.terminate()
    assert command.wait(60) == 1  # the tasks were cut short after the grace
    assert not Worker.objects.filter(lost=False).exists()


@pytest.mark.once
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--processes=1..8", "--batch"], "With --batch a process ends"),
        (["--processes=1..8", "--max-tasks=5"], "With --max-tasks a process ends"),
        (["--processes=2", "--within=9"], "only for a range"),
        (["--processes=1..8", "--probe-port=8000"], "would start up to 8"),
        (["--processes=8..1"], "the second number must be the greater one"),
        (["--processes=3..3"], "the second number must be the greater one"),
        (["--processes=0..8"], "'0' is not a whole number of at least 1"),
        (["--processes=1.."], "'' is not a whole number"),
        (["--processes=1..8", "--within=1"], "not a number of seconds from 2"),
        (["--processes=1..8", "--within=soon"], "not a number of seconds from 2"),
    ],
)
def test_options_that_contradict_are_refused(processes, options, says):
    command = processes.start("runworkers", *options)
    assert command.wait(60) != 0
    assert says in processes.log_of(command)


@pytest.mark.once
def test_a_range_needs_the_command_line():
    options = {"processes": Limits(1, 8), "within": None, "batch": False, "max_tasks": None}
    with pytest.raises(CommandError, match="Only the command line starts processes"):
        limits_of(options, has_parent=False)


# -- txtasks_load -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("rows")
def test_the_command_prints_a_table_or_json(capsys):
    for _ in range(3):
        tasks.note.enqueue("x")
    helpers.wait_until(lambda: call_command("txtasks_load") or "default" in capsys.readouterr().out)
    call_command("txtasks_load")
    head, line, last = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["queue", "due"]
    assert line.split()[:3] == ["default", "3", "0"]
    assert last == "Worker processes: 0, threads: 0."
    call_command("txtasks_load", json=True)
    (queue,) = json.loads(capsys.readouterr().out)["queues"]
    assert (queue["queue_name"], queue["due"], queue["wanted_threads"]) == ("default", 3, 1)


@pytest.mark.once
@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"watch": 0.1}, "the shortest time is 0.5 s"),
        ({"watch": float("nan")}, "must be a number of seconds"),
        ({"exchange": "load"}, "set TXTASKS\\['broker_url'\\]"),
        ({"database": "no"}, "'no' is not in DATABASES"),
    ],
)
def test_the_command_refuses_bad_options(options, says):
    with pytest.raises(CommandError, match=says):
        call_command("txtasks_load", **options)


@pytest.mark.once
def test_a_watch_goes_on_until_it_is_told_to_stop(processes):
    command = processes.start("txtasks_load", "--json", "--watch=0.5")
    helpers.wait_until(lambda: processes.log_of(command).count('"workers": []') >= 2)
    command.terminate()
    assert command.wait(60) == 0
