"""Hints where there is no transport: none is sent, and workers find each task by a scan."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from django_txtasks.core.ground.config import CoreConfig

BUFFER_IDS = 0
"""Maximum number of ids of a queue that hints name."""


def can_notify(config: CoreConfig, vendor: str) -> bool:
    """Return True if ``notify`` reaches workers."""
    return False


def notify(config: CoreConfig, alias: str, of_queue: Mapping[str, Sequence[uuid.UUID]]) -> None:
    """Send nothing."""
