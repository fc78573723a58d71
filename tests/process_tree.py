"""The processes that a process has started, where the system tells them (Linux)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def children(pid: int) -> list[int]:
    """Return the processes that any thread of a process has started and that are there.

    Raises:
        OSError: the process has ended meanwhile.
    """
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for one in lists for child in one.read_text().split()]


def frozen_descendants(pid: int) -> Iterator[int]:
    """Yield the stopped processes that this process, or a child of it, has started."""
    with suppress(OSError):  # a process has ended meanwhile
        for child in children(pid):
            yield from frozen_descendants(child)
            state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
            if state == "T":
                yield child
