"""Versions of a schedule's declaration, as digests in its row: they tell code of an older release from newer code.

A release has no number that everybody sets. So the row keeps, in the order in which they came, the digests of what
releases have said of it. Code whose digest is among them and not the last is older: a later release has said
something else since.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connections

from django_txtasks.models import Schedule

CONFIGURATION = (
    "task_name", "queue_name", "args", "kwargs", "cron", "every", "tz", "catch_up", "grace", "ready_by",
)  # fmt: skip
"""Columns that code and people write; the others are written by cleaners."""
NOT_DECLARED = ""
"""In place of a digest: ``sync`` ran with code that does not declare the schedule."""
MOST_VERSIONS = 100
"""Digests that a row keeps: the newest."""


def digest_of(configuration: Mapping[str, Any]) -> str:
    """Return 16 hex digits that stand for what code says of a schedule."""
    text = json.dumps(configuration, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def versions_of(row: Schedule) -> list[str]:
    """Return the digests of a row, the newest last.

    A row that no release has written yet since there are digests has one: of what it says, unless people have
    changed that.
    """
    found = row.code_versions if isinstance(row.code_versions, list) else []
    if found or row.edited:
        return list(found)
    return [digest_of({name: getattr(row, name) for name in CONFIGURATION})]


def with_newest(versions: Sequence[str], newest: str) -> list[str]:
    """Return the digests with one of them, or a new one, at their end."""
    return [*(one for one in versions if one != newest), newest][-MOST_VERSIONS:]


def has_table(alias: str) -> bool:
    """Say whether a database has the table of schedules."""
    return Schedule._meta.db_table in connections[alias].introspection.table_names()
