"""The places at which features add parts to the core, and the classes to which they add.

``assembly`` names them. They are imported at the first use of their seam, so a web process that enqueues nothing
loads no parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from importlib import import_module
from pkgutil import resolve_name
from types import ModuleType
from typing import Any, Generic, TypeVar

T = TypeVar("T")


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


_wholes: dict[str, str] = {}


def compose(wholes: Mapping[str, str]) -> None:
    """Take classes, tables and modules in place of the core's own. Call it before their first use.

    Args:
        wholes: dotted names: that of the core, and that of the whole.
    """
    _wholes.update(wholes)


class Composed(Generic[T]):
    """A class, a table or a module to which features add.

    Args:
        core: the dotted name of the one without features.
    """

    def __init__(self, core: str) -> None:
        self._core = core

    @cached_property
    def whole(self) -> T:
        """The one with what features add, imported."""
        return resolve_name(_wholes.get(self._core, self._core))  # type: ignore[no-any-return]


OF_CALLS = Seam()
"""See ``core.enqueueing.parts``."""
OF_CLEANER = Seam()
"""See ``core.cleaning.parts``."""
OF_ROWS = Seam()
"""See ``core.rows.claim_parts`` and ``core.rows.arrow_parts``."""
OF_WORKER = Seam()
"""See ``core.working.parts``."""
OF_CHILDREN = Seam()
"""Each module has a function ``ended``, which gets the process id and the exit code of a child that was reaped;
negative = a signal."""
OF_ERRORS = Seam()
"""See ``core.working.running.verdicts``."""
AROUND: Composed[Any] = Composed("django_txtasks.core.working.running.unguarded")
"""The guards around the code of tasks; see ``core.working.running.unguarded``."""
HINTS: Composed[Any] = Composed("django_txtasks.core.enqueueing.no_hints")
"""The transport that tells workers of committed tasks; see ``core.enqueueing.no_hints``."""
OF_TURNS = Seam()
"""See ``core.rows.engines``."""
OF_FRAMES = Seam()
"""See ``signals.tracebacks``. It has the beginnings of names, and imports no module."""


def import_all() -> None:
    """Import the modules of all seams, so that the processes that are forked later share them."""
    for seam in (OF_CALLS, OF_CLEANER, OF_ROWS, OF_TURNS, OF_WORKER, OF_ERRORS):
        _ = seam.modules
    _ = AROUND.whole, HINTS.whole


def overriding(method: Callable[..., Any], parts: Iterable[Any]) -> tuple[Callable[..., Any], ...]:
    """Return this method of each part that overrides it. So a part costs nothing where it does nothing."""
    name = method.__name__
    return tuple(getattr(one, name) for one in parts if getattr(type(one), name) is not method)
