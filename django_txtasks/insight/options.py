"""The setting of metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from django_txtasks.core.ground.config import CoreConfig, parsed_by
from django_txtasks.exceptions import ConfigError

MIN_TOKEN_CHARACTERS = 16


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


@dataclass(frozen=True, kw_only=True)
class MetricsConfig(CoreConfig):
    """The setting of metrics.

    Attributes:
        metrics_token: secret text with which a program may read the metrics; empty = none.
    """

    metrics_token: str = field(default="", repr=False, metadata=parsed_by(_metrics_token))
