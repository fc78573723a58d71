"""The faults: an exception, kill -9, a freeze of two leases, or a cut connection. Each strikes once per test."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from django.db import DatabaseError

FREEZE = 6.0
"""Seconds: two leases of the tests."""


@dataclass
class Fault:
    """One fault of one test.

    Args:
        kind: ``raise``, ``kill``, ``stop`` or ``cut``.
        marker: a file that says that it has struck; the process that creates it is the one.
        skip: how many times the point is passed unharmed.
    """

    kind: str
    marker: Path
    skip: int = 0

    def strike(self, cut: Callable[[], None], error: type[Exception] = DatabaseError) -> None:
        """Do it, unless it is done or too early.

        Args:
            cut: cuts the connection that this point uses.
        """
        if self.skip > 0:
            self.skip -= 1
            return
        try:
            with self.marker.open("x") as file:
                file.write(f"{self.kind} {os.getpid()}\n")
        except FileExistsError:
            return
        if self.kind == "raise":
            raise error("a fault of the test")
        {"kill": kill, "stop": self._freeze, "cut": cut}[self.kind]()

    def _freeze(self) -> None:
        """Stop all threads of this process; a shell, which is not stopped, continues it later."""
        command = f"(sleep {FREEZE}; kill -CONT {os.getpid()}; echo went on >> {self.marker}) &"
        subprocess.run(["sh", "-c", command], check=True, start_new_session=True)
        os.kill(os.getpid(), signal.SIGSTOP)


def kill() -> None:
    """End this process as the kernel does when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


def shut(descriptor: int) -> None:
    """Cut a connection whose socket belongs to other code, which notices at its next use."""
    with socket.socket(fileno=os.dup(descriptor)) as one:
        one.shutdown(socket.SHUT_RDWR)
