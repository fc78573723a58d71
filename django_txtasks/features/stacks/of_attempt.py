"""The stack of a running attempt: its thread, its asyncio tasks, and the threads that work for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from django_txtasks.core.working.running.in_hand import Key
from django_txtasks.core.working.running.slot_pool import Place, SlotPool
from django_txtasks.features.stacks import frames
from django_txtasks.guards import task_threads

MAX_PARTS = 20
"""Number of asyncio tasks, and of threads, that are shown."""
NOT_BEGUN = "The attempt has not begun: it waits for a slot of its worker."
NOT_CALLED = "The attempt begins or ends: its function is not being called at this moment."


def text_of(slots: SlotPool, key: Key) -> str:
    """Return the stack of a running attempt as text; empty if it does not run here, or ends meanwhile."""
    place = slots.place_of(key)
    if place is None:
        return ""
    text = _text(key, _stacks_at(place))
    now = slots.place_of(key)
    is_there = now is not None and (now.thread, now.tasks[:1]) == (place.thread, place.tasks[:1])
    return text if is_there else ""


def _stacks_at(place: Place) -> list[tuple[str, frames.Frames]]:
    stacks, tasks = [], list(place.tasks)
    if place.thread:
        stacks.append(("thread of the slot", frames.of_thread(place.thread)))
        for one in place.tasks:  # the loop runs nothing else
            tasks += asyncio.all_tasks(one.get_loop())
    return stacks + _of_asyncio_tasks(tasks, place.loop_thread)


def _of_asyncio_tasks(
    tasks: Iterable[asyncio.Task[Any]], thread: int
) -> list[tuple[str, frames.Frames]]:
    shown = list(dict.fromkeys(tasks))[:MAX_PARTS]
    return [
        (f"asyncio task {one.get_name()}", frames.of_asyncio_task(one, thread)) for one in shown
    ]


def _text(key: Key, stacks: list[tuple[str, frames.Frames]]) -> str:
    for name, ident in task_threads.threads_of(*key)[:MAX_PARTS]:
        stacks.append((f"thread {name}", frames.of_thread(ident)))
    found = [(title, stack) for title, stack in stacks if stack]
    return frames.text(found) if found else NOT_CALLED
