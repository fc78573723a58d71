"""Pieces of SQL that differ between PostgreSQL, MariaDB/MySQL and SQLite. Data only."""

from __future__ import annotations

from typing import NamedTuple

from django.db.backends.base.base import BaseDatabaseWrapper

from django_txtasks.exceptions import UnsupportedDatabase


class Dialect(NamedTuple):
    """Pieces of SQL, put into a statement by name.

    Attributes:
        now: the database's clock. On PostgreSQL it has a time zone, so apply ``at_utc`` before an hour or a day is
            taken from it. ``testing/clock.py`` finds the clock by this text, so other pieces must spell it alike.
        later: the same plus ``%(delay)s`` seconds.
        ago: the same minus ``%(age)s`` seconds.
        spread: a random time for each row, from the time ``%(start)s`` on, within ``%(seconds)s`` seconds.
        just_after: the time ``%(after)s`` plus the smallest step of the database's clock.
        latest: the function that returns the later one of two times.
        edge: the next edge of a grid after ``now``. {width} and {offset} are whole microseconds; see ``Edge``.
        wait: seconds until ``run_after``; zero or less = due.
        since_served, until_held: seconds since a lane was served, and until its hold ends.
        claimed_for: seconds since ``claimed_at``.
        insert_new, or_leave: start and end of an INSERT that skips rows whose key exists already.
        skip_locked: lock the selected rows, and skip rows that another transaction has locked. SQLite has one
            writer at a time, so BEGIN IMMEDIATE has the same effect.
        lock: lock the selected rows; wait for a transaction that has locked them.
        share: keep the selected rows from being changed; wait for a transaction that has locked them to change
            them.
        to_queue, below_priority: the place in the index of pending rows of a queue's highest priority, and of the
            next lower one. PostgreSQL leaves ``status = 'pending'`` out of a search in an index with the same
            condition, and would read the index from its end. It does find the place if the condition compares
            whole rows, also across queues.
        beyond_cursor: the place in that index at which a scan goes on. MariaDB does not use the index to compare
            whole rows.
        waiting: the condition for pending rows among those with an expiry: on PostgreSQL and SQLite, only these
            are in the index. MariaDB's index has all rows with an expiry, and would walk past the others.
        from_id, before_id: the limits of a part within one microsecond. SQLite keeps times as text, which may end
            with milliseconds or microseconds, but it uses the index to compare whole rows.
        utc: the end of the text of a time in UTC.
        at_utc: a conversion of a time to UTC, whatever the time zone of the session.
        sound_id: the condition that an id is valid: SQLite accepts any text as an id.
        by_worker, by_queue, by_expiry, by_stopped, by_finish, by_lane, by_until, by_batch, by_ended, by_end,
            by_root, by_cause: the index to use, whatever the statistics say. PostgreSQL has no such hints; there,
            ``own_transaction(in_order=True)`` has this effect.
        by_key: the primary key. In a small table MariaDB would read and lock all rows.
        delete: the start of a DELETE whose table is followed by ``by_key``.
        by_running_member: the index to use for claimed members of a batch.
        by_last_member: the order of the index of a batch from its end. PostgreSQL might use the primary key for
            an order by the id alone; MariaDB would sort.
        is_failed: the condition of the index of causes: rows that failed, or that are dead or held.
        failed_status: the column of the status in that index, and in the one of dead and held rows. Indexes of
            MariaDB and MySQL have no condition. There, a computed column is empty in all other rows, so that a
            claim changes none of their entries.
        by_last_chance, last_chance, last_chance_at: the index of last chances after a crash, its condition, and
            its time. On MariaDB and MySQL the time is a computed column, which is empty in all other rows.
        max_crashes: that column as a number that may become less than zero.
        text: the type of text, for a cast.
        key, release: the columns ``key`` and ``release``, whose names are reserved words on MariaDB.
        seconds_of_at: the time of the column ``at``, in seconds since 1970.
        name: a task's name, for a comparison: MariaDB would ignore case, and treat NUL as equal to other
            characters.
        json, end_json: start and end of a cast of text to the type of a JSON column.
    """

    now: str
    later: str
    ago: str
    spread: str
    just_after: str
    edge: str
    wait: str
    since_served: str
    until_held: str
    skip_locked: str
    lock: str
    share: str
    to_queue: str = "t.lane = '' AND t.queue_name = %(queue)s"
    below_priority: str = (
        "t.lane = '' AND t.queue_name = %(queue)s AND t.priority < present.priority"
    )
    beyond_cursor: str = "(run_after, id) > (%(mark_time)s, %(mark_id)s)"
    waiting: str = "AND status = 'pending'"
    latest: str = "GREATEST"
    from_id: str = "run_after = %(begin_time)s AND id >= %(begin_id)s"
    before_id: str = "id < %(end_id)s"
    utc: str = ""
    at_utc: str = ""
    is_failed: str = "(cause IS NOT NULL OR status IN ('dead', 'held'))"
    failed_status: str = "status"
    by_last_chance: str = ""
    last_chance: str = "status = 'pending' AND crashes > 0 AND crashes >= max_crashes - 1"
    last_chance_at: str = "run_after"
    max_crashes: str = "max_crashes"
    text: str = "text"
    name: str = "task_name"
    key: str = "key"
    release: str = "release"
    seconds_of_at: str = "EXTRACT(EPOCH FROM at)"
    claimed_for: str = "EXTRACT(EPOCH FROM statement_timestamp()) - EXTRACT(EPOCH FROM claimed_at)"
    sound_id: str = ""
    by_worker: str = ""
    by_queue: str = ""
    by_expiry: str = ""
    by_stopped: str = ""
    by_finish: str = ""
    by_lane: str = ""
    by_until: str = ""
    by_batch: str = ""
    by_last_member: str = "batch DESC, id DESC"
    by_running_member: str = ""
    by_ended: str = ""
    by_end: str = ""
    by_root: str = ""
    by_cause: str = ""
    by_key: str = ""
    delete: str = "DELETE"
    insert_new: str = "INSERT"
    or_leave: str = "ON CONFLICT DO NOTHING"
    json: str = ""
    end_json: str = ""


class _Dialects(dict[str, Dialect]):
    """The dialects by the name that Django gives to the database's vendor."""

    def __missing__(self, vendor: str) -> Dialect:
        raise UnsupportedDatabase(
            f"Tasks do not run on a database of the vendor {vendor!r}, and nothing was written. Use PostgreSQL, "
            "MariaDB, MySQL or SQLite: name such an alias by using=, or by a router that keeps the app 'txtasks' "
            "away from other databases."
        )


_SQLITE_NOW = "strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now'{})"
_MYSQL_SHIFT = "UTC_TIMESTAMP(6) {} INTERVAL ROUND(%({})s * 1000000) MICROSECOND"
_INDEXES = {
    "by_last_chance": "txtasks_last_chance",
    "by_worker": "txtasks_claimed",
    "by_queue": "txtasks_pending",
    "by_expiry": "txtasks_expires",
    "by_stopped": "txtasks_stopped",
    "by_finish": "txtasks_finished_at",
    "by_until": "txtasks_once_until",
    "by_batch": "txtasks_in_batch",
    "by_ended": "txtasks_of_batch",
    "by_end": "txtasks_batch_end",
    "by_root": "txtasks_batch_root",
    "by_cause": "txtasks_cause",
}
"""The indexes that MariaDB, MySQL and SQLite are told to use for the same piece."""
DIALECTS = _Dialects(
    postgresql=Dialect(
        now="statement_timestamp()",
        later="statement_timestamp() + make_interval(secs => %(delay)s)",
        ago="statement_timestamp() - make_interval(secs => %(age)s)",
        spread="CAST(%(start)s AS timestamptz) + make_interval(secs => %(seconds)s * random())",
        just_after="CAST(%(after)s AS timestamptz) + interval '1 microsecond'",
        edge=(
            "statement_timestamp() + ({width} - MOD("
            "CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS bigint)"
            " + {width} - {offset}, {width})) * INTERVAL '1 microsecond'"
        ),
        # two numbers, because PostgreSQL cannot subtract times from '-infinity', which a person may have written;
        # date_part, because EXTRACT is numeric: a Decimal takes Python 0.2 us more for each row
        wait="date_part('epoch', run_after) - date_part('epoch', statement_timestamp())",
        since_served="EXTRACT(EPOCH FROM statement_timestamp()) - EXTRACT(EPOCH FROM served_at)",
        until_held="EXTRACT(EPOCH FROM held_until) - EXTRACT(EPOCH FROM statement_timestamp())",
        skip_locked="FOR NO KEY UPDATE SKIP LOCKED",
        lock="FOR NO KEY UPDATE",
        share="FOR SHARE",
        to_queue="(t.status, t.lane, t.queue_name) <= ('pending', '', %(queue)s)",
        below_priority=(
            "(t.status, t.lane, t.queue_name, t.priority) < ('pending', '', %(queue)s, present.priority)"
        ),
        json="CAST(",
        end_json=" AS jsonb)",
        utc="+00",
        at_utc=" AT TIME ZONE 'UTC'",
    ),
    mysql=Dialect(
        **{piece: f"FORCE INDEX ({index})" for piece, index in _INDEXES.items()},
        now="UTC_TIMESTAMP(6)",
        later=_MYSQL_SHIFT.format("+", "delay"),
        ago=_MYSQL_SHIFT.format("-", "age"),
        spread=(
            "CAST(%(start)s AS datetime(6)) + INTERVAL ROUND(%(seconds)s * RAND() * 1000000) MICROSECOND"
        ),
        just_after="CAST(%(after)s AS datetime(6)) + INTERVAL 1 MICROSECOND",
        edge=(
            "UTC_TIMESTAMP(6) + INTERVAL ({width} - MOD(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
            " + {width} - {offset}, {width})) MICROSECOND"
        ),
        wait="TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), run_after) / 1e6",
        since_served="TIMESTAMPDIFF(MICROSECOND, served_at, UTC_TIMESTAMP(6)) / 1000000",
        until_held="TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), held_until) / 1000000",
        insert_new="INSERT IGNORE",
        or_leave="",
        skip_locked="FOR UPDATE SKIP LOCKED",
        lock="FOR UPDATE",
        share="LOCK IN SHARE MODE",
        waiting="",
        beyond_cursor="run_after >= %(mark_time)s AND (run_after > %(mark_time)s OR id > %(mark_id)s)",
        is_failed="failed_status IS NOT NULL",
        failed_status="failed_status",
        last_chance="last_chance_at IS NOT NULL",
        last_chance_at="last_chance_at",
        max_crashes="CAST(max_crashes AS signed)",
        text="char",
        by_lane="FORCE INDEX (txtasks_pending)",
        by_last_member="id DESC",
        by_running_member="FORCE INDEX (txtasks_in_batch)",
        by_key="FORCE INDEX (PRIMARY)",
        delete="DELETE txtasks_task",
        name="CAST(task_name AS BINARY)",
        key="`key`",
        release="`release`",
        seconds_of_at="TIMESTAMPDIFF(MICROSECOND, '1970-01-01', at) / 1000000",
        claimed_for="TIMESTAMPDIFF(MICROSECOND, claimed_at, UTC_TIMESTAMP(6)) / 1000000",
    ),
    sqlite=Dialect(
        **{piece: f"INDEXED BY {index}" for piece, index in _INDEXES.items()},
        now=_SQLITE_NOW.format(""),
        later=_SQLITE_NOW.format(", %(delay)s || ' seconds'"),
        ago=_SQLITE_NOW.format(", -%(age)s || ' seconds'"),
        spread=(
            "strftime('%%Y-%%m-%%d %%H:%%M:%%f', %(start)s,"
            " (%(seconds)s * (random() & 1048575) / 1048576.0) || ' seconds')"
        ),
        just_after="strftime('%%Y-%%m-%%d %%H:%%M:%%f', %(after)s, '+0.001 seconds')",
        latest="MAX",
        edge=_SQLITE_NOW.format(
            ", printf('%%.6f seconds', ({width} - ("
            "CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000"
            " + {width} - {offset}) %% {width}) / 1000000.0)"
        ),
        wait="COALESCE((julianday(run_after) - julianday('now')) * 86400.0, 1e9)",
        since_served="(julianday('now') - julianday(served_at)) * 86400.0",
        until_held="(julianday(held_until) - julianday('now')) * 86400.0",
        seconds_of_at="(julianday(at) - 2440587.5) * 86400.0",
        claimed_for="(julianday('now') - julianday(claimed_at)) * 86400.0",
        skip_locked="",
        lock="",
        share="",
        from_id="(run_after, id) >= (%(begin_time)s, %(begin_id)s)",
        before_id="(run_after, id) < (%(begin_time)s, %(end_id)s)",
        sound_id="AND length(id) = 32 AND id NOT GLOB '*[^0-9a-f]*'",
        by_lane="INDEXED BY txtasks_in_lane",
        by_running_member="INDEXED BY txtasks_claimed",
    ),
)


def dialect_of(connection: BaseDatabaseWrapper) -> Dialect:
    """Return the pieces for this connection's database.

    Raises:
        UnsupportedDatabase: tasks do not run on this database.
    """
    return DIALECTS[connection.vendor]
