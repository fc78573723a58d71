"""Values that the server decides and tasks rely on. docs/reference/server-settings.md has all settings."""

from __future__ import annotations

from collections.abc import Iterator

from django.apps import apps
from django.db import connections

from django_txtasks.core.ground.wording import counted
from django_txtasks.database.execute import fetch, fetch_column, fetch_value
from django_txtasks.insight.finding import Finding
from django_txtasks.models import exact_collation

MOST_NAMES = 3
SESSION_TEXT = "SELECT @@character_set_client, @@character_set_connection, @@character_set_results"
OTHER_ENGINES = """
    SELECT table_name FROM information_schema.tables
     WHERE table_schema = DATABASE() AND table_name {in_tables} AND table_type = 'BASE TABLE'
       AND engine <> 'InnoDB' ORDER BY table_name
"""
# JSON columns have a character set of their own, and ids have digits only.
OTHER_TEXTS = """
    SELECT CONCAT(table_name, '.', column_name) FROM information_schema.columns
     WHERE table_schema = DATABASE() AND table_name {in_tables}
       AND (data_type = 'varchar' AND collation_name <> %(collation)s
            OR data_type = 'longtext' AND character_set_name <> 'utf8mb4')
     ORDER BY table_name, column_name
"""

BAD_MODES = {
    "ORACLE": "changes the language: workers cannot claim tasks",
    "EMPTY_STRING_IS_NULL": "stores no empty text: no worker can register",
}
"""The values of MariaDB's ``sql_mode`` that stop workers, with the reason."""


def findings(alias: str) -> list[Finding]:
    """Return what the server of a database decides otherwise than tasks need it.

    Raises:
        DatabaseError: the server cannot be asked.
    """
    by_vendor = {"postgresql": _of_postgresql, "mysql": _of_mysql}
    reader = by_vendor.get(connections[alias].vendor)
    return [] if reader is None else list(reader(alias))


def _of_postgresql(alias: str) -> Iterator[Finding]:
    encoding = fetch_value(alias, "SELECT current_setting('server_encoding')")
    if encoding != "UTF8":
        yield Finding(
            "encoding",
            f"has the encoding {encoding}: a task whose arguments, result or error have other letters cannot be "
            "written, and the error ends the caller's transaction.",
            "Move the data to a database of CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0.",
        )


def _of_mysql(alias: str) -> Iterator[Finding]:
    (of_session,) = fetch(alias, SESSION_TEXT)
    if others := sorted({*of_session} - {"utf8mb4"}):
        yield Finding(
            "session",
            f"has sessions of the character set {' and '.join(map(str, others))}: other letters are lost.",
            "Set 'charset': 'utf8mb4' in OPTIONS of this entry of DATABASES.",
        )
    modes = str(fetch_value(alias, "SELECT @@sql_mode"))
    for mode, effect in BAD_MODES.items():
        if mode in modes:
            yield Finding(
                "mode",
                f"has sessions in the sql_mode {mode}, which {effect}.",
                f"Remove {mode} from sql_mode, for the server or in OPTIONS of this entry of DATABASES.",
            )
    if fetch_value(alias, "SELECT @@sql_safe_updates OR NOT @@sql_big_selects"):
        yield Finding(
            "guards",
            "has sessions with sql_safe_updates, or without sql_big_selects, such as by a max_join_size. They "
            "refuse statements of cleaners and pages.",
            "Turn sql_safe_updates off and sql_big_selects on, for the server or in OPTIONS of this entry of "
            "DATABASES.",
        )
    if tables := fetch_column(alias, OTHER_ENGINES, tables=_own_tables()):
        yield Finding(
            "engine",
            f"has {counted(len(tables), 'table')} without transactions: {_some(tables)}. A task would stay "
            "although the transaction that enqueued it was rolled back.",
            "Run for each of them: ALTER TABLE … ENGINE = InnoDB.",
        )
    collation = exact_collation(connections[alias])
    if columns := fetch_column(alias, OTHER_TEXTS, tables=_own_tables(), collation=collation):
        yield Finding(
            "columns",
            f"has {counted(len(columns), 'text column')} of another character set or collation: {_some(columns)}. "
            "An enqueue with other letters fails in the caller's transaction, or similar names count as one.",
            f"Run manage.py migrate --database {alias}. If all migrations are applied, somebody has converted the "
            f"tables: give the columns CHARACTER SET utf8mb4 COLLATE {collation} again, by ALTER TABLE … MODIFY.",
        )


def _own_tables() -> list[str]:
    """Return the tables of the package's models; a site may have others with such names."""
    ours = (one for one in apps.get_models() if one.__module__.startswith("django_txtasks."))
    return sorted({one._meta.db_table for one in ours})


def _some(names: list[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join([*names[:MOST_NAMES], *([f"and {more} more"] if more > 0 else [])])
