"""The worker of docs/examples for ``txtasks_verify --worker``. Its argument plants a fault."""

import importlib.util
import os
import signal
import sys
import threading
import time
from pathlib import Path

import psycopg

EXAMPLE = Path(__file__).parents[2] / "docs/examples/worker.py"
FENCE = "AND attempt = %(attempt)s AND worker = %(worker)s AND status = 'claimed'"

spec = importlib.util.spec_from_file_location("worker", EXAMPLE)
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)
worker.LEASE, worker.BEAT = float(os.environ["TXTASKS_LEASE"]), 0.2
stop = threading.Event()


def work(session, key, seconds):
    session.execute("INSERT INTO conformance (key) VALUES (%s)", [key])
    time.sleep(seconds)
    return key


def fail(session, text, seconds):
    time.sleep(seconds)
    raise ValueError(text)


def without(name, text):
    """Take a text out of a statement of the page."""
    assert text in worker.SQL[name]
    worker.SQL[name] = worker.SQL[name].replace(text, "")


def work_apart(session, key, seconds):
    """Commit the effect before the end."""
    with psycopg.connect(os.environ["DATABASE_URL"]) as other:
        work(other, key, 0)
    time.sleep(seconds)


def leave_with_error(number, frame):
    os._exit(3)


def keep_and_leave(number, frame):
    os._exit(0)


functions = {
    "conformance.echo": lambda session, value: value,
    "conformance.fail": fail,
    "conformance.work": work,
}
FAULTS = {
    "no functions": lambda: functions.pop("conformance.work"),
    "no beat": lambda: setattr(worker, "beat", lambda url, worker, lost: lost.wait()),
    "result as text": lambda: functions.update(
        {"conformance.echo": lambda session, value: str(value)}
    ),
    "effects apart": lambda: functions.update({"conformance.work": work_apart}),
    "no priority": lambda: without("claim", "priority DESC, "),
    "claims all": lambda: without(
        "claim", "AND unique_key IS NULL AND batch IS NULL AND hooks = '{}' AND snoozes = 0"
    ),
    "no pause": lambda: without(
        "claim", "AND queue_name NOT IN (SELECT queue_name FROM txtasks_pausedqueue)"
    ),
    "no retry": lambda: worker.SQL.update(retry=worker.SQL["bury"]),
    "no bury": lambda: worker.SQL.update(bury=worker.SQL["retry"].replace("%(delay)s", "60")),
    "no fence": lambda: [without(name, FENCE) for name in ("finish", "retry", "bury")],
    "no new id": lambda: setattr(worker, "serve", or_end(worker.serve)),
    "no stop": lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    "no leave": lambda: worker.SQL.update(leave="SELECT %(worker)s"),
    "error at the stop": lambda: signal.signal(signal.SIGTERM, leave_with_error),
    "keeps a task": lambda: signal.signal(signal.SIGTERM, keep_and_leave),
}


def or_end(serve):
    """End the process when the worker was declared lost."""

    def serve_or_end(*arguments):
        try:
            serve(*arguments)
        finally:
            os._exit(1)

    return serve_or_end


signal.signal(signal.SIGTERM, lambda *_: stop.set())
if sys.argv[1:]:
    FAULTS[sys.argv[1]]()
worker.work(os.environ["DATABASE_URL"], os.environ["TXTASKS_QUEUE"], functions, stop)
