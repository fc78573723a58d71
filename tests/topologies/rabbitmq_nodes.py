"""Three nodes of RabbitMQ, of which one and then two are killed while tasks are enqueued and run.

    python tests/topologies/rabbitmq_nodes.py
    python tests/topologies/rabbitmq_nodes.py quorum

The hint queue and the queue of last wills are classic queues, as the package makes them, or quorum queues, made
beforehand. Each host names the nodes in an order of its own. With one node out of three, a quorum queue takes no
message, so tasks wait for a scan.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import topology  # isort: skip -- it says where the next ones are
import pika
from servers import HOST, Postgres
from topology import Play
from topology_hosts import Host
from topology_servers import RabbitMQNode, rabbitmq_cluster

QUEUES = ("txtasks.default", "txtasks.@lost")


def play(*, quorum: bool) -> int:
    """Print the account of one type of queues; return the exit status."""
    with Postgres() as database, rabbitmq_cluster(3) as nodes:
        if quorum:
            make_quorum_queues(nodes[0])
        hosts = [
            Host(f"host{number}", database.url, url([*nodes[number:], *nodes[:number]]))
            for number in range(3)
        ]
        name = f"RabbitMQ, 3 nodes, {'quorum' if quorum else 'classic'} queues"
        with Play(name, hosts[0], hosts[1:]) as played:
            return played.run(
                [
                    ("node 2 is killed", lambda: kill(nodes[1])),
                    ("node 3 is killed, too", lambda: kill(nodes[2])),
                    ("node 2 and 3 are back", lambda: start(nodes[1:])),
                    ("node 1 is killed", lambda: kill(nodes[0])),
                ]
            )


def make_quorum_queues(node: RabbitMQNode) -> None:
    """Make the queues as the how-to says."""
    arguments = {"x-queue-type": "quorum", "x-max-length": 100_000}
    with pika.BlockingConnection(pika.URLParameters(node.url)) as session:
        for queue in QUEUES:
            session.channel().queue_declare(queue, durable=True, arguments=arguments)


def url(nodes: Sequence[RabbitMQNode]) -> str:
    """Return one URL that names all nodes."""
    return f"amqp://guest:guest@{','.join(f'{HOST}:{node.port}' for node in nodes)}/%2F"


def kill(node: RabbitMQNode) -> None:
    """End a node without any notice."""
    node.home.stop(signal.SIGKILL)


def start(nodes: Sequence[RabbitMQNode]) -> None:
    """Start nodes at the same time: each may wait for the other."""
    for node in nodes:
        node.launch()
    for node in nodes:
        node.wait_until_ready()


CASES = {"classic": lambda: play(quorum=False), "quorum": lambda: play(quorum=True)}

if __name__ == "__main__":
    sys.exit(topology.main(str(Path(__file__)), CASES))
