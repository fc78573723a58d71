"""One HAProxy carries both links of a host, to PostgreSQL and to RabbitMQ; it is cut and restored.

    python tests/topologies/one_proxy.py
    python tests/topologies/one_proxy.py restarted

To the cleaner of the other host, which reaches both servers, a cut of both links looks like a crash. When the
proxy is only restarted, no worker may be declared lost. When it is away for 5 s, the worker may be declared lost
if all its tasks may run again; no default task may die or run twice. When it is away for 25 s, which is longer
than the lease, the worker is declared lost, and its default tasks are dead.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import topology  # isort: skip -- it says where the next ones are
from servers import HOST, Postgres, RabbitMQ
from topology import Play
from topology_hosts import Host
from topology_servers import HAProxy


def play(seconds: float) -> int:
    """Print the account of a proxy that is away three times, or once if it is for long."""
    with (
        Postgres() as database,
        RabbitMQ() as broker,
        HAProxy({"database": [database.port], "broker": [broker.port]}) as proxy,
    ):
        assert isinstance(proxy, HAProxy)
        far = Host(
            "far",
            f"postgres://postgres@{HOST}:{proxy.ports['database']}/postgres",
            f"amqp://guest:guest@{HOST}:{proxy.ports['broker']}/%2F",
        )
        near = Host("near", database.url, broker.url)

        def cut() -> None:
            proxy.home.stop(signal.SIGKILL)
            time.sleep(seconds)
            proxy.start()

        times = 1 if seconds > 10 else 3
        with Play(f"HAProxy, away for {seconds:g} s", near, [far, near]) as played:
            return played.run(
                [(f"the proxy is away for {seconds:g} s", cut)] * times,
                cut_off=["far"] if seconds else [],
                may_die=seconds > 10,
            )


CASES = {
    "restarted": lambda: play(0),
    "5-seconds": lambda: play(5),
    "25-seconds": lambda: play(25),
}

if __name__ == "__main__":
    sys.exit(topology.main(str(Path(__file__)), CASES))
