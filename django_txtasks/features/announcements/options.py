"""The setting of announcements."""

from __future__ import annotations

from dataclasses import dataclass, field

from django_txtasks.core.ground.config import parsed_by
from django_txtasks.exceptions import ConfigError
from django_txtasks.hints.options import HintConfig, exchange


@dataclass(frozen=True, kw_only=True)
class AnnouncementConfig(HintConfig):
    """The setting of announcements.

    Attributes:
        lifecycle_exchange: a RabbitMQ exchange that learns of the life of workers and of dead tasks; empty = none.
    """

    lifecycle_exchange: str = field(default="", metadata=parsed_by(exchange))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lifecycle_exchange and self.broker_url is None:
            raise ConfigError(
                "TXTASKS['lifecycle_exchange'] is set, but there is no TXTASKS['broker_url'] to reach RabbitMQ."
            )
