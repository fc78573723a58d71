"""Keys under which tasks are enqueued once: what comes again, such as a webhook, writes no second task."""

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
KEYS_PER_BATCH = 500
"""Keys that a cleaner deletes in one transaction."""
ROUNDS = 20
"""Times that an INSERT is tried that does not wait: one for each transaction that takes a key and rolls back."""

# It waits for a transaction that has taken the same key and not ended; the keys of several tasks are taken in one
# order, so that two that want the same ones do not wait for each other.
TAKE_ONCE = """
    INSERT INTO txtasks_once (key, text, task_name, task_id, until) VALUES {rows}
        ON CONFLICT (key) DO UPDATE
       SET task_id = excluded.task_id, until = excluded.until WHERE txtasks_once.until <= {now}
"""
# It waits for another transaction that has written the row.
MYSQL_TAKE_ONCE = """
    INSERT INTO txtasks_once (`key`, text, task_name, task_id, until) VALUES {rows}
        ON DUPLICATE KEY UPDATE task_id = IF(until <= {now}, VALUES(task_id), task_id),
           until = IF(until <= {now}, VALUES(until), until)
"""
# This does not. When a row is rolled back, each INSERT that waits for the row gets a lock on the gap in its
# place. These locks keep all of them from inserting, and all but one get a deadlock (1213). A SELECT that waits at
# READ COMMITTED gets no such lock.
MARIADB_TAKE_ONCE_AT_ONCE = f"SET STATEMENT innodb_lock_wait_timeout = 0 FOR {MYSQL_TAKE_ONCE}"
WAIT_FOR_ONCE = "SELECT {key} FROM txtasks_once WHERE {key} {in_keys} ORDER BY {key} {lock}"
# Where it is ON, a statement that may not wait for a lock ends its whole transaction.
MYSQL_ROLLBACK_ON_TIMEOUT = "SELECT @@innodb_rollback_on_timeout"
# What was taken long ago is read and not locked: who repeats it writes nothing, and nobody waits for him.
STILL_TAKEN = "SELECT {key}, task_id FROM txtasks_once WHERE {key} {in_keys} AND until > {now}"
TAKEN_ONCE = "SELECT {key}, task_id FROM txtasks_once WHERE {key} {in_keys}"
# At REPEATABLE READ on MariaDB: what another transaction has committed since this one began.
TAKEN_SINCE = "SELECT task_id FROM txtasks_once WHERE {key} = %(key)s {lock}"
OLD_ONCE = """
    SELECT {key} FROM txtasks_once {by_until} WHERE until < {now} ORDER BY until LIMIT %(limit)s {skip_locked}
"""
FORGET_ONCE = "DELETE FROM txtasks_once WHERE {key} {in_keys}"
FORGET_OLD_ONCE = f"DELETE FROM txtasks_once WHERE {{key}} IN ({OLD_ONCE})"


class OnceKey(NamedTuple):
    """A key that a task takes.

    Attributes:
        digest: of function and text: what is compared.
        keep: no other task takes it for so long.
    """

    digest: str
    text: str
    task_name: str
    keep: timedelta


def take(alias: str, wanted: Sequence[tuple[OnceKey, uuid.UUID]]) -> dict[str, uuid.UUID]:
    """Take these keys for these tasks, in the open transaction; return whose each one is, by its digest.

    A key that was taken before, and whose time is not over, stays with that task. Of two that want the same one
    here, the first gets it.
    """
    first: dict[str, tuple[OnceKey, uuid.UUID]] = {}
    for key, task_id in wanted:
        first.setdefault(key.digest, (key, task_id))
    taken: dict[str, uuid.UUID] = {}
    digests = sorted(first)  # the same order for all
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
    """Take the keys without waiting in the INSERT; wait for whoever has taken one of them in a SELECT of its own.

    Returns:
        False: after some rounds it has not succeeded. In rare cases those who wait hold locks against each other
        all the same; an INSERT that waits ends that, and the database tells one of them.
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
    """Say whether a statement can be told to wait for no lock, and loses nothing but itself then: on MariaDB."""
    is_mariadb = getattr(connections[alias], "mysql_is_mariadb", False)
    return is_mariadb and not int(fetch_value(alias, MYSQL_ROLLBACK_ON_TIMEOUT))


def forget(alias: str) -> int:
    """Delete some of the keys whose time is over, in the open transaction; return how many."""
    if connections[alias].vendor != "mysql":  # which allows no LIMIT there
        return execute(alias, FORGET_OLD_ONCE, limit=KEYS_PER_BATCH)
    keys = fetch_column(alias, OLD_ONCE, limit=KEYS_PER_BATCH)
    return execute(alias, FORGET_ONCE, keys=[as_uuid(one) for one in keys]) if keys else 0
