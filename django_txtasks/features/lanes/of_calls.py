"""The lane of a call is a column of its row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django_txtasks.conf import get_config
from django_txtasks.core.enqueueing.calls import Asked, BoundFunction, checked_text, option_of
from django_txtasks.core.enqueueing.parts import CallPart
from django_txtasks.exceptions import UnknownLane


class LaneOfCall(CallPart):
    """Checks the lane, and that workers serve it."""

    options = ("lane",)

    def bind(self, bound: BoundFunction, said: Mapping[str, Any]) -> BoundFunction:
        lane = option_of(bound, said, "lane")
        if lane is None:
            return bound
        return bound.having(lane=lane)._replace(asked=(*bound.asked, Asked("lane", lane, "lane")))

    def columns(self, bound: BoundFunction, texts: Mapping[str, str | None]) -> Mapping[str, Any]:
        lane = texts.get("lane")
        if not lane:
            return {}
        _refuse_unknown(bound.declaration.name, checked_text(bound, "lane", lane))
        return {"lane": lane}


def _refuse_unknown(name: str, lane: str) -> None:
    rules = get_config().lanes
    if rules.find(lane) is None:
        known = ", ".join(map(repr, rules.names)) or "none"
        raise UnknownLane(
            f"{name} has lane={lane!r}, for which TXTASKS['lanes'] has no rule; it has {known}. Fix the name or "
            "add a rule; {'weight': 1} is one without a limit."
        )


PARTS = (LaneOfCall(),)
