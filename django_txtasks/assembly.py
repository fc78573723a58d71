"""The features of the package, and the parts that each adds to the core.

The core imports no feature. It calls the parts that features add, each at its seam: see ``core.ground.seams``. A
feature is named here by the dotted names of its modules, and not imported.

The order of the features is the order of their parts: tracers come first, because they surround all others.
"""

from __future__ import annotations

from dataclasses import dataclass

from django_txtasks.core.ground.seams import OF_CALLS, OF_CLEANER, OF_FRAMES, OF_ROWS, OF_TURNS


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A feature, which can be left out of the package.

    Attributes:
        calls: the module whose ``PARTS`` take part in enqueueings; empty: none.
        cleaner: the module whose ``steps`` take part in the passes and turns of cleaners; empty: none.
        rows: the module whose ``PARTS`` take part in claims and arrows; empty: none.
        turns: the module that does whole turns of workers on one kind of database; empty: none.
    """

    name: str
    calls: str = ""
    cleaner: str = ""
    rows: str = ""
    turns: str = ""


def _feature(name: str, *sides: str) -> Feature:
    return Feature(
        name=name, **{side: f"django_txtasks.features.{name}.of_{side}" for side in sides}
    )


FEATURES = (
    _feature("traces", "calls", "rows"),
    _feature("unique", "rows"),
    _feature("batches", "calls", "cleaner", "rows"),
    _feature("hand_over", "calls"),
    _feature("once", "calls", "cleaner"),
    _feature("links", "calls"),
    _feature("schedules", "cleaner"),
    _feature("stacks", "cleaner"),
    _feature("lanes", "cleaner", "rows"),
    _feature("steps", "cleaner"),
    _feature("figures", "cleaner", "rows"),
    _feature("notices", "rows"),
)
ACCELERATORS = (
    Feature(name="one_statement", turns="django_txtasks.lifecycle.engines.postgresql"),
    Feature(name="two_blocks", turns="django_txtasks.lifecycle.engines.mariadb"),
)
"""Without one of these, tasks run as well, and slower."""
GUARDS = (Feature(name="replaced_file", cleaner="django_txtasks.cleaner.replaced_file"),)
"""They protect a process from what people may do to its files."""

CALLERS = ("django_txtasks.items.", "django_txtasks.backends.running.", "django_txtasks.testing.")
"""Beginnings of the names of modules that call tasks. Their frames are left out of tracebacks."""


def assemble() -> None:
    """Tell the core which features there are. Called once, when Django starts."""
    every = (*FEATURES, *ACCELERATORS, *GUARDS)
    OF_CALLS.use([one.calls for one in every if one.calls])
    OF_CLEANER.use([one.cleaner for one in every if one.cleaner])
    OF_ROWS.use([one.rows for one in every if one.rows])
    OF_TURNS.use([one.turns for one in every if one.turns])
    OF_FRAMES.use(CALLERS)
