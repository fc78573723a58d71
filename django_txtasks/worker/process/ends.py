"""The ends of child processes, told to the process that replaces them.

Only the supervisor sees how a child ended, and it has no connection to a database. So it puts the last ends into
its environment, which both a copy and a new program get. A worker writes them down when it has registered.
"""

from __future__ import annotations

import os

ENDS = "TXTASKS_ENDS"
MOST = 50
"""Number of ends that are remembered."""


def note(pid: int, code: int) -> None:
    """Remember the exit code of a child; negative = a signal."""
    before = [one for one in _entries() if not one.startswith(f"{pid}:")]
    os.environ[ENDS] = " ".join([*before, f"{pid}:{code}"][-MOST:])


def take() -> dict[int, str]:
    """Return how earlier children of this supervisor ended, by process id, such as ``signal 9``; once."""
    entries = _entries()
    os.environ.pop(ENDS, None)  # not for processes that tasks start
    return {int(pid): _how(int(code)) for pid, code in (one.split(":") for one in entries)}


def _entries() -> list[str]:
    return os.environ.get(ENDS, "").split()


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
