"""Versions of a schedule's declaration, as digests in its row. They show whether code is of an older release.

Not every site numbers its releases. So the row keeps the digests of the declarations of all releases, in the
order in which they were written. Code whose digest is in the list, but not the last, is older: a later release
has declared something else.
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
"""Entry instead of a digest: ``sync`` ran with code that does not declare the schedule."""
MOST_VERSIONS = 100
"""Number of digests that a row keeps: the newest."""


def digest_of(configuration: Mapping[str, Any]) -> str:
    """Return the digest of a declaration: 16 hex digits."""
    text = json.dumps(configuration, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def versions_of(row: Schedule) -> list[str]:
    """Return the digests of a row, the newest last.

    A row without digests, from before this column, has the digest of its own values, unless a person has changed
    them.
    """
    found = row.code_versions if isinstance(row.code_versions, list) else []
    if found or row.edited:
        return list(found)
    return [digest_of({name: getattr(row, name) for name in CONFIGURATION})]


def with_newest(versions: Sequence[str], newest: str) -> list[str]:
    """Return the digests with ``newest`` at the end, moved or added."""
    return [*(one for one in versions if one != newest), newest][-MOST_VERSIONS:]


def has_table(alias: str) -> bool:
    """Return whether a database has the table of schedules."""
    return Schedule._meta.db_table in connections[alias].introspection.table_names()
