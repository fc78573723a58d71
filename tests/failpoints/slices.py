"""A task ``django_txtasks.bulk`` that waits for the test before its second slice."""

from __future__ import annotations

import os
import time
from pathlib import Path

SECONDS = 60
"""Longest wait."""


def arm() -> None:
    """Wait until the file exists that the environment names: ``TXTASKS_GATE=path``."""
    if "TXTASKS_GATE" not in os.environ:
        return
    from django_txtasks.features.bulk.attempt import BulkAttempt

    gate, may_go_on = Path(os.environ["TXTASKS_GATE"]), BulkAttempt.may_go_on

    def wait(attempt: BulkAttempt) -> None:
        end = time.monotonic() + SECONDS
        while attempt.moved.changed and not gate.exists() and time.monotonic() < end:
            time.sleep(0.02)
        may_go_on(attempt)

    BulkAttempt.may_go_on = wait  # type: ignore[method-assign]
