"""The setting of kept log lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django_txtasks.core.ground.config import CoreConfig, parsed_by
from django_txtasks.exceptions import ConfigError

MAX_KEPT_LINES = 1000


def _count_of_lines(key: str, value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAX_KEPT_LINES:
        raise ConfigError(
            f"TXTASKS[{key!r}] is {value!r}: use a number of lines from 0 (none) to {MAX_KEPT_LINES}."
        )
    return value


@dataclass(frozen=True, kw_only=True)
class LogLineConfig(CoreConfig):
    """The setting of kept log lines.

    Attributes:
        keep_log: number of the last log lines of an attempt that are kept if it fails; 0 = none.
    """

    keep_log: int = field(default=50, metadata=parsed_by(_count_of_lines))
