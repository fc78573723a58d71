"""The recipe of docs/how-to/big-work.md on a real Dask, while a worker and Dask's scheduler are killed.

    python -m pip install "dask[distributed]"
    python tests/topologies/dask_cluster.py
    python tests/topologies/dask_cluster.py scheduler

The work takes 3 s. One second after its start, the processes are killed; the scheduler comes back 4 s later.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import topology  # isort: skip -- it says where the next ones are
from helpers import wait_until, worker_pids
from servers import HOST, Postgres, free_port
from topology_hosts import HERE, PATHS, Host

PAGE = HERE.parents[1] / "docs/how-to/big-work.md"
BLOCK = re.compile(r"^```\{code-block\} python\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TASKS = 4
DASK = [sys.executable, "-m", "dask"]
WORK = """
import os
import time


def work(case_id):
    with open(os.environ["PROBE_JOURNAL"], "a") as journal:
        journal.write(f"{case_id}\\n")
    time.sleep(3)
    return case_id * case_id
"""
SAVE = """
from probe.models import Run


def save(case_id, value):
    Run.objects.create(key=f"{case_id}: {value}")
"""


class Dask:
    """A scheduler at one address, and two workers, which end with it and are started again."""

    def __init__(self, directory: Path) -> None:
        self.port, self._path = free_port(), directory
        self.scheduler = self.start_scheduler()
        worker = [*DASK, "worker", f"tcp://{HOST}:{self.port}", "--nworkers=2", "--nthreads=4",
                  "--no-dashboard"]  # fmt: skip
        self._workers = self._start("sh", "-c", 'while :; do "$@"; sleep 0.5; done', "sh", *worker)

    def start_scheduler(self) -> subprocess.Popen[bytes]:
        """Start the scheduler, which knows nothing."""
        self.scheduler = self._start(
            *DASK, "scheduler", f"--host={HOST}", f"--port={self.port}", "--no-dashboard"
        )
        return self.scheduler

    def close(self) -> None:
        """End all processes."""
        for process in (self._workers, self.scheduler):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._path / "dask.log").open("ab") as log:
            return subprocess.Popen(
                arguments,
                env={**os.environ, "PYTHONPATH": str(self._path)},
                cwd=self._path, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip


def play(name: str, *, worker: bool, scheduler: bool) -> int:
    """Print the account of a case; return the exit status."""
    with ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        write_recipe(path)
        journal = path / "journal"
        journal.touch()
        os.environ.update(PROBE_JOURNAL=str(journal), TOPOLOGY_APPS='["simulations"]')
        database = stack.enter_context(Postgres())
        dask = Dask(path)
        stack.callback(dask.close)
        PATHS.insert(0, str(path))
        sys.path.insert(0, str(path))
        os.environ["DASK_SCHEDULER"] = f"tcp://{HOST}:{dask.port}"
        host = Host("host", database.url)
        simulate = set_up(host)
        workers = [host.start(path / "host.log", "runworkers", "--processes=1")]
        stack.callback(lambda: end(workers[-1]))
        wait_until(worker_pids)
        begin = time.monotonic()
        for case_id in range(TASKS):
            simulate.enqueue(case_id)
        wait_until(lambda: len(set(journal.read_text().split())) == TASKS, what="the work")
        time.sleep(1)
        if worker:
            for pid in (workers[0].pid, *worker_pids()):
                os.kill(pid, signal.SIGKILL)
            workers.append(host.start(path / "host.log", "runworkers", "--processes=1"))
        if scheduler:
            dask.scheduler.kill()
            dask.scheduler.wait()
            time.sleep(4)
            dask.start_scheduler()
        return account(name, journal, dask, begin, most=1 + scheduler)


def write_recipe(path: Path) -> None:
    """Write the page's modules, with shorter waits, work that takes a while, and a place for the answers."""
    (path / "simulations").mkdir()
    blocks = dict(BLOCK.findall(PAGE.read_text()))
    tasks = blocks["simulations/tasks.py"].replace("after=30", "after=2").replace("=10)", "=1)")
    for name, text in {"__init__": "", "tasks": tasks, "work": WORK, "answers": SAVE}.items():
        (path / f"simulations/{name}.py").write_text(text)


def set_up(host: Host):
    """Set up Django and the tables; return the task function."""
    os.environ.update(host.variables())
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", run_syncdb=True, verbosity=0)
    from simulations.tasks import simulate

    return simulate


def end(process: subprocess.Popen[bytes]) -> None:
    """Stop the worker."""
    process.terminate()
    process.wait(60)


def account(name: str, journal: Path, dask: Dask, begin: float, *, most: int) -> int:
    """Wait until no task is left, print what has become of them, return the exit status."""
    from distributed import Client
    from probe.models import Run

    from django_txtasks.models import FinishedTask, Task

    wait_until(lambda: not Task.objects.exclude(status="dead").exists(), 120)
    seconds = time.monotonic() - begin
    saved = Counter(Run.objects.values_list("key", flat=True))
    wanted = Counter(f"{number}: {number * number}" for number in range(TASKS))
    runs = Counter(journal.read_text().split())
    failures = sum(one.failures for one in FinishedTask.objects.all())
    crashes = sum(one.crashes for one in FinishedTask.objects.all())
    with Client(f"tcp://{HOST}:{dask.port}") as client:
        left = len(client.list_datasets())
    print(
        f"{name}: enqueued {TASKS}, finished {FinishedTask.objects.count()}, runs on the cluster"
        f" {sorted(runs.values())}, saved {sum(saved.values())}, failures {failures}, crashes {crashes},"
        f" left on Dask {left}, {seconds:.0f} s"
    )
    return int(saved != wanted or max(runs.values()) > most or bool(failures + left))


CASES = {
    "nothing": lambda: play("nothing is killed", worker=False, scheduler=False),
    "worker": lambda: play("the worker is killed", worker=True, scheduler=False),
    "scheduler": lambda: play("Dask's scheduler is killed", worker=False, scheduler=True),
    "both": lambda: play("both are killed", worker=True, scheduler=True),
}

if __name__ == "__main__":
    sys.exit(topology.main(str(Path(__file__)), CASES))
