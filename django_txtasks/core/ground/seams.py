"""The places at which features add parts to the core, and the classes to which they add.

``assembly`` names them. They are imported at the first use of their seam, so a web process that enqueues nothing
loads no parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from django.utils.module_loading import import_string

if TYPE_CHECKING:
    from django_txtasks.core.ground.config import CoreConfig

T = TypeVar("T")


class Seam:
    """The modules of features at one place of the core."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def use(self, names: Iterable[str]) -> None:
        """Take these modules, by their dotted names. Call it before the first use of the seam."""
        self._names = list(names)

    @cached_property
    def modules(self) -> list[ModuleType]:
        """The modules, imported, in the order of the features."""
        return [import_module(name) for name in self._names]


class Composed(Generic[T]):
    """A class to which features add settings or methods.

    Args:
        name: the dotted name of the class that the core alone has.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def use(self, name: str) -> None:
        """Take the subclass of this dotted name. Call it before the first use of the class."""
        self._name = name

    @cached_property
    def kind(self) -> type[T]:
        """The class, imported."""
        return import_string(self._name)  # type: ignore[no-any-return]


class Chosen:
    """A module of the core, or another module with the same functions in its place.

    Args:
        name: the dotted name of the core's module.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def use(self, name: str) -> None:
        """Take this module. Call it before the first use."""
        self._name = name

    @cached_property
    def module(self) -> Any:
        """The module, imported."""
        return import_module(self._name)


CONFIG: Composed[CoreConfig] = Composed("django_txtasks.core.ground.config.CoreConfig")
"""The settings; see ``core.ground.config``."""
OF_CALLS = Seam()
"""See ``enqueueing.parts``."""
OF_CLEANER = Seam()
"""See ``cleaner.parts``."""
OF_ROWS = Seam()
"""See ``lifecycle.claim_parts`` and ``lifecycle.arrow_parts``."""
OF_WORKER = Seam()
"""See ``worker.parts``."""
OF_ERRORS = Seam()
"""See ``worker.running.verdicts``."""

AROUND = Chosen("django_txtasks.worker.running.unguarded")
"""The guards around the code of tasks; see ``worker.running.unguarded``."""


def import_all() -> None:
    """Import the modules of all seams, so that the processes that are forked later share them."""
    for seam in (OF_CALLS, OF_CLEANER, OF_ROWS, OF_WORKER, OF_ERRORS):
        _ = seam.modules
    _ = AROUND.module


def overriding(method: Callable[..., Any], parts: Iterable[Any]) -> tuple[Callable[..., Any], ...]:
    """Return this method of each part that overrides it. So a part costs nothing where it does nothing."""
    name = method.__name__
    return tuple(getattr(one, name) for one in parts if getattr(type(one), name) is not method)
