"""The claims of a worker's turns: by a scan or a sweep, and by hints."""

from __future__ import annotations

import uuid
from dataclasses import replace

from django_txtasks.core.ground.config import CoreConfig
from django_txtasks.core.rows import engines
from django_txtasks.core.rows.turn import (
    Capacity,
    Keys,
    Scan,
    Subscription,
    TurnRequest,
    TurnResult,
)
from django_txtasks.core.working.scan_cursor import ScanCursor
from django_txtasks.core.working.schedule import Plan
from django_txtasks.fast.sweep import Sweep


class TurnClaims:
    """Claims in the open transaction of a turn, and learns from the result.

    Attributes:
        meets_keys: True if the last search has found rows with a unique key.
    """

    def __init__(self, config: CoreConfig, subscription: Subscription) -> None:
        self._subscription, self._alone = subscription.beside_others, subscription.alone
        self.scans = ScanCursor(
            self._subscription,
            config.poll_interval,
            longest=config.lease.total_seconds() / 4,
            ageing=config.ageing,
        )
        self.meets_keys = False

    def rows_of(self, plan: Plan) -> Subscription:
        """Return the rows that the turn may claim."""
        return self._alone if plan.is_alone else self._subscription

    def claim(self, me: uuid.UUID, plan: Plan, scan: Scan | Sweep | None) -> TurnResult:
        """Claim what the plan looks for. A sweep comes before hinted tasks, as a scan does."""
        if not isinstance(scan, Sweep):
            request = TurnRequest(plan.capacity, plan.hinted, scan)
            return engines.claim(self.rows_of(plan), me, request, with_keys=self.meets_keys)
        swept = scan.claim(me, plan.capacity)
        if not plan.hinted:
            return swept
        rest = swept.rest if swept.blocked_queue is None else Capacity(0)
        request = TurnRequest(rest, plan.hinted)
        found = engines.claim(self._subscription, me, request, with_keys=self.meets_keys)
        return replace(
            found,
            claimed=swept.claimed + found.claimed,
            scan=swept.scan and swept.scan._replace(is_held_up=False),
            keys=swept.keys if found.keys is Keys.NONE else found.keys,
            blocked_queue=swept.blocked_queue or found.blocked_queue,
        )

    def ended(self, result: TurnResult) -> TurnResult:
        """Learn from a committed turn; return its result, and whether the scan is complete."""
        if result.has_scanned or result.looked_up:
            self.meets_keys = result.keys is not Keys.NONE
        if result.scan is None:
            return result
        is_partial = self.scans.ended(result)
        scan = result.scan._replace(is_partial=is_partial, is_unfinished=self.scans.is_sweeping)
        return replace(result, scan=scan)
