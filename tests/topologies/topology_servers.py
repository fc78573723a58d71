"""HAProxy, and nodes that form a cluster: of RabbitMQ, and of MariaDB with Galera. All on loopback."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import programs
from processes import Home
from programs import Wanted
from servers import HOST, MariaDB, RabbitMQ, Server, first_byte, free_port

HAPROXY = """
global
    maxconn 2000
defaults
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
"""


class HAProxy(Server):
    """HAProxy, with an address for each name; the first of its servers that answers gets all connections.

    Args:
        backends: ports of the servers behind each name.

    Attributes:
        ports: its own port for each name.
    """

    name = "HAProxy"
    wanted = Wanted(command="haproxy", package="haproxy", pattern="usr/sbin/haproxy")

    def __init__(self, backends: Mapping[str, Sequence[int]]) -> None:
        super().__init__()
        self._backends = backends
        self.ports = {name: free_port() for name in backends}

    @property
    def url(self) -> str:
        return ""

    def _prepare(self) -> None:
        lines = [HAPROXY]
        for name, ports in self._backends.items():
            lines.append(f"listen {name}\n    bind {HOST}:{self.ports[name]}")
            for number, port in enumerate(ports):
                lines.append(
                    f"    server {name}{number} {HOST}:{port} check inter 500ms fall 2 rise 2"
                    f" on-marked-down shutdown-sessions{' backup' if number else ''}"
                )
        lines.append(
            f"listen alive\n    bind {HOST}:{self.port}\n    mode http\n    monitor-uri /\n"
        )
        (self.home.path / "haproxy.cfg").write_text("\n".join(lines))

    def _run(self) -> None:
        config = self.home.path / "haproxy.cfg"
        self.home.spawn([self._program.path, "-db", "-f", config], env=self._env)

    def _answers(self) -> bool:
        return bool(first_byte(self.port, b"GET / HTTP/1.0\r\n\r\n"))


class GaleraNode(MariaDB):
    """A node of MariaDB that replicates with Galera; a node that joins copies the data with rsync."""

    name = "Galera"
    wanted = Wanted(
        command="wsrep_sst_rsync", package="mariadb-server", pattern="usr/bin/wsrep_sst_rsync"
    )

    def __init__(self) -> None:
        super().__init__()
        self.group, self._incoming, self._copies = free_port(), free_port(), free_port()
        self.others: Sequence[GaleraNode] = ()

    def _command(self) -> list[str | Path]:
        usr = self._program.path.parent.parent
        return [usr / "sbin/mariadbd", *super()._command()[1:], *self._replication()]

    def _replication(self) -> list[str]:
        if not (self.home.path / "data/ibdata1").exists():
            return []  # the system tables are written first
        provider = self._program.path.parent.parent / "lib/galera/libgalera_smm.so"
        listen = (
            f"gmcast.listen_addr=tcp://{HOST}:{self.group};ist.recv_addr={HOST}:{self._incoming}"
        )
        settings = {
            "wsrep-on": "ON",
            "wsrep-provider": provider,
            "wsrep-provider-options": f"{listen};gcache.size=32M;gcache.page_size=32M",
            "wsrep-cluster-name": "topology",
            "wsrep-cluster-address": "gcomm://"
            + ",".join(f"{HOST}:{node.group}" for node in self.others),
            "wsrep-node-address": HOST,
            "wsrep-sst-method": "rsync",
            "wsrep-sst-receive-address": f"{HOST}:{self._copies}",
            "binlog-format": "ROW",
            "innodb-autoinc-lock-mode": 2,
        }
        return [f"--{name}={value}" for name, value in settings.items()]

    def _answers(self) -> bool:
        if not super()._answers():
            return False
        import pymysql

        try:
            session = pymysql.connect(host=HOST, port=self.port, user="root")
            with session, session.cursor() as cursor:
                cursor.execute("SHOW STATUS LIKE 'wsrep_ready'")
                return cursor.fetchone() == ("wsrep_ready", "ON")
        except pymysql.Error:
            return False


@contextmanager
def galera_cluster(count: int) -> Iterator[list[GaleraNode]]:
    """Start nodes of Galera, one after the other; the first one begins the cluster."""
    with ExitStack() as stack:
        nodes = [GaleraNode() for _ in range(count)]
        for number, node in enumerate(nodes):
            stack.callback(node.close)
            node.others = nodes[:number]
            node.start()
        for node in nodes:
            node.others = [other for other in nodes if other is not node]
        yield nodes


class RabbitMQNode(RabbitMQ):
    """A node that shares its epmd and its cookie with the others of its cluster."""

    def __init__(self, epmd: int, cookie: str) -> None:
        super().__init__()
        self._epmd, self._cookie = epmd, cookie

    def join(self, nodes: Sequence[RabbitMQNode]) -> None:
        """Name the nodes that form the cluster, before the first start."""
        lines = ["cluster_formation.peer_discovery_backend = classic_config"]
        lines += [
            f"cluster_formation.classic_config.nodes.{number} = txtasks{node.port}@{HOST}"
            for number, node in enumerate(nodes, 1)
        ]
        with (self.home.path / "rabbitmq.conf").open("a") as file:
            file.write("\n".join([*lines, ""]))

    def settle(self) -> None:
        """Take a directory and a port; start nothing."""
        self._move_in(programs.find(self.wanted))

    def _settings(self) -> dict[str, str]:
        settings = super()._settings()
        arguments = f"{settings['RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS']} -setcookie {self._cookie}"
        return {
            **settings,
            "ERL_EPMD_PORT": str(self._epmd),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": arguments,
        }

    def _run(self) -> None:
        self.home.spawn([self._program.path], env=self._env)


@contextmanager
def rabbitmq_cluster(count: int) -> Iterator[list[RabbitMQNode]]:
    """Start nodes of RabbitMQ, the first one first, because it forms the cluster."""
    epmd, cookie = free_port(), secrets.token_hex(8)
    with ExitStack() as stack:
        nodes = [RabbitMQNode(epmd, cookie) for _ in range(count)]
        for node in nodes:
            stack.callback(node.close)
            node.settle()
        home = Home("epmd")
        stack.callback(home.close)
        env = programs.find(RabbitMQ.wanted).environment()
        home.spawn(["epmd", "-port", str(epmd), "-address", HOST], env=env)
        for node in nodes:
            node.join(nodes)
            node.start()
        yield nodes
