"""The setting of events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django_txtasks.core.ground.config import CoreConfig, parsed_by
from django_txtasks.exceptions import ConfigError


def _events(key: str, value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, (list, tuple, set)) or not all(isinstance(one, str) for one in value):
        raise ConfigError(
            f"TXTASKS['events'] is {value!r}: it must be a list of names, or None for any."
        )
    return tuple(value)


@dataclass(frozen=True, kw_only=True)
class EventConfig(CoreConfig):
    """The setting of events.

    Attributes:
        events: the events that may be published; None = any.
    """

    events: tuple[str, ...] | None = field(default=None, metadata=parsed_by(_events))
