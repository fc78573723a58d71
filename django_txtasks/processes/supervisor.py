"""Starts the processes of ``runworkers``, replaces dead ones, and passes stop requests on.

Orders go through a pipe to each child: see ``orders``. Each child leads a session of its own, so that Ctrl-C
reaches it once, and so that the programs of its tasks can be ended after it: see ``remains``. The supervisor
holds no connection and runs no task, so that it can fork: see ``forking``.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeGuard

from django.utils.autoreload import iter_all_python_module_files

from django_txtasks import signals
from django_txtasks.core.ground.wakeup import WakeUp
from django_txtasks.processes.child import Assignment, Child, Role
from django_txtasks.processes.forking import can_fork
from django_txtasks.processes.last_chances import LastChanceProcesses
from django_txtasks.processes.orders import has_ended
from django_txtasks.processes.patience import NO_LIMITS, Patience
from django_txtasks.processes.recycling import EXIT_CODE
from django_txtasks.processes.remains import Remains
from django_txtasks.processes.scaling import ProcessScaler
from django_txtasks.processes.shutdown import Shutdown

ROUND_SECONDS = 0.2
"""Seconds between two looks at the children."""
LONGEST_ROUND_SECONDS = 1.0
"""Seconds of a round that count at most: in a longer one this process did not run, as on a laptop that slept."""
RESCUE_SECONDS = 4.0
"""Longest time in which the cleaner recovers the tasks of a worker that was killed while it stopped."""


class Supervisor:
    """Keeps the children running until it is told to stop, or until all have done their work.

    Args:
        assignments: one for each child.
        finite: True = a child that ends without an error has done its work; False = start it again.
        reload: restart the children when a loaded Python file changes.
        may_fork: the children can be copies of this process. With ``reload`` they load the code anew.
        parent: a pipe whose end is a request to stop; None = no such pipe.
        when_started: called once, when each child was started; it may log, so it may start threads.
        scalers: change the number of workers by the load; one for each database, or none.
        patience: the times after which a child that does nothing is killed.
        last_chances: start processes for tasks that must run alone after a crash; one for each database, or none.
    """

    def __init__(
        self,
        assignments: Sequence[Assignment],
        *,
        finite: bool,
        reload: bool = False,
        may_fork: bool = False,
        parent: int | None = None,
        when_started: Callable[[], None] | None = None,
        scalers: Sequence[ProcessScaler] = (),
        patience: Patience = NO_LIMITS,
        last_chances: Sequence[LastChanceProcesses] = (),
    ) -> None:
        self.finite, self._parent, self._when_started = finite, parent, when_started
        self._scalers, self._last_chances, self._patience = scalers, last_chances, patience
        self.children = [Child(one) for one in [*assignments, *(one.watcher for one in scalers)]]
        self._may_fork = may_fork and not reload
        self._wake_up = WakeUp()
        self.stop = Shutdown(float("inf"), self._wake_up.wake)
        self._files = _Files() if reload else None
        self._failed = self._stopping = False
        self._remains: list[Remains] = []
        self._rescue_end, self._heard_at = float("-inf"), time.monotonic()

    def run(self) -> int:
        """Return 0 if all children ended without an error, else 1.

        Raises:
            Forked: in each new process that is a copy of this one.
        """
        while self._remains or not all(child.has_ended for child in self.children):
            if self._parent is not None and not self.stop.asked and has_ended(self._parent):
                self.stop.request()
            if self.stop.asked:
                self._pass_on_stop()
            else:
                self._scale()
            self._watch()
            before = [child.pid for child in self.children]
            for child in self.children:
                self._look_after(child)
            # All at once, at the end: logs have threads, forks must not.
            _tell_of_starts(self.children, before)
            self._end_programs()
            for scaler in self._scalers:
                scaler.tell()
            if self._when_started is not None:
                self._when_started()
                self._when_started = None
            self._reload_if_changed()
            self._wake_up.wait(ROUND_SECONDS)
        return int(self._failed)

    def _watch(self) -> None:
        """Read the signs of life of all children. Kill each child that is silent or does not end."""
        now = time.monotonic()
        seconds, self._heard_at = min(now - self._heard_at, LONGEST_ROUND_SECONDS), now
        for child in self.children:
            child.hear(seconds)
            child.kill_if_silent(self._patience)
            child.kill_if_frozen()

    def _scale(self) -> None:
        self.children = [one for one in self.children if not _is_done(one)]
        news = {one: one.news() for one in self.children}
        for processes in self._last_chances:
            processes.start(self.children, news)
        for scaler in self._scalers:
            scaler.scale(self.children, news)

    def _pass_on_stop(self) -> None:
        """Order the children to stop: the cleaner last, because a worker may be killed while it stops."""
        if not self._stopping:
            self._stopping = True
            for child in self.children:
                if _is_failure(code := child.ended()):
                    # The child died before the stop, which may still succeed.
                    self._tell_of_end(child, code)
        told = [one for one in self.children if one.assignment.role is not Role.CLEANER]
        is_rescued = self.stop.now or time.monotonic() >= self._rescue_end
        if is_rescued and all(child.has_ended for child in told):
            told = self.children
        for child in told:
            self._stop(child)

    def _stop(self, child: Child) -> None:
        """Order a child to stop, or to stop now."""
        now = self.stop.now
        grace = self._patience.grace if child.assignment.runs_tasks and not now else 0.0
        child.order(b"k" if now else b"s", grace)

    def _look_after(self, child: Child) -> None:
        code = child.ended()
        if code is not None and self.stop.asked:
            self._wake_up.wake()  # the cleaner may be the next to stop
            if _is_failure(code):
                self._failed = True
                self._tell_of_end(child, code)
        elif code is not None and child.is_retiring:
            if _is_failure(code):
                self._tell_of_end(child, code)
        elif code is not None and (child.restarts or code == EXIT_CODE):
            child.start_at = 0.0
        elif code or (code is not None and not (self.finite or child.ends_by_itself)):
            child.start_later(child.end_in_words(code))
        if self.stop.asked:
            child.start_at = None
        elif child.start_at is not None and time.monotonic() >= child.start_at:
            self._start(child)

    def _start(self, child: Child) -> None:
        try:
            child.start(by_fork=self._may_fork and can_fork(), siblings=self.children)
        except OSError as error:  # no memory or no process left: start the other children
            child.start_later(repr(error))

    def _end_programs(self) -> None:
        """Go on ending what ended children have left. Their replacements do not wait for it."""
        left = self._remains + _left_by(self.children)
        self._remains = [one for one in left if not one.are_gone()]

    def _tell_of_end(self, child: Child, code: int) -> None:
        signals.child_died_at_stop.emit(
            role=child.role, pid=child.pid, status=child.end_in_words(code)
        )
        if code < 0:  # it could not let go of its tasks
            self._rescue_end = time.monotonic() + RESCUE_SECONDS

    def _reload_if_changed(self) -> None:
        if self._files and not self.stop.asked and (path := self._files.changed()) is not None:
            signals.reloading.emit(path=path)
            for child in self.children:
                child.restarts = not child.is_retiring
                self._stop(child)


def _is_failure(code: int | None) -> TypeGuard[int]:
    """Return True if the exit code of a child that ended at a stop means a failure.

    A service manager signals all processes at once. A child that is still loading has no signal handler and dies
    by the signal, but it has begun no task. A working child handles both signals, so they cannot end it.
    """
    return code not in (None, 0, EXIT_CODE, -signal.SIGTERM, -signal.SIGINT)


def _is_done(child: Child) -> bool:
    """Return True if a child that is started for a time has ended."""
    return child.has_ended and (child.is_retiring or child.ends_by_itself)


def _tell_of_starts(children: Sequence[Child], before: Sequence[int]) -> None:
    for child in children:
        if child.running and child.pid not in before:
            signals.child_started.emit(role=child.role, pid=child.pid)


def _left_by(children: Sequence[Child]) -> list[Remains]:
    """Take over what ended children have left, and log the number of programs."""
    left: list[Remains] = []
    for child in children:
        for one in child.remains:
            if one.count:
                signals.programs_left.emit(role=child.role, pid=one.pid, count=one.count)
        left += child.remains
        child.remains = []
    return left


class _Files:
    """The loaded Python files, for ``--reload``."""

    def __init__(self) -> None:
        self._modified = _modified()

    def changed(self) -> Path | None:
        """Return a file that has changed since the last call; None = no file has."""
        before, self._modified = self._modified, _modified()
        changed = (path for path, at in self._modified.items() if before.get(path, at) != at)
        return next(changed, None)


def _modified() -> dict[Path, float]:
    """Return the time of the last write to each loaded Python file."""
    times = {}
    for path in iter_all_python_module_files():
        try:
            times[path] = path.stat().st_mtime
        except OSError:
            continue
    return times
