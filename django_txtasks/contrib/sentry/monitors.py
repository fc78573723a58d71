"""Cron monitors: the schedule of a monitor, and the check-ins of one attempt."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from sentry_sdk.crons import capture_checkin

from django_txtasks.features.traces.tracing import Run

LONGEST_SLUG = 50
SHORTEST_INTERVAL = 60
"""Seconds. Sentry's shortest unit is a minute."""
_STATUS = {"": None, "finish": "ok", "bury": "error", "cancel": "error"}


def monitor_of(schedule: Any) -> dict[str, Any] | None:
    """Return the slug and the configuration of a schedule's monitor; None = Sentry has no such interval."""
    if schedule.cron:
        rule = {"type": "crontab", "value": schedule.cron}
    elif schedule.every % SHORTEST_INTERVAL:
        return None
    else:
        minutes = int(schedule.every // SHORTEST_INTERVAL)
        rule = {"type": "interval", "value": minutes, "unit": "minute"}
    return {
        "slug": slug_of(schedule.name),
        "config": {"schedule": rule, "timezone": schedule.tz or "UTC"},
    }


def slug_of(name: str) -> str:
    """Return a schedule's name as Sentry's slugs are: small letters, digits, ``-`` and ``_``."""
    slug = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")
    if len(slug) <= LONGEST_SLUG:
        return slug
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{slug[: LONGEST_SLUG - len(digest) - 1]}-{digest}"


def check_in(monitor: Mapping[str, Any], run: Run, seconds: float | None = None) -> None:
    """Send a check-in of an attempt. All attempts of a task have one check-in, whose last status counts.

    Args:
        seconds: duration of the attempt; None = it begins.
    """
    status = "in_progress" if seconds is None else _STATUS.get(run.outcome)
    if status is not None:
        capture_checkin(
            monitor_slug=monitor["slug"],
            check_in_id=run.task_id.hex,
            status=status,
            duration=seconds,
            monitor_config=monitor["config"],
        )
