"""Dead rows in the task table, and the sessions that keep VACUUM from removing them.

For people, through system checks. It reads the database's own statistics, counts no rows and waits for no
lock. A wrong estimate costs a warning, never a task.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import DatabaseError, connections

from django_txtasks.core.ground.wording import counted
from django_txtasks.database.execute import fetch
from django_txtasks.database.transactions import own_transaction
from django_txtasks.insight.finding import Finding
from django_txtasks.models import Task

DEAD_ROWS = 100_000
"""Dead rows from which a warning is due; fewer slow nothing down."""
VACUUM_TIMEOUT = timedelta(minutes=5)
"""Normal age of dead rows: PostgreSQL's autovacuum runs once a minute by default."""
BLOATED_BYTES = 1024**3
"""Size of a table's file below which it counts as small, even if it is mostly empty."""
ROW_BYTES = 8192
"""Largest size of a row in the table: values over 2 kB are stored elsewhere, and pages may be half full."""
ENTRY_BYTES = 2048
"""Largest size of a row in all indexes: usually 150, more with long queue names and half-empty pages."""
SNAPSHOT_AGE = timedelta(minutes=5)
SNAPSHOT_TRANSACTIONS = 1000
"""Later transactions from which a snapshot counts as old, where the database does not tell its age."""
UNDO_RECORDS = 1_000_000
"""Changes in any table of MariaDB whose old versions are still kept."""
STATEMENT_TIMEOUT = timedelta(seconds=10)

NAME = Task._meta.db_table
REASON = "no row version that died since can be removed. The table grows, and scans read the dead rows, too."
NOUNS = {
    "prepared": "The prepared transaction",
    "slot": "The standby of replication slot",
    "standby": "The standby whose connection has pid",
    "connection": "The connection",
}
ACTIONS = {
    "session": (
        "If it is not needed: SELECT pg_terminate_backend({name}). Then: VACUUM {table}. To prevent it, set "
        "idle_in_transaction_session_timeout for that user, and run long reports on a standby."
    ),
    "prepared": "No restart ends it: COMMIT PREPARED or ROLLBACK PREPARED '{name}'. Then: VACUUM {table}.",
    "slot": (
        "If that standby is gone: SELECT pg_drop_replication_slot('{name}'). If not, look there for long queries, "
        "and check whether it needs hot_standby_feedback. Then: VACUUM {table}."
    ),
    "standby": "Look there for long queries, and check if it needs hot_standby_feedback. Then: VACUUM {table}.",
    "connection": "If it is not needed: KILL {name}. To prevent it: SET GLOBAL idle_transaction_timeout.",
    "hidden": "To see the session: GRANT PROCESS ON *.* TO the user of this check.",
}


@dataclass(frozen=True)
class Table:
    """PostgreSQL's statistics of the task table. ``vacuumed``: seconds since the last VACUUM; None = never."""

    live: int
    dead: int
    vacuumed: float | None
    table_bytes: int
    index_bytes: int


@dataclass(frozen=True)
class Blocker:
    """The owner of the oldest snapshot. It blocks vacuum: no row version that it may still see can be removed.

    Attributes:
        kind: "session", "prepared", "slot", "standby", "connection" (of MariaDB) or "hidden".
        name: pid, name or number, as the command that ends it needs it.
        transactions: number of transactions that began since the snapshot.
        since, seconds: start and age of the snapshot; None = unknown.
    """

    kind: str
    name: str = ""
    owner: str = ""
    application: str = ""
    state: str = ""
    transactions: int = 0
    since: str | None = None
    seconds: float | None = None

    @property
    def is_old(self) -> bool:
        """True if it lasts longer than transactions usually do."""
        if self.seconds is None:
            return self.transactions >= SNAPSHOT_TRANSACTIONS
        return self.seconds >= SNAPSHOT_AGE.total_seconds()

    def __str__(self) -> str:
        if self.kind == "hidden":
            return "This user may not see who holds the oldest snapshot"
        if self.kind == "session":
            state = f", {self.state}" if self.state else ""
            who = f"The session with pid {self.name} (user {self.owner}, application {self.application!r}{state})"
        else:
            who = f"{NOUNS[self.kind]} {self.name}"
        if self.seconds is None:
            return f"{who} holds a snapshot that was followed by {counted(self.transactions, 'transaction')}"
        return f"{who} holds a snapshot since {self.since} ({_span(self.seconds)})"

    @property
    def action(self) -> str:
        """The command that ends it, for people."""
        action = ACTIONS[self.kind].format(name=self.name, table=NAME)
        if self.kind == "session" and self.seconds is None:
            action += " To see its start and its state: GRANT pg_read_all_stats to the role of this check."
        return action


def findings(alias: str) -> list[Finding]:
    """Return the conditions inside the database that slow workers down; none on SQLite.

    Raises:
        OperationalError: the database cannot be reached, or a session has locked the whole table.
    """
    vendor = connections[alias].vendor
    if vendor == "postgresql":
        with own_transaction(alias, limit=STATEMENT_TIMEOUT):
            return list(_on_postgresql(alias))
    return list(_on_mariadb(alias)) if vendor == "mysql" else []


# -- PostgreSQL -----------------------------------------------------------------------------------

TABLE = """
    SELECT CAST(GREATEST(s.n_live_tup, c.reltuples, 0) AS bigint), s.n_dead_tup,
           CAST(EXTRACT(EPOCH FROM statement_timestamp() - GREATEST(s.last_vacuum, s.last_autovacuum))
                AS double precision),
           pg_relation_size(c.oid), pg_indexes_size(c.oid)
      FROM pg_class c JOIN pg_stat_user_tables s ON s.relid = c.oid WHERE c.oid = to_regclass(%(name)s)
"""
# VACUUM keeps every row version that the oldest of these may still see. A VACUUM's own snapshot does not
# count. PostgreSQL shows a role without pg_read_all_stats neither state nor times of other users' sessions,
# but their age in transactions.
OLDEST_SNAPSHOT = """
    SELECT kind, name, owner, application, COALESCE(state, ''), transactions,
           to_char(since, 'YYYY-MM-DD HH24:MI:SS TZ'),
           CAST(EXTRACT(EPOCH FROM statement_timestamp() - since) AS double precision)
      FROM (SELECT CASE WHEN datname IS NULL THEN 'standby' ELSE 'session' END AS kind,
                   CAST(pid AS text) AS name, CAST(usename AS text) AS owner,
                   application_name AS application, state, xact_start AS since,
                   GREATEST(age(backend_xmin), age(backend_xid)) AS transactions
              FROM pg_stat_activity
             WHERE (datname = current_database() OR datname IS NULL) AND pid <> pg_backend_pid()
               AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
               AND pid NOT IN (SELECT pid FROM pg_stat_progress_vacuum)
             UNION ALL
            SELECT 'prepared', gid, CAST(owner AS text), '', '', prepared, age(transaction)
              FROM pg_prepared_xacts WHERE database = current_database()
             UNION ALL
            SELECT 'slot', CAST(slot_name AS text), '', '', '', NULL, age(xmin)
              FROM pg_replication_slots WHERE xmin IS NOT NULL) AS blockers
     ORDER BY transactions DESC LIMIT 1
"""


def _on_postgresql(alias: str) -> Iterator[Finding]:
    for row in fetch(alias, TABLE, name=NAME):
        table = Table(*row)
        yield from _bloat(table)
        for blocker in (Blocker(*row) for row in fetch(alias, OLDEST_SNAPSHOT)):
            if table.dead >= DEAD_ROWS and blocker.is_old:
                text = f"{NAME} has {counted(table.dead, 'dead row')}. {blocker}: {REASON}"
                yield Finding("snapshot", text, blocker.action)


def _bloat(table: Table) -> Iterator[Finding]:
    waited = table.vacuumed is None or table.vacuumed >= VACUUM_TIMEOUT.total_seconds()
    if table.dead >= max(DEAD_ROWS, table.live) and waited:
        last = "never" if table.vacuumed is None else f"last {_span(table.vacuumed)} ago"
        yield Finding(
            "bloat",
            f"{NAME} has {counted(table.dead, 'dead row')} beside {counted(table.live, 'live row')}, "
            f"and was {last} vacuumed.",
            f"Now: VACUUM {NAME}. Then find out why autovacuum does not run: SHOW autovacuum; is it off for this "
            "table; are all autovacuum_max_workers busy with huge tables (pg_stat_progress_vacuum)?",
        )
    if table.table_bytes >= max(BLOATED_BYTES, table.live * ROW_BYTES):
        yield Finding(
            "bloat",
            f"{NAME} takes {_size(table.table_bytes)} for {counted(table.live, 'row')}. New rows fill it again; "
            "until then it takes disk space, and reads of the whole table are slow.",
            f"If it will not be as full again: VACUUM (TRUNCATE) {NAME} gives back the empty end of the file, and "
            f"stops workers for a moment. VACUUM FULL {NAME} gives back everything; workers stop until it ends.",
        )
    if table.index_bytes >= max(BLOATED_BYTES, table.live * ENTRY_BYTES):
        yield Finding(
            "bloat",
            f"The indexes of {NAME} take {_size(table.index_bytes)} for {counted(table.live, 'row')}.",
            f"REINDEX TABLE CONCURRENTLY {NAME} makes them small while workers continue.",
        )


# -- MariaDB --------------------------------------------------------------------------------------

UNDO = "SHOW GLOBAL STATUS LIKE 'Innodb_history_list_length'"
OLDEST_TRANSACTION = """
    SELECT trx_mysql_thread_id, CAST(trx_started AS char), TIMESTAMPDIFF(SECOND, trx_started, NOW())
      FROM information_schema.innodb_trx ORDER BY trx_started LIMIT 1
"""


def _on_mariadb(alias: str) -> Iterator[Finding]:
    """Yield a finding if MariaDB keeps many old versions. MySQL has no such status variable, so no finding."""
    for _, records in fetch(alias, UNDO):
        blocker = _oldest_transaction(alias) if int(records) >= UNDO_RECORDS else None
        if blocker is not None and blocker.is_old:
            text = f"InnoDB keeps old versions of {counted(int(records), 'change')}. {blocker}: {REASON}"
            yield Finding("snapshot", text, blocker.action)


def _oldest_transaction(alias: str) -> Blocker | None:
    try:
        rows = fetch(alias, OLDEST_TRANSACTION)
    except DatabaseError:  # it needs the PROCESS privilege
        return Blocker("hidden", transactions=SNAPSHOT_TRANSACTIONS)
    for thread, started, seconds in rows:
        return Blocker("connection", str(thread), since=started, seconds=float(seconds))
    return None


def _span(seconds: Any) -> str:
    minutes = int(seconds) // 60
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def _size(number: int) -> str:
    return f"{number / 1024**2:,.0f} MB"
