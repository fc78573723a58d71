"""The end of a worker process for the sake of a new one, so that what leaks is bounded."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from django_txtasks.wording import counted

EXIT_CODE = 75
"""Exit code that tells the supervisor to start a new process at once (EX_TEMPFAIL of sysexits.h)."""

MANY_CLAIMS = 100_000
"""Claims of a process, below which the dead rows that they leave are looked through quickly."""
SLOW_CHECK_SECONDS = 0.5
"""Seconds to look through a worker's own claims: it does so once a lease, and may not be held up by it."""

_STATM = Path("/proc/self/statm")


class RecyclePolicy:
    """Limits after which a worker process is replaced.

    Args:
        max_tasks: tasks that one process runs; None = any number.
        max_rss: megabytes of resident memory after its first task; None = any amount.
    """

    def __init__(self, max_tasks: int | None = None, max_rss: int | None = None) -> None:
        self.max_tasks, self.max_rss = max_tasks, max_rss

    def room(self, count: int) -> int:
        """Return how many more tasks this process may claim after ``count``."""
        return sys.maxsize if self.max_tasks is None else self.max_tasks - count

    def reason(self, count: int, check: float = 0.0) -> str:
        """Return why it is time; empty = it is not.

        Args:
            count: tasks that this process has claimed.
            check: seconds that it took to look through its claims. While somebody holds an old snapshot, such as a
                dump, the database keeps all that it ever had; a new process has a new id, and so none.
        """
        if self.room(count) <= 0:
            return f"it has run {counted(count, 'task')}"
        if count and self.max_rss is not None and (used := resident_megabytes()) > self.max_rss:
            return f"it uses {used:.0f} MB, more than {self.max_rss}"
        if count >= MANY_CLAIMS and check >= SLOW_CHECK_SECONDS:
            return (
                f"its database took {check:.1f} s to look through the dead rows of its {counted(count, 'claim')}, "
                "which some old snapshot keeps"
            )
        return ""


def resident_megabytes() -> float:
    """Return the memory that this process holds; where the system only tells its peak, that."""
    if _STATM.exists():
        pages = int(_STATM.read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    import resource  # not on Windows, where workers do not run either

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if os.uname().sysname == "Darwin" else peak / 2**10
