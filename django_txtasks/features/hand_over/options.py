"""The setting of hand-over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django_txtasks.core.ground.config import parsed_by
from django_txtasks.features.hand_over import settings as hand_over
from django_txtasks.features.hand_over.settings import HandOver
from django_txtasks.hints.options import HintConfig


def _hand_over(key: str, value: Any) -> dict[str, HandOver]:
    return hand_over.parse(value)


@dataclass(frozen=True, kw_only=True)
class HandOverConfig(HintConfig):
    """The setting of hand-over.

    Attributes:
        hand_over: the queues whose rows ``rundrain`` hands over to another system, with the target of each.
    """

    hand_over: Mapping[str, HandOver] = field(default_factory=dict, metadata=parsed_by(_hand_over))

    def __post_init__(self) -> None:
        super().__post_init__()
        hand_over.check(self.hand_over, self.queues, has_broker=self.broker_url is not None)

    @property
    def queues_of_workers(self) -> tuple[str, ...]:
        """The queues whose rows are not handed over."""
        return tuple(queue for queue in self.queues if queue not in self.hand_over)
