"""The product behind a backend of Django: some servers use PostgreSQL's or MySQL's protocol, but are neither."""

from __future__ import annotations

from typing import Any

from django.db import connections

from django_txtasks.database.execute import fetch_value
from django_txtasks.exceptions import UnsupportedDatabase

OTHERS = {
    "CockroachDB": "CockroachDB",
    "-YB-": "YugabyteDB",
    "DSQL": "Aurora DSQL",
    "Redshift": "Redshift",
    "TiDB": "TiDB",
    "OceanBase": "OceanBase",
    "Vitess": "Vitess",
    "SingleStore": "SingleStore",
}
"""Words in a server's version, and the products that they identify."""

VERSION = {
    "postgresql": "SELECT version()",
    "mysql": "SELECT CONCAT(VERSION(), ' ', @@version_comment)",
}
MAX_CONNECTIONS = {
    "postgresql": "SELECT CAST(current_setting('max_connections') AS int)",
    "mysql": "SELECT @@max_connections",
}

_genuine: set[str] = set()
"""Aliases whose server this process has asked for its version."""


def refuse_other_product(alias: str) -> None:
    """Ask the server for its version before this process enqueues there for the first time.

    The driver runs this statement, so Django neither counts nor logs it.

    Raises:
        UnsupportedDatabase: it is another product.
        DatabaseError: there is no connection.
    """
    if alias in _genuine:
        return
    wrapper: Any = connections[alias]
    if (sql := VERSION.get(wrapper.vendor)) is not None:
        wrapper.ensure_connection()
        try:
            with wrapper.connection.cursor() as cursor:
                cursor.execute(sql)
                (version,) = cursor.fetchone()
        except wrapper.Database.Error:
            return  # the session is broken: the INSERT raises the error as Django does
        if product := product_of(wrapper.vendor, str(version)):
            raise UnsupportedDatabase(
                f"Database {alias!r} is {product}, on which tasks do not run, because it locks rows differently. "
                "Nothing was written. Use PostgreSQL, MariaDB, MySQL or SQLite: name such an alias by using=, or "
                "by a router that keeps the app 'txtasks' away from other databases."
            )
    _genuine.add(alias)


def other_product(alias: str) -> str | None:
    """Return the name of the product; None = it is PostgreSQL, MariaDB, MySQL or SQLite.

    Raises:
        DatabaseError: the server cannot be asked.
    """
    vendor = connections[alias].vendor
    sql = VERSION.get(vendor)
    return None if sql is None else product_of(vendor, str(fetch_value(alias, sql)))


def product_of(vendor: str, version: str) -> str | None:
    """Return the product that has this version; None = it is the vendor's own.

    PostgreSQL, and products built from its source, name the machine and the compiler in their version.
    """
    for word, product in OTHERS.items():
        if word in version:
            return product
    is_own = vendor != "postgresql" or (
        version.startswith("PostgreSQL ") and "compiled by" in version
    )
    return None if is_own else f"a server that calls itself {version[:100]!r}"


def max_connections(alias: str) -> int | None:
    """Return the highest number of sessions of the server; None = SQLite, which has no sessions.

    Raises:
        DatabaseError: the server cannot be asked.
    """
    sql = MAX_CONNECTIONS.get(connections[alias].vendor)
    return None if sql is None else int(fetch_value(alias, sql))
