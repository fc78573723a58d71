"""The features of the package, and the parts that each adds to the core.

The core imports no feature. It calls the parts that features add, each at its seam: see ``core.ground.seams``. A
feature is named here by the dotted names of its modules, and not imported.

The order of the features is the order of their parts: tracers come first, because they surround all others.
"""

from __future__ import annotations

from dataclasses import dataclass

from django_txtasks.core.ground.seams import OF_CALLS, OF_CLEANER, compose


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A feature, which can be left out of the package.

    Attributes:
        calls: the module whose ``PARTS`` take part in enqueueings; empty: none.
        cleaner: the module whose ``steps`` take part in the passes of cleaners; empty: none.
    """

    name: str
    calls: str = ""
    cleaner: str = ""


def _feature(name: str, *sides: str) -> Feature:
    return Feature(
        name=name, **{side: f"django_txtasks.features.{name}.of_{side}" for side in sides}
    )


FEATURES = (
    _feature("traces", "calls"),
    _feature("batches", "calls", "cleaner"),
    _feature("hand_over", "calls"),
    _feature("once", "calls", "cleaner"),
    _feature("links", "calls"),
    _feature("schedules", "cleaner"),
    _feature("stacks", "cleaner"),
    _feature("lanes", "cleaner"),
    _feature("steps", "cleaner"),
    _feature("figures", "cleaner"),
)
COMPOSED = {
    "django_txtasks.core.ground.config.CoreConfig": "django_txtasks.conf.Config",
    "django_txtasks.declarations.core_options.CORE": "django_txtasks.declarations.options.OPTIONS",
}
"""Classes and tables of the core, each with its counterpart to which features add."""


def assemble() -> None:
    """Tell the core which features there are. Called once, when the package is imported."""
    compose(COMPOSED)
    OF_CALLS.use([one.calls for one in FEATURES if one.calls])
    OF_CLEANER.use([one.cleaner for one in FEATURES if one.cleaner])
