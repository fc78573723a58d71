"""The times after which a supervisor kills a child that gives no sign of life, or does not end."""

from __future__ import annotations

import math
from typing import NamedTuple

from django_txtasks.conf import Config
from django_txtasks.processes.probes import TURN_TIMEOUT
from django_txtasks.processes.signs import Hearing

START_SECONDS = 60.0
"""Seconds from the start of a process to the first turn of its loop, at its first try."""
MOST_STARTS = 4
"""Tries that each give as many seconds more, because a large project may load slowly on a busy machine."""
LEAST_SECONDS = 5.0
"""Shortest silence after which a process is killed, because a busy machine may keep it waiting."""


class Patience(NamedTuple):
    """How long a supervisor waits for a child.

    Attributes:
        grace: seconds that the tasks of a child may take after an order to stop; inf = do not look.
        silence: seconds without a sign that the loop of a child turns; inf = do not look.
    """

    grace: float = math.inf
    silence: float = math.inf

    @classmethod
    def of(cls, config: Config, *, reloads: bool) -> Patience:
        """Return the times of the settings. With ``--reload`` a debugger may stop a child for any time."""
        grace = config.grace.total_seconds()
        silence = max(LEAST_SECONDS, config.lease.total_seconds() + grace)
        return cls(grace, math.inf if reloads else silence)

    def verdict(self, hearing: Hearing, slow_starts: int) -> str:
        """Return why a child has to be killed, for people; empty = it has not.

        Args:
            slow_starts: starts of it in a row that have come to no turn.
        """
        silent = hearing.silent
        if math.isinf(self.silence):
            return ""
        if not hearing.has_begun:
            limit = max(self.silence, START_SECONDS * min(slow_starts + 1, MOST_STARTS))
            return f"it had not begun its work after {limit:.0f} s" if silent >= limit else ""
        if silent < self.silence:
            return ""
        if hearing.hangs:
            return f"its loop had hung for {silent + TURN_TIMEOUT.total_seconds():.0f} s or more"
        return (
            f"it had given no sign of life for {silent:.0f} s: it was stopped, or a C call such as a regular "
            "expression kept the GIL"
        )


NO_LIMITS = Patience()
