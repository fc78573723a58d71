"""The driver of a worker that runs its tasks on an event loop."""

from __future__ import annotations

from collections.abc import Callable

from django_txtasks.core.working.running.drivers import Driver
from django_txtasks.core.working.running.runner import Runner
from django_txtasks.features.async_loop.policy import NoPrefetch
from django_txtasks.features.async_loop.slots import LoopSlots
from django_txtasks.features.async_loop.stuck import StuckLoop


def on_loop(
    count: int,
    threads: int,
    runner: Runner,
    *,
    wake: Callable[[], None],
    grace: float,
    patience: float,
) -> Driver:
    """Return the driver of a worker that runs ``count`` tasks at a time on one event loop.

    Args:
        threads: number of threads for the sync code of the tasks.
        grace: seconds for which a task may block the loop.
        patience: see ``in_threads``.
    """
    slots = LoopSlots(
        count, threads=threads, runner=runner, wake=wake, grace=grace, patience=patience
    )
    return Driver(slots, NoPrefetch(count), StuckLoop(slots, patience))
