"""The file descriptors 0, 1 and 2, which a service manager or a shell may have closed.

A file, a pipe or a socket that is opened later would get one of these numbers. A new process takes them for its
input and its output, and replaces them.
"""

from __future__ import annotations

import os
import sys

_STREAMS = {"stdin": "r", "stdout": "w", "stderr": "w"}


def open_closed_ones() -> None:
    """Open each of the descriptors 0, 1 and 2 that is closed, and each stream of Python that is absent.

    A read finds their end, and written text is lost.
    """
    for number, (stream, mode) in enumerate(_STREAMS.items()):
        if not _is_open(number):
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
            os.set_inheritable(number, True)
        if getattr(sys, stream) is None:
            setattr(sys, stream, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 -- for ever


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
