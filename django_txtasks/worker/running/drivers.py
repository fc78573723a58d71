"""The driver of a worker: where its tasks run, in threads or on an event loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from django_txtasks.worker.looks.cancelling import CancelLook
from django_txtasks.worker.running.many_call import ManyCall
from django_txtasks.worker.running.prefetch import PrefetchPolicy
from django_txtasks.worker.running.runner import Runner
from django_txtasks.worker.running.slot_pool import SlotPool
from django_txtasks.worker.running.slots import Slots
from django_txtasks.worker.running.stuck import StuckTasks


class Driver(NamedTuple):
    """The slots of a worker, and what belongs to them.

    Attributes:
        prefetch: decides how many tasks to claim ahead.
        stuck: notices tasks that no exception ends.
        cancels: the class of the look for tasks that were asked to stop.
    """

    slots: SlotPool
    prefetch: PrefetchPolicy
    stuck: StuckTasks
    cancels: type[CancelLook] = CancelLook


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
        call_of=partial(ManyCall, runner),
    )
    return Driver(slots, prefetch, StuckTasks(slots, patience))
