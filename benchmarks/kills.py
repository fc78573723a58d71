"""How soon a killed worker's task starts again, or is dead.

    python tests/services.py -- python benchmarks/kills.py [--kills 200] [--broker none] [--policy dead]

Each round: a task runs in one worker process, another worker is idle, a cleaner runs; the first one's
process group gets SIGKILL in mid-task. Printed: seconds from there to the second start (of an idempotent task),
or to the state dead (of one that says nothing about crashes), by this process's clock.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "testproject"), str(HERE.parent / "tests")]


def main() -> None:
    """Print the figures of one run."""
    arguments = _arguments()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings_for_tests")
    if "TXTASKS_DATABASE_URL" not in os.environ:
        os.environ["TXTASKS_DATABASE_URL"] = os.environ["TXTASKS_TEST_POSTGRES_URL"]
    settings = {"queue_prefix": f"crash-{uuid.uuid4().hex[:8]}"}
    if arguments.broker != "none":
        settings["broker_url"] = os.environ["TXTASKS_TEST_AMQP_URL"]
    os.environ["TXTASKS_SETTINGS"] = json.dumps(settings)
    import django
    from django.test.utils import setup_databases, teardown_databases

    django.setup()
    from django.db import connection

    directory = tempfile.TemporaryDirectory()
    connection.settings_dict["TEST"]["NAME"] = (
        f"{directory.name}/test.sqlite3" if connection.vendor == "sqlite" else None
    )
    old = setup_databases(verbosity=0, interactive=False)
    os.environ["TXTASKS_IN_TEST_DATABASE"] = str(connection.settings_dict["NAME"])
    try:
        _measure(arguments)
    finally:
        connection.close()
        teardown_databases(old, verbosity=0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--broker", choices=["rabbitmq", "none"], default="rabbitmq")
    parser.add_argument("--policy", choices=["retry", "dead"], default="retry")
    return parser.parse_args()


def _measure(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryFile() as log:
        cleaner = _start("runcleaner", log)
        idle = [_start("runworkers", log) for _ in range(2)]
        try:
            seconds = []
            while len(seconds) < arguments.kills:
                seconds.append(_kill_once(idle, log, arguments.policy))
                print(f"{len(seconds)}: {seconds[-1]:.3f} s", flush=True)
        finally:
            for process in [cleaner, *idle]:
                process.terminate()
            for process in [cleaner, *idle]:
                process.wait(40)
    _print(seconds, arguments)


def _kill_once(workers: list[subprocess.Popen[bytes]], log: object, policy: str) -> float:
    """Kill the worker that runs a task; put a new one in its place."""
    from helpers import wait_until
    from probe import tasks
    from probe.models import Run

    from django_txtasks.models import Status, Task, Worker

    wait_until(lambda: _ready() == 2, 60)
    time.sleep(2.5)  # both have been seen to beat
    key = uuid.uuid4().hex
    function = tasks.slow_once if policy == "retry" else tasks.slow
    task = function.enqueue(key, seconds=60)
    pid = wait_until(lambda: Run.objects.filter(key=key).first()).pid
    victim = next(one for one in workers if os.getpgid(pid) == one.pid or _parent(pid) == one.pid)
    os.killpg(victim.pid, signal.SIGKILL)
    start = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    if policy == "retry":
        wait_until(lambda: Run.objects.filter(key=key).count() == 2, 60)
    else:
        wait_until(lambda: Task.objects.filter(pk=task.id, status=Status.DEAD).exists(), 60)
    seconds = time.monotonic() - start
    victim.wait()
    workers[workers.index(victim)] = _start("runworkers", log)
    wait_until(lambda: Worker.objects.filter(lost=True, pid=pid).exists(), 60)
    return seconds


def _ready() -> int:
    """How many living workers there are, with a last will if there is a broker."""
    from django_txtasks.conf import get_config
    from django_txtasks.models import Worker

    living = Worker.objects.filter(lost=False)
    if get_config().broker_url is not None:
        living = living.filter(will__gt=0)
    return living.count()


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def _start(command: str, log: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "django", command],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def _print(seconds: list[float], arguments: argparse.Namespace) -> None:
    ranked = sorted(seconds)
    p99 = ranked[min(len(ranked) - 1, round(len(ranked) * 0.99))]
    print(
        f"{len(seconds)} kills, broker {arguments.broker}, policy {arguments.policy}: "
        f"p50 {statistics.median(ranked):.3f} s, p99 {p99:.3f} s, max {ranked[-1]:.3f} s"
    )


if __name__ == "__main__":
    main()
