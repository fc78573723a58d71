"""A host loses its network to PostgreSQL, to RabbitMQ, or to both: packets vanish, and no connection is closed.

    python tests/topologies/network.py                      # as root, on Linux: each host is a network namespace
    python tests/topologies/network.py database-25-seconds

A namespace has one link to each server. Two hosts run workers; the first one is cut off. For 5 s nothing may
happen to it. For 25 s, longer than the lease, its workers are declared lost if it cannot reach the database:
their default tasks are dead, and their sessions, which PostgreSQL still shows, are ended by the cleaner.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import topology  # isort: skip -- it says where the next ones are
from servers import HOST, Postgres, RabbitMQ
from topology import Play
from topology_hosts import Host

SERVERS = {"database": 1, "broker": 2}
"""The number of each server's links: third part of their addresses."""
AMQP_PORT = 5672
OPTIONS = {
    "connect_timeout": 3,
    "tcp_user_timeout": 20_000,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}
"""As the how-to about databases advises."""


def play(cut: Sequence[str], seconds: float) -> int:
    """Print the account of a host that is cut off from these servers for some seconds."""
    make_network(["left", "right"])
    more = {"listeners.tcp.network": f"0.0.0.0:{AMQP_PORT}", "loopback_users.guest": "false"}
    with Postgres(network="10.0.0.0/8") as database, RabbitMQ(**more) as broker:
        site = Host("site", database.url, f"amqp://guest:guest@{HOST}:{AMQP_PORT}/%2F")
        hosts = [host(number, name, database) for number, name in enumerate(("left", "right"))]
        title = f"left is cut off from {' and '.join(cut)} for {seconds:g} s"
        assert broker.port

        def fault() -> None:
            set_links("left", cut, "down")
            time.sleep(seconds)
            set_links("left", cut, "up")

        is_long = seconds > 15 and "database" in cut
        with Play(title, site, hosts) as played:
            return played.run(
                [(title, fault)], cut_off=["left"] if is_long else [], may_die=is_long
            )


def host(number: int, name: str, database: Postgres) -> Host:
    """Return a host that runs in the namespace of this name."""
    return Host(
        name,
        f"postgres://postgres@10.{number}.{SERVERS['database']}.1:{database.port}/postgres",
        f"amqp://guest:guest@10.{number}.{SERVERS['broker']}.1:{AMQP_PORT}/%2F",
        ["ip", "netns", "exec", name, "unshare", "--uts",
         "sh", "-c", 'hostname "$0" && exec "$@"', name],
        {"TOPOLOGY_OPTIONS": json.dumps(OPTIONS)},
    )  # fmt: skip


def make_network(names: Sequence[str]) -> None:
    """Make a namespace for each host, with a link to each server in this one."""
    run("mount", "--make-rprivate", "/")
    Path("/run/netns").mkdir(exist_ok=True)
    run("mount", "-t", "tmpfs", "none", "/run/netns")  # not seen outside
    run("ip", "link", "set", "lo", "up")
    for number, name in enumerate(names):
        run("ip", "netns", "add", name)
        run("ip", "-n", name, "link", "set", "lo", "up")
        for server, link in SERVERS.items():
            here = f"{name}-{server}"
            run("ip", "link", "add", here, "type", "veth", "peer", "name", server, "netns", name)
            run("ip", "address", "add", f"10.{number}.{link}.1/30", "dev", here)
            run("ip", "-n", name, "address", "add", f"10.{number}.{link}.2/30", "dev", server)
            run("ip", "link", "set", here, "up")
            run("ip", "-n", name, "link", "set", server, "up")


def set_links(name: str, servers: Sequence[str], state: str) -> None:
    """Have packets of a host to these servers, and back, vanish or arrive."""
    for server in servers:
        run("ip", "link", "set", f"{name}-{server}", state)


def run(*command: str) -> None:
    """Run a command of the system that must succeed."""
    subprocess.run(command, check=True)


CASES = {
    f"{name}-{seconds}-seconds": lambda cut=cut, seconds=seconds: play(cut, seconds)
    for name, cut in {
        "database": ["database"],
        "broker": ["broker"],
        "both": ["database", "broker"],
    }.items()
    for seconds in (5, 25)
}


def enter_namespace() -> None:
    """Begin again in a network of this script's own, which ends with it."""
    if os.geteuid() != 0:
        sys.exit("network.py needs root on Linux, for network namespaces of its own")
    again = ["unshare", "--net", "--mount", sys.executable, *sys.argv]
    environment = {**os.environ, "TOPOLOGY_NETWORK": "own"}
    sys.exit(subprocess.run(again, env=environment, check=False).returncode)


if __name__ == "__main__":
    if len(sys.argv) > 1 and "TOPOLOGY_NETWORK" not in os.environ:
        enter_namespace()
    sys.exit(topology.main(str(Path(__file__)), CASES))
