"""The server behind a backend of Django: some speak the protocol of PostgreSQL or MySQL, and are neither."""

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
"""Words of a server's version, and the product that says so."""

POSTGRES_VERSION = "SELECT version()"
MYSQL_VERSION = "SELECT CONCAT(VERSION(), ' ', @@version_comment)"


def other_product(alias: str) -> str | None:
    """Return the name of the product where it is another one than PostgreSQL, MariaDB, MySQL or SQLite; else None.

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
    """Return the product that has this version, if it is another one than the vendor's.

    PostgreSQL, and what is built from its source, says for which machine and by which compiler it was built.
    """
    for word, product in OTHERS.items():
        if word in version:
            return product
    is_own = vendor != "postgresql" or (
        version.startswith("PostgreSQL ") and "compiled by" in version
    )
    return None if is_own else f"a server that calls itself {version[:100]!r}"
