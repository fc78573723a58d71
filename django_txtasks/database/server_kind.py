"""The product behind a backend of Django: some servers use PostgreSQL's or MySQL's protocol, but are neither."""

from __future__ import annotations

from django.db import connections

from django_txtasks.database.execute import fetch_value

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

POSTGRES_VERSION = "SELECT version()"
MYSQL_VERSION = "SELECT CONCAT(VERSION(), ' ', @@version_comment)"
MAX_CONNECTIONS = {
    "postgresql": "SELECT CAST(current_setting('max_connections') AS int)",
    "mysql": "SELECT @@max_connections",
}


def other_product(alias: str) -> str | None:
    """Return the name of the product; None = it is PostgreSQL, MariaDB, MySQL or SQLite.

    Raises:
        DatabaseError: the server cannot be asked.
    """
    vendor = connections[alias].vendor
    if vendor == "postgresql":
        return product_of(vendor, str(fetch_value(alias, POSTGRES_VERSION)))
    if vendor == "mysql":
        return product_of(vendor, str(fetch_value(alias, MYSQL_VERSION)))
    return None


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
