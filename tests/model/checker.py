"""Tries every reachable state of a model, nearest first. Knows nothing of tasks."""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

State = TypeVar("State", bound=Hashable)
SETTLES = "from everywhere the model can still settle"
"""AG EF settled: no step leads to where nothing can end well any more."""


@dataclass
class Verdict:
    """How many states there are, and the shortest way to each broken property."""

    states: int = 0
    traces: dict[str, list[str]] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{self.states} states"]
        for name, trace in self.traces.items():
            lines.append(f"broken after {len(trace)} steps: {name}")
            lines += [f"  {number:2d}. {label}" for number, label in enumerate(trace, 1)]
        return "\n".join(lines)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Do not look for garbage: none of the many states is any."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_without_collector()
def check(
    initial: State,
    steps: Callable[[State], Iterable[tuple[str, State]]],
    properties: Mapping[str, Callable[[State], bool]],
    settled: Callable[[State], bool],
    *,
    until: str = "",
) -> Verdict:
    """Visit every state breadth first.

    Args:
        steps: the labelled steps that are possible in a state.
        properties: what must hold in every state, by name; a broken state is not followed further.
        settled: whether a state is a good end; ``SETTLES`` is checked if nothing else is broken.
        until: stop as soon as this property is broken.
    """
    found, came_from = {initial: 0}, [(-1, "")]
    follow, queue = [[]], [initial]
    verdict = Verdict()
    for number, state in enumerate(queue):
        broken = [name for name, holds in properties.items() if not holds(state)]
        for name in broken:
            verdict.traces.setdefault(name, _trace(came_from, number))
        if until in broken:
            break
        for label, after in () if broken else steps(state):
            place = found.setdefault(after, len(queue))
            if place == len(queue):
                queue.append(after)
                came_from.append((number, label))
                follow.append([])
            follow[number].append(place)
    verdict.states = len(queue)
    if not verdict.traces:
        trapped = _first_trapped(follow, [settled(state) for state in queue])
        if trapped is not None:
            verdict.traces[SETTLES] = _trace(came_from, trapped)
    return verdict


def _trace(came_from: list[tuple[int, str]], number: int) -> list[str]:
    labels = []
    while number:
        number, label = came_from[number]
        labels.append(label)
    return labels[::-1]


def _first_trapped(follow: list[list[int]], good: list[bool]) -> int | None:
    """Return the nearest state from which no good one can be reached."""
    before: list[list[int]] = [[] for _ in follow]
    for number, afters in enumerate(follow):
        for after in afters:
            before[after].append(number)
    waiting = [number for number, is_good in enumerate(good) if is_good]
    while waiting:
        for number in before[waiting.pop()]:
            if not good[number]:
                good[number] = True
                waiting.append(number)
    return next((number for number, is_good in enumerate(good) if not is_good), None)
