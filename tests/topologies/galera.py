"""Three nodes of MariaDB with Galera, of which one is killed while tasks are enqueued and run, and comes back.

    python tests/topologies/galera.py
    python tests/topologies/galera.py each-its-node

In the first case HAProxy leads all hosts to one node, and to another one when that node is away. In the second
case each host works on a node of its own, and HAProxy leads it to another one.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import topology  # isort: skip -- it says where the next ones are
from servers import HOST, RabbitMQ
from topology import Play
from topology_hosts import Host
from topology_servers import GaleraNode, HAProxy, galera_cluster

NAMES = ("site", "left", "right")


def play(name: str, *, is_own: bool) -> int:
    """Print the account of one way to the nodes; return the exit status."""
    with galera_cluster(3) as nodes, RabbitMQ() as broker, HAProxy(ways(nodes, is_own)) as proxy:
        assert isinstance(proxy, HAProxy)
        hosts = [
            Host(host, f"mysql://root@{HOST}:{proxy.ports[host]}/test", broker.url)
            for host in NAMES
        ]
        killed = nodes[1 if is_own else 0]
        with Play(f"Galera, {name}", hosts[0], hosts[1:]) as played:
            return played.run(
                [
                    ("a node is killed", lambda: killed.home.stop(signal.SIGKILL)),
                    ("it joins again", killed.start),
                ]
            )


def ways(nodes: Sequence[GaleraNode], is_own: bool) -> dict[str, list[int]]:
    """Return the ports of the nodes for each host, the one to prefer first."""
    ports = [node.port for node in nodes]
    return {
        host: [*ports[number:], *ports[:number]] if is_own else ports
        for number, host in enumerate(NAMES)
    }


CASES = {
    "one-writer": lambda: play("all hosts on one node", is_own=False),
    "each-its-node": lambda: play("each host on its own node", is_own=True),
}

if __name__ == "__main__":
    sys.exit(topology.main(str(Path(__file__)), CASES))
