"""Scans of the core leave out rows in lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_txtasks.lifecycle import lane_buckets
from django_txtasks.lifecycle.claim_parts import ClaimPart


class InLanes(ClaimPart):
    """Knows the oldest row of each lane, queue and priority."""

    def heads(self, alias: str) -> Sequence[tuple[str, Any]]:
        return [(one.queue_name, one.first_id) for one in lane_buckets.first_of_lanes(alias)]


PARTS = (InLanes(),)
