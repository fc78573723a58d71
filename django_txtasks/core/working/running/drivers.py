"""The driver of a worker: where its tasks run, in threads or on an event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from django_txtasks.core.ground.seams import Composed
from django_txtasks.core.working.running.runner import Runner
from django_txtasks.core.working.running.slot_pool import SlotPool
from django_txtasks.core.working.running.slot_threads import CallOf
from django_txtasks.core.working.running.slots import Slots
from django_txtasks.core.working.running.stuck import StuckTasks
from django_txtasks.fast.prefetch import PrefetchPolicy


class Driver(NamedTuple):
    """The slots of a worker, and what belongs to them.

    Attributes:
        prefetch: decides how many tasks to claim ahead.
        stuck: notices tasks that no exception ends.
    """

    slots: SlotPool
    prefetch: PrefetchPolicy
    stuck: StuckTasks


def on_no_loop(count: int, threads: int, runner: Runner, **options: Any) -> Driver:
    """Refuse to run tasks on an event loop, which the core does not have.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError("django_txtasks was assembled without its event loop")


ON_LOOP: Composed[Callable[..., Driver]] = Composed(
    "django_txtasks.core.working.running.drivers.on_no_loop"
)
"""Returns the driver of a worker that runs its tasks on an event loop."""


def no_calls(runner: Runner) -> CallOf | None:
    """Return None: in the core, each call has one attempt."""
    return None


CALLS: Composed[Callable[[Runner], CallOf | None]] = Composed(
    "django_txtasks.core.working.running.drivers.no_calls"
)
"""Returns the calls of several attempts; None = there are no such calls."""


def in_threads(
    threads: int, runner: Runner, *, wake: Callable[[], None], patience: float
) -> Driver:
    """Return the driver of a worker that runs each task in a thread.

    Args:
        patience: seconds that an attempt has to end after TimedOut was raised in it, and then the others.
    """
    prefetch = PrefetchPolicy(threads)
    slots = Slots(
        threads,
        run=runner.run,
        wake=wake,
        patience=patience,
        took=prefetch.took,
        call_of=CALLS.whole(runner),
    )
    return Driver(slots, prefetch, StuckTasks(slots, patience))
