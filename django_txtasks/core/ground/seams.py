"""The places at which features add parts to the core.

``assembly`` names the modules with the parts. They are imported at the first use of their seam, so a web process
that enqueues nothing loads none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import Any


class Seam:
    """The modules of features at one place of the core."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def use(self, names: Iterable[str]) -> None:
        """Take these modules, by their dotted names. Call it before the first use of the seam."""
        self.names = list(names)

    @cached_property
    def modules(self) -> list[ModuleType]:
        """The modules, imported, in the order of the features."""
        return [import_module(name) for name in self.names]


OF_CALLS = Seam()
"""See ``enqueueing.parts``."""
OF_CLEANER = Seam()
"""See ``cleaner.parts``."""
OF_ROWS = Seam()
"""See ``lifecycle.claim_parts`` and ``lifecycle.arrow_parts``."""

OF_TURNS = Seam()
"""See ``lifecycle.engines``."""

OF_FRAMES = Seam()
"""See ``signals.tracebacks``. It has the beginnings of names, and imports no module."""


def import_all() -> None:
    """Import the modules of all seams, so that the processes that are forked later share them."""
    for seam in (OF_CALLS, OF_CLEANER, OF_ROWS, OF_TURNS):
        _ = seam.modules


def overriding(method: Callable[..., Any], parts: Iterable[Any]) -> tuple[Callable[..., Any], ...]:
    """Return this method of each part that overrides it. So a part costs nothing where it does nothing."""
    name = method.__name__
    return tuple(getattr(one, name) for one in parts if getattr(type(one), name) is not method)
