"""Frames of threads and coroutines as text: files, lines and function names, without local variables."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Iterator
from itertools import islice
from types import FrameType
from typing import Any

from django_txtasks.signals.tracebacks import calls_tasks, printable

MAX_BYTES = 16_000
"""Bytes of one answer."""
MAX_FRAMES = 300
"""Frames of one stack. Of a deeper one the outermost and the innermost are shown."""
MAX_DEPTH = 100_000
"""Frames that are read."""
_WORKER = (
    "django_txtasks.core.working.",
    "django_txtasks.features.async_loop.",
    "django_txtasks.features.many.call.",
    "django_txtasks.guards.",
    "django_txtasks.processes.",
)
"""Beginnings of the names of modules that run tasks in the threads of a worker."""

Frames = list[FrameType]
"""The outermost frame comes first."""


def of_thread(ident: int) -> Frames:
    """Return the frames of a thread, from the task's code on; empty if it does not run such code now."""
    frames: Frames = []
    frame = sys._current_frames().get(ident)
    while frame is not None and len(frames) < MAX_DEPTH:
        frames.append(frame)
        frame = frame.f_back
    return _from_task(frames[::-1])


def of_asyncio_task(task: asyncio.Task[Any], thread: int) -> Frames:
    """Return the frames of an asyncio task: of the thread, if its loop runs it now; otherwise of its awaits.

    Args:
        thread: the thread of its loop.
    """
    if asyncio.current_task(task.get_loop()) is task:
        return of_thread(thread)
    return _from_task(list(islice(_awaited(task.get_coro()), MAX_DEPTH)))


def text(stacks: list[tuple[str, Frames]]) -> str:
    """Return stacks, each below its title, as at most ``MAX_BYTES``."""
    lines: list[str] = []
    for title, frames in stacks:
        lines += [f"{title}:", *_lines(frames)]
    return _within("\n".join(map(printable, lines)), MAX_BYTES)


def _awaited(awaitable: Any) -> Iterator[FrameType]:
    """Yield the frame of a coroutine, then the frames of the coroutines and generators that it awaits."""
    while awaitable is not None:
        for prefix, inner in (("cr", "await"), ("gi", "yieldfrom"), ("ag", "await")):
            if (frame := getattr(awaitable, f"{prefix}_frame", None)) is not None:
                yield frame
                awaitable = getattr(awaitable, f"{prefix}_{inner}", None)
                break
        else:
            return


def _from_task(frames: Frames) -> Frames:
    """Leave out the frames through which the task was called. A patched Thread.run may come before ours."""
    ours = (i for i, one in enumerate(frames) if _module(one).startswith(_WORKER))
    start = next(ours, 0)
    while start < len(frames) and calls_tasks(frames[start]):
        start += 1
    return frames[start:]


def _module(frame: FrameType) -> str:
    return f"{frame.f_globals.get('__name__')}."


def _lines(frames: Frames) -> list[str]:
    half, left = MAX_FRAMES // 2, len(frames) - MAX_FRAMES
    if left <= 0:
        return _formatted(frames)
    cut = f"  … {left} frames are left out …"
    return [*_formatted(frames[:half]), cut, *_formatted(frames[-half:])]


def _formatted(frames: Frames) -> list[str]:
    places = [
        traceback.FrameSummary(
            one.f_code.co_filename, one.f_lineno or 0, one.f_code.co_name, lookup_line=False
        )
        for one in frames
    ]
    return "".join(traceback.StackSummary.from_list(places).format()).splitlines()


def _within(whole: str, size: int) -> str:
    """Cut the middle of a text, so that its ends have at most ``size`` bytes."""
    data = whole.encode()
    if len(data) <= size:
        return whole
    half = (size - len(_CUT)) // 2
    return (data[:half] + _CUT + data[-half:]).decode(errors="ignore")


_CUT = "\n… the middle is left out …\n".encode()
