"""Registration of what happens at a fork, in one place because Windows has no ``os.register_at_fork``."""

from __future__ import annotations

import os
from collections.abc import Callable


def register_at_fork(**hooks: Callable[[], object]) -> None:
    """Do what ``os.register_at_fork`` does, or nothing where processes cannot fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**hooks)
