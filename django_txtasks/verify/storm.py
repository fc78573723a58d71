"""A storm: tasks are sent and run while things break by plan. It breaks things; it judges nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from django_txtasks.broker import topology, upkeep
from django_txtasks.conf import Config
from django_txtasks.lifecycle import cleaning
from django_txtasks.verify import journal, plan
from django_txtasks.verify.crew import Crew, Member
from django_txtasks.verify.plan import Fault, Kind
from django_txtasks.verify.project import QUEUE, Scene
from django_txtasks.verify.proxy import Proxy
from django_txtasks.verify.scratch import ALIAS, Scratch

Break = Callable[[float], object]
"""Breaks something; gets the fault's ``pick``. None or 0 = there was nothing to break just now."""

TICK_SECONDS = 0.05
CLEANERS = 2
AWAY_SECONDS = 3.0
BURST_TASKS = 300
"""Tasks of a storm of rolled-back transactions."""
RARER = {
    "kill a worker": 2,
    "kill a cleaner": 8,
    "end all database sessions": 8,
    "cut off the broker": 8,
    "purge the hints": 8,
    "delete the queue of hints": 8,
    "roll back many transactions": 12,
    "freeze a worker": 12,
}
"""How many times rarer than faults in general each kind is; the sum of their inverses is about 1."""


class StormFailed(Exception):
    """The storm could not begin, or did not calm down; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How large the storm is.

    Attributes:
        seconds: for so long things break and tasks are sent.
        slow: share of tasks that take a while.
        kinds: what is broken, and how often.
        drain: for so long the rest may take.
        more: faults from outside, by name.
    """

    seed: int
    tasks: int
    seconds: float
    workers: int
    senders: int
    slow: float
    kinds: Sequence[Kind]
    drain: float
    more: Mapping[str, Break] = field(default_factory=dict)


@dataclass
class Log:
    """What happened.

    Attributes:
        done, idle: faults by name, and those for which there was nothing to break.
        hints_purged: how many hints were thrown away.
        kills, restarts: of workers; of any process that was killed.
        storm, drain: seconds.
        drained: nothing was left in time.
    """

    done: Counter[str] = field(default_factory=Counter)
    idle: Counter[str] = field(default_factory=Counter)
    hints_purged: int = 0
    kills: int = 0
    restarts: int = 0
    storm: float = 0.0
    drain: float = 0.0
    drained: bool = False


def usual_kinds(every: float, *, server: bool, broker: bool, proxy: bool) -> list[Kind]:
    """Return the kinds of faults that make sense here.

    Args:
        every: seconds between two faults, on average.
    """
    senseless = {
        "end all database sessions": not server,
        "purge the hints": not broker,
        "delete the queue of hints": not broker,
        "cut off the broker": not proxy,
    }
    return [
        Kind(name, 0.4 * every * rarer, 1.6 * every * rarer)
        for name, rarer in RARER.items()
        if not senseless.get(name)
    ]


class Storm:
    """One storm on one scratch database.

    Args:
        config: the user's, with the prefix and the lease of this storm.
    """

    def __init__(
        self,
        config: Config,
        scene: Scene,
        scratch: Scratch,
        directory: Path,
        *,
        options: Options,
        proxy: Proxy | None = None,
    ) -> None:
        self.config, self.scene, self.scratch, self.options = config, scene, scratch, options
        self.proxy, self.log = proxy, Log()
        self.crew = Crew(scene, directory)
        self._bursts = 0
        self._thaws: list[tuple[float, Member]] = []
        self._breaks: dict[str, Break] = {
            "kill a worker": self._kill_worker,
            "kill a cleaner": self._kill_cleaner,
            "end all database sessions": lambda _: scratch.end_sessions(),
            "cut off the broker": self._cut_off,
            "purge the hints": self._purge,
            "delete the queue of hints": self._delete_queue,
            "roll back many transactions": self._roll_back,
            "freeze a worker": self._freeze,
            **options.more,
        }

    def run(self, say: Callable[[str], None]) -> Log:
        """Begin, break, calm down, end.

        Raises:
            StormFailed: the tables could not be made or the workers did not start.
        """
        self._prepare()
        try:
            self.crew.start(workers=self.options.workers, cleaners=CLEANERS)
            self._wait_for_workers()
            self._send()
            say("The storm begins.")
            self._rage()
            say(f"The storm is over after {self.log.storm:.1f} s; waiting for the rest.")
            self._drain()
        finally:
            self.crew.end()
        self.log.kills, self.log.restarts = len(self.crew.kills), self.crew.restarts
        return self.log

    # -- phases -----------------------------------------------------------------------------------

    def _prepare(self) -> None:
        ended = subprocess.run(
            [sys.executable, "-m", "django_txtasks.verify.prepare"],
            env=self.scene.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode:
            raise StormFailed(f"The tables could not be made:\n{ended.stderr[-3000:]}")

    def _wait_for_workers(self, patience: float = 60.0) -> None:
        end = time.monotonic() + patience
        while self._registered() < self.options.workers:
            dead = [member for member in self.crew.workers if member.ended]
            if dead or time.monotonic() > end:
                text = (dead or self.crew.workers)[0].log.read_text(errors="replace")
                raise StormFailed(f"The workers did not start:\n{text[-3000:]}")
            time.sleep(TICK_SECONDS)

    def _registered(self) -> int:
        return int(self.scratch.query("SELECT COUNT(*) FROM txtasks_worker")[0][0])

    def _send(self) -> None:
        shares = plan.share(self.options.tasks, self.options.senders)
        for number, tasks in enumerate(shares):
            if tasks:
                self.crew.send(
                    f"s{number}",
                    self.options.seed,
                    tasks,
                    self.options.seconds * 0.9,
                    plan.ROLLED_BACK_SHARE,
                    self.options.slow,
                )

    def _rage(self) -> None:
        begun = time.monotonic()
        faults = plan.schedule(self.options.seed, self.options.kinds, self.options.seconds)
        limit = begun + self.options.seconds + self.options.drain
        while (faults or self._thaws or self.crew.sending) and time.monotonic() < limit:
            self.crew.look_after()
            self._thaw()
            while faults and time.monotonic() - begun >= faults[0].at:
                self._break(faults.pop(0))
                self.crew.look_after()
            time.sleep(TICK_SECONDS)
        self.crew.dismiss_senders()
        self.log.storm = time.monotonic() - begun

    def _drain(self) -> None:
        begun = time.monotonic()
        while not self.log.drained and time.monotonic() - begun < self.options.drain:
            self.crew.look_after()
            time.sleep(TICK_SECONDS)
            self.log.drained = not self.scratch.query(
                "SELECT 1 FROM txtasks_task WHERE status IN ('pending', 'claimed') LIMIT 1"
            )
        # A worker that was killed with nothing in hand leaves no task, but a row that the cleaner looks at for a
        # whole lease, which it counts anew after each restart of the database.
        while cleaning.seems_silent(ALIAS) and time.monotonic() - begun < self.options.drain:
            self.crew.look_after()
            time.sleep(TICK_SECONDS)
        self.log.drain = time.monotonic() - begun

    # -- faults -----------------------------------------------------------------------------------

    def _break(self, fault: Fault) -> None:
        had_something = self._breaks[fault.name](fault.pick)
        (self.log.done if had_something else self.log.idle)[fault.name] += 1

    def _kill_worker(self, pick: float) -> bool:
        """Only one that has brought a task to its end, so that there is progress."""
        worker = self._one_of(self._productive(), pick)
        if worker:
            self.crew.kill(worker)
        return worker is not None

    def _kill_cleaner(self, pick: float) -> bool:
        cleaner = self._one_of([one for one in self.crew.cleaners if not one.ended], pick)
        if cleaner:
            cleaner.kill()
        return cleaner is not None

    def _freeze(self, pick: float) -> bool:
        """For two leases: it is declared lost, its tasks run elsewhere, and then it wakes up."""
        worker = self._one_of(self._productive(), pick)
        if worker:
            worker.freeze()
            until = time.monotonic() + 2 * self.config.lease.total_seconds()
            self._thaws.append((until, worker))
        return worker is not None

    def _thaw(self) -> None:
        due = [worker for at, worker in self._thaws if at <= time.monotonic()]
        self._thaws = [(at, worker) for at, worker in self._thaws if worker not in due]
        for worker in due:
            worker.thaw()

    def _purge(self, _: float) -> bool:
        purged = upkeep.purge(self.config, self._hint_queue)
        self.log.hints_purged += purged or 0
        return purged is not None

    def _delete_queue(self, _: float) -> bool:
        """Until a worker declares it again, hints go nowhere."""
        return upkeep.delete(self.config, self._hint_queue)

    @property
    def _hint_queue(self) -> str:
        return topology.hint_queue(self.config, self.scene.alias, QUEUE)

    def _cut_off(self, pick: float) -> int:
        """Half of the times just once, so that it is back at once; else for up to AWAY seconds."""
        return self.proxy.cut(max(0.0, pick - 0.5) * 2 * AWAY_SECONDS) if self.proxy else 0

    def _roll_back(self, _: float) -> bool:
        self._bursts += 1
        self.crew.send(f"b{self._bursts}", self.options.seed, BURST_TASKS, 0.0, 1.0, 0.0)
        return True

    def _productive(self) -> list[Member]:
        directory = Path(self.scene.journals)
        return [
            worker
            for worker in self.crew.workers
            if not (worker.ended or worker.frozen) and journal.has_ended_one(directory, worker.pid)
        ]

    def _one_of(self, members: Sequence[Member], pick: float) -> Member | None:
        return members[int(pick * len(members))] if members else None
