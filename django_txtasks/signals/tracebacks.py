"""Tracebacks as people want them: they begin in the task, not in what runs it, and keep nothing alive."""

from __future__ import annotations

import builtins
import inspect
import traceback
from collections.abc import Iterator
from types import FrameType, TracebackType

from django_txtasks.rules import payload

_OURS = (
    "django_txtasks.worker.",
    "django_txtasks.lifecycle.",
    "django_txtasks.database.",
    "django_txtasks.backends.running",
    "django_txtasks.testing.",
)
_BETWEEN = ("asgiref.", "asyncio.", "concurrent.", "contextlib")
"""Modules that run async tasks for us."""
_GROUP: tuple[type[BaseException], ...] = tuple(
    filter(None, [getattr(builtins, "BaseExceptionGroup", None)])  # from Python 3.11 on
)
_HEAD = "Traceback (most recent call last):\n"
_MAY_GO_ON = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def trim(error: BaseException) -> None:
    """Cut off the frames of this package through which a task was called."""
    for one in _family(error):
        one.__traceback__ = _trimmed(one.__traceback__)


def text_of(error: BaseException) -> str:
    """Return the traceback of a trimmed error, with what it was caused by.

    Python cannot format each error: a SyntaxError whose position is no number raises TypeError there.
    """
    trim(error)
    try:
        return "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except Exception as problem:
        frames = "".join(traceback.format_tb(error.__traceback__))
        name = type(error).__qualname__
        return f"{_HEAD}{frames}{name}: (Python cannot format it: {type(problem).__name__})\n"


def for_log(error: BaseException) -> str:
    """Return the traceback in indented lines: text of the error forges no log line, and any file takes it."""
    lines = payload.clean_text(text_of(error)).expandtabs().splitlines()
    return "\n".join(f"    {printable(line)}" for line in lines)


def forget_locals(error: BaseException) -> None:
    """Empty the local variables of an attempt that has ended: its error is kept until it has been logged.

    Files and lines stay. Call it in the thread of the task, where what these variables held is destroyed.
    """
    for one in _family(error):
        for frame in _frames(one.__traceback__):
            # All frames that the error itself has left are over; a generator that has seen another one may go on,
            # and clearing its frame would end it.
            if one is error or not frame.f_code.co_flags & _MAY_GO_ON:
                _clear(frame)


def printable(line: str) -> str:
    """Return a line whose control characters, line ends among them, are escaped: foreign text must not act on a
    terminal, or forge a line."""
    if line.isprintable():
        return line
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in line
    )


def _clear(frame: FrameType) -> None:
    try:
        frame.clear()
    except RuntimeError:  # it is being executed
        return


def _trimmed(tb: TracebackType | None) -> TracebackType | None:
    """Return what begins with the first frame of somebody else, or after the last one of ours."""
    kept = tb
    while tb is not None:
        module = f"{tb.tb_frame.f_globals.get('__name__')}."
        if not module.startswith(_OURS + _BETWEEN):
            return tb
        tb = tb.tb_next
        kept = tb if module.startswith(_OURS) else kept
    return kept


def _frames(tb: TracebackType | None) -> Iterator[FrameType]:
    while tb is not None:
        yield tb.tb_frame
        tb = tb.tb_next


def _family(error: BaseException) -> list[BaseException]:
    """Return an error, what it was caused by or raised while handling, and the members of groups."""
    found: dict[int, BaseException] = {}
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in found:
            found[id(one)] = one
            waiting += [one.__cause__, one.__context__]
            if isinstance(one, _GROUP):
                waiting += getattr(one, "exceptions", ())
    return list(found.values())
