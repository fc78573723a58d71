"""A worker with psycopg alone. Its statements are those of the page worker-protocol.md, in any language."""

import json
import os
import re
import socket
import threading
from pathlib import Path

import psycopg

PAGE = Path(__file__).parent.parent / "reference" / "worker-protocol.md"
SQL = dict(re.findall(r"```postgresql\n-- (\w+)\n(.*?)```", PAGE.read_text(), re.DOTALL))
LEASE, BEAT = 15, 1


class ClaimLost(Exception):
    """This worker was declared lost, and its tasks are given to others."""


def work(url, queue, functions, stop):
    """Run the tasks of a queue until ``stop`` is set. ``functions`` by full name; they get the session first."""
    while not stop.is_set():
        try:
            with psycopg.connect(url, autocommit=True) as session:
                serve(session, url, queue, functions, stop)
        except (ClaimLost, psycopg.OperationalError):  # a cleaner ends the session of a lost worker
            stop.wait(BEAT)


def serve(session, url, queue, functions, stop):
    me = {"host": socket.gethostname(), "pid": os.getpid(), "lease": LEASE}
    lists = {"queues": json.dumps([queue]), "names": json.dumps([*functions])}
    (worker,) = session.execute(SQL["register"], {**me, **lists}).fetchone()
    lost = threading.Event()
    threading.Thread(target=beat, args=[url, worker, lost], daemon=True).start()
    try:
        while not (stop.is_set() or lost.is_set()):
            for task in (claimed := claim(session, worker, queue, [*functions])):
                run(session, worker, functions, task)
            claimed or stop.wait(BEAT)
        session.execute(SQL["leave"], {"worker": worker})
    finally:
        lost.set()  # ends the beats


def beat(url, worker, lost):
    with psycopg.connect(url, autocommit=True) as pulse:
        while not lost.wait(BEAT):
            if not pulse.execute(SQL["beat"], {"worker": worker, "running": 1}).rowcount:
                lost.set()


def claim(session, worker, queue, names):
    with session.transaction():
        session.execute("SET LOCAL idle_in_transaction_session_timeout = '5s'")
        if not session.execute(SQL["beat"], {"worker": worker, "running": 0}).rowcount:
            raise ClaimLost
        values = {"worker": worker, "queue": queue, "names": names, "limit": 1}
        return session.execute(SQL["claim"], values).fetchall()


def run(session, worker, functions, task):
    task_id, attempt, name, args, kwargs, failures, max_attempts, _ = task
    fence = {"id": task_id, "attempt": attempt, "worker": worker}
    try:
        with session.transaction():  # the effects and the end commit together
            result = json.dumps(functions[name](session, *args, **kwargs))
            if not session.execute(SQL["finish"], {**fence, "result": result}).rowcount:
                raise ClaimLost
    except Exception as error:  # the fence of these statements: a lost claim changes no row
        end = "retry" if failures + 1 < max_attempts else "bury"
        told = {"type": type(error).__name__, "message": str(error)[:1000]}
        session.execute(SQL[end], {**fence, **told, "delay": 5 * 2**failures})
