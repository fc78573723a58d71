"""Tracebacks for people: they begin in the task's code, and keep no objects alive."""

from __future__ import annotations

import builtins
import inspect
import traceback
from collections.abc import Iterator
from types import FrameType, TracebackType

from django_txtasks.core.ground import payload
from django_txtasks.core.ground.seams import OF_FRAMES

_CORE = ("django_txtasks.core.working.", "django_txtasks.core.rows.", "django_txtasks.database.")
_BETWEEN = ("asgiref.", "asyncio.", "concurrent.", "contextlib")
"""Modules that run async tasks."""
_STARTING = ("threading.", "queue.", "selectors.")
"""Modules in which a thread begins, and waits for work."""
_GROUP: tuple[type[BaseException], ...] = tuple(
    filter(None, [getattr(builtins, "BaseExceptionGroup", None)])  # from Python 3.11 on
)
_HEAD = "Traceback (most recent call last):\n"
_MAY_GO_ON = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def trim(error: BaseException) -> None:
    """Cut off the frames of this package through which a task was called."""
    for one in _family(error):
        one.__traceback__ = _trimmed(one.__traceback__)


def is_ours_alone(error: BaseException) -> bool:
    """Return True if the error was raised before any code of the task ran."""
    return _trimmed(error.__traceback__) is None


def text_of(error: BaseException) -> str:
    """Return the traceback of a trimmed error, with its causes.

    Python cannot format every error: a SyntaxError whose position is not a number raises TypeError.
    """
    trim(error)
    try:
        return "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except Exception as problem:
        frames = "".join(traceback.format_tb(error.__traceback__))
        name = type(error).__qualname__
        return f"{_HEAD}{frames}{name}: (Python cannot format it: {type(problem).__name__})\n"


def for_log(error: BaseException) -> str:
    """Return the traceback as indented lines, so that the error's text cannot forge a log line."""
    lines = payload.clean_text(text_of(error)).expandtabs().splitlines()
    return "\n".join(f"    {printable(line)}" for line in lines)


def forget_locals(error: BaseException) -> None:
    """Clear the local variables of an ended attempt, because its error is kept until it has been logged.

    Files and lines stay. Call it in the task's thread, because that is where the objects in these variables
    are destroyed.
    """
    for one in _family(error):
        for frame in _frames(one.__traceback__):
            # The frames that this error has left are over. A generator that saw another error may continue,
            # and clearing its frame would end it.
            if one is error or not frame.f_code.co_flags & _MAY_GO_ON:
                _clear(frame)


def calls_tasks(frame: FrameType) -> bool:
    """Return True for a frame of code that calls tasks: of this package, of an event loop or of a new thread."""
    return f"{frame.f_globals.get('__name__')}.".startswith(_ours() + _BETWEEN + _STARTING)


def printable(line: str) -> str:
    """Return a line with its control characters escaped, line ends too, so that foreign text cannot control a
    terminal or forge a line.
    """
    if line.isprintable():
        return line
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in line
    )


def _clear(frame: FrameType) -> None:
    try:
        frame.clear()
    except RuntimeError:  # it is still running
        return


def _trimmed(tb: TracebackType | None) -> TracebackType | None:
    """Return the traceback from the first foreign frame on, or after the last frame of this package."""
    kept, ours = tb, _ours()
    while tb is not None:
        module = f"{tb.tb_frame.f_globals.get('__name__')}."
        if not module.startswith(ours + _BETWEEN):
            return tb
        tb = tb.tb_next
        kept = tb if module.startswith(ours) else kept
    return kept


def _ours() -> tuple[str, ...]:
    """Return how the names of modules begin through which tasks are called."""
    return (*_CORE, *OF_FRAMES.names)


def _frames(tb: TracebackType | None) -> Iterator[FrameType]:
    while tb is not None:
        yield tb.tb_frame
        tb = tb.tb_next


def _family(error: BaseException) -> list[BaseException]:
    """Return an error with its causes, its contexts, and the members of groups."""
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
