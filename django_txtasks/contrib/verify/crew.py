"""The processes of a storm. All are children of this one, so that a signal can hit nobody else."""

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
from django_txtasks.worker.process.supervisor import PIPE

THREADS = 4
STOP_TIMEOUT_SECONDS = 30.0
"""Seconds that a process has for its end when asked to stop."""
LAST_WORDS_SECONDS = 5.0
"""Seconds for a process that did not end to log where its threads are."""
SHOWN_LINES = 40
"""Lines of that log that are shown."""


@dataclass(frozen=True)
class Kill:
    """A process that was killed on purpose, and when, by this machine's clock."""

    pid: int
    at: float


class Member:
    """A process, and the next one after its end.

    Args:
        supervised: it is a worker, and obeys a pipe as it would obey its supervisor: it stops when
            this process ends, however that ends.
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
        """Start the process, in a group of its own, so that Ctrl-C does not reach it."""
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
        """Of the process that runs, or ran last."""
        return self.process.pid

    @property
    def ended(self) -> bool:
        """Whether there is no process now."""
        return self.process.poll() is not None

    def kill(self) -> None:
        """``kill -9``."""
        self.killed = True
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        """Stop it in the midst of whatever it does, until ``thaw``."""
        self.frozen = True
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on as if nothing had happened."""
        self.frozen = False
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Ask it to stop in good order."""
        if not self.ended:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()

    def end(self) -> bool:
        """Wait for the end after ``stop``; False = it had to be killed, and its log shows where it hung."""
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
    """Workers, cleaners and senders.

    Attributes:
        kills: workers that were killed.
        restarts: how many processes took the place of a killed one.
        surprises: what processes did that nobody had asked for: the end of their logs.
    """

    scene: Scene
    directory: Path
    workers: list[Member] = field(default_factory=list)
    cleaners: list[Member] = field(default_factory=list)
    senders: list[Member] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)
    restarts: int = 0
    surprises: list[str] = field(default_factory=list)

    def start(self, *, workers: int, cleaners: int) -> None:
        """Start those that stay."""
        to = [f"--database={self.scene.alias}", "--verbosity=0"]
        command = ["django", "runworkers", f"--queue={QUEUE}", f"--threads={THREADS}", *to]
        for number in range(workers):
            self.workers.append(self._member(command, f"worker-{number}", supervised=True))
        for number in range(cleaners):
            self.cleaners.append(self._member(["django", "runcleaner", *to], f"cleaner-{number}"))

    def send(self, name: str, *numbers: float) -> None:
        """Start a sender of its own plan; ``numbers`` are what its ``main`` takes after the name."""
        arguments = ["django_txtasks.contrib.verify.sender", name, *map(str, numbers)]
        self.senders.append(self._member(arguments, f"sender-{name}"))

    @property
    def sending(self) -> bool:
        """Whether some sender is still at work."""
        return any(not sender.ended for sender in self.senders)

    def kill(self, member: Member) -> None:
        """Kill it, and remember when; ``look_after`` starts the next one."""
        at = time.time()
        member.kill()
        self.kills.append(Kill(member.pid, at))

    def look_after(self) -> None:
        """Start again what has ended."""
        for member in [*self.workers, *self.cleaners]:
            if member.ended:
                if member.killed:
                    self.restarts += 1
                else:
                    self._surprise(member)
                member.start()

    def end(self) -> None:
        """Stop everything in good order; what has to be killed for that is a surprise."""
        everybody = [*self.senders, *self.workers, *self.cleaners]
        for member in everybody:
            member.stop()
        for member in everybody:
            if not member.end():
                last = "\n".join(member.last_lines(SHOWN_LINES))
                self.surprises.append(
                    f"{member.log.stem} did not stop within {STOP_TIMEOUT_SECONDS:g} s:\n{last}"
                )

    def dismiss_senders(self) -> None:
        """Senders that gave up, or are still at work, are a surprise, too."""
        for sender in self.senders:
            if not sender.ended:
                self.surprises.append(f"{sender.log.stem} has not sent everything in time")
                sender.kill()
            elif sender.process.returncode:
                self._surprise(sender)

    def _member(self, arguments: list[str], name: str, *, supervised: bool = False) -> Member:
        log = self.directory / f"{name}.log"
        return Member(arguments, self.scene, log, supervised=supervised)

    def _surprise(self, member: Member) -> None:
        code, last = member.process.returncode, " ".join(member.last_lines(1))
        self.surprises.append(f"{member.log.stem} ended by itself with {code}: {last}")
