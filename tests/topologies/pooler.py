"""PgBouncer before PostgreSQL in its three modes; it is restarted twice while tasks are enqueued and run.

    python tests/topologies/pooler.py
    python tests/topologies/pooler.py transaction

Mode `statement` refuses transactions. There the script shows that nothing is enqueued, and which error says why.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import topology  # isort: skip -- it says where the next ones are
from servers import PgBouncer, Postgres, RabbitMQ, Server
from topology import Play
from topology_hosts import Host


def play(mode: str) -> int:
    """Print the account of a mode that has transactions; return the exit status."""
    with (
        Postgres() as database,
        RabbitMQ() as broker,
        PgBouncer(database.port, mode) as pooler,
        Play(
            f"PgBouncer, {mode}",
            Host("site", pooler.url, broker.url),
            [Host(name, pooler.url, broker.url) for name in ("left", "right")],
        ) as played,
    ):
        faults = [("PgBouncer is killed and started", lambda: restart(pooler))] * 2
        return played.run(faults)


def restart(pooler: Server) -> None:
    """Cut all sessions at once."""
    pooler.home.stop(signal.SIGKILL)
    pooler.start()


def refuse() -> int:
    """Print the error of an `enqueue()` through a pooler in mode `statement`; return 1 if there is none."""
    import os

    with Postgres() as database, PgBouncer(database.port, "statement") as pooler:
        with Play("directly", Host("site", database.url), []):
            pass  # it has migrated
        os.environ.update(Host("site", pooler.url).variables())
        from django.db import Error, connection, transaction
        from probe import tasks

        connection.close()
        connection.settings_dict["PORT"] = str(pooler.port)
        try:
            with transaction.atomic():
                tasks.note.enqueue("refused")
        except Error as error:
            print(f"PgBouncer, statement: enqueue() raises {type(error).__name__}: {error}")
            return 0
        print("PgBouncer, statement: NOT AS PROMISED: enqueue() has raised nothing")
        return 1


CASES = {
    "session": lambda: play("session"),
    "transaction": lambda: play("transaction"),
    "statement": refuse,
}

if __name__ == "__main__":
    sys.exit(topology.main(str(Path(__file__)), CASES))
