"""The options that benchmarks share, and the contenders that they name."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from contest import Contender, ours

WEEK = 7 * 24 * 60 * 60
PEERS = {
    "pgqueuer": Contender("pgqueuer", "PgQueuer, batch 500", left="SELECT count(*) FROM pgqueuer"),
    "dramatiq": Contender("dramatiq", "Dramatiq + RabbitMQ"),
    "celery": Contender("celery", "Celery + RabbitMQ"),
    "procrastinate": Contender(
        "procrastinate", "procrastinate", left="SELECT count(*) FROM procrastinate_jobs"
    ),
    "django_tasks_db": Contender(
        "django_tasks_db", "django-tasks-db",
        left="SELECT count(*) FROM django_tasks_database_dbtaskresult WHERE status <> 'SUCCESSFUL'",
    ),
    "dj_queue": Contender(
        "dj_queue", "dj-queue", left="SELECT count(*) FROM dj_queue_jobs WHERE finished_at IS NULL"
    ),
    "django_absurd": Contender(
        "django_absurd", "django-absurd",
        left="SELECT count(*) FROM absurd.t_default WHERE state <> 'completed'",
    ),
    "django_ox": Contender(
        "django_ox", "django-ox",
        left="SELECT count(*) FROM django_ox_oxtask WHERE status <> 'SUCCESSFUL'",
    ),
}  # fmt: skip


def parser(documentation: str | None, *, tasks: int = 20_000) -> argparse.ArgumentParser:
    """Return a parser with the options of all benchmarks that run workers."""
    made = argparse.ArgumentParser(
        description=documentation, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--tasks", type=int, default=tasks)
    made.add_argument("--repeat", type=int, default=3)
    made.add_argument("--threads", type=int, default=4, help="of each of our worker processes")
    made.add_argument("--policy", choices=["idempotent", "default"], default="idempotent")
    made.add_argument(
        "--history", choices=["on", "off"], default="off", help="keep finished tasks or not"
    )
    made.add_argument("--broker", choices=["rabbitmq", "none"], default="rabbitmq")
    made.add_argument("--peers", default="", help=f"any of {','.join(PEERS)}")
    made.add_argument("--peers-python", default=sys.executable, help="the Python that has them")
    made.add_argument(
        "--peer-tasks", type=int, help="fewer tasks for peers, some of which take minutes"
    )
    made.add_argument("--chart", metavar="FILE.svg")
    return made


def contenders(arguments: argparse.Namespace) -> list[Contender]:
    """Return this package, and the peers that were asked for."""
    return [own(arguments), *peers(arguments)]


def own(arguments: argparse.Namespace, **changes: str) -> Contender:
    """Return this package with the options given, and some changed."""
    arguments = argparse.Namespace(**{**vars(arguments), **changes})
    settings: dict[str, object] = {"keep_finished": WEEK if arguments.history == "on" else 0}
    if arguments.broker == "none":
        settings["broker_url"] = None
    return ours(_title(arguments), **settings)


def peers(arguments: argparse.Namespace) -> list[Contender]:
    """Return the peers that were asked for."""
    names = filter(None, arguments.peers.split(","))
    return [replace(PEERS[name], python=arguments.peers_python) for name in names]


def tasks(contender: Contender, arguments: argparse.Namespace) -> int:
    """Return how many tasks a contender is given."""
    fewer: int = arguments.peer_tasks or arguments.tasks
    return arguments.tasks if contender.name == "txtasks" else fewer


def enqueueing(contender: Contender, arguments: argparse.Namespace, size: int = 0) -> list[object]:
    """Return what a contender's ``enqueue`` is told besides the count."""
    return [arguments.policy, size] if contender.name == "txtasks" else []


def working(contender: Contender, arguments: argparse.Namespace) -> list[object]:
    """Return what a contender's ``work`` is told besides the number of processes."""
    return [f"--threads={arguments.threads}"] if contender.name == "txtasks" else []


def progress(line: str) -> None:
    """Print progress to stderr, beside the table."""
    print(line, file=sys.stderr, flush=True)


def _title(arguments: argparse.Namespace) -> str:
    parts = ["django-txtasks"]
    parts += ["default policy"] * (arguments.policy == "default")
    parts += ["history"] * (arguments.history == "on")
    parts += ["no broker"] * (arguments.broker == "none")
    return ", ".join(parts)
