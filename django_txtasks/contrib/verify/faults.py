"""The faults of a storm."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from django_txtasks.conf import Config
from django_txtasks.contrib.verify import journal
from django_txtasks.contrib.verify.crew import Crew, Member
from django_txtasks.contrib.verify.plan import Fault
from django_txtasks.contrib.verify.project import QUEUE, Scene
from django_txtasks.contrib.verify.proxy import Proxy
from django_txtasks.contrib.verify.scratch import Scratch
from django_txtasks.core.declaring.registry import ASYNC_QUEUE
from django_txtasks.hints.broker import topology, upkeep

Break = Callable[[float], object]
"""Injects a fault; gets the fault's ``pick``. None or 0 = there was nothing to break at that moment."""

HINT_QUEUES = (QUEUE, f"{ASYNC_QUEUE}{QUEUE}")
"""Names of the queues for hints, of sync and of async functions."""
AWAY_SECONDS = 3.0
BURST_TASKS = 300
"""Tasks in a burst of rolled-back transactions."""


class Faults:
    """Injects the faults of a plan.

    Args:
        config: the user's, with the prefix and the lease of this storm.
        more: additional faults by name.

    Attributes:
        frozen: frozen workers, and when each thaws, by ``time.monotonic()``.
        hints_purged: number of hints purged so far.
    """

    def __init__(
        self,
        config: Config,
        scene: Scene,
        scratch: Scratch,
        *,
        crew: Crew,
        proxy: Proxy | None,
        seed: int,
        more: Mapping[str, Break],
    ) -> None:
        self._config, self._scene, self._crew = config, scene, crew
        self._proxy, self._seed = proxy, seed
        self._bursts = self.hints_purged = 0
        self.frozen: list[tuple[float, Member]] = []
        self._breaks: dict[str, Break] = {
            "kill a worker": self._kill_worker,
            "kill a cleaner": self._kill_cleaner,
            "end all database sessions": lambda _: scratch.end_sessions(),
            "cut off the broker": self._cut_off,
            "purge the hints": self._purge,
            "delete the queue of hints": self._delete_queue,
            "roll back many transactions": self._roll_back,
            "freeze a worker": self._freeze,
            **more,
        }

    def strike(self, fault: Fault) -> bool:
        """Inject a fault; return True if there was something to break."""
        return bool(self._breaks[fault.name](fault.pick))

    def _kill_worker(self, pick: float) -> bool:
        """Kill a worker that has finished a task, so that there is progress."""
        worker = self._one_of(self._productive(), pick)
        if worker:
            self._crew.kill(worker)
        return worker is not None

    def _kill_cleaner(self, pick: float) -> bool:
        cleaner = self._one_of([one for one in self._crew.cleaners if not one.ended], pick)
        if cleaner:
            cleaner.kill()
        return cleaner is not None

    def _freeze(self, pick: float) -> bool:
        """Freeze a worker for two leases: it is declared lost, its tasks run elsewhere, and then it continues."""
        worker = self._one_of(self._productive(), pick)
        if worker:
            worker.freeze()
            until = time.monotonic() + 2 * self._config.lease.total_seconds()
            self.frozen.append((until, worker))
        return worker is not None

    def thaw(self) -> None:
        """Thaw the workers whose time is over."""
        due = [worker for at, worker in self.frozen if at <= time.monotonic()]
        self.frozen = [(at, worker) for at, worker in self.frozen if worker not in due]
        for worker in due:
            worker.thaw()

    def _purge(self, _: float) -> bool:
        purged = [upkeep.purge(self._config, queue) for queue in self._hint_queues]
        self.hints_purged += sum(count or 0 for count in purged)
        return None not in purged

    def _delete_queue(self, _: float) -> bool:
        """Delete the queues of hints; hints are lost until a worker declares them again."""
        deleted = [upkeep.delete(self._config, queue) for queue in self._hint_queues]
        return all(deleted)

    @property
    def _hint_queues(self) -> list[str]:
        return [topology.hint_queue(self._config, self._scene.alias, one) for one in HINT_QUEUES]

    def _cut_off(self, pick: float) -> int:
        """Cut all connections: half of the times for a moment only, else for up to AWAY_SECONDS."""
        return self._proxy.cut(max(0.0, pick - 0.5) * 2 * AWAY_SECONDS) if self._proxy else 0

    def _roll_back(self, _: float) -> bool:
        self._bursts += 1
        self._crew.send(f"b{self._bursts}", self._seed, BURST_TASKS, 0.0, 1.0, 0.0)
        return True

    def _productive(self) -> list[Member]:
        directory = Path(self._scene.journals)
        return [
            worker
            for worker in self._crew.workers
            if not (worker.ended or worker.frozen) and journal.has_ended_one(directory, worker.pid)
        ]

    def _one_of(self, members: Sequence[Member], pick: float) -> Member | None:
        return members[int(pick * len(members))] if members else None
