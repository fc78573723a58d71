"""The setting of lanes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django_txtasks.core.ground.config import CoreConfig, parsed_by
from django_txtasks.rules.lanes import NO_LANES, LaneRules, parse_rules


def _lanes(key: str, value: Any) -> LaneRules:
    return parse_rules(value)


@dataclass(frozen=True, kw_only=True)
class LaneConfig(CoreConfig):
    """The setting of lanes.

    Attributes:
        lanes: limits of lanes, by name or pattern.
    """

    lanes: LaneRules = field(default=NO_LANES, metadata=parsed_by(_lanes))
