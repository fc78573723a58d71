"""Starts the processes that run last chances after a crash, one task each: see ``core.working.last_chances``.

A child tells through its pipe that such a task is due. The process is a copy of the supervisor, and ends by itself
when no such task is due.
"""

from __future__ import annotations

from collections.abc import Mapping

from django_txtasks.processes.child import Assignment, Child

NEWS = b"l"
"""The byte by which a child says that a last chance is due. A process that runs one says it if more are due."""
MOST = 4
"""Processes at a time, of each database, because each takes memory and two sessions."""


class LastChanceProcesses:
    """The processes of one database.

    Args:
        assignment: that of each process.
        threads: number of tasks at a time of a worker process. At most as many last chances run at a time.
    """

    def __init__(self, assignment: Assignment, threads: int) -> None:
        self._assignment, self._most = assignment, min(MOST, threads)

    def start(self, children: list[Child], news: Mapping[Child, bytes]) -> None:
        """Add a process if a last chance is due and none waits for one, or if all are at work.

        Args:
            news: what each child has told since the last call.
        """
        ours = [one for one in children if one.assignment == self._assignment]
        aliases = self._assignment.aliases
        told = [
            one
            for one in children
            if one.assignment.aliases == aliases and NEWS in news.get(one, b"")
        ]
        if told and (not ours or (len(ours) < self._most and any(one in ours for one in told))):
            children.append(Child(self._assignment))
