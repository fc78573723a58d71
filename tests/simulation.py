"""A simulation of worker processes under the rule of ``runworkers --processes``, with a clock of its own.

It needs no database: tasks arrive, wait in one queue, and run in the threads of processes. Each host looks at the
load every two seconds, as the command does, and computes the same numbers as ``txtasks_load``.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from django_txtasks.processes.scaling_rule import Load, Own, ScalingRule

LOOK, BOOT, THREADS, WITHIN = 2.0, 3.0, 4, 30.0
MOST_DUE, MEAN_OF = 10_000, 1_000
SHARE = 15.0  # seconds in which the due tasks should have started
LATE = WITHIN
Service = Callable[[random.Random], float]


def fixed(_: random.Random) -> float:
    """Return one second."""
    return 1.0


def exponential(rng: random.Random) -> float:
    """Return a time with a mean of one second."""
    return rng.expovariate(1.0)


def log_normal(rng: random.Random) -> float:
    """Return a time with a mean of one second and a long tail: sigma 2."""
    return rng.lognormvariate(-2.0, 2.0)


SERVICES = {"fixed": fixed, "exponential": exponential, "log-normal": log_normal}


@dataclass(eq=False)
class Process:
    """A worker process: it takes tasks from ``ready_at`` on, and none once it ends."""

    host: int
    ready_at: float
    started: dict[int, float] = field(default_factory=dict)
    is_ending: bool = False


@dataclass
class Result:
    """What has happened: starts and ends of processes, waits, and the number of processes over time."""

    starts: int = 0
    ends: int = 0
    longest_wait: float = 0.0
    last_late: float = 0.0
    over_time: list[tuple[float, int]] = field(default_factory=list)

    @property
    def most(self) -> int:
        """The highest number of processes."""
        return max(number for _, number in self.over_time)


class Simulation:
    """Hosts with processes, and one queue.

    Args:
        arrivals: (time, run time) of each task, by time.
        hosts: number of commands; each decides alone.

    Attributes:
        ran: number of tasks that have run to their end.
    """

    def __init__(
        self,
        arrivals: Iterable[tuple[float, float]],
        *,
        hosts: int = 1,
        least: int = 1,
        most: int = 8,
    ) -> None:
        self._arrivals = iter(arrivals)
        self._rules = [ScalingRule(least, most, THREADS, WITHIN) for _ in range(hosts)]
        self._processes = [Process(host, 0.0) for host in range(hosts) for _ in range(least)]
        self._waiting: deque[tuple[float, float]] = deque()
        self._ran: deque[float] = deque(maxlen=MEAN_OF)
        self.ran = 0
        self._numbers = itertools.count()
        self.result = Result()

    def run(self, seconds: float) -> Result:
        """Simulate from 0 to ``seconds``."""
        numbers, result = self._numbers, self.result
        events: list[tuple[float, int, str, object]] = []

        def at(time: float, kind: str, what: object = None) -> None:
            heapq.heappush(events, (time, next(numbers), kind, what))

        def arrive() -> None:
            if (one := next(self._arrivals, None)) is not None:
                at(one[0], "arrival", one)

        arrive()
        for host in range(len(self._rules)):
            at(LOOK * (host + 1) / len(self._rules), "look", host)
        while events and events[0][0] <= seconds:
            now, _, kind, what = heapq.heappop(events)
            if kind == "arrival":
                self._waiting.append(what)  # type: ignore[arg-type]
                arrive()
            elif kind == "end":
                process, number = what  # type: ignore[misc]
                self._ran.append(now - process.started.pop(number))
                self.ran += 1
                if process.is_ending and not process.started:
                    self._processes.remove(process)
            elif kind == "look":
                for ready in self._look(now, what):  # type: ignore[arg-type]
                    at(ready, "boot")
                at(now + LOOK, "look", what)
            for ends, process, number in self._start(now):
                at(ends, "end", (process, number))
        if self._waiting:
            self._note_wait(seconds, seconds - self._waiting[0][0])
        result.over_time.append((seconds, len(self._processes)))
        return result

    def _start(self, now: float) -> Iterator[tuple[float, Process, int]]:
        """Start waiting tasks in free threads, in the process with the fewest tasks first."""
        while self._waiting:
            free = [
                one
                for one in self._processes
                if one.ready_at <= now and not one.is_ending and len(one.started) < THREADS
            ]
            if not free:
                return
            process = min(free, key=lambda one: len(one.started))
            arrived, seconds = self._waiting.popleft()
            self._note_wait(now, now - arrived)
            number = next(self._numbers)
            process.started[number] = now
            yield now + seconds, process, number

    def _note_wait(self, now: float, wait: float) -> None:
        self.result.longest_wait = max(self.result.longest_wait, wait)
        if wait > LATE:
            self.result.last_late = now

    def _look(self, now: float, host: int) -> Iterator[float]:
        """Let a host decide; yield when each new process is ready."""
        own = [one for one in self._processes if one.host == host]
        staying = [one for one in own if not one.is_ending]
        is_starting = any(one.ready_at > now for one in staying)
        known = Own(len(staying), len(own) - len(staying), is_starting)
        change = self._rules[host].change(now, self._load(now), known)
        for _ in range(change):
            self._processes.append(Process(host, now + BOOT))
            self.result.starts += 1
            yield now + BOOT
        if change < 0:
            least_busy = min(staying, key=lambda one: len(one.started))
            least_busy.is_ending = True
            self.result.ends += 1
            if not least_busy.started:
                self._processes.remove(least_busy)
        self.result.over_time.append((now, len(self._processes)))

    def _load(self, now: float) -> Load:
        """Return the numbers of ``txtasks_load``."""
        begun = [since for one in self._processes for since in one.started.values()]
        if self._ran:
            mean = sum(self._ran) / len(self._ran)
        else:
            mean = max(1.0, sum(now - since for since in begun) / max(1, len(begun)))
        due = min(MOST_DUE, len(self._waiting))
        oldest = now - self._waiting[0][0] if self._waiting else 0.0
        ready = [one for one in self._processes if one.ready_at <= now and not one.is_ending]
        return Load(oldest, len(begun) + math.ceil(due * mean / SHARE), len(ready))


def poisson(
    rate: Callable[[float], float], top: float, seconds: float, service: Service, seed: int
) -> Iterator[tuple[float, float]]:
    """Yield arrivals at a rate that changes, by thinning arrivals at the rate ``top``."""
    rng, now = random.Random(seed), 0.0
    while (now := now + rng.expovariate(top)) < seconds:
        if rng.random() * top < rate(now):
            yield now, service(rng)


def saw(period: float) -> Callable[[float], float]:
    """Return a rate that rises from 2 to 28 tasks a second in each period."""
    return lambda now: 2.0 + 26.0 * (now % period) / period


def on_and_off(now: float) -> float:
    """Return 20 tasks a second in every second minute."""
    return 20.0 if now % 120 >= 60 else 0.0


def groups(service: Service, seed: int) -> Iterator[tuple[float, float]]:
    """Yield 200 arrivals together, every 5 minutes of an hour."""
    rng = random.Random(seed)
    for turn in range(1, 13):
        for _ in range(200):
            yield 300.0 * turn, service(rng)
