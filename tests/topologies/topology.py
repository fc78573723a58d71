"""The load, the processes and the account that the scripts of this folder share.

A script describes servers, hosts and faults. `Play` starts a worker and a cleaner on each host, and senders in
this process. Each transaction of a sender writes a row of business data and enqueues an atomic, a default and an
idempotent task. After the faults, `Play` waits until all tasks have ended, and counts. `failovers.Account`
explains the figures.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from topology_hosts import Host  # isort: skip -- it says where the next ones are
import failovers
from helpers import wait_until

THREADS = 4
TASKS = int(os.environ.get("TOPOLOGY_TASKS", "1500"))
SECONDS = float(os.environ.get("TOPOLOGY_SECONDS", "30"))
"""The load: so many tasks, enqueued evenly in so many seconds."""
LOST = re.compile(r"Worker (\S+) on (\S+) \(pid \d+\) is lost: ([^\n]*)")
PATIENCE = 240


class Play(AbstractContextManager["Play"]):
    """Hosts at work, and senders that enqueue on another one.

    Args:
        site: the host of the senders and of the account.
    """

    def __init__(self, name: str, site: Host, hosts: Sequence[Host]) -> None:
        self.name, self.site, self.hosts = name, site, hosts
        self._directory = tempfile.TemporaryDirectory()
        self._path = Path(self._directory.name)
        self._path.chmod(0o755)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._begin = time.monotonic()

    def __enter__(self) -> Play:
        journal = self._path / "journal"
        journal.touch()
        os.environ["PROBE_JOURNAL"] = str(journal)
        os.environ.update(self.site.variables())
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", run_syncdb=True, verbosity=0)
        try:
            for host in self.hosts:
                arguments = ["runworkers", "--processes=1", f"--threads={THREADS}"]
                self._processes[host.name] = host.start(self._log(host.name), *arguments)
            self._wait_for_workers()
        except BaseException:
            print("\n".join(self.log_of(host.name)[-2000:] for host in self.hosts), file=sys.stderr)
            self.__exit__()
            raise
        failovers.close()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._directory.cleanup()

    def run(
        self,
        faults: Sequence[tuple[str, Callable[[], object]]],
        *,
        cut_off: Sequence[str] = (),
        may_die: bool = False,
        at_the_end: Callable[[], object] = lambda: None,
    ) -> int:
        """Play the faults evenly over the time of the load; print the account; return the exit status.

        Args:
            cut_off: hosts whose workers a fault cuts off for as long as a lease: these may be declared lost.
            may_die: default tasks of such workers end dead.
            at_the_end: called before the account, to lead the site to a server that is there.
        """
        account = failovers.Account()
        senders = failovers.Senders(
            TASKS // len(failovers.KINDS), SECONDS, len(self.hosts) * THREADS
        )
        senders.start()
        for name, fault in faults:
            time.sleep(SECONDS / (len(faults) + 1))
            self.say(name)
            fault()
        senders.wait()
        self.say("all is sent")
        at_the_end()
        failovers.close()
        account.undone = failovers.drain(PATIENCE)
        failovers.count(account, senders.promises)
        failovers.count_runs(account, self._path / "journal", set())
        account.ended = sum(one.poll() is not None for one in self._processes.values())
        rescued = [match for host in self.hosts for match in LOST.findall(self.log_of(host.name))]
        account.false_rescues = sum(name not in cut_off for _, name, _ in rescued)
        slowest = _slowest()
        failovers.close()
        passed = account.passed and not account.lacked and (may_die or not account.dead)
        self._print(account, [f"{name}: {reason}" for _, name, reason in rescued] + slowest, passed)
        return int(not passed)

    def say(self, text: str) -> None:
        """Tell what happens, with the seconds since the start."""
        print(f"[{time.monotonic() - self._begin:5.1f} s] {text}", file=sys.stderr, flush=True)

    def log_of(self, name: str) -> str:
        """Return what the processes of a host have printed."""
        return self._log(name).read_text(errors="replace")

    def _log(self, name: str) -> Path:
        return self._path / f"{name}.log"

    def _wait_for_workers(self) -> None:
        from helpers import worker_pids

        def are_there() -> bool:
            assert not any(one.poll() for one in self._processes.values()), "a worker has ended"
            return len(worker_pids()) == len(self.hosts)

        wait_until(are_there, what="workers")

    def _print(self, account: failovers.Account, facts: Sequence[str], passed: bool) -> None:
        if keep := os.environ.get("TOPOLOGY_LOGS"):
            for host in self.hosts:
                (Path(keep) / f"{self.name}.{host.name}.log").write_text(self.log_of(host.name))
        figures = {
            "enqueued": account.tasks,
            "finished": account.finished,
            "lost": account.lost + account.lacked,
            "atomic doubled": account.atomic_doubled,
            "default doubled": account.default_doubled,
            "default dead": account.dead,
            "idempotent run again": account.reruns,
            "false rescues": account.false_rescues,
            "slowest, seconds": account.slowest_seconds,
        }
        print(f"{self.name}: {', '.join(f'{name} {figure}' for name, figure in figures.items())}")
        for line in [*facts, *account.doubled]:
            print(f"  {line}")
        if not passed:
            print(f"  NOT AS PROMISED: {json.dumps(account.as_dict())}")
        sys.stdout.flush()


def _slowest() -> list[str]:
    """Describe the task that needed most time, if it needed more than 5 s."""
    from django.db.models import F

    from django_txtasks.models import FinishedTask

    took = FinishedTask.objects.annotate(took=F("finished_at") - F("enqueued_at"))
    return [
        f"slowest: {one.args[0]}, enqueued at {one.enqueued_at:%X}, {one.took.total_seconds():.1f} s,"
        f" attempt {one.attempt}, {one.failures} failures, {one.crashes} crashes;"
        f" {[error['type'] for error in one.errors]}"
        for one in took.order_by("-took")[:1]
        if one.took.total_seconds() > 5
    ]


def main(file: str, cases: Mapping[str, Callable[[], int]]) -> int:
    """Run the case that the command line names, or each case in a process of its own."""
    if len(sys.argv) > 1:
        return cases[sys.argv[1]]()
    commands = ([sys.executable, file, name] for name in cases)
    return max([subprocess.run(command, check=False).returncode for command in commands])
