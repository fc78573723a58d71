"""Log handlers and receivers of signals may be slow, hang or raise: no loop waits for them, no process ends."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress

import helpers
import pytest
from django.core.management import call_command
from django.db import connections
from probe import tasks

from django_txtasks import signals
from django_txtasks.models import Status, Worker
from django_txtasks.signals import queue as event_queue

pytestmark = pytest.mark.once
LOG = logging.getLogger("django_txtasks")


class Held(logging.Handler):
    """A handler that is stuck in its first record, until it is released."""

    def __init__(self):
        super().__init__()
        self.reached, self.release, self.records = threading.Event(), threading.Event(), []

    def emit(self, record):
        self.records.append(record)
        self.reached.set()
        assert self.release.wait(60)


@contextmanager
def attached(handler, level=logging.DEBUG):
    before = LOG.level
    LOG.addHandler(handler)
    LOG.setLevel(level)
    try:
        yield handler
    finally:
        LOG.removeHandler(handler)
        LOG.setLevel(before)


@pytest.fixture
def held():
    """A stuck handler at ERROR, where a site has its mail."""
    handler = Held()
    handler.setLevel(logging.ERROR)
    with attached(handler):
        yield handler
        handler.release.set()


@pytest.fixture
def fail_to_log():
    """Make logging raise: in a LogRecordFactory, a filter or a handler."""
    factory, undo = logging.getLogRecordFactory(), []

    def fail(where):
        if where == "factory":
            logging.setLogRecordFactory(lambda *args, **kwargs: _raise(None))
        elif where == "filter":
            LOG.addFilter(_raise)
            undo.append(lambda: LOG.removeFilter(_raise))
        else:
            handler = logging.Handler()
            handler.emit = _raise
            LOG.addHandler(handler)
            undo.append(lambda: LOG.removeHandler(handler))

    yield fail
    logging.setLogRecordFactory(factory)
    for one in undo:
        one()


def _raise(record):
    raise KeyError("from logging")


@contextmanager
def receiving(event, receiver):
    event.connect(receiver)
    try:
        yield
    finally:
        event.disconnect(receiver)


# ---- the loop


def test_a_stuck_log_handler_stops_neither_beat_nor_tasks(rows, quick, txtasks, held):
    txtasks(heartbeat_interval=0.05)
    tasks.reject.enqueue()

    def work():
        call_command("runworkers", max_tasks=2)
        connections.close_all()

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    assert held.reached.wait(30)  # the death of the first task is being mailed
    beat = Worker.objects.get().beat
    helpers.wait_until(lambda: Worker.objects.get().beat > beat + 2)
    second = tasks.note.enqueue()
    helpers.wait_until(lambda: helpers.finished(second.id))
    helpers.wait_until(lambda: not Worker.objects.exists())  # it has left; only its log is not done
    held.release.set()
    worker.join(30)
    assert not worker.is_alive()
    assert ["is dead after attempt 1" in record.getMessage() for record in held.records] == [True]


def test_a_stuck_log_handler_stops_no_cleaner(rows, held, processes):
    """It is told of the lost worker by one thread while others are looked after."""
    from django_txtasks.conf import get_config
    from django_txtasks.core.cleaning import Cleaner

    tasks.note.enqueue()
    for _ in range(2):
        Worker.objects.create(
            id=helpers.uuid.uuid4(), host="h", pid=1, queues=["default"], threads=4, running=1, lease=0,
        )  # fmt: skip
    with signals.in_background():
        counts = Cleaner(get_config()).run_once()
        held.release.set()
    assert counts["lost"] == 2 and len(held.records) == 2


@pytest.mark.parametrize("where", ["factory", "filter", "handler"])
def test_logging_that_raises_ends_neither_worker_nor_cleaner(rows, quick, fail_to_log, where):
    fail_to_log(where)
    good, bad = tasks.note.enqueue(), tasks.reject.enqueue()
    call_command("runworkers", batch=True)
    call_command("runcleaner", once=True)
    assert helpers.finished(good.id) and helpers.row(bad.id).status == Status.DEAD


def test_logging_that_raises_is_reported_on_stderr_once(fail_to_log, capsys, monkeypatch):
    monkeypatch.setattr(signals._Complaint, "next_at", 0.0)
    fail_to_log("filter")
    for _ in range(3):
        signals.worker_suspected.emit(worker="w")
    said = capsys.readouterr().err
    assert said.count("KeyError: 'from logging'") == 1
    assert "Logging 'Worker %s: RabbitMQ has lost" in said


def test_nobody_who_enqueues_sees_an_error_of_logging(rows, fail_to_log):
    fail_to_log("factory")
    LOG.setLevel(logging.DEBUG)
    try:
        assert helpers.row(tasks.note.enqueue().id)
    finally:
        LOG.setLevel(logging.NOTSET)


def test_a_receiver_that_leaves_python_ends_nothing(rows, quick):
    def leave(**facts):
        raise SystemExit(3)

    with receiving(signals.task_finished, leave):
        handles = [tasks.note.enqueue() for _ in range(3)]
        call_command("runworkers", batch=True)
    assert all(helpers.finished(one.id) for one in handles)


def test_receivers_in_a_worker_leave_no_session_open(rows, quick):
    seen = []

    def ask(**facts):
        connections["default"].ensure_connection()
        connections["default"].set_autocommit(False)
        seen.append((threading.current_thread().name, connections["default"]))

    with receiving(signals.task_finished, ask):
        tasks.note.enqueue()
        call_command("runworkers", batch=True)
    [(thread, connection)] = seen
    assert thread == "txtasks-signals" and connection.connection is None


def test_what_a_task_enqueues_is_told_in_its_own_thread(rows, quick):
    """Receivers of ``task_enqueued`` run in the transaction that enqueues."""
    threads = []

    def note(**facts):
        threads.append(threading.current_thread().name)

    tasks.enqueue_another.enqueue("x")
    with receiving(signals.task_enqueued, note):
        call_command("runworkers", batch=True)
    assert [name.startswith("txtasks-slot") for name in threads] == [True]


# ---- a record


def records_of(event, **facts):
    found = []
    handler = logging.Handler()
    handler.emit = found.append
    with attached(handler):
        event.emit(**facts)
    return found


def test_facts_that_a_record_factory_has_set_are_left_as_they_are():
    plain = logging.getLogRecordFactory()

    def factory(*args, **kwargs):
        record = plain(*args, **kwargs)
        record.host, record.task_id = "web1", ""
        return record

    logging.setLogRecordFactory(factory)
    try:
        [record] = records_of(signals.worker_lost, worker="w", host="h", pid=1, reason="silent")
        assert (record.host, record.worker, record.pid) == ("web1", "w", 1)
        assert record.getMessage() == "Worker w on h (pid 1) is lost: silent."
        [record] = records_of(signals.task_held, task_id="t")
        assert record.task_id == "t"  # as nothing was said there
    finally:
        logging.setLogRecordFactory(plain)


def test_a_record_is_of_the_moment_and_the_thread_that_told_it(held):
    def tell():
        signals.worker_lost.emit(worker="w", host="h", pid=1, reason="silent")

    with signals.in_background():
        before = time.time()
        tell()
        assert held.reached.wait(30)
        teller = threading.Thread(target=tell, name="the loop")
        teller.start()
        teller.join()
        after = time.time()
        held.release.set()
    first, second = held.records
    assert before <= first.created <= second.created <= after
    assert second.thread == teller.ident and second.threadName == "the loop"
    assert int(second.created * 1000) % 1000 == second.msecs
    assert second.relativeCreated == pytest.approx(
        first.relativeCreated + (second.created - first.created) * 1000, abs=0.1
    )


# ---- the queue


class Said:
    """An event that notes that it was delivered."""

    def __init__(self, text, level=logging.INFO, has_exception=True):
        self.text, self.level, self.has_exception = text, level, has_exception

    def deliver(self):
        said.append(self.text + "!" * self.has_exception)
        if self.text == "wait":
            assert go_on.wait(30)

    def made_small(self):
        return Said(self.text, self.level, has_exception=False)


said: list[str] = []
go_on = threading.Event()


def test_a_full_queue_keeps_the_order_counts_what_it_drops_and_never_waits(monkeypatch):
    said.clear()
    go_on.clear()
    monkeypatch.setattr(event_queue, "MAX_SIGNALS", 4)
    monkeypatch.setattr(event_queue, "MAX_LARGE_SIGNALS", 2)
    dropped = []
    events = event_queue.SignalQueue(dropped.append)
    events.put(Said("wait"))
    helpers.wait_until(lambda: said)
    for number in range(6):
        events.put(Said(f"info {number}"))
    for number in range(6):
        events.put(Said(f"error {number}", logging.ERROR))
    assert said == ["wait!"] and not dropped
    go_on.set()
    events.close(30)
    assert said == ["wait!", "info 0!", "info 1!", "info 2", "info 3",
                    "error 0", "error 1", "error 2", "error 3"]  # fmt: skip
    assert dropped == [4] and not events.is_stuck


def test_a_dropped_event_is_logged():
    [record] = records_of(signals.events_dropped, count=7)
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("Signals that were neither logged nor sent: 7.")


def test_a_handler_that_hangs_is_waited_for_a_limited_time(held):
    with signals.in_background(0.01) as events:
        signals.worker_lost.emit(worker="w", host="h", pid=1, reason="silent")
        assert held.reached.wait(30)
    assert events.is_stuck and signals.LogSignal.queue is None


def run_script(script):
    """Run a script in a process that has no database."""
    script = f"from django.conf import settings\nsettings.configure()\n{script}"
    command = [sys.executable, "-W", "ignore", "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)


def test_a_forked_child_logs_by_itself():
    script = """
import os, sys, logging
from django_txtasks import signals
logging.basicConfig(format="%(message)s")
with signals.in_background():
    child = os.fork()
    if not child:
        signals.worker_suspected.emit(worker="of the child")
        os._exit(0)
    os.waitpid(child, 0)
"""
    done = run_script(script)
    assert "Worker of the child: RabbitMQ has lost" in done.stderr


def test_a_fork_copies_no_lock_of_a_line_that_is_being_written():
    """A stream of Python keeps its lock while it writes: in the child nobody would release it."""
    script = """
import logging, os, signal, sys, threading, time
from django_txtasks import signals

class Stream:
    def __init__(self):
        self.lock, self.writes = threading.Lock(), threading.Event()

    def write(self, text):
        with self.lock:
            self.writes.set()
            time.sleep(0.3)

stream = Stream()
logging.basicConfig(format="%(message)s", stream=stream)
with signals.in_background():
    signals.worker_suspected.emit(worker="of the parent")
    stream.writes.wait()
    child = os.fork()
    if not child:
        signal.alarm(20)
        stream.write("the child's own line")
        os._exit(0)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    run_script(script)


def test_a_process_ends_although_its_log_hangs(processes, quick):
    tasks.hang_the_log.enqueue()
    worker = processes.start("runworkers", "--batch")
    assert worker.wait(60) == 0
    assert helpers.counts()["finished"] == 1


def test_a_process_that_forks_has_a_thread_only_while_there_is_something_to_tell(held):
    with signals.in_background(by_one_thread=False) as events:
        for _ in range(2):
            held.reached.clear()
            held.release.clear()
            signals.worker_lost.emit(worker="w", host="h", pid=1, reason="silent")
            assert held.reached.wait(30)
            [thread] = [one for one in threading.enumerate() if one.name == "txtasks-signals"]
            held.release.set()
            thread.join(30)
            assert not thread.is_alive()
    assert len(held.records) == 2 and not events.is_stuck


@contextmanager
def with_log_pipe(processes, *arguments):
    """Start a command with a pipe as its log; give it, and the pipe's writing end."""
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "django", *arguments],
        env=processes._environment(), stderr=writer, start_new_session=True,
    )  # fmt: skip
    try:
        yield process, writer
    finally:
        os.close(reader)  # what still writes gets an error, and ends
        os.close(writer)
        process.terminate()
        process.wait(60)


def fill(writer):
    """Write until the pipe is full, as it is when its reader has stopped to read."""
    own = os.open(f"/proc/self/fd/{writer}", os.O_WRONLY | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while True:
            os.write(own, b"x")
    os.close(own)


@pytest.mark.once
def test_a_stop_is_orderly_though_nobody_reads_the_log(processes, rows, quick, txtasks):
    txtasks(grace=30)
    handle = tasks.slow.enqueue(seconds=2)
    with with_log_pipe(processes, "runworkers", "--threads=4") as (process, writer):
        helpers.wait_until(lambda: helpers.runs("slow"))
        fill(writer)
        process.send_signal(signal.SIGTERM)
        assert (
            process.wait(helpers.PATIENCE) == 0
        )  # after 10 s, a worker or a cleaner would end with 1
    assert helpers.finished(handle.id) and helpers.runs("slow ended") == 1
    assert not Worker.objects.exists()
