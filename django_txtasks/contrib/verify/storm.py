"""A storm: tasks are enqueued and run while faults happen by plan. It injects faults and judges nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from django_txtasks.conf import Config
from django_txtasks.contrib.verify import plan
from django_txtasks.contrib.verify.crew import Crew
from django_txtasks.contrib.verify.faults import Break, Faults
from django_txtasks.contrib.verify.plan import Kind
from django_txtasks.contrib.verify.project import AT_MOST, LANE, Scene
from django_txtasks.contrib.verify.proxy import Proxy
from django_txtasks.contrib.verify.scratch import ALIAS, Scratch
from django_txtasks.core.rows import cleaning

TICK_SECONDS = 0.05
CLEANERS = 2
IN_LANE = f"SELECT COUNT(*) FROM txtasks_task WHERE status = 'claimed' AND lane = '{LANE}'"  # noqa: S608
STOP_SCHEDULE = "UPDATE txtasks_schedule SET enabled = FALSE WHERE next_at > {}"
GOES_ON = (
    "SELECT 1 FROM txtasks_schedule WHERE enabled",
    "SELECT 1 FROM txtasks_batch WHERE finished_at IS NULL LIMIT 1",
    "SELECT 1 FROM txtasks_task WHERE status IN ('pending', 'claimed') LIMIT 1",
)
"""Queries with rows while a storm goes on. Tasks come last, because schedules and batches enqueue some."""
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
"""Factor by which each kind is rarer than faults in general; the sum of their inverses is about 1."""


class StormFailed(Exception):
    """The storm could not begin, or did not calm down; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The size of a storm.

    Attributes:
        seconds: time in which tasks are enqueued and faults happen.
        slow: share of slow tasks.
        kinds: kinds of faults, with their frequencies.
        drain: longest time for the remaining tasks.
        more: additional faults by name.
    """

    seed: int
    tasks: int
    seconds: float
    workers: int
    producers: int
    slow: float
    kinds: Sequence[Kind]
    drain: float
    more: Mapping[str, Break] = field(default_factory=dict)


@dataclass
class Log:
    """The incidents of a storm, counted.

    Attributes:
        done, idle: faults by name, and faults that had nothing to break.
        hints_purged: number of purged hints.
        kills, restarts: number of killed workers, and of killed processes of any kind that were restarted.
        storm, drain: seconds.
        drained: True if no task was left in time.
        overruns: looks at the lane that found more tasks than its limit.
    """

    done: Counter[str] = field(default_factory=Counter)
    idle: Counter[str] = field(default_factory=Counter)
    hints_purged: int = 0
    kills: int = 0
    restarts: int = 0
    storm: float = 0.0
    drain: float = 0.0
    drained: bool = False
    overruns: list[str] = field(default_factory=list)


def usual_kinds(every: float, *, server: bool, broker: bool, proxy: bool) -> list[Kind]:
    """Return the kinds of faults that are possible here.

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
        self.log = Log()
        self.crew = Crew(scene, directory)
        self._faults = Faults(
            config,
            scene,
            scratch,
            crew=self.crew,
            proxy=proxy,
            seed=options.seed,
            more=options.more,
        )

    def run(self, say: Callable[[str], None]) -> Log:
        """Run the phases: prepare, send and break, drain, end.

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
        self.log.hints_purged = self._faults.hints_purged
        return self.log

    # -- phases -----------------------------------------------------------------------------------

    def _prepare(self) -> None:
        ended = subprocess.run(
            [sys.executable, "-m", "django_txtasks.contrib.verify.prepare"],
            env=self.scene.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode:
            raise StormFailed(f"The tables could not be made:\n{ended.stderr[-3000:]}")

    def _wait_for_workers(self, patience: float = 60.0) -> None:
        end = time.monotonic() + patience
        while self._registered() < len(self.crew.workers):
            dead = [member for member in self.crew.workers if member.ended]
            if dead or time.monotonic() > end:
                text = next(iter(dead or self.crew.workers)).log.read_text(errors="replace")
                raise StormFailed(f"The workers did not start:\n{text[-3000:]}")
            time.sleep(TICK_SECONDS)

    def _registered(self) -> int:
        ((count,),) = self.scratch.query("SELECT COUNT(*) FROM txtasks_worker")
        return int(count)

    def _send(self) -> None:
        shares = plan.share(self.options.tasks, self.options.producers)
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
        while (faults or self._faults.frozen or self.crew.sending) and time.monotonic() < limit:
            self.crew.look_after()
            self._faults.thaw()
            while faults and time.monotonic() - begun >= faults[0].at:
                fault = faults.pop(0)
                had_something = self._faults.strike(fault)
                (self.log.done if had_something else self.log.idle)[fault.name] += 1
                self.crew.look_after()
            self._look_at_lane()
            time.sleep(TICK_SECONDS)
        self.crew.dismiss_producers()
        self.log.storm = time.monotonic() - begun

    def _look_at_lane(self) -> None:
        """Note if more tasks of the lane are claimed than its limit."""
        ((count,),) = self.scratch.query(IN_LANE)
        if count > AT_MOST:
            self.log.overruns.append(f"{count} instead of {AT_MOST}")

    def _drain(self) -> None:
        begun = time.monotonic()
        while not self.log.drained and time.monotonic() - begun < self.options.drain:
            self.crew.look_after()
            self._look_at_lane()
            time.sleep(TICK_SECONDS)
            self._stop_schedule()
            self.log.drained = not any(map(self.scratch.query, GOES_ON))
        # A killed worker without tasks leaves only a row, which the cleaner watches for a whole lease, and
        # longer if the database restarts.
        while cleaning.seems_silent(ALIAS) and time.monotonic() - begun < self.options.drain:
            self.crew.look_after()
            time.sleep(TICK_SECONDS)
        self.log.drain = time.monotonic() - begun

    def _stop_schedule(self) -> None:
        """Stop the schedule at a moment when all ticks up to now have their tasks."""
        self.scratch.query(STOP_SCHEDULE.format(self.scratch.now))
