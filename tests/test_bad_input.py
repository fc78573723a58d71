"""Garbage in the queue of hints, or in the table by plain SQL: nothing is imported, no row is lost, every loop
continues, and the tasks behind the garbage run.

Some databases refuse such rows at the INSERT; a row that is accepted must not stop a worker or a cleaner.
"""

import json
import random
import subprocess
import sys
import tracemalloc
import uuid
from datetime import timedelta

import helpers
import pika
import pytest
from django.db import Error, connection
from hypothesis import given, settings
from hypothesis import strategies as st
from probe import tasks

from django_txtasks import enqueue_many, signals
from django_txtasks.conf import get_config
from django_txtasks.core.cleaning import Cleaner
from django_txtasks.core.ground.payload import clean_text, encode, encode_each
from django_txtasks.core.rows.attempts import read_entries
from django_txtasks.exceptions import InvalidArguments
from django_txtasks.hints.broker import topology
from django_txtasks.hints.sending import message as hint_message
from django_txtasks.models import Status, Task, Worker

pytestmark = pytest.mark.usefixtures("rows", "quick")

fuzzed = settings(max_examples=100, derandomize=True, deadline=None, database=None)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.uuids().map(str),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just("ids"), inner),
    max_leaves=8,
)
UUIDS = [str(uuid.UUID(int=number)) for number in range(3)]


@pytest.fixture
def worker():
    """A real worker. At the end the same worker is alive and has imported nothing because of what it read."""
    with helpers.working(threads=8) as worker:
        assert runs_behind()  # what the first task needs is imported by now
        Cleaner(get_config()).run_once()  # and what a cleaner does
        first, before = worker.writer.id, set(sys.modules)
        yield worker
        helpers.wait_until(runs_behind, what="the loop to go on")
        assert worker.writer.id == first
        assert not Worker.objects.filter(lost=True).exists()
        new = {name for name in set(sys.modules) - before if not name.startswith("encodings.")}
        assert new == set()


def runs_behind():
    """Return True if tasks that are enqueued now still run."""
    handle = tasks.note.enqueue("behind")
    return helpers.wait_until(lambda: helpers.finished(handle.id), what="a real task to run")


# -- hints --------------------------------------------------------------------------------------------


def queue_name():
    return topology.hint_queue(get_config(), "default", "default")


def send(url, bodies):
    with pika.BlockingConnection(pika.URLParameters(url)) as amqp:
        channel = amqp.channel()
        for body in bodies:
            channel.basic_publish("", queue_name(), body)


def all_read(url):
    """Return True if no hint waits in RabbitMQ."""
    with pika.BlockingConnection(pika.URLParameters(url)) as amqp:
        return not amqp.channel().queue_declare(queue_name(), passive=True).method.message_count


def garbage(count=200):
    """Bodies of every wrong kind, the same in every run."""
    chance = random.Random(7)
    values = [None, True, -1, 1e300, "os.system", "", [], {}, [[]], {"ids": 1}, *UUIDS]
    kinds = [
        lambda: chance.randbytes(chance.randrange(300)),
        lambda: json.dumps(chance.choice(values)).encode(),
        lambda: json.dumps({"ids": chance.choice(values)}).encode(),
        lambda: json.dumps({"ids": chance.choices(values, k=5)}).encode(),
        lambda: json.dumps({"ids": UUIDS}).encode()[: chance.randrange(40)],
        lambda: json.dumps({"ids": UUIDS}).encode(chance.choice(["utf-16", "utf-32"])),
    ]
    return [kinds[number % len(kinds)]() for number in range(count)]


LARGE = {
    "100,000 levels": b'{"ids":' + b"[" * 100_000,
    "30,000 levels": b'{"ids":' + b"[" * 30_000,
    "30,000 levels of objects": b'{"ids":' * 9_000,
    "a megabyte": b'{"ids": ["' + b"x" * 1_000_000 + b'"]}',
    "a long number": b'{"ids": [' + b"9" * 60_000 + b"]}",
}


@pytest.mark.once
@fuzzed
@given(st.binary() | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_list_of_ids_or_no_hint(body):
    try:
        ids, _ = hint_message.decode(body)
    except ValueError:
        return
    assert all(isinstance(task_id, uuid.UUID) for task_id in ids)


@pytest.mark.once
@fuzzed
@given(json_values)
def test_a_body_that_has_ids_is_read_or_refused(value):
    try:
        ids, _ = hint_message.decode(json.dumps({"ids": value}).encode())
    except ValueError:
        return
    assert all(isinstance(task_id, uuid.UUID) for task_id in ids)


@pytest.mark.once
@fuzzed
@given(st.lists(st.lists(json_values | st.sampled_from(["],[", [[], []]])), max_size=5))
def test_lists_that_are_encoded_together_are_as_if_one_by_one(lists):
    try:
        one_by_one = [encode(one, name="args") for one in lists]
    except InvalidArguments:
        with pytest.raises(InvalidArguments):
            encode_each(lists, name="args")
    else:
        assert encode_each(lists, name="args") == one_by_one


def test_garbage_in_the_queue_of_hints_delays_nobody(broker, worker):
    send(broker, [*garbage(), *LARGE.values(), *garbage()])
    assert runs_behind()
    helpers.wait_until(lambda: all_read(broker), 120, "all garbage to be read")


SEND_LARGE = """
import sys, pika
with pika.BlockingConnection(pika.URLParameters(sys.argv[1])) as amqp:
    amqp.channel().basic_publish("", sys.argv[2], b" " * int(sys.argv[3]))
"""


def test_a_large_body_is_not_kept_in_memory(broker, worker):
    """Else who may write to the queue could raise each worker by some hundred megabytes."""
    size, seen = 12_000_000, []

    def refused(error, **_):
        seen.append(str(error))

    signals.hint_refused.connect(refused)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    command = [sys.executable, "-c", SEND_LARGE, broker, queue_name(), str(size)]
    subprocess.run(command, check=True, timeout=120)
    helpers.wait_until(lambda: seen, what="the body to be refused")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert f"more than {hint_message.MAX_BYTES:,}" in seen[0]
    assert peak - before < size / 4


def test_hints_of_finished_later_and_unknown_tasks_run_nothing(broker, txtasks, worker):
    done, later = tasks.note.enqueue("done"), tasks.note.using(run_after=timedelta(days=1))
    later = later.enqueue("later")
    helpers.wait_until(lambda: helpers.finished(done.id))
    unknown = [json.dumps({"ids": [str(uuid.uuid4()) for _ in range(100)]}) for _ in range(5)]
    send(broker, [hint_message.encode([done.id, later.id])] * 200 + [*map(str.encode, unknown)])
    assert runs_behind()
    helpers.wait_until(lambda: all_read(broker), 120, "all hints to be read")
    assert (helpers.runs("done"), helpers.runs("later")) == (1, 0)
    assert (helpers.finished(done.id).attempt, helpers.row(later.id).attempt) == (1, 0)


# -- rows ---------------------------------------------------------------------------------------------


def insert(**columns):
    """Write a row as a person would by hand; return False if the database refused it."""
    names = ", ".join(columns)
    try:
        helpers.execute(
            f"INSERT INTO txtasks_task ({names}) VALUES ({', '.join(['%s'] * len(columns))})",
            *columns.values(),
        )
    except (Error, ValueError):  # ValueError: a driver that refuses NUL
        return False
    return True


def bad_row(task_name="probe.tasks.note", **columns):
    """Write a row that comes first in every queue, if the database takes it."""
    first = {"id": uuid.uuid4().hex, "priority": 100, "run_after": "2001-01-01 00:00:00"}
    return insert(**{**first, "task_name": task_name, **columns})


NAMES = {
    "os.system": "os.system",
    "a module that nobody has imported": "antigravity",
    "a function of such a module": "turtle.Turtle",
    "a function that is no task": "probe.tasks.ran",
    "one of ours": "django_txtasks.operations.operators.discard",
    "a path": "../../../../etc/passwd",
    "nothing": "",
    "NUL": "probe.tasks.note\x00",
    "capitals": "PROBE.TASKS.NOTE",
    "a sentence": "__import__('os').system('true')",
}
DEEP = "[" * 900 + "]" * 900
VALUES = {
    "null args": {"args": "null"},
    "args that are text": {"args": '"text"'},
    "args that are an object": {"args": '{"a": 1}'},
    "kwargs that are an array": {"kwargs": "[1]"},
    "kwargs that are a number": {"kwargs": "5"},
    "kwargs that nobody takes": {"kwargs": '{"__class__": 1}', "max_attempts": 1},
    "too many args": {"args": "[1, 2, 3]", "max_attempts": 1},
    "args 900 levels deep": {"args": DEEP},
    "args 100,000 levels deep": {"args": "[" * 100_000 + "]" * 100_000},
    "an arg of a megabyte": {"args": json.dumps(["x" * 1_000_000])},
    "a number of 5,000 digits": {"args": f"[{'9' * 5_000}]"},
    "NUL in args": {"args": '["a \\u0000 b"]'},
    "half a character in args": {"args": '["\\ud800"]'},
    "args that are no JSON": {"args": "[1, 2"},
    "errors that are no list": {"errors": '{"a": 1}', "args": "null"},
    "errors that are a number": {"errors": "5", "args": "null"},
    "errors of other things": {"errors": '[1, null, "x", [], {"type": 1}]', "args": "null"},
    "errors 900 levels deep": {"errors": DEEP, "args": "null"},
    "errors beyond all numbers": {"errors": '[{"type": 1e999}]', "args": "null"},
    "expired, with an id that is none": {"id": "too late", "expires_at": "2001-01-01 00:00:00"},
    "expired before all times": {"expires_at": "-infinity"},
    "no attempts": {"max_attempts": 0, "args": "null"},
    "an attempt that cannot be counted": {"attempt": 2**31 - 1},
    "an attempt of 32 bits": {"attempt": 2**32 - 1},
    "failures that cannot be counted": {"failures": 2**31 - 1, "args": "null"},
    "crashes that cannot be counted": {"crashes": 2**31 - 1},
    "the highest priority": {"priority": 32767},
    "a priority in words": {"priority": "high"},
    "an endless past": {"run_after": "-infinity"},
    "no time": {"run_after": ""},
    "before Christ": {"run_after": "4000-01-01 00:00:00 BC"},
    "an id in dashes": {"id": str(uuid.UUID(int=2**100 + 10))},
    "an id in capitals": {"id": uuid.UUID(int=0xABCDEF << 100).hex.upper()},
    "an id that is none": {"id": "the first one"},
    "an empty id": {"id": ""},
    "an unknown policy": {"on_crash": "explode"},
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_name_that_no_app_declares_is_neither_imported_nor_run(name, worker):
    taken = bad_row(name)
    assert runs_behind()
    assert Task.objects.filter(status=Status.PENDING, attempt=0).count() == taken
    assert helpers.runs("note") == 0


@pytest.mark.parametrize("columns", VALUES.values(), ids=VALUES)
def test_a_row_of_nonsense_stops_nobody_and_is_not_lost(columns, worker):
    taken = bad_row(**columns)
    real = [handle.id for handle in enqueue_many((tasks.note, ()) for _ in range(5))]
    helpers.wait_until(
        lambda: all(helpers.finished(task_id) for task_id in real), what="real tasks"
    )
    helpers.wait_until(lambda: helpers.counts()["claimed"] == 0, what="the row's own end")
    Cleaner(get_config(), notify=list).run_once()
    all_rows = 1 + len(real) + taken  # the first one is the fixture's
    helpers.wait_until(
        lambda: sum(helpers.counts().values()) == all_rows, what="each row's account"
    )


def test_a_heap_of_nonsense_in_front_of_real_tasks_is_not_in_their_way(worker):
    taken = sum(bad_row(name) for name in NAMES.values() for _ in range(20)) + sum(
        bad_row(**columns) for columns in VALUES.values() if len(str(columns)) < 10_000
    )
    real = [handle.id for handle in enqueue_many((tasks.note, ()) for _ in range(20))]
    helpers.wait_until(lambda: all(helpers.finished(task_id) for task_id in real))
    assert Task.objects.filter(status=Status.PENDING, attempt=0).count() >= 20 * 8
    assert taken >= 20 * 8


@pytest.mark.parametrize(
    ("function", "length"),
    [(tasks.fail_loudly, 10_000_000), (tasks.give_much, 10_000_000)],
    ids=str,
)
def test_ten_megabytes_of_error_or_result_leave_a_small_row(function, length, worker):
    handle = function.enqueue(length)
    dead = helpers.wait_until(lambda: helpers.row(handle.id).status == Status.DEAD)
    dead = helpers.row(handle.id)
    assert len(json.dumps(dead.errors)) < 100_000
    assert dead.errors[-1]["type"] in ("ValueError", "InvalidArguments")


@pytest.mark.once
@fuzzed
@given(st.text() | json_values.map(json.dumps))
def test_any_text_in_errors_is_a_list_of_objects(text):
    assert all(isinstance(entry, dict) for entry in read_entries(text))


@pytest.mark.once
@fuzzed
@given(st.text(st.characters(codec=None), max_size=300), st.integers(2, 50))
def test_any_text_is_cleaned_into_what_databases_store(text, limit):
    cleaned = clean_text(text, limit)
    assert "\x00" not in cleaned
    assert cleaned.encode().decode() == cleaned


@pytest.fixture
def short_lease(txtasks):
    """A short lease, because a refused outcome is tried again once per lease."""
    txtasks(lease=2, heartbeat_interval=0.2)


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite's numbers have no end")
def test_an_outcome_that_the_database_refuses_twice_stops_no_other(short_lease, worker):
    """Somebody has filled up a counter of a row that is running."""
    tasks.released.clear()
    handle = tasks.fail_when_released.enqueue("running")
    helpers.wait_until(lambda: helpers.runs("running"))
    helpers.execute(
        "UPDATE txtasks_task SET failures = %s",
        {"mysql": 2**32 - 1}.get(connection.vendor, 2**31 - 1),
    )
    tasks.released.set()
    after = [tasks.note.enqueue(f"after {number}") for number in range(3)]
    for one in after:
        helpers.wait_until(lambda one=one: helpers.finished(one.id))
    assert helpers.row(handle.id).status == Status.CLAIMED
    helpers.execute("UPDATE txtasks_task SET failures = 0")
    helpers.wait_until(lambda: helpers.row(handle.id).failures)


@pytest.mark.skipif(connection.vendor != "sqlite", reason="the others keep ids only")
def test_a_claim_of_a_worker_that_is_no_id_stops_no_cleaner():
    from django_txtasks.core.cleaning import Cleaner

    tasks.note.enqueue()
    helpers.execute(
        "UPDATE txtasks_task SET status = 'claimed', worker = 'nobody', claimed_at = '2026-01-01'"
    )
    assert Cleaner(get_config()).run_once()["buried"] == 0
    assert helpers.counts()["claimed"] == 1
