"""The number of worker processes for a load: the rule of ``runworkers --processes 1..8``. It needs no database.

More processes start as soon as tasks wait, because a wait is what users notice. A process ends only after two
quiet minutes, because each start costs seconds of CPU time.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

WAIT_SECONDS = 1.0
"""Wait of the oldest task up to which no process is started: the time of a usual scan."""
WINDOW_SECONDS = 120.0
"""Seconds for which fewer processes must have been enough before one ends."""
STEP_SECONDS = 60.0
"""Minimum seconds between two ends."""
LOST_SECONDS = 15.0
"""Seconds without a look at the load after which older looks no longer count."""
SHORT_SECONDS = 30.0
"""Seconds after which a process ends because one gets no database session, and seconds between two such ends."""
AGAIN_SECONDS = 600.0
"""Seconds after such an end until one process more is tried, and then until each further one."""


class Load(NamedTuple):
    """The load of one database, as one look saw it.

    Attributes:
        oldest: seconds for which the oldest task has waited.
        wanted: number of threads that the queues need.
        workers: number of worker processes that are at work, here and on other machines.
    """

    oldest: float
    wanted: int
    workers: int


class Own(NamedTuple):
    """The worker processes of one command.

    Attributes:
        staying: number of processes that were not told to end.
        ending: number of processes that still end.
        is_starting: True if one of them is not at work yet.
    """

    staying: int
    ending: int = 0
    is_starting: bool = False


class SessionLimit:
    """Learns for how many processes the database has sessions.

    While one process gets no session, none is started. If that lasts, one ends, and so on, until all get theirs.

    Args:
        least, most: limits of the number of processes.
    """

    def __init__(self, least: int, most: int) -> None:
        self._least, self._enough_for = least, most
        self._is_short, self._since, self._ended_at = False, math.inf, 0.0

    def note(self, now: float, staying: int, *, is_short: bool, answers: bool) -> bool:
        """Return True if one process ends now.

        Args:
            now: time in seconds of a clock that never goes back.
            staying: number of processes that were not told to end.
            is_short: True if a process gets no session.
            answers: True if the database answers another one. In an outage no end of a process would help.
        """
        self._is_short = is_short
        self._since = min(self._since, now) if is_short and answers else math.inf
        if staying <= self._least or now < max(self._since, self._ended_at) + SHORT_SECONDS:
            return False
        self._ended_at, self._enough_for = now, staying - 1
        return True

    def most(self, now: float) -> int:
        """Return the number of processes up to which further ones may start now."""
        if self._is_short:
            return 0
        return self._enough_for + int((now - self._ended_at) // AGAIN_SECONDS)


class ScalingRule:
    """Decides how many processes start or end.

    Args:
        least, most: limits of the number of processes.
        threads: number of threads of each process.
        within: seconds within which a task should start.

    Attributes:
        sessions: limits the number of processes to those that get database sessions.
    """

    def __init__(self, least: int, most: int, threads: int, within: float) -> None:
        self._least, self._most, self._threads, self._within = least, most, threads, within
        self._seen: deque[tuple[float, int]] = deque()  # time and wanted threads of each look
        self._ended_at = -math.inf
        self.sessions = SessionLimit(least, most)

    def change(self, now: float, load: Load, own: Own) -> int:
        """Return how many processes start now, or as a negative number, how many end; 0 = no change.

        Args:
            now: time of the look, in seconds of a clock that never goes back.
        """
        self._note(now, load.wanted)
        if missing := self._missing(now, load, own):
            return missing
        if self._may_end(now, load, own):
            self._ended_at = now
            return -1
        return 0

    def _note(self, now: float, wanted: int) -> None:
        seen = self._seen
        if seen and now - seen[-1][0] > LOST_SECONDS:
            seen.clear()
        seen.append((now, wanted))
        while len(seen) > 1 and seen[1][0] <= now - WINDOW_SECONDS:
            seen.popleft()

    def _missing(self, now: float, load: Load, own: Own) -> int:
        """Return the number of processes to start, at most as many as there are: each start takes time."""
        if load.oldest <= WAIT_SECONDS or own.is_starting:
            return 0
        missing = math.ceil(load.wanted / self._threads) - load.workers
        if load.oldest > self._within / 2:
            missing = max(1, missing)
        most = min(self._most, self.sessions.most(now))
        return max(0, min(missing, own.staying, most - own.staying - own.ending))

    def _may_end(self, now: float, load: Load, own: Own) -> bool:
        begin, _ = self._seen[0]
        if begin > now - WINDOW_SECONDS or now < self._ended_at + STEP_SECONDS:
            return False
        most = max(wanted for _, wanted in self._seen)
        return own.staying > self._least and most <= self._threads * (load.workers - 1)
