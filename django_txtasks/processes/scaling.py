"""Starts and ends worker processes of one database by its load, for ``runworkers --processes 1..8``.

The supervisor has no connection. A child looks at the load every two seconds, and writes each look as a line into
a pipe. A process ends by the order to retire: it takes nothing more, and ends when its last task has ended.
"""

from __future__ import annotations

import os
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from django_txtasks import signals
from django_txtasks.core.rows.workers import host_name
from django_txtasks.insight.load.records import Look, WorkerLoad, parse
from django_txtasks.processes import patience
from django_txtasks.processes.child import Assignment, Child
from django_txtasks.processes.scaling_rule import Load, Own, ScalingRule
from django_txtasks.processes.shortage import Shortage

MOST_BYTES = 1_000_000
"""Length of a line from which on it is dropped. The line of 1,000 workers is shorter."""
READ_BYTES = 65_536


class Limits(NamedTuple):
    """The options of a command that scales.

    Attributes:
        least, most: limits of the number of worker processes of each database.
        within: seconds within which a task should start.
    """

    least: int
    most: int
    within: float = 30.0


class _Starts:
    """The processes that start: not at work yet, for ``START_SECONDS`` at most, and never after their work."""

    def __init__(self) -> None:
        self._worked: WeakKeyDictionary[Child, int] = (
            WeakKeyDictionary()
        )  # its last process at work
        self._since: WeakKeyDictionary[Child, float] = WeakKeyDictionary()

    def note(self, child: Child, at_work: Container[int], now: float) -> bool:
        """Return True if the child is starting."""
        if child.running and child.pid in at_work:
            self._worked[child] = child.pid
            self._since.pop(child, None)
            return False
        if child.running and self._worked.get(child) == child.pid:
            return False  # it is frozen
        return now < self._since.setdefault(child, now) + patience.START_SECONDS


class ProcessScaler:
    """The worker processes of one database.

    Args:
        worker: the assignment of each new process.
        watcher: the assignment of the child that looks at the load. It gets an output.
        queues: the queues that the processes serve.
    """

    def __init__(
        self,
        limits: Limits,
        worker: Assignment,
        watcher: Assignment,
        *,
        queues: Sequence[str],
        threads: int,
    ) -> None:
        self._worker, self._queues, self._host = worker, frozenset(queues), host_name()
        self._rule = ScalingRule(limits.least, limits.most, threads, limits.within)
        self._pipe, output = os.pipe()
        os.set_blocking(self._pipe, False)
        self.watcher = replace(watcher, output=output)
        self._rest = b""
        (self._alias,) = worker.aliases
        self._starts, self._shortage = _Starts(), Shortage(self._alias)
        self._news: list[tuple[signals.LogSignal, dict[str, Any]]] = []

    def scale(self, children: list[Child], news: Mapping[Child, bytes]) -> None:
        """Add a child for each process to start, or retire one, by the last look and by the news.

        Args:
            news: what each child has told since the last call.
        """
        now = time.monotonic()
        own = [one for one in children if one.assignment == self._worker and not one.has_ended]
        self._shortage.hear(news, now)
        # A process that ends may wait for a session until its end.
        short = [one for one in children if self._shortage.has(one, now) and not one.is_retiring]
        look = self._read()
        if self._must_end_one(now, own, short):
            self._end_one(own, short)
        elif look is not None:
            self._follow(look, children, own, now)

    def _must_end_one(self, now: float, own: Sequence[Child], short: Sequence[Child]) -> bool:
        """Return True if processes have got no database session for long, and the end of one may help."""
        staying = sum(not one.is_retiring for one in own)
        answers = self._shortage.answers(now)
        return self._rule.sessions.note(now, staying, is_short=bool(short), answers=answers)

    def _end_one(self, own: Sequence[Child], short: Sequence[Child]) -> None:
        """Retire the last process that gets no session; if each of them gets one, the last process."""
        staying = [one for one in own if not one.is_retiring]
        *_, ends = sorted(staying, key=lambda one: one in short)
        ends.retire()
        facts = {"database": self._alias, "pid": ends.pid, "total": len(staying) - 1}
        self._news.append((signals.sessions_short, facts))

    def _follow(self, look: Look, children: list[Child], own: Sequence[Child], now: float) -> None:
        """Do what the load needs."""
        staying = [one for one in own if not one.is_retiring]
        at_work = {one.pid: one for one in look.workers if one.host == self._host}
        load = self._load(look, [one for one in own if one.is_retiring])
        starting = [self._starts.note(one, at_work, now) for one in staying]
        known = Own(len(staying), len(own) - len(staying), any(starting))
        change = self._rule.change(now, load, known)
        facts: dict[str, Any] = {
            "database": look.database,
            "oldest": load.oldest,
            "wanted": load.wanted,
        }
        if change > 0:
            children += [Child(self._worker) for _ in range(change)]
            total = len(staying) + change
            self._news.append((signals.processes_added, {"count": change, "total": total, **facts}))
        elif change < 0:
            ends = min(staying, key=lambda one: _running(at_work.get(one.pid)))
            ends.retire()
            total = len(staying) - 1
            self._news.append((signals.process_retired, {"pid": ends.pid, "total": total, **facts}))

    def tell(self) -> None:
        """Log the changes. Logs have threads, so the supervisor calls this after all forks."""
        news, self._news = self._news, []
        for signal, facts in news:
            signal.emit(**facts)

    def _load(self, look: Look, retiring: Iterable[Child]) -> Load:
        ours = [one for one in look.queues if one.queue_name in self._queues]
        serving = [one for one in look.workers if self._queues.intersection(one.queues)]
        pids = {one.pid for one in retiring}
        at_work = [one for one in serving if not (one.host == self._host and one.pid in pids)]
        oldest = max((one.oldest_seconds for one in ours), default=0.0)
        return Load(oldest, sum(one.wanted_threads for one in ours), len(at_work))

    def _read(self) -> Look | None:
        """Return the newest look in the pipe; None = there is no new one."""
        found = None
        for line in self._lines():
            try:
                found = parse(line.decode())
            except ValueError:  # a child has ended while it wrote
                continue
        return found

    def _lines(self) -> Iterator[bytes]:
        try:
            while data := os.read(self._pipe, READ_BYTES):
                *lines, self._rest = (self._rest + data).split(b"\n")
                yield from lines
                if len(self._rest) > MOST_BYTES:
                    self._rest = b""
        except BlockingIOError:
            return


def _running(worker: WorkerLoad | None) -> int:
    return 0 if worker is None else worker.running
