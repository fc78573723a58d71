"""Keys of ``once``: a call that is repeated with the same key, such as by a webhook, writes no second task."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from django.db import OperationalError, connections

from django_txtasks.database.dialect import dialect_of
from django_txtasks.database.errors import is_lock_timeout
from django_txtasks.database.execute import as_uuid, execute, fetch, fetch_column, fetch_value

KEYS_PER_STATEMENT = 100
KEYS_PER_TRANSACTION = 500
"""Keys that a cleaner deletes in one transaction."""
ROUNDS = 20
"""Number of tries of an INSERT that does not wait. A try fails if a transaction has taken a key and rolls back."""

# The INSERT waits for an open transaction that has taken the same key. Keys are taken in one order, so that two
# transactions with the same keys do not wait for each other.
TAKE_ONCE = """
    INSERT INTO txtasks_once (key, text, task_name, task_id, until) VALUES {rows}
        ON CONFLICT (key) DO UPDATE
       SET task_id = excluded.task_id, until = excluded.until WHERE txtasks_once.until <= {now}
"""
# The INSERT waits for an open transaction that has written the row.
MYSQL_TAKE_ONCE = """
    INSERT INTO txtasks_once (`key`, text, task_name, task_id, until) VALUES {rows}
        ON DUPLICATE KEY UPDATE task_id = IF(until <= {now}, VALUES(task_id), task_id),
           until = IF(until <= {now}, VALUES(until), until)
"""
# This INSERT does not wait. When a row is rolled back, each INSERT that waits for the row gets a lock on the gap
# in its place. The gap locks block all of these INSERTs, and all except one get a deadlock (1213). A SELECT that
# waits at READ COMMITTED gets no gap lock.
MARIADB_TAKE_ONCE_AT_ONCE = f"SET STATEMENT innodb_lock_wait_timeout = 0 FOR {MYSQL_TAKE_ONCE}"
WAIT_FOR_ONCE = "SELECT {key} FROM txtasks_once WHERE {key} {in_keys} ORDER BY {key} {lock}"
# If this is ON, a statement that may not wait for a lock rolls back its whole transaction.
MYSQL_ROLLBACK_ON_TIMEOUT = "SELECT @@innodb_rollback_on_timeout"
# A key that was taken earlier is read without a lock: a repeated call writes nothing and blocks no other session.
STILL_TAKEN = "SELECT {key}, task_id FROM txtasks_once WHERE {key} {in_keys} AND until > {now}"
TAKEN_ONCE = "SELECT {key}, task_id FROM txtasks_once WHERE {key} {in_keys}"
# For REPEATABLE READ on MariaDB: reads keys that were committed after this transaction began.
TAKEN_SINCE = "SELECT task_id FROM txtasks_once WHERE {key} = %(key)s {lock}"
OLD_ONCE = """
    SELECT {key} FROM txtasks_once {by_until} WHERE until < {now} ORDER BY until LIMIT %(limit)s {skip_locked}
"""
FORGET_ONCE = "DELETE FROM txtasks_once WHERE {key} {in_keys}"
FORGET_OLD_ONCE = f"DELETE FROM txtasks_once WHERE {{key}} IN ({OLD_ONCE})"


class OnceKey(NamedTuple):
    """A key that a task takes.

    Attributes:
        digest: hash of function and text, which is compared.
        keep: time during which no other task can take the key.
    """

    digest: str
    text: str
    task_name: str
    keep: timedelta


def take(alias: str, wanted: Sequence[tuple[OnceKey, uuid.UUID]]) -> dict[str, uuid.UUID]:
    """Take keys for tasks, in the open transaction; return the id of each key's owner, by digest.

    A key that an earlier task has taken stays with that task until its time is over. If two of these tasks want
    the same key, the first gets it.
    """
    first: dict[str, tuple[OnceKey, uuid.UUID]] = {}
    for key, task_id in wanted:
        first.setdefault(key.digest, (key, task_id))
    taken: dict[str, uuid.UUID] = {}
    digests = sorted(first)  # the same order in each transaction
    for start in range(0, len(digests), KEYS_PER_STATEMENT):
        some = digests[start : start + KEYS_PER_STATEMENT]
        taken.update(_owners(alias, STILL_TAKEN, some))
        free = [digest for digest in some if digest not in taken]
        if free:
            _take(alias, [first[digest] for digest in free])
            taken.update(_owners(alias, TAKEN_ONCE, free))
            taken.update(_owners_since(alias, [one for one in free if one not in taken]))
    return taken


def _owners(alias: str, sql: str, digests: Sequence[str]) -> dict[str, uuid.UUID]:
    rows = fetch(alias, sql, keys=[uuid.UUID(digest) for digest in digests])
    return {as_uuid(key).hex: as_uuid(task_id) for key, task_id in rows}


def _owners_since(alias: str, digests: Sequence[str]) -> dict[str, uuid.UUID]:
    found = {}
    for digest in digests:
        ((task_id,),) = fetch(alias, TAKEN_SINCE, key=uuid.UUID(digest))
        found[digest] = as_uuid(task_id)
    return found


def _take(alias: str, wanted: Sequence[tuple[OnceKey, uuid.UUID]]) -> None:
    connection = connections[alias]
    later, params, rows = dialect_of(connection).later, dict[str, Any](), []
    for n, (key, task_id) in enumerate(wanted):
        until = later.replace("%(delay)s", f"%(keep_{n})s")
        rows.append(f"(%(key_{n})s, %(text_{n})s, %(name_{n})s, %(task_{n})s, {until})")
        params.update({f"key_{n}": key.digest, f"text_{n}": key.text, f"name_{n}": key.task_name})
        params.update({f"task_{n}": task_id, f"keep_{n}": key.keep.total_seconds()})
    values = ", ".join(rows)
    if connection.vendor != "mysql":
        execute(alias, TAKE_ONCE.replace("{rows}", values), **params)
    elif not (_waits_apart(alias) and _take_in_turns(alias, wanted, values, params)):
        execute(alias, MYSQL_TAKE_ONCE.replace("{rows}", values), **params)


def _take_in_turns(
    alias: str, wanted: Sequence[tuple[OnceKey, uuid.UUID]], values: str, params: dict[str, Any]
) -> bool:
    """Take the keys by an INSERT that does not wait, and wait for other owners in a separate SELECT.

    Returns:
        False: the INSERT failed ``ROUNDS`` times. In rare cases the waiting sessions still hold locks against each
        other. An INSERT that waits ends this, because the database raises a deadlock error in one session.
    """
    sql = MARIADB_TAKE_ONCE_AT_ONCE.replace("{rows}", values)
    for _ in range(ROUNDS):
        try:
            execute(alias, sql, **params)
            return True
        except OperationalError as error:
            if not is_lock_timeout(error):
                raise
        keys = [uuid.UUID(key.digest) for key, _ in wanted]
        fetch(alias, WAIT_FOR_ONCE, keys=keys)
    return False


@functools.cache
def _waits_apart(alias: str) -> bool:
    """Return whether a statement can refuse to wait for a lock without losing its transaction: on MariaDB."""
    is_mariadb = getattr(connections[alias], "mysql_is_mariadb", False)
    return is_mariadb and not int(fetch_value(alias, MYSQL_ROLLBACK_ON_TIMEOUT))


def forget(alias: str) -> int:
    """Delete some of the keys whose time is over, in the open transaction; return their number."""
    if connections[alias].vendor != "mysql":  # MySQL allows no LIMIT in such a subquery
        return execute(alias, FORGET_OLD_ONCE, limit=KEYS_PER_TRANSACTION)
    keys = fetch_column(alias, OLD_ONCE, limit=KEYS_PER_TRANSACTION)
    return execute(alias, FORGET_ONCE, keys=[as_uuid(one) for one in keys]) if keys else 0
