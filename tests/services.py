"""Run a command with the PostgreSQL, MariaDB and RabbitMQ that tests need.

    python tests/services.py -- pytest

For each: the URL in the environment, else a server on localhost, else a private one that ends
with the command. The command finds all URLs in its environment. A server that cannot be had is
an error, never a skipped test. Tests that stop and start a server make one of their own:
`with services.RabbitMQ() as server`.

TXTASKS_PRIVATE=1 leaves out the first two; TXTASKS_FORCE_DEBS=1 leaves out the programs that
are installed here; TXTASKS_CACHE says where fetched ones are kept.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from types import FrameType

from processes import Guard
from programs import Unavailable
from servers import HOST, MariaDB, Postgres, RabbitMQ, Server

__all__ = ["MariaDB", "Postgres", "RabbitMQ", "Server", "main"]


def _log_in_to_postgres(url: str) -> None:
    importlib.import_module("psycopg").connect(url, connect_timeout=2).close()


def _log_in_to_mariadb(url: str) -> None:
    password = "root" if ":root@" in url else ""
    pymysql = importlib.import_module("pymysql")
    pymysql.connect(host=HOST, user="root", password=password, connect_timeout=2).close()


def _log_in_to_rabbitmq(url: str) -> None:
    pika = importlib.import_module("pika")
    logging.getLogger("pika").setLevel(logging.CRITICAL)  # a refusal is an answer, not an error
    pika.BlockingConnection(pika.URLParameters(f"{url}?stack_timeout=3")).close()


@dataclass(frozen=True, eq=False)
class Service:
    """One kind of server: how it is requested and found, and which variable names it to the command."""

    server: type[Server]
    option: str  # of the demo
    variable: str
    setting: str  # the variable that the demo's settings read
    local_port: int
    local_urls: Sequence[str]
    log_in: Callable[[str], None]

    def found(self) -> str | None:
        """Return the URL of a server that is there already, if there is one."""
        if os.environ.get("TXTASKS_PRIVATE"):
            return None
        return os.environ.get(self.variable) or self._on_localhost()

    def help(self, reason: object) -> str:
        """Return what to do when no server can be had."""
        return f"""
No {self.server.name} for the tests: {reason}

Three ways out:
  1. name a server in the environment:  {self.variable}={self.local_urls[0]}
  2. install it (it need not run):      apt-get install {self.server.wanted.package}
  3. run the servers of compose.yaml:   docker compose up -d
"""

    def _on_localhost(self) -> str | None:
        if not _listens(self.local_port):
            return None
        return next((url for url in self.local_urls if self._lets_in(url)), None)

    def _lets_in(self, url: str) -> bool:
        try:
            self.log_in(url)
        except Exception:  # the driver is missing, or it refuses in its own way
            return False
        return True


SERVICES = [
    # RabbitMQ first: it takes longest to start, and does so while the others are prepared.
    Service(
        server=RabbitMQ,
        option="--broker",
        variable="TXTASKS_TEST_AMQP_URL",
        setting="TXTASKS_BROKER_URL",
        local_port=5672,
        local_urls=[f"amqp://guest:guest@{HOST}:5672/%2F"],
        log_in=_log_in_to_rabbitmq,
    ),
    Service(
        server=Postgres,
        option="--postgres",
        variable="TXTASKS_TEST_POSTGRES_URL",
        setting="TXTASKS_DATABASE_URL",
        local_port=5432,
        local_urls=[
            f"postgres://postgres:postgres@{HOST}:5432/postgres",
            f"postgres://postgres@{HOST}:5432/postgres",
        ],
        log_in=_log_in_to_postgres,
    ),
    Service(
        server=MariaDB,
        option="--mariadb",
        variable="TXTASKS_TEST_MARIADB_URL",
        setting="TXTASKS_DATABASE_URL",
        local_port=3306,
        local_urls=[f"mysql://root:root@{HOST}:3306/test", f"mysql://root@{HOST}:3306/test"],
        log_in=_log_in_to_mariadb,
    ),
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command between the start and the end of its servers; return its exit status."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGINT, _leave)
    signal.signal(signal.SIGTERM, _leave)
    with ExitStack() as started:
        try:
            urls = _for_demo(options.command, started) if options.if_asked else _for_tests(started)
        except (Unavailable, RuntimeError) as error:
            print(error, file=sys.stderr)
            return 2
        return _run(options.command, {**os.environ, **urls})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, usage="%(prog)s [--if-asked] -- command")
    parser.add_argument(
        "--if-asked",
        action="store_true",
        help="start only private servers whose option is among the command's: "
        + ", ".join(service.option for service in SERVICES)
        + "; and have the example project use them",
    )
    parser.add_argument("command", nargs="+")
    return parser


def _leave(signum: int, _frame: FrameType | None) -> None:
    """Leave through every `with` block, once: later signals would only disturb that."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + signum)


# ---- servers


def _for_tests(started: ExitStack) -> dict[str, str]:
    """Return the variables that name a server of each kind; start the missing ones."""
    found = {service: service.found() for service in SERVICES}
    private = _start([service for service, url in found.items() if not url], started)
    return {service.variable: url or private[service] for service, url in found.items()}


def _for_demo(command: Sequence[str], started: ExitStack) -> dict[str, str]:
    """Return what makes the example project use the servers that its command asks for.

    Always private ones: a demo writes nothing into a server that is there for something else.
    """
    private = _start([service for service in SERVICES if service.option in command], started)
    return {service.setting: url for service, url in private.items()}


def _start(services: Sequence[Service], started: ExitStack) -> dict[Service, str]:
    """Start private servers, all at the same time, and return their URLs.

    Raises:
        Unavailable: for at least one of them; the message says what to do about each.
    """
    servers, complaints = {}, []
    for service in services:
        servers[service] = started.enter_context(closing(service.server()))
        try:
            servers[service].launch()
        except Unavailable as reason:
            complaints.append(service.help(reason))
    if complaints:
        raise Unavailable("".join(complaints))
    return {service: _url_when_ready(server) for service, server in servers.items()}


def _url_when_ready(server: Server) -> str:
    server.wait_until_ready()
    print(f"[services] {server.name}: {server.url}", file=sys.stderr, flush=True)
    return server.url


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex((HOST, port)) == 0


# ---- the command


def _run(command: Sequence[str], environment: dict[str, str]) -> int:
    """Run the command to its end, or to ours; return its status as a shell would.

    Processes that the command has started and not ended are ended then.
    """
    marked = {**environment, "TXTASKS_TEST_RUN": str(uuid.uuid4())}
    with (
        Guard(mark=f"TXTASKS_TEST_RUN={marked['TXTASKS_TEST_RUN']}") as guard,
        subprocess.Popen(command, env=marked) as process,
    ):
        guard.watch(process.pid)
        try:
            status = process.wait()
        except SystemExit as leaving:
            _end(process, told_already=leaving.code == 128 + signal.SIGINT)
            raise
        finally:
            guard.watch()
    return status if status >= 0 else 128 - status


def _end(process: subprocess.Popen[bytes], *, told_already: bool) -> None:
    """See that the command ends: in good order if it can.

    Ctrl-C in a terminal reaches the command as well as us, and a second one would cut its
    tidying short: then it gets some time first.
    """
    for sig in (0 if told_already else signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        process.send_signal(sig)
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
            return


if __name__ == "__main__":
    sys.exit(main())
