"""A site with a very large history and backlog, made in steps that can be resumed.

A step notes in the database that it is done, in the transaction of its rows: see ``Notes``.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any

import django

from peers import txtasks, txtasks_pages

TABLES = ("txtasks_finishedtask", "txtasks_task")
PARTS = {
    "finished": (txtasks_pages.FINISHED, timedelta(days=30)),
    "live": (txtasks_pages.LIVE, timedelta(hours=1)),
}
"""The statement for the rows of a table, and the age of its oldest row."""
WRITERS = 3
"""Sessions that write rows. The number must not change until all rows are written."""
# Ids as this package makes them: in the order of time. Rows are written in this order, too.
_ID = {
    "postgresql": """CAST(lpad(to_hex({ms}), 12, '0') || '7' || substr(md5(CONCAT('{salt}', n)), 1, 3)
                   || '8' || substr(md5(CONCAT('{salt}', n)), 4, 15) AS uuid)""",
    "mysql": """CAST(CONCAT(LPAD(HEX({ms}), 12, '0'), '7', SUBSTR(MD5(CONCAT('{salt}', n)), 1, 3),
                   '8', SUBSTR(MD5(CONCAT('{salt}', n)), 4, 15)) AS uuid)""",
}
_MOMENT = {
    "postgresql": "to_timestamp(CAST({ms} AS float8) / 1000)",
    "mysql": "'1970-01-01' + INTERVAL ({ms}) * 1000 MICROSECOND",
}
_INDEXES = """
    SELECT i.relname, pg_get_indexdef(x.indexrelid), COALESCE(pg_get_constraintdef(c.oid), '')
      FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
      LEFT JOIN pg_constraint c ON c.conindid = x.indexrelid
     WHERE x.indrelid = CAST(%s AS regclass)
"""


class Notes:
    """What is done, in a table of the database that is filled."""

    def __init__(self) -> None:
        execute(
            "CREATE TABLE IF NOT EXISTS big_note (name varchar(100) PRIMARY KEY, said text NOT NULL)"
        )

    def __getitem__(self, name: str) -> Any:
        """Return what was noted; None = nothing."""
        found = execute("SELECT said FROM big_note WHERE name = %s", name)
        return json.loads(found[0][0]) if found else None

    def __setitem__(self, name: str, said: object) -> None:
        execute("DELETE FROM big_note WHERE name = %s", name)
        execute("INSERT INTO big_note (name, said) VALUES (%s, %s)", name, json.dumps(said))

    @contextmanager
    def step(self, name: str) -> Iterator[bool]:
        """Note the seconds of a block that may be repeated; give False if it is done: then it must do nothing."""
        begin, is_open = time.monotonic(), self[name] is None
        yield is_open
        if is_open:
            self[name] = round(time.monotonic() - begin, 1)
            tell(f"{name}: {self[name]} s")


def execute(sql: str, *params: object) -> Any:
    """Run a statement in Django's session; return its rows, if it has rows."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(sql, params or None)
        return cursor.fetchall() if cursor.description else []


def tell(line: str) -> None:
    """Print a line with the time."""
    print(f"{datetime.now(timezone.utc):%H:%M:%S} {line}", flush=True)


def build(live: str, finished: str, chunk: str) -> None:
    """Make the tables and their rows; go on where the last call was stopped. A transaction has ``chunk`` rows."""
    txtasks.prepare()
    from django.db import connection

    notes, is_postgres = Notes(), connection.vendor == "postgresql"
    with notes.step("site") as is_open:
        if is_open:
            _make_site(notes)
    is_large = int(live) + int(finished) > 0
    if is_postgres and is_large:
        _drop_indexes(notes)
    for name, count in (("finished", int(finished)), ("live", int(live))):
        _fill(notes, name, count, int(chunk))
    if is_postgres and is_large:
        _make_indexes(notes)
    with notes.step("vacuum") as is_open:
        if is_open:
            txtasks_pages.vacuum()
            for table in TABLES if is_postgres else ():
                execute(f"ALTER TABLE {table} RESET (autovacuum_enabled)")


def _make_site(notes: Notes) -> None:
    from django.db import connection, transaction
    from django.utils import timezone as moments

    from django_txtasks.models import Cleaner, Worker

    with transaction.atomic():
        if connection.vendor == "postgresql":
            for table in TABLES:
                execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        for model in (Worker, Cleaner):
            model.objects.all().delete()
        workers = [txtasks_pages._worker() for _ in range(8)]
        Worker.objects.bulk_create(workers)
        Cleaner.objects.create(
            id=uuid.uuid4(), host="web-1", pid=8, interval=30.0, lease=86400.0,
            passed_at=moments.now(),
        )  # fmt: skip
        txtasks_pages._fill_statistics()
        notes["worker"] = str(workers[0].pk)
        notes["begin"] = moments.now().isoformat()


def _fill(notes: Notes, name: str, count: int, chunk: int) -> None:
    """Write the rows of a table. Sessions take turns with its chunks."""
    from django.db import connection, transaction

    copies = name == "finished" and connection.vendor == "postgresql"
    begun, milliseconds = time.monotonic(), int(PARTS[name][1].total_seconds() * 1000)
    generated = _generated(notes, name, max(1, count))
    if copies and notes["seed"] is None:
        with transaction.atomic():
            execute(generated, 1, min(count, chunk))
            execute("CREATE TABLE big_seed AS SELECT * FROM txtasks_finishedtask")
            notes["seed"], notes[f"{name}, chunks of writer 0"] = chunk, 1

    def write(writer: int) -> None:
        note = f"{name}, chunks of writer {writer}"
        done = notes[note] or 0
        for number in range(writer, -(-count // chunk), WRITERS):
            if number < done:
                continue
            first, last = number * chunk + 1, min(count, (number + 1) * chunk)
            with transaction.atomic():
                if copies:
                    execute(_copied(milliseconds * number * chunk // count), last - first + 1)
                else:
                    execute(generated, first, last)
                notes[note] = number + 1
            tell(f"{name}: rows {first:,} to {last:,}, {time.monotonic() - begun:.0f} s")
        connection.close()

    with ThreadPoolExecutor(WRITERS) as threads:
        for one in [threads.submit(write, writer) for writer in range(WRITERS)]:
            one.result()


def _generated(notes: Notes, name: str, count: int) -> str:
    """Return the statement that makes the rows of two numbers and of those between."""
    from django.db import connection

    statement, span = PARTS[name]
    milliseconds = int(span.total_seconds() * 1000)
    begin = int(datetime.fromisoformat(notes["begin"]).timestamp() * 1000) - milliseconds
    at = f"{begin} + n * CAST({milliseconds} AS bigint) / {count}"
    if connection.vendor == "mysql":
        at = f"{begin} + n * {milliseconds} DIV {count}"
    worker = uuid.UUID(notes["worker"])
    pieces = {
        **txtasks_pages.PIECES[connection.vendor],
        "id": _ID[connection.vendor].format(ms=at, salt=name),
        "long_ago": _MOMENT[connection.vendor].format(ms=at),
    }
    pieces["worker"] = pieces["worker"].format(worker=worker, hex=worker.hex)
    return statement.format(
        **pieces, queues=txtasks_pages.QUEUES, functions=txtasks_pages.FUNCTIONS,
        lanes=txtasks_pages.LANES, causes=txtasks_pages.CAUSES,
    )  # fmt: skip


def _copied(milliseconds: int) -> str:
    """Return the statement that writes a number of rows of the first chunk again, later by this time.

    That takes less than half of the time in which rows are generated.
    """
    from django.db import models

    from django_txtasks.models import FinishedTask

    columns = {}
    for field in FinishedTask._meta.concrete_fields:
        columns[field.column] = field.column
        if isinstance(field, models.DateTimeField):
            columns[field.column] = f"{field.column} + interval '{milliseconds} milliseconds'"
    moment = f"CAST(date_part('epoch', finished_at) * 1000 AS bigint) + {milliseconds}"
    columns["id"] = f"CAST(lpad(to_hex({moment}), 12, '0') || substr(CAST(id AS text), 14) AS uuid)"
    return (
        f"INSERT INTO txtasks_finishedtask ({', '.join(columns)})"
        f" SELECT {', '.join(columns.values())} FROM big_seed LIMIT %s"
    )


def _drop_indexes(notes: Notes) -> None:
    from django.db import transaction

    if notes["indexes"] is not None:
        return
    found = [[table, *row] for table in TABLES for row in execute(_INDEXES, table)]
    # no row of history meets these conditions, so they cost nothing
    found = [one for one in found if one[0] != TABLES[0] or " WHERE " not in one[2]]
    with transaction.atomic():
        for table, name, _, constraint in found:
            drop = f"ALTER TABLE {table} DROP CONSTRAINT" if constraint else "DROP INDEX"
            execute(f"{drop} {name}")
        notes["indexes"] = found


def _make_indexes(notes: Notes) -> None:
    from django.db import connection, transaction

    def make(table: str, name: str, definition: str, constraint: str) -> None:
        with transaction.atomic(), notes.step(f"index {name}") as is_open:
            if is_open:
                add = f"ALTER TABLE {table} ADD CONSTRAINT {name} {constraint}"
                execute(add if constraint else definition)

    def make_in_thread(one: list[str]) -> None:
        make(*one)
        connection.close()

    for one in notes["indexes"]:
        if one[3]:  # it locks the table against the others
            make(*one)
    with ThreadPoolExecutor(WRITERS) as threads:
        others = [one for one in notes["indexes"] if not one[3]]
        for done in [threads.submit(make_in_thread, one) for one in others]:
            done.result()


def prepare() -> None:
    """Do nothing: ``build`` does it."""


def notes_as_json(path: str) -> None:
    """Write all notes for the benchmark."""
    django.setup()
    Notes()
    found = {name: json.loads(said) for name, said in execute("SELECT name, said FROM big_note")}
    with open(path, "w") as file:
        json.dump(found, file)
