"""The SQL text of a task without options, from its INSERT to its end, as ``tests/golden`` keeps it.

A change of the package that is not meant to change a statement leaves these files as they are. If a statement is
meant to change, this writes the files, and their diff shows the change:

    TXTASKS_WRITE_GOLDEN=1 python tests/services.py -- python tests/every_database.py tests/test_golden_sql.py
"""

import os
import re
from contextlib import contextmanager
from pathlib import Path

import helpers
import pytest
from django.db import connection
from probe import tasks

from django_txtasks import enqueue_many
from django_txtasks.conf import get_config
from django_txtasks.core.cleaning.cleaner import Cleaner
from django_txtasks.core.rows.attempts import Arrow, Ended
from django_txtasks.core.rows.turn import Capacity
from django_txtasks.core.working.running.verdicts import failed
from django_txtasks.core.working.schedule import Plan
from django_txtasks.database import transactions

pytestmark = pytest.mark.usefixtures("rows")
GOLDEN = Path(__file__).parent / "golden"


class Recorder:
    """A cursor that notes each text, in the order in which a part of a task's life first sends it."""

    def __init__(self, cursor, seen):
        self._cursor, self._seen = cursor, seen

    def __getattr__(self, name):
        return getattr(self._cursor, name)

    def __enter__(self):
        self._cursor.__enter__()
        return self

    def __exit__(self, *error):
        return self._cursor.__exit__(*error)

    def execute(self, sql, params=None):
        self._seen.append(plain(sql))
        return self._cursor.execute(sql, params)


def plain(sql):
    """Return a statement in lines of one clause, with lists of parameters and numbers of savepoints shortened."""
    text = sql if isinstance(sql, str) else sql.decode()
    text = re.sub(r"\((%\(\w+?)_0\)s(, %\(\w+_\d+\)s)*\)", r"(\1…)s)", " ".join(text.split()))
    text = re.sub(r"(?i)(savepoint \W?s)\w+", r"\1…", text)
    return re.sub(
        r" (FROM|WHERE|AND|SET|VALUES|ORDER|RETURNING|SELECT|LIMIT|JOIN|UNION)\b", r"\n    \1", text
    )


@contextmanager
def recorded(seen):
    make = connection.make_cursor
    connection.make_cursor = lambda cursor: Recorder(make(cursor), seen)
    try:
        yield
    finally:
        del connection.make_cursor


def life(found):
    """Note the statements of each part of a task's life, with a title."""
    writer = helpers.turn_writer(threads=4)

    @contextmanager
    def part(title):
        with recorded(seen := []):
            yield
        found[title] = list(dict.fromkeys(seen))

    def turn(**plan):
        return writer.write(Plan(Capacity(4), **plan), helpers.Running(), None).claimed

    turn()  # registers
    with part("enqueue_task()"):
        first = tasks.note.enqueue()
    with part("a turn that beats"):
        turn()
    with part("a turn that claims by id"):
        (claimed,) = turn(hinted=[first.id])
    writer.buffer.add([Ended(attempt=claimed, arrow=Arrow.FINISH)])
    with part("a turn that records an end"):
        turn()
    enqueue_many([(tasks.note, ())] * 2)
    with part("the first turn that scans"):
        one, another = turn(scans=True)
    writer.buffer.add([Ended(attempt=one, arrow=Arrow.FINISH)])
    with part("a turn that records an end and scans"):
        turn(scans=True)
    writer.buffer.add([failed(another, ValueError("no"), get_config())])
    with part("a turn that records a failure"):
        turn()
    with part("enqueue_many() of a few"):
        enqueue_many([(tasks.note, ())] * 2)
    turn(scans=True)
    helpers.execute("UPDATE txtasks_worker SET lost = %s", True)
    with part("a cleaner that rescues what a lost worker had"):
        Cleaner(get_config()).run_once()


@pytest.mark.about("one_statement")
@pytest.mark.about("two_blocks")
def test_a_task_without_options_costs_the_statements_of_the_golden_file(monkeypatch, txtasks):
    txtasks(
        stats=False
    )  # a turn sends the same with figures; those of a cleaner depend on Django's release
    monkeypatch.setattr(transactions, "_runs_again", {})  # a process asks a server once
    file = GOLDEN / f"{connection.display_name.lower()}.sql"
    found = {}
    life(found)
    text = "\n\n\n".join(
        f"-- {title}\n\n" + ";\n\n".join(seen) + ";" for title, seen in found.items()
    )
    if os.environ.get("TXTASKS_WRITE_GOLDEN"):
        file.write_text(text + "\n")
    assert text + "\n" == file.read_text()
