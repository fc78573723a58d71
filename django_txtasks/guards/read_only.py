"""The reason why a database takes no writes, found by one short statement that only reads."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from django.db import connections
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from django_txtasks.database.execute import fetch, fetch_value


class ReadOnly(NamedTuple):
    """The reason why this process cannot write to a database.

    Attributes:
        reason: a clause for people, without a full stop.
        remedy: a sentence.
        is_everywhere: True = other processes cannot write either. False = unknown: the role or the session of this
            process may be the reason.
    """

    reason: str | Promise
    remedy: str | Promise
    is_everywhere: bool


# A transaction that only reads, as that of an audit, changes transaction_read_only, but not its default.
_ASK = {
    "postgresql": """
        SELECT CASE WHEN pg_is_in_recovery() THEN 'standby'
                    WHEN current_setting('default_transaction_read_only') = 'on'
                    THEN (SELECT source FROM pg_settings WHERE name = 'default_transaction_read_only')
               END
    """,
    "mysql": "SELECT @@global.read_only",
    "sqlite": "SELECT query_only FROM pragma_query_only",
}
_OF_ONE_SESSION = {"user", "database user", "client", "session"}
"""Sources of a setting of PostgreSQL that other roles and processes need not have."""
_MAY_WRITE_ANYWAY = (
    "ALL PRIVILEGES", "SUPER", "READ ONLY ADMIN", "READ_ONLY ADMIN", "CONNECTION_ADMIN",
)  # fmt: skip
"""Global privileges whose user MariaDB or MySQL lets write in spite of ``read_only``."""
_STANDBY = ReadOnly(
    _("its server is a standby"),
    _(
        "In a failover, wait until it is over. Otherwise promote the server, or name the primary in DATABASES."
    ),
    is_everywhere=True,
)
_TURN_OFF = _("Turn the setting off when its cause, such as a failover or a full disk, is over.")


def read_only(alias: str) -> ReadOnly | None:
    """Return why this process cannot write to a database; None = no setting forbids it.

    A full disk, a missing privilege and a trigger are not found: only a write shows them.

    Raises:
        DatabaseError: the database cannot be reached.
    """
    connection = connections[alias]
    answer = fetch_value(alias, _ASK[connection.vendor])
    if connection.vendor == "postgresql":
        return _of_postgresql(answer)
    if connection.vendor == "mysql":
        is_on = str(answer) not in ("0", "OFF") and not _may_write_anyway(alias)
        return _setting("read_only") if is_on else None
    if answer:
        return _setting("PRAGMA query_only", is_everywhere=False)
    return _of_file(connection.settings_dict["NAME"])


def _of_postgresql(source: str | None) -> ReadOnly | None:
    if source is None:
        return None
    if source == "standby":
        return _STANDBY
    name = f"default_transaction_read_only ({source})"
    return _setting(name, is_everywhere=source not in _OF_ONE_SESSION)


def _may_write_anyway(alias: str) -> bool:
    grants = [str(grant).upper() for (grant,) in fetch(alias, "SHOW GRANTS")]
    everywhere = [grant.partition(" ON *.* TO ")[0] for grant in grants if " ON *.* TO " in grant]
    return any(name in grant for grant in everywhere for name in _MAY_WRITE_ANYWAY)


def _setting(name: str, *, is_everywhere: bool = True) -> ReadOnly:
    return ReadOnly(_("%(setting)s is on") % {"setting": name}, _TURN_OFF, is_everywhere)


def _of_file(name: Any) -> ReadOnly | None:
    """Return the reason if this process may write neither a file of SQLite nor a journal beside it."""
    if not os.path.exists(name):  # a database in memory, or a URI
        return None
    folder = os.path.dirname(os.path.abspath(name))
    has_journal = os.path.exists(f"{name}-wal")
    if _may_write(name) and (has_journal or _may_write(folder)):
        return None
    reason = _("this process may not write the file %(file)s or its folder") % {"file": name}
    remedy = _(
        "Give the user of the process the right to write both. If the disk was mounted read-only after an error, "
        "repair the disk."
    )
    return ReadOnly(reason, remedy, is_everywhere=True)


def _may_write(path: Any) -> bool:
    """Return False also for a file on a disk that is mounted read-only."""
    # SQLite opens files with the effective user
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
