"""The file descriptors 0, 1 and 2, which a service manager or a shell may have closed, or their reader.

A file, a pipe or a socket that is opened later would get one of these numbers. A new process takes them for its
input and its output, and replaces them.
"""

from __future__ import annotations

import os
import select
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


def silence_broken_ones(*, was_refused: bool = False) -> bool:
    """Write the rest of standard output and error, and drop it if their reader has gone.

    Python would otherwise write it once more at its end, and print an error.

    Args:
        was_refused: a write to a pipe was refused, maybe to one of these, so that nothing is left of it.

    Returns:
        True: the reader of one of them has gone.
    """
    is_broken = False
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
            is_lost = was_refused and not _has_reader(stream.fileno())
        except BrokenPipeError:
            is_lost = True
        if is_lost:
            is_broken = True
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
    return is_broken


def _has_reader(number: int) -> bool:
    poll = select.poll()
    poll.register(number, 0)
    return not any(event & select.POLLERR for _, event in poll.poll(0))


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
