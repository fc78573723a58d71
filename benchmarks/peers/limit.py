"""The limit of the database: claim a batch in one statement, call a no-op for each, delete them in one
statement.

It has no fence, no policy, no errors and no waits. A task queue on this table and server cannot be faster
with such a batch.
"""

from __future__ import annotations

import os
import random
import uuid

import psycopg
import records

from peers.txtasks import prepare

__all__ = ["copy", "enqueue", "prepare", "work"]

# As this package writes them: ids in the order of time, one default for each column.
FILL = """
    INSERT INTO txtasks_task (id, task_name, args, on_crash)
    SELECT CAST(lpad(to_hex(1792000000000 + n), 12, '0') || '7' || substr(md5(CAST(n AS text)), 1, 3)
                || '8' || substr(md5(CAST(n AS text)), 4, 15) AS uuid),
           'bench.tasks.idempotent', jsonb_build_array(n), 'retry'
      FROM generate_series(0, %s - 1) AS n
"""
COPY = """
    COPY txtasks_task (id, task_name, queue_name, priority, args, kwargs, max_attempts, max_crashes,
                       on_crash, hooks) FROM STDIN
"""
CLAIM = """
    UPDATE txtasks_task SET status = 'claimed', attempt = attempt + 1, worker = %(worker)s,
           claimed_at = statement_timestamp(), started_at = statement_timestamp()
     WHERE id IN (SELECT id FROM txtasks_task
                   WHERE status = 'pending' AND lane = '' AND queue_name = 'default' AND priority = 0
                     AND run_after <= statement_timestamp()
                   ORDER BY run_after, id LIMIT %(batch)s FOR UPDATE SKIP LOCKED)
    RETURNING id, task_name, args
"""
DELETE = "DELETE FROM txtasks_task WHERE id = ANY(%s) AND status = 'claimed'"
WORKER = "00000000-0000-7000-8000-000000000000"


def enqueue(count: str) -> None:
    """Write ``count`` rows."""
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        connection.execute(FILL, [int(count)])


def copy(count: str) -> None:
    """Write ``count`` rows by COPY, 5,000 per transaction, from a text that was prepared before."""
    texts = [_text(start, min(start + 5000, int(count))) for start in range(0, int(count), 5000)]
    with (
        psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection,
        records.timed(),
    ):
        for text in texts:
            with connection.cursor().copy(COPY) as into:
                into.write(text)


def _text(start: int, end: int) -> str:
    return "".join(
        f"{uuid.UUID(int=(1792000000000 + n << 80) | 7 << 76 | 2 << 62 | random.getrandbits(60))}"
        f"\tbench.tasks.idempotent\tdefault\t0\t[{n}]\t{{}}\t5\t3\tretry\t{{}}\n"
        for n in range(start, end)
    )


def work(_processes: str, option: str) -> None:
    """Run all tasks, ``--batch=`` at a time, in this process."""
    parameters = {"worker": WORKER, "batch": int(option.removeprefix("--batch="))}
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        while rows := connection.execute(CLAIM, parameters).fetchall():
            for _, _, args in rows:
                records.write(*args)
            connection.execute(DELETE, [[row[0] for row in rows]])
