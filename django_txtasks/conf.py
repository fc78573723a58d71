"""The TXTASKS setting as one frozen, validated object, which other modules get from ``get_config``.

Each feature declares its settings in its module ``options``; here they are composed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from django.conf import settings

from django_txtasks.core.ground import config
from django_txtasks.features.announcements.options import AnnouncementConfig
from django_txtasks.features.events.options import EventConfig
from django_txtasks.features.figures.options import FigureConfig
from django_txtasks.features.hand_over.options import HandOverConfig
from django_txtasks.features.lanes.options import LaneConfig
from django_txtasks.features.log_lines.options import LogLineConfig
from django_txtasks.features.notices.options import DeadNotices, NoticeConfig
from django_txtasks.features.schedules.options import ScheduleConfig
from django_txtasks.hints.options import MAX_NAME_BYTES
from django_txtasks.insight.options import MetricsConfig
from django_txtasks.processes.options import ProcessConfig

__all__ = ["MAX_NAME_BYTES", "Config", "DeadNotices", "get_config", "parse"]

KEYS = """
    broker_url database_hints queues queue_prefix poll_interval heartbeat_interval lease
    clean_interval keep_finished discard_dead_after grace hint_retry_interval hint_give_up_after
    retry_base retry_ceiling events lanes sync_schedules with_runserver ageing long_running_after
    keep_log dead_notices stats lifecycle_exchange release hand_over external_queues
    metrics_token database_budget
""".split()  # noqa: SIM905 -- a literal has a line for each
"""The keys of ``TXTASKS``, in the order in which an error lists them."""


@dataclass(frozen=True, kw_only=True)
class Config(
    AnnouncementConfig,
    NoticeConfig,
    HandOverConfig,
    EventConfig,
    FigureConfig,
    LaneConfig,
    LogLineConfig,
    MetricsConfig,
    ProcessConfig,
    ScheduleConfig,
):
    """The setting ``TXTASKS``. Durations are timedelta; in the setting a number means seconds."""

    @classmethod
    def keys(cls) -> Sequence[str]:
        """Return ``KEYS``."""
        return KEYS

    @classmethod
    def implied(cls) -> dict[str, Any]:
        """Return the queues "default" and the ``QUEUES`` of this package's backends in ``TASKS``."""
        queues = _queues_of_backends(getattr(settings, "TASKS", None) or {})
        return {"queues": sorted({"default", *queues})} if queues else {}


def parse(setting: Any) -> Config:
    """Return the Config for a TXTASKS dict.

    Raises:
        ConfigError: not a dict, unknown keys, wrong types, or values that contradict each other.
    """
    return config.parse_as(Config, setting)


get_config = cast("Callable[[], Config]", config.get_config)
"""Return the site's Config. Raise ConfigError if the setting is wrong.

Without the key ``queues``, the queues are "default" and the ``QUEUES`` of this package's backends in ``TASKS``.
"""


def _queues_of_backends(backends: dict[str, Any]) -> list[str]:
    ours = [
        entry
        for entry in backends.values()
        if str(entry.get("BACKEND")).startswith("django_txtasks.backends.")
    ]
    return sorted({queue for entry in ours for queue in entry.get("QUEUES", ())})
