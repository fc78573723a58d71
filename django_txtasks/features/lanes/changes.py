"""A person's changes to a lane: limits that differ from the settings, and a pause.

Workers obey from their next turn on. Running tasks go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from django_txtasks import signals
from django_txtasks.core.rows.workers import LANES, workers_before
from django_txtasks.features.lanes import claiming as lanes
from django_txtasks.features.lanes.rules import KEYS, parse_value
from django_txtasks.models import DatabaseNow, Lane
from django_txtasks.operations.pausing import who_and_why


def limit(alias: str, name: str, values: Mapping[str, Any], *, by: str = "") -> None:
    """Write limits that override the settings.

    Only these columns are written, because workers write the others at the same time.

    Args:
        values: ``at_most``, ``rate``, ``burst``, ``weight``; None = as in the settings.

    Raises:
        ConfigError: a value is invalid.
    """
    checked = {key: _sound(key, values[key]) for key in KEYS if key in values}
    lanes.create(alias, [name])
    Lane.objects.using(alias).filter(pk=name).update(**checked)
    text = ", ".join(f"{key}={value or 'as in the settings'}" for key, value in checked.items())
    signals.lane_limited.emit(database=alias, lane=name, by=by or "?", limits=text)


def _sound(key: str, value: Any) -> Any:
    if value in (None, ""):
        return "" if key == "rate" else None
    parse_value(key, value, key)
    return value


def pause(alias: str, name: str, *, by: str = "", reason: str = "") -> bool:
    """Start no task of a lane until it is resumed. False = it was paused already, and nothing changes."""
    lanes.create(alias, [name])
    found = Lane.objects.using(alias).filter(pk=name, paused_at=None)
    is_new = bool(found.update(paused_at=DatabaseNow(), **who_and_why(Lane, by, reason)))
    if is_new:
        signals.lane_paused.emit(database=alias, lane=name, by=by or "?", reason=reason)
    return is_new


def resume(alias: str, name: str, *, by: str = "") -> bool:
    """Let tasks of a lane start again, also before a wait that a task has asked for ends. False = no change."""
    with transaction.atomic(using=alias):
        row = Lane.objects.using(alias).select_for_update().filter(pk=name).first()
        if row is None or (row.paused_at is None and row.held_until is None):
            return False
        nothing = {"paused_at": None, "paused_by": "", "reason": "", "held_until": None}
        Lane.objects.using(alias).filter(pk=name).update(**nothing)
    signals.lane_resumed.emit(database=alias, lane=name, by=by or "?")
    return True


def workers_that_ignore_lanes(alias: str) -> list[str]:
    """Return the living workers of an older release, which claim tasks of a lane whatever its limits."""
    return workers_before(alias, LANES)
