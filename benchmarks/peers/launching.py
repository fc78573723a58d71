"""Several processes of a worker whose own command starts only one."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import records


def run(processes: str, *command: str) -> None:
    """Become this command; for several processes, start it several times and forward the stop signal.

    ``{number}`` in it is replaced by the number of the process.
    """
    if int(processes) == 1:
        _note_begin()
        os.execv(command[0], _named(command, 0))  # noqa: S606 -- no shell
    children = [subprocess.Popen(_named(command, n)) for n in range(int(processes))]

    def stop(_signum: int, _frame: FrameType | None) -> None:
        for child in children:
            child.terminate()

    signal.signal(signal.SIGTERM, stop)
    for child in children:
        child.wait()


def _note_begin() -> None:
    """Write the time, and the CPU time that this process has used to import the adapter."""
    begin = f"{time.monotonic_ns()} {time.process_time_ns()}"
    Path(os.environ[records.VARIABLE]).with_name("begin").write_text(begin)


def _named(command: Sequence[str], number: int) -> list[str]:
    return [part.replace("{number}", str(number)) for part in command]
