"""The settings of metrics and of what the queue may cost its database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from django_txtasks.core.ground.config import CoreConfig, parsed_by, refuse_unknown_keys
from django_txtasks.exceptions import ConfigError

MIN_TOKEN_CHARACTERS = 16
COSTS = ("transactions_per_second", "rows_per_second", "sessions", "history_mb_per_day")
"""The keys of ``database_budget``: numbers of ``insight.cost.DatabaseCost``."""


def _metrics_token(key: str, value: Any) -> str:
    is_text = isinstance(value, str) and value.isascii() and value.isprintable()
    if value is None or value == "":
        return ""
    if not (is_text and len(value) >= MIN_TOKEN_CHARACTERS and " " not in value):
        raise ConfigError(  # no message repeats the token
            f"TXTASKS[{key!r}] must be a text of at least {MIN_TOKEN_CHARACTERS} ASCII characters without spaces, "
            "such as secrets.token_urlsafe() returns, or '' for no token."
        )
    return cast(str, value)


def _database_budget(key: str, value: Any) -> dict[str, float]:
    if not isinstance(value, dict):
        raise ConfigError(
            f"TXTASKS[{key!r}] is {value!r}: it must be a dict with numbers, such as {{'sessions': 50}}."
        )
    refuse_unknown_keys(f"TXTASKS[{key!r}]", value, COSTS)
    for name, bound in value.items():
        is_number = isinstance(bound, (int, float)) and not isinstance(bound, bool)
        if not (is_number and 0 < bound < float("inf")):
            raise ConfigError(
                f"TXTASKS[{key!r}][{name!r}] is {bound!r}: it must be a number above 0."
            )
    return value


@dataclass(frozen=True, kw_only=True)
class MetricsConfig(CoreConfig):
    """The settings of metrics and of what the queue may cost its database.

    Attributes:
        database_budget: numbers by the names of ``COSTS``, above which what the queue costs is a warning.
        metrics_token: secret text with which a program may read the metrics; empty = none.
    """

    database_budget: Mapping[str, float] = field(
        default_factory=dict, metadata=parsed_by(_database_budget)
    )
    metrics_token: str = field(default="", repr=False, metadata=parsed_by(_metrics_token))
