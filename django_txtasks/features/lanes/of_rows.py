"""Scans of the core leave out rows in lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_txtasks.core.rows.claim_parts import ClaimPart
from django_txtasks.features.lanes import buckets as lane_buckets


class InLanes(ClaimPart):
    """Knows the oldest row of each lane, queue and priority."""

    def heads(self, alias: str) -> Sequence[tuple[str, Any]]:
        return [(one.queue_name, one.first_id) for one in lane_buckets.first_of_lanes(alias)]


PARTS = (InLanes(),)
