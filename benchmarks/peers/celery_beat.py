"""Celery beat with one task each second, on RabbitMQ: each beat has a schedule file, which outlives it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import records

from peers.celery import app, no_op, prepare, work

__all__ = ["app", "beat", "prepare", "work"]

app.conf.update(
    beat_schedule={"tick": {"task": no_op.name, "schedule": 1.0, "args": [0]}},
    beat_sync_every=1,  # else the file is three minutes old when beat is killed
)


def beat(number: str) -> None:
    """Become its own command; the same number has the same file."""
    file = Path(os.environ[records.VARIABLE]).with_name(f"beat{number}")
    command = ["-m", "celery", "--app=peers.celery_beat", "beat", f"--schedule={file}"]
    os.execv(sys.executable, [sys.executable, *command, "--loglevel=WARNING"])  # noqa: S606 -- no shell
