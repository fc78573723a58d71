"""The last log lines of an attempt that failed: kept in its error entry, bounded, and without harm to tasks."""

import json
import logging
import subprocess
import sys
import threading
import uuid

import helpers
import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.urls import reverse
from probe import tasks

from django_txtasks.backends.running import task_error
from django_txtasks.conf import parse
from django_txtasks.core.ground.payload import last_lines_within
from django_txtasks.exceptions import ConfigError
from django_txtasks.features.log_lines import handler as last_lines
from django_txtasks.models import Status
from django_txtasks.signals.logs import current

once = pytest.mark.once


@pytest.fixture
def site(rows, quick):
    """The rows of a test, and no log lines on the terminal."""
    root = logging.NullHandler()
    logging.root.addHandler(root)
    yield
    logging.root.removeHandler(root)


def error_of(handle, **options):
    """Run the task until it is dead; return its only error entry."""
    with helpers.working(**options):
        helpers.wait_until(lambda: helpers.row(handle.id).status == Status.DEAD)
    (error,) = helpers.row(handle.id).errors
    return error


def texts(error):
    return [line.split(": ", 1)[1] for line in error["log"].splitlines()]


def test_a_failure_keeps_its_last_lines_and_a_success_keeps_nothing(site):
    fails = tasks.log_lines.enqueue([f"line {n}" for n in range(60)])
    succeeds = tasks.log_lines.enqueue(["gone"], fails=False)
    error = error_of(fails)
    assert texts(error) == [f"line {n}" for n in range(10, 60)]
    assert " WARNING shop.orders: line 59" in error["log"].splitlines()[-1]
    helpers.wait_until(lambda: helpers.finished(succeeds.id))
    assert helpers.finished(succeeds.id).errors == []


def test_a_failure_without_a_line_has_no_log(site):
    assert "log" not in error_of(tasks.log_lines.enqueue([]))


def test_each_attempt_has_its_own_lines(site):
    first, second = (tasks.log_lines.enqueue([f"of {n}"]) for n in range(2))
    assert texts(error_of(first)) == ["of 0"]
    helpers.wait_until(lambda: helpers.row(second.id).status == Status.DEAD)
    assert texts(helpers.row(second.id).errors[0]) == ["of 1"]


def test_with_keep_log_0_no_handler_is_installed(site, txtasks):
    txtasks(keep_log=0)
    before = list(logging.root.handlers)
    handle = tasks.log_lines.enqueue(["unseen"])
    with helpers.working():
        assert logging.root.handlers == before
        helpers.wait_until(lambda: helpers.row(handle.id).status == Status.DEAD)
    assert "log" not in helpers.row(handle.id).errors[0]


def test_the_handler_leaves_with_the_worker(site):
    before = list(logging.root.handlers)
    with helpers.working():
        helpers.wait_until(lambda: len(logging.root.handlers) == len(before) + 1)
    assert logging.root.handlers == before


def test_the_lines_of_this_package_are_left_out(site):
    handle = tasks.log_lines.enqueue(["own words"], name="django_txtasks")
    assert "log" not in error_of(handle)


def test_lines_of_a_logger_that_does_not_propagate_never_arrive(site):
    logger = logging.getLogger("shop.silent")
    logger.propagate = False
    logger.addHandler(logging.NullHandler())
    assert "log" not in error_of(tasks.log_lines.enqueue(["unseen"], name="shop.silent"))


def test_a_record_that_cannot_be_formatted_hurts_no_task(site, monkeypatch):
    monkeypatch.setattr(logging, "raiseExceptions", False)
    error = error_of(tasks.log_what_cannot_be_formatted.enqueue())
    assert error["message"] == "after the log"
    assert texts(error) == [
        "(its text cannot be formatted: RuntimeError)",
        "(its text cannot be formatted: TypeError)",
        "the next one",
    ]


def test_a_thread_that_copies_the_context_belongs_to_the_attempt(site):
    assert texts(error_of(tasks.log_from_threads.enqueue())) == ["in the context"]


@pytest.mark.parametrize("kind", ["every", "loop"])
def test_the_lines_of_async_tasks(site, kind):
    options = {"async_tasks": 10} if kind == "loop" else {}
    error = error_of(tasks.log_async.enqueue("awaited"), kind=kind, **options)
    assert texts(error) == ["awaited", "in a thread"]


def test_hostile_lines_are_escaped_and_cut(site, client):
    handle = tasks.log_lines.enqueue(["<b>\n\x1b[2J", "x" * 1000])
    error = error_of(handle)
    first, second = error["log"].splitlines()
    assert first.endswith(r": <b>\n\x1b[2J")
    assert second.count("x") == last_lines.MAX_LINE_CHARACTERS
    client.force_login(User.objects.create_superuser("root", password="secret"))
    page = client.get(reverse("admin:txtasks_task_change", args=[handle.id])).content.decode()
    assert r": &lt;b&gt;\n\x1b[2J" in page
    User.objects.all().delete()


def test_an_entry_has_8_kb_of_lines_at_most(site):
    error = error_of(tasks.log_lines.enqueue([f"{n} " + "é" * 280 for n in range(50)]))
    assert len(error["log"].encode()) <= last_lines.MAX_ENTRY_BYTES
    assert error["log"].startswith("… earlier lines are left out …")
    assert ": 49 é" in error["log"].splitlines()[-1]


def test_explain_prints_the_lines(site, capsys):
    handle = tasks.log_lines.enqueue(["why"])
    error_of(handle)
    call_command("txtasks_explain", str(handle.id))
    said = capsys.readouterr().out
    assert "log: Last lines of the log of its last failure, in UTC\n" in said
    assert " WARNING shop.orders: why\n" in said
    call_command("txtasks_explain", str(handle.id), "--json")
    *_, last = capsys.readouterr().out.splitlines()
    assert json.loads(last)["gate"] == "log"


def test_django_s_task_error_has_no_lines(site):
    error = error_of(tasks.log_lines.enqueue(["secret of the log"]))
    assert "secret of the log" not in repr(task_error(error))


def test_an_attempt_that_is_given_up_keeps_its_lines(site):
    """Its worker writes the error: no exception ends the attempt."""
    from django_txtasks.conf import get_config
    from django_txtasks.core.rows.attempts import Attempt
    from django_txtasks.core.working.running.verdicts import failed

    attempt = Attempt(uuid.uuid4(), 1, uuid.uuid4(), "probe.tasks.hang", max_attempts=1)
    with last_lines.kept(5) as lines, running(attempt, lines):
        logging.getLogger("shop").warning("last words")
    ended = failed(attempt, ValueError(), get_config())
    assert "log" not in ended.error
    with last_lines.kept(5) as lines:
        with running(attempt, lines):
            logging.getLogger("shop").warning("last words")
        assert texts(failed(attempt, ValueError(), get_config()).error) == ["last words"]


class running:
    """Let this thread log for an attempt that has begun, and not ended."""

    def __init__(self, attempt, lines):
        self.attempt, self.lines = attempt, lines

    def __enter__(self):
        self.lines.begin((self.attempt.task_id.int, self.attempt.number))
        self.token = current.set(self.attempt.facts)

    def __exit__(self, *_):
        current.reset(self.token)


# -- without a worker ---------------------------------------------------------------------------------


@once
def test_a_thousand_attempts_share_the_memory(monkeypatch):
    monkeypatch.setattr(last_lines, "MAX_BYTES", 2_000 * last_lines.LINE_BYTES)
    handler = last_lines.LastLines(50)
    for number in range(1000):
        key = number, 1
        handler.begin(key)
        token = current.set({"task_id": uuid.UUID(int=number), "attempt": 1})
        for line in range(100):
            handler.handle(logging.makeLogRecord({"name": "shop", "msg": f"{number} {line}"}))
        current.reset(token)
        assert sum(map(len, handler._kept.values())) <= 2_000
    assert len(handler._kept) == 1000
    assert handler.text((999, 1)).splitlines()[-1].endswith("999 99")
    for number in range(1000):
        handler.end((number, 1))
    assert (handler._kept, handler._running, handler._share) == ({}, set(), 50)


@once
def test_a_thread_that_outlives_its_attempt_keeps_nothing():
    handler = last_lines.LastLines(50)
    token = current.set({"task_id": uuid.UUID(int=7), "attempt": 1})
    handler.begin((7, 1))
    handler.end((7, 1))
    handler.handle(logging.makeLogRecord({"name": "shop", "msg": "too late"}))
    current.reset(token)
    assert handler._kept == {}


@once
def test_the_handler_waits_for_no_lock():
    handler = last_lines.LastLines(50)
    token = current.set({"task_id": uuid.UUID(int=7), "attempt": 1})
    handler.begin((7, 1))
    locked = threading.Event()
    go_on = threading.Event()

    def hold():
        with handler.lock:
            locked.set()
            go_on.wait(helpers.PATIENCE)

    thread = threading.Thread(target=hold)
    thread.start()
    locked.wait(helpers.PATIENCE)
    handler.handle(logging.makeLogRecord({"name": "shop", "msg": "at once"}))
    assert thread.is_alive()  # and has the lock
    go_on.set()
    thread.join()
    current.reset(token)
    assert "at once" in handler.text((7, 1))


FORKS = """
import contextvars, logging, os, threading, uuid
from django_txtasks.features.log_lines import handler as last_lines
from django_txtasks.signals.logs import current

def log_on():
    while not over.is_set():
        log.warning("beside the fork")

log, over, task_id = logging.getLogger("shop"), threading.Event(), uuid.uuid4()
logging.root.addHandler(logging.NullHandler())
with last_lines.kept(50) as lines:
    current.set({"task_id": task_id, "attempt": 1})
    lines.begin((task_id.int, 1))
    thread = threading.Thread(target=contextvars.copy_context().run, args=[log_on])
    thread.start()
    for number in range(50):
        if pid := os.fork():
            assert os.waitpid(pid, 0)[1] == 0
        else:
            log.warning("in the child")
            assert "in the child" in last_lines.entry(task_id, 1)["log"]
            os._exit(0)
    over.set()
    thread.join()
    assert "in the child" not in last_lines.entry(task_id, 1)["log"]
"""


@once
def test_a_process_that_forks_while_a_thread_logs_has_children_that_log():
    command = [sys.executable, "-W", "ignore", "-c", FORKS]
    subprocess.run(command, check=True, timeout=helpers.PATIENCE)


@once
@pytest.mark.parametrize("level", ["WARNING", "INFO"])
def test_a_site_without_handlers_has_its_warnings_on_stderr(monkeypatch, capsys, level):
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging.root, "level", logging.INFO)
    number = logging.getLevelName(level)
    logging.getLogger("shop.bare").log(number, "without")
    with last_lines.kept(50):
        logging.getLogger("shop.bare").log(number, "with")
    assert capsys.readouterr().err == ("without\nwith\n" if level == "WARNING" else "")


@once
def test_a_handler_of_a_parent_keeps_warnings_off_stderr(monkeypatch, capsys):
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging.getLogger("shop"), "handlers", [logging.NullHandler()])
    with last_lines.kept(50):
        logging.getLogger("shop.bare").warning("with")
    assert capsys.readouterr().err == ""


@once
@pytest.mark.parametrize("value", [-1, 1001, True, 1.5, "50", None])
def test_a_wrong_number_of_lines(value):
    with pytest.raises(ConfigError, match=r"TXTASKS\['keep_log'\] is .*from 0 \(none\) to 1000"):
        parse({"keep_log": value})


@once
def test_lines_within_a_limit():
    assert last_lines_within([], 100) == ""
    assert last_lines_within(["a", "b"], 100) == "a\nb"
    assert last_lines_within(["a" * 80, "b"], 60) == "… earlier lines are left out …\nb"
