"""The account at the end of every test of faults: compares committed tasks with their effects.

Its facts come from three independent sources: the answers that senders got, notes of task functions outside
the database, and the tables after all has calmed down.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import helpers
from django.db import connection
from orders.models import Order
from probe.models import Run

from django_txtasks.models import FinishedTask, Status, Task, Worker

NOT_QUIET = """
    SELECT pid, state, query FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
       AND (starts_with(state, 'idle in transaction') OR wait_event_type = 'Lock')
"""


@dataclass
class Account:
    """Transactions that senders began, the answers that they got, and the content of the tables. Keys are
    those of transactions.

    Attributes:
        kinds: kinds of tasks; each transaction enqueued one of each, named ``KEY KIND``.
        runs: number of starts of each task, finished or not.
    """

    kinds: tuple[str, ...]
    promised: dict[str, set[str]]
    runs: Counter[str]
    finished: dict[str, Any] = field(default_factory=dict)
    live: dict[str, Any] = field(default_factory=dict)
    effects: Counter[str] = field(default_factory=Counter)
    committed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        finished, live = list(FinishedTask.objects.all()), list(Task.objects.all())
        self.finished = {task.args[0]: task for task in finished}
        self.live = {task.args[0]: task for task in live}
        assert len(self.finished) == len(finished), "finished twice"
        assert len(self.live) == len(live), "a task became two"
        self.effects = Counter(Run.objects.values_list("key", flat=True))
        self.committed = set(Order.objects.values_list("customer", flat=True))

    @property
    def dead(self) -> dict[str, Any]:
        """Live rows of tasks that gave up."""
        return {key: task for key, task in self.live.items() if task.status == Status.DEAD}

    def balance(self, *, crashes: bool) -> None:
        """Check every invariant of the protocol that the tables can tell.

        Args:
            crashes: whether something happened that may cost a worker its claims.
        """
        self._promises_were_kept()
        self._nothing_is_lost()
        self._nothing_else_ran()
        for key, task in {**self.finished, **self.live}.items():
            self._runs_are_accounted_for(key, task)
        for key, task in self.dead.items():
            assert crashes, f"{key} is dead: {task.errors}"
            assert key.endswith("default"), f"{key} was safe to run again: {task.errors}"
            assert task.errors[-1]["type"] == "WorkerLost"
        if not crashes:
            assert not Worker.objects.filter(lost=True).exists(), "a living worker was condemned"

    def _promises_were_kept(self) -> None:
        """A commit whose answer was lost may be there or not; the others are as they were told."""
        assert self.promised["committed"] <= self.committed <= self.promised["begun"]
        assert not self.promised["refused"] & self.committed

    def _nothing_is_lost(self) -> None:
        """Each committed transaction has all its tasks, each at its end, and no other has any."""
        expected = {f"{key} {kind}" for key in self.committed for kind in self.kinds}
        assert set(self.finished) | set(self.dead) == expected
        assert not set(self.finished) & set(self.live), "both finished and not"
        assert set(self.live) == set(self.dead), "not drained"

    def _nothing_else_ran(self) -> None:
        known = set(self.finished) | set(self.live)
        assert set(self.runs) <= known, "what was rolled back ran"
        assert set(self.effects) <= known

    def _runs_are_accounted_for(self, key: str, task: Any) -> None:
        again = 0 if key.endswith("default") else task.crashes  # never silently a second time
        most = 1 + again + task.failures
        assert self.runs[key] <= most, f"{key}: {self.runs[key]} runs, {task.errors}"
        assert task.attempt >= self.runs[key]
        if key.endswith("atomic"):
            assert self.effects[key] == (key in self.finished)
        else:
            assert (key in self.finished) <= self.effects[key] <= self.runs[key]


def read(kinds: tuple[str, ...], promises: Path, runs: Path) -> Account:
    """Return the account of senders and tasks that noted their part in these files."""
    promised: dict[str, set[str]] = {"begun": set(), "committed": set(), "refused": set()}
    for line in promises.read_text().splitlines():
        word, key = line.split()
        promised[word].add(key)
    lines = runs.read_text().splitlines() if runs.exists() else []
    return Account(kinds, promised, Counter(lines))


def wait_for_drain(what: Any = "") -> None:
    """Wait until no task is pending or claimed, and no session holds a lock or an open transaction."""
    open_states = [Status.PENDING, Status.CLAIMED]
    helpers.wait_until(lambda: not Task.objects.filter(status__in=open_states).exists(), what=what)
    if connection.vendor == "postgresql":
        helpers.wait_until(
            lambda: not helpers.execute(NOT_QUIET), what=lambda: str(helpers.execute(NOT_QUIET))
        )
