"""The features of the package, and the parts that each adds to the core.

The core imports no feature. It calls the parts that features add, each at its seam: see ``enqueueing.parts``. A
feature is named here by the dotted names of its modules, and not imported, so that a process loads no feature
before the first call that may need parts.

The order of the features is the order of their parts: tracers come first, because they surround all others.
"""

from __future__ import annotations

from dataclasses import dataclass

from django_txtasks.enqueueing import parts


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A feature, which can be left out of the package.

    Attributes:
        calls: the module whose ``PARTS`` take part in enqueueings; empty: none.
    """

    name: str
    calls: str = ""


_PLACE = "django_txtasks.features"
FEATURES = (
    Feature(name="traces", calls=f"{_PLACE}.traces.of_calls"),
    Feature(name="batches", calls=f"{_PLACE}.batches.of_calls"),
    Feature(name="hand_over", calls=f"{_PLACE}.hand_over.of_calls"),
    Feature(name="once", calls=f"{_PLACE}.once.of_calls"),
    Feature(name="links", calls=f"{_PLACE}.links.of_calls"),
)


def assemble() -> None:
    """Tell the core which features there are. Called once, when Django starts."""
    parts.modules[:] = [one.calls for one in FEATURES if one.calls]


def import_parts() -> None:
    """Import the parts of all features, so that the processes that are forked later share their modules."""
    parts.parts()
