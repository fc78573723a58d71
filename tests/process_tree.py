"""The processes that a process has started, where the system tells them (Linux)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def children(pid: int) -> list[int]:
    """Return the processes that any thread of a process has started and that are there."""
    found: list[int] = []
    for one in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended meanwhile
            found += map(int, one.read_text().split())
    return found


def frozen_descendants(pid: int) -> Iterator[int]:
    """Yield the stopped processes that this process, or a child of it, has started."""
    for child in children(pid):
        yield from frozen_descendants(child)
        with suppress(OSError):  # the process has ended meanwhile
            state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
            if state == "T":
                yield child
