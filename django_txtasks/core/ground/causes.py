"""The cause of a failed attempt: a fingerprint that is the same for failures of one cause.

The fingerprint is of the task function, the exception and the function that raised it, and of the first exception
behind it. It leaves out messages, lines and paths: they differ between failures of one cause, or change with each
release.
"""

from __future__ import annotations

from collections.abc import Container
from hashlib import blake2b

from django_txtasks.exceptions import INTERRUPTIONS, class_path

_BYTES = 8


def cause_of(task_name: str, error: BaseException, own: Container[str]) -> int:
    """Return the cause of an error that a task function raised. Never raises, whatever the error's class does.

    Args:
        own: names of the top packages of the project. Code of other packages is no place: their releases change
            it, and the project cannot correct it.
    """
    try:
        # It was raised wherever the task was, so the place says nothing.
        if isinstance(error, INTERRUPTIONS):
            return cause_of_class(task_name, type(error))
        root = _root_of(error)
        family = [error] if root is error else [error, root]
        return _digest(task_name, *(part for one in family for part in _parts(one, own)))
    except BaseException:  # a SystemExit here would end the thread of the slot
        return _digest(task_name)


def cause_of_class(task_name: str, kind: type[BaseException]) -> int:
    """Return the cause of an end without a place in the task: a lost or stopped worker, a timeout."""
    return _digest(task_name, class_path(kind))


def _root_of(error: BaseException) -> BaseException:
    """Return the first error: of a group the root of its first member, otherwise the end of the chain."""
    seen: set[int] = set()
    while id(error) not in seen:
        seen.add(id(error))
        before = _before(error)
        if before is None:
            break
        error = before
    return error


def _before(error: BaseException) -> BaseException | None:
    members = getattr(error, "exceptions", None)  # on Python 3.10 only other packages have groups
    if isinstance(members, tuple) and members and isinstance(members[0], BaseException):
        return members[0]
    if error.__suppress_context__:
        return error.__cause__
    return error.__context__


def _parts(error: BaseException, own: Container[str]) -> tuple[str, str]:
    return class_path(type(error)), _place_of(error, own)


def _place_of(error: BaseException, own: Container[str]) -> str:
    """Return module and function of the last frame in the project's code; empty if it has no such frame."""
    place, tb = "", error.__traceback__
    code = names = None
    while tb is not None:
        frame = tb.tb_frame
        if frame.f_code is not code:  # a recursion has the same code in each frame
            code, names = frame.f_code, frame.f_globals
            module = names.get("__name__")
            if isinstance(module, str) and module.partition(".")[0] in own:
                place = f"{module}.{code.co_name}"
        tb = tb.tb_next
    return place


def _digest(*parts: str) -> int:
    text = "\0".join(parts).encode("utf-8", "backslashreplace")
    return int.from_bytes(blake2b(text, digest_size=_BYTES).digest(), "big", signed=True)
