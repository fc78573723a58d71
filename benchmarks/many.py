"""One call for many tasks, beside one call for each: tasks per second, CPU, a kill, and failures.

    python benchmarks/many.py [--tasks 10000] [--repeat 3] [--threads 4] [--databases postgresql,mariadb,sqlite]

On each database, one worker process drains the tasks of each kind: a row of an index table, by one INSERT for each
task or for up to 100, and a mail, by a session for each task or for up to 100, with a real SMTP server in a thread
of this process. Printed: tasks per second, and CPU microseconds of the worker for each task. Only ratios within
one run count. There is no broker and no history.

Then, on each database: the worker that sends mails by calls of 100 gets SIGKILL in the middle, and another one
goes on (mails sent twice, and lost ones); and three of each hundred tasks fail (the tasks of each outcome).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import contest
import cpu
import figures
import options
import records
from contest import Contest, Run, ours

KINDS = ("index_one", "index_many", "mail_one", "mail_many")
DEAD = "SELECT count(*) FROM txtasks_task WHERE status = 'dead'"


class Drain(NamedTuple):
    """Tasks per second, and CPU microseconds of the worker for each task."""

    rate: float
    cpu: float


class Mailbox(socketserver.StreamRequestHandler):
    """An SMTP server that takes every mail."""

    def handle(self) -> None:
        """Answer one session, until its end or the kill of its worker."""
        with contextlib.suppress(ConnectionError):
            self._serve()

    def _serve(self) -> None:
        self._say("220 ready")
        while line := self.rfile.readline():
            verb = line[:4].upper().strip()
            if verb == b"DATA":
                self._say("354 go on")
                while self.rfile.readline() not in (b".\r\n", b""):
                    pass
            self._say("221 bye" if verb == b"QUIT" else "250 ok")
            if verb == b"QUIT":
                return

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


class Server(socketserver.ThreadingTCPServer):
    """Serves each session in a thread."""

    daemon_threads = allow_reuse_address = True
    request_queue_size = 100


@contextmanager
def mail_server() -> Iterator[None]:
    """Serve mails until the end of the block; the workers of ``contest`` know the address."""
    with Server(("127.0.0.1", 0), Mailbox) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host, port = server.server_address[:2]
        os.environ["BENCHMARK_SMTP"], os.environ["BENCHMARK_MANY"] = f"{host!s}:{port}", "1"
        try:
            yield
        finally:
            server.shutdown()


def main() -> None:
    """Print the tables."""
    parser = options.parser(__doc__, tasks=10_000)
    parser.add_argument("--databases", default="postgresql,mariadb,sqlite")
    arguments = parser.parse_args()
    names = arguments.databases.split(",")
    print(f"load at the start: {os.getloadavg()[0]:.1f}")
    with mail_server(), contest.contest(mariadb="mariadb" in names) as servers:
        measured: dict[tuple[str, str], list[Drain]] = {}
        for _ in range(arguments.repeat):
            for database in names:
                for kind in KINDS:
                    drain = _drain(servers, arguments, database, kind)
                    measured.setdefault((database, kind), []).append(drain)
        print(_table(measured))
        for database in names:
            print(f"{database}: {_kill(servers, arguments, database)}")
            print(f"{database}: {_fail(servers, arguments, database)}")
    print(f"load at the end: {os.getloadavg()[0]:.1f}")


@contextmanager
def _enqueued(
    servers: Contest, arguments: argparse.Namespace, database: str, kind: str
) -> Iterator[Run]:
    with servers.run(ours(database=database, broker_url=None, keep_finished=0)) as run:
        run.do("enqueue", arguments.tasks, kind)
        servers.settle()
        yield run


def _drain(servers: Contest, arguments: argparse.Namespace, database: str, kind: str) -> Drain:
    tasks = arguments.tasks
    with _enqueued(servers, arguments, database, kind) as run:
        with run.worker(1, f"--threads={arguments.threads}") as worker:
            run.wait_for(tasks)
            while run.left():
                time.sleep(0.02)
            used = cpu.seconds_below(worker.pid, itself=True)
        ran = records.read(run.records)
        run.check(range(tasks))
    seconds = (max(one.ns for one in ran) - min(one.ns for one in ran)) / 1e9
    return Drain(tasks / seconds, used / tasks * 1e6)


def _kill(servers: Contest, arguments: argparse.Namespace, database: str) -> str:
    """Kill the worker after a third of the mails; return the account."""
    tasks = arguments.tasks
    with _enqueued(servers, arguments, database, "mail_many") as run, run.beside("clean"):
        with run.worker(1, f"--threads={arguments.threads}") as worker:
            run.wait_for(tasks // 3)
            os.kill(records.read(run.records)[-1].pid, signal.SIGKILL)
            os.killpg(worker.pid, signal.SIGKILL)
        with run.worker(1, f"--threads={arguments.threads}"):
            while run.left():
                time.sleep(0.1)
        sent = Counter(one.key for one in records.read(run.records))
    twice = sum(number > 1 for number in sent.values())
    lost = tasks - len(sent)
    return f"killed after {tasks // 3} of {tasks} mails: {twice} sent twice, {lost} lost"


def _fail(servers: Contest, arguments: argparse.Namespace, database: str) -> str:
    """Drain tasks of which three of each hundred fail; return the account."""
    tasks = arguments.tasks
    with _enqueued(servers, arguments, database, "index_but_three") as run:
        with run.worker(1, f"--threads={arguments.threads}"):
            run.wait_for(tasks)
            while run.left() > tasks * 3 // 100:
                time.sleep(0.05)
        dead, rows = run.ask(DEAD), run.ask("SELECT count(*) FROM bench_row")
        ran = len(records.read(run.records))
    return (
        f"three of each hundred fail: {dead} dead, {rows} rows written, {ran} runs of {tasks} tasks"
    )


def _table(measured: dict[tuple[str, str], list[Drain]]) -> str:
    rows = []
    for (database, kind), own in measured.items():
        one = measured[database, kind.replace("many", "one")]
        rates = [mine.rate / base.rate for mine, base in zip(own, one, strict=True)]
        costs = [mine.cpu / base.cpu for mine, base in zip(own, one, strict=True)]
        rows.append(
            [
                f"{database}, {kind}",
                figures.figure([each.rate for each in own]),
                figures.figure(rates),
                figures.figure([each.cpu for each in own]),
                figures.figure(costs),
            ]
        )
    head = ["", "tasks/s", "relative to one", "CPU µs/task", "relative to one"]
    return figures.table(head, rows)


if __name__ == "__main__":
    main()
