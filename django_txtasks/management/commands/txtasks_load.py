"""manage.py txtasks_load"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management.base import CommandError

from django_txtasks.conf import Config, get_config
from django_txtasks.insight import load
from django_txtasks.insight.load.records import rounded
from django_txtasks.management.console import (
    DatabaseCommand,
    in_columns,
    in_one_line,
    refuse_odd_seconds,
    stop_signals,
    switch,
)
from django_txtasks.management.watching import Watch
from django_txtasks.processes.orders import pipe_of_supervisor

Show = Callable[[load.Look], None]
LEAST_SECONDS = 0.5
"""Shortest time between two looks."""
TITLES = ("queue", "due", "in lanes", "oldest", "running", "run time", "wanted threads")


class Command(DatabaseCommand):
    """Prints the load of each queue, which scalers read.

    Exit codes: 0 printed; 1 wrong options, or no broker; 2 the database cannot be queried.
    """

    help = "Prints for each queue what waits, what runs, and how many threads that needs."
    of_database = "Whose load"

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        switch(parser, "--json", "Print each look as one line of JSON.")
        parser.add_argument(
            "--watch", type=float, metavar="SECONDS",
            help="Look again and again, with this time between two looks. Default: once.",
        )  # fmt: skip
        parser.add_argument(
            "--exchange", default="", metavar="NAME",
            help="Also publish the numbers of each queue to this RabbitMQ exchange. The queue is the routing key.",
        )  # fmt: skip

    def run(self, alias: str, options: dict[str, Any]) -> None:
        config, exchange, seconds = get_config(), options["exchange"], options["watch"]
        refuse_odd_seconds("--watch", seconds)
        if seconds is not None and seconds < LEAST_SECONDS:
            raise CommandError(f"--watch is {seconds:g}; the shortest time is {LEAST_SECONDS:g} s.")
        if exchange and config.broker_url is None:
            raise CommandError("--exchange needs RabbitMQ: set TXTASKS['broker_url'].")

        with self._publishing(config, exchange, is_once=seconds is None) as publish:

            def show(found: load.Look) -> None:
                self._print(found, as_json=options["json"])
                publish(found)

            if seconds is None:
                show(load.look(alias))
            else:
                self._watch(alias, seconds, show)

    def _watch(self, alias: str, seconds: float, show: Show) -> None:
        def failed(error: Exception) -> None:
            self.warn(f"Database {alias!r} cannot be queried: {in_one_line(error)}")

        watch = Watch(alias, seconds, show, failed, pipe_of_supervisor())
        with stop_signals(watch.stop.request):
            watch.run()

    def _print(self, found: load.Look, *, as_json: bool) -> None:
        if as_json:
            self.show(found.as_json())
        else:
            self._print_table(found)
        self.stdout.flush()

    def _print_table(self, found: load.Look) -> None:
        rows = [TITLES, *(_cells(one) for one in found.queues)]
        self.show(*in_columns(rows))
        threads = sum(one.threads for one in found.workers)
        self.show(f"Worker processes: {len(found.workers)}, threads: {threads}.")

    @contextmanager
    def _publishing(self, config: Config, exchange: str, *, is_once: bool) -> Iterator[Show]:
        """Give a function that publishes a look. If RabbitMQ refuses it, a command that watches goes on."""
        if not exchange:
            yield lambda found: None
            return
        from django_txtasks.hints.broker.announcing import Announcer  # imports pika

        announcer = Announcer(config, exchange)

        def publish(found: load.Look) -> None:
            database = {"database": found.database}
            messages = [(one.queue_name, database | rounded(one)) for one in found.queues]
            try:
                announcer.publish(messages)
            except Exception as error:  # pika raises many kinds
                announcer.link.failed(error)
                if is_once:
                    raise CommandError(announcer.reason(error)) from None
                self.warn(announcer.reason(error))

        try:
            yield publish
        finally:
            announcer.close()


def _cells(one: load.QueueLoad) -> tuple[str, ...]:
    oldest, run = f"{one.oldest_seconds:.1f} s", f"{one.run_seconds:.3g} s"
    numbers = (f"{one.due:,}", f"{one.due_in_lanes:,}", oldest, f"{one.running:,}", run)
    return (one.queue_name, *numbers, f"{one.wanted_threads:,}")
