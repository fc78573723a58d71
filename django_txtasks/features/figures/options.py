"""The setting of figures."""

from __future__ import annotations

from dataclasses import dataclass, field

from django_txtasks.core.ground.config import CoreConfig, parsed_by, switch


@dataclass(frozen=True, kw_only=True)
class FigureConfig(CoreConfig):
    """The setting of figures.

    Attributes:
        stats: workers count ended attempts, and cleaners add the counts up.
    """

    stats: bool = field(default=True, metadata=parsed_by(switch))
