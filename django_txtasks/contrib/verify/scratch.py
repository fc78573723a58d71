"""The scratch database: created on the user's server for one storm, and dropped after it.

The only statements that go elsewhere are its CREATE and DROP, and the ends of its own sessions.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError, InterfaceError, OperationalError, connections

from django_txtasks.database.dialect import DIALECTS
from django_txtasks.exceptions import ScratchRefused

ALIAS = "txtasks_verify"
"""Alias of the scratch database in this process. The user's settings do not have this name."""
NAME = re.compile(r"txtasks_verify_[0-9a-f]{12}")
DROP_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class _Server:
    """Statements that servers spell differently. ``{name}`` is checked against NAME first."""

    create: str
    drop: str
    sessions: str
    end_session: str
    grant: str


_SERVERS = {
    "postgresql": _Server(
        create='CREATE DATABASE "{name}"',
        drop='DROP DATABASE IF EXISTS "{name}" WITH (FORCE)',
        sessions="SELECT pid FROM pg_stat_activity WHERE datname = %s",
        end_session="SELECT pg_terminate_backend({session})",
        grant='ALTER ROLE "{user}" CREATEDB',
    ),
    "mysql": _Server(
        create="CREATE DATABASE `{name}` CHARACTER SET utf8mb4",
        drop="DROP DATABASE IF EXISTS `{name}`",
        sessions="SELECT id FROM information_schema.processlist WHERE db = %s",
        end_session="KILL {session}",
        grant="GRANT ALL ON `txtasks\\_verify\\_%`.* TO '{user}'@'%'",
    ),
}


class Scratch:
    """A scratch database, which exists inside a ``with`` block, on the server of ``alias``.

    Attributes:
        name: name of the database, or path of SQLite's file.
        is_server: True if it has sessions that can be ended.
    """

    def __init__(self, alias: str, token: str) -> None:
        self.alias = alias
        self.vendor = connections[alias].vendor
        self.name = f"txtasks_verify_{token}"
        if not NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is not the name of a scratch database")
        self.is_server = self.vendor != "sqlite"
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Scratch:
        if self.is_server:
            self._create()
        else:
            self._directory = tempfile.TemporaryDirectory(prefix="txtasks-verify-")
            self.name = os.path.join(self._directory.name, f"{self.name}.sqlite3")
        entry = connections[self.alias].settings_dict
        options = {key: value for key, value in entry["OPTIONS"].items() if key != "pool"}
        connections.settings[ALIAS] = {**entry, "NAME": self.name, "OPTIONS": options}
        return self

    def __exit__(self, *_: object) -> None:
        connections[ALIAS].close()
        del connections[ALIAS]
        del connections.settings[ALIAS]
        if self._directory is not None:
            self._directory.cleanup()
        else:
            self._at_server(self._server.drop.format(name=self.name))

    def query(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        """Query the scratch database, and repeat until it answers."""
        return self._ask(ALIAS, sql, params)

    @property
    def now(self) -> str:
        """The database's clock, in SQL."""
        return DIALECTS[self.vendor].now.replace("%%", "%")

    def sessions(self) -> list[int]:
        """Return the ids of the sessions in the scratch database, without this process's own."""
        if not self.is_server:
            return []
        connections[ALIAS].close()
        return [session for (session,) in self._at_server(self._server.sessions, self.name)]

    def end_sessions(self) -> int:
        """End all sessions in the middle of their work; return their number."""
        sessions = self.sessions()
        for session in sessions:
            with contextlib.suppress(OperationalError):  # it has just ended
                self._at_server(self._server.end_session.format(session=int(session)))
        return len(sessions)

    @property
    def version(self) -> str:
        """The server and its version, for people."""
        connection = connections[self.alias]
        connection.ensure_connection()
        is_mariadb = getattr(connection, "mysql_is_mariadb", False)
        numbers = ".".join(map(str, connection.get_database_version()))
        return f"{'MariaDB' if is_mariadb else connection.display_name} {numbers}"

    @property
    def _server(self) -> _Server:
        return _SERVERS[self.vendor]

    def _create(self) -> None:
        try:
            with connections[self.alias].cursor() as cursor:
                cursor.execute(self._server.create.format(name=self.name))
        except DatabaseError as error:
            user = connections[self.alias].settings_dict["USER"]
            raise ScratchRefused(
                f"The scratch database {self.name} could not be created on the server of "
                f"DATABASES[{self.alias!r}]: {str(error).strip()}. Nothing was changed. "
                f"Let an administrator run: {self._server.grant.format(user=user)}; -- or take an "
                "entry of DATABASES whose user may create databases (--database)."
            ) from error

    def _at_server(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        """Run a statement from the user's own database, without touching its data."""
        rows = self._ask(self.alias, sql, params)
        connections[self.alias].close()
        return rows

    def _ask(self, alias: str, sql: str, params: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        end = time.monotonic() + DROP_TIMEOUT_SECONDS
        while True:
            try:
                with connections[alias].cursor() as cursor:
                    cursor.execute(sql, params or None)
                    return list(cursor.fetchall()) if cursor.description else []
            except (OperationalError, InterfaceError) as error:
                connections[alias].close()
                if time.monotonic() > end or "nknown thread" in str(error):
                    raise
                time.sleep(0.2)
