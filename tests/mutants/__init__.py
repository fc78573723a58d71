"""The guards of the protocol, in a module for each room of the package. ``mutations`` takes out one at a time."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules


@dataclass(frozen=True)
class Mutant:
    """The tree without one guard.

    Attributes:
        guard: the guard that is removed.
        file: path below ``django_txtasks``, or beside it.
        changes: texts and their replacements.
        tests: tests that should notice, ``file.py::test`` or a whole file, separated by spaces.
        databases: databases on which the guard matters.
    """

    guard: str
    file: str
    changes: dict[str, str]
    tests: str
    databases: tuple[str, ...] = ("POSTGRES",)


BOTH = ("POSTGRES", "MARIADB")
FENCE = "WHERE id = %(id)s AND attempt = %(attempt)s AND worker = %(worker)s AND TRIM(status) = 'claimed'"


def room_of(file: str) -> str:
    """Return the name of the module here that has the mutants of this file."""
    folder, _, rest = file.partition("/")
    within = rest.partition("/")[0].removesuffix(".py")
    if not rest or folder == "..":
        return "top"
    if folder == "features":
        return within
    return f"{folder}_{within}" if folder in ("core", "contrib") else folder


def every() -> list[Mutant]:
    """Return the mutants of all rooms."""
    found: list[Mutant] = []
    for room in iter_modules(__path__):
        found += import_module(f"{__name__}.{room.name}").MUTANTS
    return found
