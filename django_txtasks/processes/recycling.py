"""The replacement of a worker process by a new one, so that leaks are bounded."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from django_txtasks.core.ground.surroundings import Replacement
from django_txtasks.core.ground.wording import counted
from django_txtasks.core.rows.workers import MEMORY

EXIT_CODE = 75
"""Exit code that tells the supervisor to start a new process at once (EX_TEMPFAIL of sysexits.h)."""

MANY_CLAIMS = 100_000
"""Claims of one process up to which the database quickly steps over the dead rows of those claims."""
SLOW_CHECK_SECONDS = 0.5
"""Seconds that the look through a worker's own claims may take; it happens once a lease and delays the loop."""

_STATM = Path("/proc/self/statm")


class RecyclePolicy(Replacement):
    """Limits after which a worker process is replaced.

    Args:
        max_tasks: tasks that one process runs; None = no limit.
        max_rss: megabytes of resident memory after its first task; None = no limit.

    Attributes:
        how: ``memory`` if this was the reason for the replacement, else empty.
    """

    def __init__(self, max_tasks: int | None = None, max_rss: int | None = None) -> None:
        self.max_tasks, self.max_rss = max_tasks, max_rss
        self.how = ""

    def room(self, count: int) -> int:
        """Return the number of tasks that this process may claim after ``count``."""
        return sys.maxsize if self.max_tasks is None else self.max_tasks - count

    def reason(self, count: int, check: float = 0.0) -> str:
        """Return the reason for a replacement; empty = no limit is reached.

        Args:
            count: tasks that this process has claimed.
            check: seconds that the look through its claims took. While another session holds an old snapshot, such
                as a dump, the database keeps all claims that a worker ever had; a new process has a new id without
                claims.
        """
        if self.room(count) <= 0:
            return f"it has run {counted(count, 'task')}"
        if count and self.max_rss is not None and (used := resident_megabytes()) > self.max_rss:
            self.how = MEMORY
            return f"it uses {used:.0f} MB, more than {self.max_rss}"
        if count >= MANY_CLAIMS and check >= SLOW_CHECK_SECONDS:
            return (
                f"its database took {check:.1f} s to look through the dead rows of its {counted(count, 'claim')}, "
                "which some old snapshot keeps"
            )
        return ""


def resident_megabytes() -> float:
    """Return the resident memory of this process; if the system tells only its peak, the peak."""
    if _STATM.exists():
        pages = int(_STATM.read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    import resource  # Windows has no such module, and workers do not run there

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if os.uname().sysname == "Darwin" else peak / 2**10
