"""The page for workers in other languages: its statements, and the worker of 60 lines that reads them from it."""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import helpers
import psycopg
import pytest
from django.db import connection, transaction
from probe import tasks

from django_txtasks import batch
from django_txtasks.conf import get_config
from django_txtasks.core.cleaning import Cleaner
from django_txtasks.core.rows.history import KEPT
from django_txtasks.models import EndedWorker, FinishedTask, PausedQueue, Status, Task, Worker

pytestmark = [
    pytest.mark.usefixtures("rows"),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="the page is for PostgreSQL"),
]

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "docs/examples/worker.py"
HINTS = (ROOT / "docs/reference/hints.md").read_text()
OURS = "probe.tasks.note"
PROGRAM = """
import os, sys, threading, time
sys.path.insert(0, sys.argv[1])
import worker

worker.LEASE, worker.BEAT = 3, 0.2

def run(session, key, seconds=0):
    insert = "INSERT INTO probe_run (key, attempt, pid, at) VALUES (%s, 0, %s, now())"
    if seconds:  # committed at once, as an effect outside the database
        import psycopg
        with psycopg.connect(sys.argv[2], autocommit=True) as other:
            other.execute(insert, [f"{key} began", os.getpid()])
        time.sleep(seconds)
    session.execute(insert, [key, os.getpid()])
    return {"key": key}

def fail(session, text):
    raise ValueError(text)

functions = {"probe.tasks.note": run, "elsewhere.run": run, "elsewhere.fail": fail}
worker.work(sys.argv[2], "default", functions, threading.Event())
"""


def example():
    spec = importlib.util.spec_from_file_location("worker", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


WORKER = example()
SQL = WORKER.SQL


def url():
    at = connection.settings_dict
    login = f"{at['USER']}:{at['PASSWORD']}" if at["PASSWORD"] else at["USER"]
    return f"postgres://{login}@{at['HOST']}:{at['PORT']}/{at['NAME']}"


@pytest.fixture
def foreign():
    """Start workers of the example as processes of their own; they end with the test."""
    started = []

    def start():
        command = [sys.executable, "-c", PROGRAM, str(EXAMPLE.parent), url()]
        started.append(subprocess.Popen(command, start_new_session=True))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.wait()


@pytest.fixture
def session():
    with psycopg.connect(url(), autocommit=True) as session:
        yield session


def enqueue(name, *args, **columns):
    """Enqueue by the raw protocol."""
    values = {"id": uuid.uuid4(), "task_name": name, "args": json.dumps(args), **columns}
    places = ", ".join(["%s"] * len(values))
    helpers.execute(
        f"INSERT INTO txtasks_task ({', '.join(values)}) VALUES ({places})", *values.values()
    )
    return values["id"]


def register(session, *names):
    facts = {"host": "elsewhere", "pid": os.getpid(), "lease": 3}
    lists = {"queues": '["default"]', "names": json.dumps(names)}
    (worker,) = session.execute(SQL["register"], {**facts, **lists}).fetchone()
    return worker


def claim(session, worker, *names, limit=10):
    values = {"worker": worker, "queue": "default", "names": list(names), "limit": limit}
    return session.execute(SQL["claim"], values).fetchall()


# ---- the worker of 60 lines


def test_it_works_beside_ours_on_the_same_queue(foreign):
    for n in range(40):
        tasks.note.enqueue(f"both {n}")
        enqueue("elsewhere.run", f"theirs {n}")
        tasks.give.enqueue(n)
    foreign(), foreign()
    with helpers.working():
        helpers.wait_until(lambda: helpers.counts()["finished"] == 120)
    keys = [f"{who} {n}" for who in ("both", "theirs") for n in range(40)]
    assert all(helpers.runs(key) == 1 for key in keys)
    theirs = FinishedTask.objects.filter(task_name="elsewhere.run")
    assert {one.outcome for one in theirs} == {"succeeded"}
    one = theirs.get(args=["theirs 7"])
    assert one.result == {"key": "theirs 7"}
    assert (one.attempt, one.failures, one.crashes) == (1, 0, 0)
    assert one.enqueued_at <= one.started_at <= one.finished_at
    assert Worker.objects.filter(pk=one.worker, lost=False).exists()


def test_a_failed_task_is_retried_and_then_dead_with_its_errors(foreign):
    task_id = enqueue("elsewhere.fail", "no such parcel", max_attempts=2)
    foreign()
    helpers.wait_until(lambda: helpers.row(task_id).failures == 1)
    waits = helpers.row(task_id)
    assert (waits.status, waits.worker, waits.started_at) == (Status.PENDING, None, None)
    assert (waits.run_after - waits.enqueued_at).total_seconds() >= 5
    helpers.execute("UPDATE txtasks_task SET run_after = now()")
    helpers.wait_until(lambda: helpers.row(task_id).status == Status.DEAD)
    dead = helpers.row(task_id)
    assert [(one["attempt"], one["type"], one["message"]) for one in dead.errors] == [
        (1, "ValueError", "no such parcel"),
        (2, "ValueError", "no such parcel"),
    ]
    assert (dead.failures, dead.attempt, dead.worker) == (2, 2, None)


def test_a_cleaner_recovers_what_a_killed_one_held(foreign, processes, txtasks):
    txtasks(heartbeat_interval=0.2, lease=3, clean_interval=1)
    again = enqueue("elsewhere.run", "again", 600, on_crash="retry")
    default = enqueue("elsewhere.run", "default", 600)
    victims = foreign(), foreign()
    for key in ("again began", "default began"):
        helpers.wait_until(lambda key=key: helpers.runs(key))
    processes.start("runcleaner")
    for one in victims:
        os.kill(one.pid, signal.SIGKILL)
    helpers.wait_until(lambda: helpers.row(again).status == Status.PENDING)
    helpers.wait_until(lambda: helpers.row(default).status == Status.DEAD)
    helpers.execute("UPDATE txtasks_task SET args = '[\"again\"]' WHERE status = 'pending'")
    foreign()
    helpers.wait_until(lambda: helpers.finished(again))
    done = helpers.finished(again)
    assert (done.attempt, done.crashes, done.failures) == (2, 1, 0)
    assert helpers.runs("again") == 1  # the first attempt was rolled back
    assert helpers.runs("default") == 0


def test_a_frozen_one_connects_and_registers_again(foreign, processes, txtasks):
    """The cleaner that declared it lost has ended its session."""
    txtasks(heartbeat_interval=0.2, lease=3, clean_interval=1)
    task_id = enqueue("elsewhere.run", "frozen", 5, on_crash="retry")
    frozen = foreign()
    helpers.wait_until(lambda: helpers.runs("frozen began"))
    before = helpers.row(task_id).worker
    processes.start("runcleaner")
    os.kill(frozen.pid, signal.SIGSTOP)
    helpers.wait_until(lambda: helpers.row(task_id).status == Status.PENDING)
    helpers.execute("UPDATE txtasks_task SET args = '[\"frozen\"]', run_after = now()")
    helpers.wait_until(lambda: not Worker.objects.filter(pk=before, lost=False))
    os.kill(frozen.pid, signal.SIGCONT)
    helpers.wait_until(lambda: helpers.finished(task_id))
    done = helpers.finished(task_id)
    assert (done.attempt, done.crashes) == (2, 1) and done.worker != before
    assert helpers.runs("frozen") == 1


def test_it_ends_in_good_order_and_leaves_no_row():
    stop, began = threading.Event(), threading.Event()
    task_id = enqueue("elsewhere.run", "last")

    def run(session, key):
        began.set()
        stop.wait(helpers.PATIENCE)

    work = threading.Thread(
        target=WORKER.work, args=[url(), "default", {"elsewhere.run": run}, stop]
    )
    work.start()
    assert began.wait(helpers.PATIENCE)
    stop.set()
    work.join(helpers.PATIENCE)
    assert helpers.finished(task_id)
    assert not Worker.objects.exists()
    assert EndedWorker.objects.get().pid == os.getpid()


# ---- the statements


def declare_lost(worker):
    Worker.objects.filter(pk=worker).update(lost=True)
    Cleaner(get_config()).run_once()


def test_a_late_end_does_nothing(session):
    task_id = enqueue("elsewhere.run", "late", on_crash="retry")
    first, second = (register(session, "elsewhere.run") for _ in range(2))
    ((_, attempt, *_),) = claim(session, first, "elsewhere.run")
    declare_lost(first)
    assert not session.execute(SQL["beat"], {"worker": first, "running": 1}).rowcount
    before = [helpers.row(task_id).status, *_late_ends(session, task_id, attempt, first)]
    assert before == [Status.PENDING, 0, 0, 0, 0]
    assert len(claim(session, second, "elsewhere.run")) == 1
    held = Task.objects.values().get()
    assert _late_ends(session, task_id, attempt, first) == [0, 0, 0, 0]
    assert _late_ends(session, task_id, attempt, second) == [0, 0, 0, 0]  # not its attempt
    assert Task.objects.values().get() == held
    fence = {"id": task_id, "attempt": attempt + 1, "worker": second, "result": None}
    assert session.execute(SQL["finish"], fence).rowcount == 1
    assert helpers.finished(task_id).crashes == 1


def _late_ends(session, task_id, attempt, worker):
    values = {"id": task_id, "attempt": attempt, "worker": worker, "result": None, "delay": 1}
    told = {"type": "Late", "message": "late"}
    ends = ("finish", "retry", "bury", "release")
    return [session.execute(SQL[end], {**values, **told}).rowcount for end in ends]


def test_a_released_task_counts_nothing(session):
    task_id = enqueue("elsewhere.run", "released")
    worker = register(session, "elsewhere.run")
    ((_, attempt, *_),) = claim(session, worker, "elsewhere.run")
    fence = {"id": task_id, "attempt": attempt, "worker": worker}
    assert session.execute(SQL["release"], fence).rowcount == 1
    row = helpers.row(task_id)
    assert (row.status, row.failures, row.crashes) == (Status.PENDING, 0, 0)


def test_a_worker_that_holds_a_task_leaves_no_claim_without_a_row(session):
    enqueue("elsewhere.run", "held")
    worker = register(session, "elsewhere.run")
    claim(session, worker, "elsewhere.run")
    assert not session.execute(SQL["leave"], {"worker": worker}).rowcount
    assert Worker.objects.filter(pk=worker).exists()


def test_two_never_claim_the_same_task(session):
    enqueue("elsewhere.run", "one")
    workers = [register(session, "elsewhere.run") for _ in range(2)]
    with psycopg.connect(url()) as other:
        assert len(claim(other, workers[0], "elsewhere.run")) == 1
        assert claim(session, workers[1], "elsewhere.run") == []
        other.commit()
    assert claim(session, workers[1], "elsewhere.run") == []


def test_what_it_may_not_claim_stays(session, txtasks):
    txtasks(lanes={"*": {"at_most": 1}})
    tasks.note.using(unique_key="key").enqueue("keyed")
    tasks.note.using(lane="lane").enqueue("in a lane")
    tasks.note.using(on_success=tasks.give).enqueue("with a hook")
    tasks.note.using(run_after=3600).enqueue("later")
    tasks.note.using(expires=0.001).enqueue("expired")
    tasks.note.using(queue_name="mail").enqueue("elsewhere")
    tasks.give.enqueue("another name")
    with batch():
        tasks.note.enqueue("member")
    enqueue(OURS, "postponed", snoozes=1)
    enqueue(OURS, "at the limit", failures=2**31 - 1)
    again = enqueue(OURS, "again")
    FinishedTask.objects.create(id=again, task_name=OURS, outcome="succeeded")
    time.sleep(0.002)  # expired by now
    worker = register(session, OURS)
    assert claim(session, worker, OURS, limit=100) == []
    plain = [tasks.note.enqueue(f"plain {n}").id for n in range(2)]
    low = tasks.note.using(priority=-1).enqueue("low").id
    PausedQueue.objects.create(queue_name="default")
    assert claim(session, worker, OURS) == []
    PausedQueue.objects.all().delete()
    assert [row[0] for row in claim(session, worker, OURS, limit=2)] == plain
    assert [row[0] for row in claim(session, worker, OURS)] == [low]


def test_a_claim_waits_for_no_lock(session):
    locked, free = enqueue("elsewhere.run", "locked"), enqueue("elsewhere.run", "free")
    worker = register(session, "elsewhere.run")
    with transaction.atomic():
        Task.objects.select_for_update().get(pk=locked)
        assert [row[0] for row in claim(session, worker, "elsewhere.run")] == [free]


def test_the_page_keeps_what_history_keeps():
    columns = re.search(r"finishedtask \(\s*(.*?), outcome, result\)", SQL["finish"], re.DOTALL)[1]
    assert tuple(re.split(r",\s+", columns)) == KEPT
    assert set(SQL) == {"register", "beat", "claim", "finish", "retry", "bury", "release", "leave"}


def test_the_worker_is_short():
    lines = EXAMPLE.read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 60


# ---- enqueueing from Node.js and Ruby


def block(language):
    return re.search(rf"^```{language}\n(.*?)^```$", HINTS, re.MULTILINE | re.DOTALL)[1]


INSERT = block("sql")
PROGRAMS = {"js": ("node", ["-e"], 'require("pg")'), "ruby": ("ruby", ["-e"], 'require "pg"')}


@pytest.mark.once
@pytest.mark.parametrize("language", PROGRAMS)
def test_examples_in_other_languages_have_the_statement_that_is_tested(language):
    wanted = " ".join(INSERT.split())
    assert wanted in " ".join(block(language).split())


@pytest.mark.once
@pytest.mark.parametrize("language", PROGRAMS)
def test_an_example_in_another_language_enqueues(language):
    name, option, load = PROGRAMS[language]
    program = shutil.which(name)
    if (
        program is None
        or subprocess.run([program, *option, load], capture_output=True, check=False).returncode
    ):
        pytest.skip(f"needs {name} with its package pg")
    done = subprocess.run(
        [program, *option, block(language)],
        env={**os.environ, "DATABASE_URL": url()}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    row = helpers.row(uuid.UUID(done.stdout.strip()))
    assert (row.task_name, row.args) == ("shop.tasks.send_receipt", [1])
