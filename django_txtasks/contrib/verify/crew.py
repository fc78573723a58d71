"""The processes of a storm. All are children of this one, so that signals hit no other process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from django_txtasks.contrib.verify.project import QUEUE, Scene
from django_txtasks.processes.child import Role
from django_txtasks.processes.orders import PIPE

THREADS = 4
STOP_TIMEOUT_SECONDS = 30.0
"""Time for a process to end after it was asked to stop."""
LAST_WORDS_SECONDS = 5.0
"""Time for a process that did not end to log the stacks of its threads."""
SHOWN_LINES = 40
"""Number of lines shown of that log."""


@dataclass(frozen=True)
class Kill:
    """A process that was killed on purpose, and the time, by this machine's clock."""

    pid: int
    at: float


class Member:
    """A process, and its replacement after its end.

    Args:
        supervised: True for a worker: it obeys a pipe as it would obey its supervisor, so it stops when
            this process ends in any way.
    """

    def __init__(
        self, arguments: Sequence[str], scene: Scene, log: Path, *, supervised: bool = False
    ) -> None:
        self.arguments, self.log, self.supervised = arguments, log, supervised
        self.killed = self.frozen = False
        self._environment = scene.environment()
        self._pipe: int | None = None
        self.start()

    def start(self) -> None:
        """Start the process in its own process group, so that Ctrl-C does not reach it."""
        reader, writer = os.pipe()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 -- our own command line
                [sys.executable, "-m", *self.arguments],
                env={**self._environment, **({PIPE: str(reader)} if self.supervised else {})},
                pass_fds=[reader] if self.supervised else [],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        os.close(reader)
        self._hang_up()
        self._pipe, self.killed, self.frozen = writer, False, False

    @property
    def pid(self) -> int:
        """Process id of the present or last process."""
        return self.process.pid

    @property
    def ended(self) -> bool:
        """True if no process is running."""
        return self.process.poll() is not None

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self.killed = True
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        """Freeze it in the middle of its work, until ``thaw``."""
        self.frozen = True
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it continue as if nothing had happened."""
        self.frozen = False
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Ask it to stop in good order."""
        if not self.ended:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()

    def end(self) -> bool:
        """Wait for its end after ``stop``. Return False if it had to be killed; its log shows where it hung."""
        try:
            self.process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(LAST_WORDS_SECONDS)
            self.kill()
            return False
        finally:
            self._hang_up()
        return True

    def last_lines(self, number: int) -> list[str]:
        """Return the end of its log."""
        return self.log.read_text(errors="replace").strip().splitlines()[-number:]

    def _hang_up(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None


@dataclass
class Crew:
    """Workers, cleaners and producers.

    Attributes:
        kills: workers that were killed.
        restarts: number of processes that replaced a killed one.
        surprises: unexpected ends of processes, with the last lines of their logs.
    """

    scene: Scene
    directory: Path
    workers: list[Member] = field(default_factory=list)
    cleaners: list[Member] = field(default_factory=list)
    producers: list[Member] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)
    restarts: int = 0
    surprises: list[str] = field(default_factory=list)

    def start(self, *, workers: int, cleaners: int) -> None:
        """Start workers and cleaners, and a worker with an event loop if the scene has one."""
        to = [f"--database={self.scene.alias}", "--verbosity=0"]
        command = ["django", "runworkers", f"--queue={QUEUE}", f"--threads={THREADS}", *to]
        if self.scene.async_tasks:
            command.append(f"--async-tasks={self.scene.async_tasks}")
            loop = [*command, f"--child-role={Role.LOOP.value}"]
            self.workers.append(self._member(loop, "loop", supervised=True))
        for number in range(workers):
            self.workers.append(self._member(command, f"worker-{number}", supervised=True))
        for number in range(cleaners):
            self.cleaners.append(self._member(["django", "runcleaner", *to], f"cleaner-{number}"))

    def send(self, name: str, *numbers: float) -> None:
        """Start a producer with its own plan; ``numbers`` are the arguments of its ``main`` after the name."""
        arguments = ["django_txtasks.contrib.verify.producer", name, *map(str, numbers)]
        self.producers.append(self._member(arguments, f"producer-{name}"))

    @property
    def sending(self) -> bool:
        """True if at least one producer is still running."""
        return any(not producer.ended for producer in self.producers)

    def kill(self, member: Member) -> None:
        """Kill a worker and note the time; ``look_after`` starts its replacement."""
        at = time.time()
        member.kill()
        self.kills.append(Kill(member.pid, at))

    def look_after(self) -> None:
        """Restart the processes that have ended."""
        for member in [*self.workers, *self.cleaners]:
            if member.ended:
                if member.killed:
                    self.restarts += 1
                else:
                    self._surprise(member)
                member.start()

    def end(self) -> None:
        """Stop all processes in good order; note a surprise for each that must be killed."""
        everybody = [*self.producers, *self.workers, *self.cleaners]
        for member in everybody:
            member.stop()
        for member in everybody:
            if not member.end():
                last = "\n".join(member.last_lines(SHOWN_LINES))
                self.surprises.append(
                    f"{member.log.stem} did not stop within {STOP_TIMEOUT_SECONDS:g} s:\n{last}"
                )

    def dismiss_producers(self) -> None:
        """Note a surprise for each producer that failed or is still running, and end it."""
        for producer in self.producers:
            if not producer.ended:
                self.surprises.append(f"{producer.log.stem} has not sent everything in time")
                producer.kill()
            elif producer.process.returncode:
                self._surprise(producer)

    def _member(self, arguments: list[str], name: str, *, supervised: bool = False) -> Member:
        log = self.directory / f"{name}.log"
        return Member(arguments, self.scene, log, supervised=supervised)

    def _surprise(self, member: Member) -> None:
        code, last = member.process.returncode, " ".join(member.last_lines(1))
        self.surprises.append(f"{member.log.stem} ended by itself with {code}: {last}")
