"""The stack of a running attempt: its thread, its asyncio tasks, and the threads that work for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from django_txtasks.stacks import frames
from django_txtasks.worker.running import task_threads
from django_txtasks.worker.running.in_hand import Key

MAX_PARTS = 20
"""Number of asyncio tasks, and of threads, that are shown."""
NOT_BEGUN = "The attempt has not begun: it waits for a slot of its worker."
NOT_CALLED = "The attempt begins or ends: its function is not being called at this moment."

_awaited: dict[Key, tuple[asyncio.Task[Any], int]] = {}
"""The asyncio tasks of async task functions that slots run, each with the thread of its own event loop."""


@contextmanager
def shows(key: Key, task: asyncio.Task[Any]) -> Iterator[None]:
    """Let ``in_slot`` find the asyncio task of an attempt. Enter it in the thread of the event loop."""
    _awaited[key] = task, threading.get_ident()
    try:
        yield
    finally:
        _awaited.pop(key, None)


def in_slot(key: Key, thread: int) -> str:
    """Return the stack of an attempt that a slot runs in this thread, as text."""
    stacks = [("thread of the slot", frames.of_thread(thread))]
    if (found := _awaited.get(key)) is not None:
        task, loop_thread = found
        # the loop runs nothing else
        stacks += _of_asyncio_tasks([task, *asyncio.all_tasks(task.get_loop())], loop_thread)
    return _text(key, stacks)


def on_loop(key: Key, tasks: Iterable[asyncio.Task[Any]], thread: int) -> str:
    """Return the stack of an attempt on an event loop, as text.

    Args:
        tasks: the asyncio tasks of the attempt.
        thread: the thread of the loop.
    """
    return _text(key, _of_asyncio_tasks(tasks, thread))


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
