"""The processes of the grocery, of the latest release and of the one before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from process_tree import children

PATIENCE = 120
"""Seconds in which a process or a command ends."""
WORKERS = {
    "workers": ["runworkers", "--processes=1..2", "--within=3", "--threads=4", "--async-tasks=50",
                "--max-tasks-per-process=200"],
    "more workers": ["runworkers", "--processes=1", "--threads=3"],
}  # fmt: skip
WEB = ["web", "more web"]
COMMANDS = {
    **{role: ["-m", "django", *command] for role, command in WORKERS.items()},
    "cleaner": ["-m", "django", "runcleaner"],
    **{role: ["-m", "grocery.web"] for role in WEB},
}


class Shop:
    """The processes of the shop, each with a role, of the latest release or the one before.

    Attributes:
        notes: what happened, with the seconds since the beginning.
        complaints: what should not have happened.
    """

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self.directory, self._env = directory, environment
        self.release = 0
        self.notes: list[str] = []
        self.complaints: list[str] = []
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._begin = time.monotonic()

    def say(self, text: str) -> None:
        """Print and keep a note."""
        self.notes.append(f"{time.monotonic() - self._begin:7.1f} s  {text}")
        print(self.notes[-1], file=sys.stderr, flush=True)

    def start(self, role: str) -> None:
        """Start a process of the latest release."""
        with (self.directory / f"{role.replace(' ', '-')}.log").open("ab") as log:
            self.running[role] = subprocess.Popen(
                [sys.executable, *COMMANDS[role]],
                env={**self._env, "GROCERY_RELEASE": f"{self.release}"},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def stop(self, role: str, process: subprocess.Popen[bytes]) -> None:
        """Stop a process in good order, and complain if it does not end so."""
        process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            status = f"nothing within {PATIENCE} s"
            os.killpg(process.pid, signal.SIGKILL)
        unheard = -signal.SIGTERM  # it had only just started
        if status not in ((0, 1, unheard) if role in WORKERS else (0, unheard)):
            self.complaints.append(f"{role} ended with {status} after SIGTERM")

    def replace(self, role: str, is_there: Callable[[int], object] | None = None) -> None:
        """Put a process of the latest release in the place of one.

        Args:
            is_there: stop the old one only when this is true of the new one; None = stop it first.
        """
        old = self._take(role)
        if is_there is not None:
            self.start(role)
            self.wait_until(is_there, role)
        self.stop(role, old)
        if is_there is None:
            self.start(role)

    def wait_until(self, is_there: Callable[[int], object], role: str) -> None:
        """Wait until this is true of the process of a role."""
        process, end = self.running[role], time.monotonic() + PATIENCE
        while process.poll() is None and not is_there(process.pid):
            if time.monotonic() > end:
                self.complaints.append(f"{role} did not begin to work")
                return
            time.sleep(0.1)

    def _take(self, role: str) -> subprocess.Popen[bytes]:
        """Return the process of a role, which no other thread gets; wait while another thread replaces it."""
        while (process := self.running.pop(role, None)) is None:
            time.sleep(0.1)
        return process

    def kill(self, role: str) -> None:
        """Kill a process, and start another."""
        old = self._take(role)
        old.kill()
        old.wait()
        self.start(role)

    def manage(self, *command: str) -> None:
        """Run a command of the latest release until it succeeds, because the database may be away."""
        end = time.monotonic() + PATIENCE
        while True:
            done = subprocess.run(
                [sys.executable, "-m", "django", *command],
                env={**self._env, "GROCERY_RELEASE": f"{self.release}"},
                capture_output=True, text=True, timeout=PATIENCE, check=False,
            )  # fmt: skip
            if done.returncode == 0:
                return
            if time.monotonic() > end:
                self.complaints.append(f"{command} failed: {done.stdout}{done.stderr}")
                return
            time.sleep(1)

    def look(self) -> None:
        """Complain about processes that have ended by themselves."""
        for role, process in list(self.running.items()):
            if process.poll() is not None and self.running.pop(role, None) is process:
                log = (self.directory / f"{role.replace(' ', '-')}.log").read_text(errors="replace")
                self.complaints.append(f"{role} ended with {process.returncode}: {log[-1500:]}")
                self.start(role)

    def offspring(self) -> list[int]:
        """Return the descendants of the commands that run tasks."""
        roots = [self.running[role].pid for role in WORKERS if role in self.running]
        return [one for root in roots for one in descendants(root)]

    def end(self) -> None:
        """Stop all that is left in good order."""
        for role in list(self.running):
            self.stop(role, self.running.pop(role))


def descendants(pid: int) -> Iterator[int]:
    """Yield the processes below one."""
    for child in children(pid):
        yield child
        yield from descendants(child)
