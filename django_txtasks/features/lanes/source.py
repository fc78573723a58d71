"""The rows in lanes: one worker claims them in turns of their own."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from django_txtasks.core.rows.turn import Capacity, Subscription, TurnResult
from django_txtasks.core.working.apart import RowsApart
from django_txtasks.features.lanes import claiming
from django_txtasks.features.lanes.book import LaneBook
from django_txtasks.features.lanes.claiming import AT_ONCE, LanesRequest


class LaneRows(LaneBook, RowsApart):
    """Claims in the lanes that its book knows."""

    def are_served(self, group: str) -> bool:
        """Return True for a lane that has a rule."""
        return self.rules.find(group) is not None

    def request_of(self, groups: Sequence[str]) -> LanesRequest:
        """Return the work of a turn that claims one task in these lanes, whatever the book knows."""
        return LanesRequest(groups[:AT_ONCE], 1, self.rules, new=groups[:AT_ONCE])

    def prepare(self, alias: str, request: LanesRequest) -> None:
        """Write the rows of new lanes."""
        claiming.create(alias, request.new)

    def claim(
        self,
        subscription: Subscription,
        worker: uuid.UUID,
        capacity: Capacity,
        request: LanesRequest,
    ) -> TurnResult:
        """Claim in lanes."""
        claimed, learned = claiming.turn(subscription, worker, request)
        rest = capacity._replace(
            dedicated=capacity.dedicated - len(claimed), limit=capacity.limit - len(claimed)
        )
        return TurnResult(rest, claimed, apart=learned)
