"""The contenders' databases: fresh ones for each run, on private servers."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import cpu
import psycopg
from servers import MariaDB, Postgres, Server


class Database(Protocol):
    """One kind of database."""

    has_templates: bool
    """Whether a new database can be a copy of another one."""

    def create(self, name: str, template: str) -> str:
        """Make one, and return its URL."""

    def drop(self, name: str) -> None:
        """Drop a database, and end its sessions."""

    def settle(self) -> None:
        """Write out all that is dirty, so that no checkpoint falls into a figure by chance."""

    def ask(self, url: str, sql: str, *parameters: Any) -> Any:
        """Return the first value that a statement yields, if any."""

    def cpu_seconds(self) -> float:
        """Return what the server has used; 0 = it is part of its clients."""


class OnPostgres:
    """PostgreSQL, durable."""

    has_templates = True

    def __init__(self, server: Postgres) -> None:
        self._server = server

    def create(self, name: str, template: str) -> str:
        self._execute(f"CREATE DATABASE {name} TEMPLATE {template or 'template0'}")
        return self._server.url.removesuffix("postgres") + name

    def drop(self, name: str) -> None:
        self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    def settle(self) -> None:
        self._execute("CHECKPOINT")

    def ask(self, url: str, sql: str, *parameters: Any) -> Any:
        with psycopg.connect(url, autocommit=True) as connection:
            cursor = connection.execute(sql, parameters)
            return cursor.fetchone()[0] if cursor.description else None

    def cpu_seconds(self) -> float:
        return _cpu_seconds(self._server)

    def _execute(self, sql: str) -> None:
        with psycopg.connect(self._server.url, autocommit=True) as connection:
            connection.execute(sql)


class OnMariaDB:
    """MariaDB, durable."""

    has_templates = False

    def __init__(self, server: MariaDB) -> None:
        self._server = server

    def create(self, name: str, template: str) -> str:
        self.ask(self._server.url, f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        return self._server.url.removesuffix("test") + name

    def drop(self, name: str) -> None:
        self.ask(self._server.url, f"DROP DATABASE {name}")

    def settle(self) -> None:
        self.ask(self._server.url, "FLUSH LOGS")

    def ask(self, url: str, sql: str, *parameters: Any) -> Any:
        import pymysql

        parts = urlsplit(url)
        with (
            contextlib.closing(
                pymysql.connect(
                    host=parts.hostname,
                    port=parts.port or 3306,
                    user=parts.username,
                    database=parts.path[1:],
                    autocommit=True,
                    ssl_disabled=True,
                )
            ) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(sql, parameters or None)
            found = cursor.fetchone()
            return found[0] if found else None

    def cpu_seconds(self) -> float:
        return _cpu_seconds(self._server)


class OnSQLite:
    """A file in the WAL mode, as the example project has it."""

    has_templates = False

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def create(self, name: str, template: str) -> str:
        return f"sqlite:///{self._directory / name}.sqlite3"

    def drop(self, name: str) -> None:
        for path in self._directory.glob(f"{name}.sqlite3*"):
            path.unlink()

    def settle(self) -> None:
        os.sync()

    def ask(self, url: str, sql: str, *parameters: Any) -> Any:
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            found = connection.execute(sql, parameters).fetchone()
            connection.commit()
            return found[0] if found else None

    def cpu_seconds(self) -> float:
        return 0.0


def _cpu_seconds(server: Server) -> float:
    return sum(cpu.seconds_below(pid, itself=True) for pid in server.home.pids)
