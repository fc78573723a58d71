"""The long storm, on a PostgreSQL and a RabbitMQ of its own, which it restarts, too.

    python tests/services.py -- python tests/storm.py --tasks 100000
    python tests/services.py -- python tests/storm.py --tasks 100000 --async-tasks 200
    python tests/services.py -- python tests/storm.py --tasks 100000 --failovers 3

In the second form a worker with an event loop runs a quarter of the tasks. The third form fails over to standbys
of PostgreSQL that lag, and prints the account of ``failovers``: see there. In the other forms half of the tasks
are atomic, a fifth are increments of one counter. Prints the report of ``txtasks_verify``; exit code 0 only if
every promise was kept.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import threading
import time
from pathlib import Path

import services

ROOT = Path(__file__).parents[1]


def main() -> int:
    """Start the servers, run the storm, print the report."""
    options = _options()
    if options.failovers:
        return _fail_over(options)
    with services.Postgres() as postgres, services.RabbitMQ() as rabbitmq:
        _set_up(postgres.url, rabbitmq.url)
        restarts = {
            "restart PostgreSQL": Restart(postgres),
            "restart RabbitMQ": Restart(rabbitmq),
        }
        try:
            return _storm(options, restarts)
        finally:
            for restart in restarts.values():
                restart.wait()


def _fail_over(options: argparse.Namespace) -> int:
    """Run the storm of failovers, print its account."""
    sys.path[:0] = [str(ROOT / "testproject"), str(ROOT / "tests")]
    import failovers

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    with contextlib.ExitStack() as stack:
        broker = None if options.no_broker else stack.enter_context(services.RabbitMQ()).url
        account = failovers.run(
            failovers=options.failovers, tasks=options.tasks, seconds=options.seconds,
            workers=options.workers, broker=broker, say=say,
        )  # fmt: skip
    print(json.dumps(account.as_dict()))
    return int(not account.passed)


class Restart:
    """Stops and starts a server while the storm goes on around it.

    Args:
        away: seconds between the stop and the start.
    """

    def __init__(self, server: services.Server, away: float = 0.0) -> None:
        self._server, self._away = server, away
        self._thread = threading.Thread()

    def __call__(self, _: float) -> bool:
        self.wait()
        self._thread = threading.Thread(target=self._restart)
        self._thread.start()
        return True

    def wait(self) -> None:
        """Return when the server is there."""
        if self._thread.ident is not None:
            self._thread.join()

    def _restart(self) -> None:
        self._server.stop()
        time.sleep(self._away)
        self._server.start()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--tasks", type=int, default=100_000)
    add("--seconds", type=float, default=240.0)
    add("--workers", type=int, default=4)
    add("--async-tasks", type=int, default=0, help="slots of an event loop beside the workers")
    add("--kill", type=float, nargs=2, default=[0.2, 1.0], metavar=("SHORTEST", "LONGEST"))
    add("--postgres-restarts", type=int, default=20)
    add("--rabbitmq-restarts", type=int, default=10)
    add("--failovers", type=int, default=0)
    add("--no-broker", action="store_true", help="of failovers: hints go by PostgreSQL alone")
    add("--seed", type=int, default=1)
    add("--json", action="store_true")
    return parser.parse_args()


def _set_up(database: str, broker: str) -> None:
    import django

    os.environ.update(
        DJANGO_SETTINGS_MODULE="settings", TXTASKS_DATABASE_URL=database, TXTASKS_BROKER_URL=broker
    )
    os.environ.pop("TXTASKS_SETTINGS", None)
    sys.path.insert(0, str(ROOT / "testproject"))
    django.setup()


def _storm(options: argparse.Namespace, restarts: dict[str, Restart]) -> int:
    from django_txtasks.conf import get_config
    from django_txtasks.contrib.verify import report
    from django_txtasks.contrib.verify.crew import THREADS
    from django_txtasks.contrib.verify.plan import Kind, slow_share
    from django_txtasks.contrib.verify.stage import open_stage
    from django_txtasks.contrib.verify.storm import Options, usual_kinds

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    usual = usual_kinds(2.0, server=True, broker=True, proxy=True)
    pauses = {
        "restart PostgreSQL": options.seconds / options.postgres_restarts,
        "restart RabbitMQ": options.seconds / options.rabbitmq_restarts,
    }
    with open_stage(
        get_config(), "default", lease=3.0, broker=True, say=say, async_tasks=options.async_tasks
    ) as stage:
        verdict, log = stage.play(
            Options(
                seed=options.seed,
                tasks=options.tasks,
                seconds=options.seconds,
                workers=options.workers,
                producers=4,
                slow=slow_share(options.tasks, options.seconds, options.workers * THREADS) / 4,
                kinds=[
                    Kind("kill a worker", *options.kill),
                    *(kind for kind in usual if kind.name != "kill a worker"),
                    *(Kind(name, pause, pause) for name, pause in pauses.items()),
                ],
                drain=300 + options.tasks / 20,
                more=restarts,
            ),
            say,
        )
        passed = report.passed(verdict, log)
        stage.keep = not passed
    told = report.as_dict(verdict, log) if options.json else report.lines(verdict, log)
    print(json.dumps(told) if options.json else "\n".join(told))
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main())
