"""The settings of queues whose tasks are run elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django_txtasks.core.ground.config import parsed_by
from django_txtasks.features.hand_over import settings as hand_over
from django_txtasks.features.hand_over.settings import HandOver
from django_txtasks.hints.options import HintConfig


def _hand_over(key: str, value: Any) -> dict[str, HandOver]:
    return hand_over.parse(value)


def _external_queues(key: str, value: Any) -> tuple[str, ...]:
    return hand_over.parse_external(value)


@dataclass(frozen=True, kw_only=True)
class HandOverConfig(HintConfig):
    """The settings of queues whose tasks are run elsewhere.

    Attributes:
        hand_over: the queues whose rows ``rundrain`` hands over to another system, with the target of each.
        external_queues: the queues whose rows only workers in other languages claim.
    """

    hand_over: Mapping[str, HandOver] = field(default_factory=dict, metadata=parsed_by(_hand_over))
    external_queues: Sequence[str] = field(default=(), metadata=parsed_by(_external_queues))

    def __post_init__(self) -> None:
        super().__post_init__()
        hand_over.check(self.hand_over, self.queues, has_broker=self.broker_url is not None)
        hand_over.check_external(self.external_queues, self.hand_over, self.queues)

    @property
    def queues_of_workers(self) -> tuple[str, ...]:
        """The queues that ``runworkers`` serves."""
        return tuple(queue for queue in self.queues if queue not in self.queues_elsewhere)

    @property
    def queues_elsewhere(self) -> tuple[str, ...]:
        """The queues that take tasks whose code this project does not have."""
        return (*self.hand_over, *self.external_queues)
