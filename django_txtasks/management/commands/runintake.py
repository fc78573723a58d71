"""manage.py runintake"""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError

from django_txtasks.conf import MAX_NAME_BYTES, Config, get_config
from django_txtasks.core.ground.wakeup import WakeUp
from django_txtasks.exceptions import TxTasksError
from django_txtasks.management.console import LoopCommand, one_database, served
from django_txtasks.management.probing import answering_until_stopped, loop_options, positive
from django_txtasks.processes.probes import Liveness
from django_txtasks.processes.shutdown import Shutdown

PREFETCH_MESSAGES = 200
MOST_PREFETCH = 65_535
"""Largest number of messages that AMQP can express."""
READY_FOR = timedelta(seconds=15)
"""Time for which a turn of the loop counts as a sign that the intake is ready."""
UNREADY = "no queue is consumed, or the database takes no tasks; the log says why"


class Command(LoopCommand):
    """Exit codes: 0 it was told to stop; 1 it could not start."""

    help = (
        "Turns the messages of a RabbitMQ queue into tasks, each message_id once. Run one or more."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--queue", required=True, metavar="NAME",
            help="RabbitMQ's queue with the messages; another application declares it.",
        )  # fmt: skip
        one_database(parser, "Write the tasks there")
        parser.add_argument(
            "--dead-letters", default="", metavar="EXCHANGE",
            help="Send refused messages to this exchange. Default: to the queue NAME.refused, which is declared.",
        )  # fmt: skip
        parser.add_argument(
            "--prefetch", type=positive, default=PREFETCH_MESSAGES, metavar="N",
            help=f"Messages that may be on their way ({PREFETCH_MESSAGES}); a transaction has at most these.",
        )  # fmt: skip
        loop_options(parser)

    def run(self, options: dict[str, Any]) -> None:
        config, queue = get_config(), options["queue"]
        (alias,) = served(options["database"])
        _refuse(config, alias, queue, options["prefetch"])
        wake_up = WakeUp()
        stop = Shutdown(0.0, wake_up.wake)

        def wait(seconds: float) -> bool:
            wake_up.wait(0.0 if stop.asked else seconds)
            return stop.asked

        def make(file: str | None) -> Liveness:
            return Liveness(READY_FOR, file, UNREADY)

        with answering_until_stopped(options, make, stop.request) as liveness:
            _intake(config, alias, options, liveness, wake_up).run(wait)


def _intake(
    config: Config, alias: str, options: dict[str, Any], liveness: Liveness, wake_up: WakeUp
) -> Any:
    from django_txtasks.features.intake.loop import Intake
    from django_txtasks.hints.broker.dead_letters import DeadLetters  # these import pika
    from django_txtasks.hints.broker.incoming import MessageConsumer

    queue, prefetch = options["queue"], options["prefetch"]
    dead_letters = DeadLetters(queue, options["dead_letters"])
    source = MessageConsumer(config, queue, prefetch, dead_letters, wake_up.wake)
    return Intake(config, alias, source, dead_letters, liveness)


def _refuse(config: Config, alias: str, queue: str, prefetch: int) -> None:
    """Raise CommandError if the intake could not do its work, whatever messages come."""
    from django_txtasks.features.intake.reading import check_functions  # only here is it needed

    if config.broker_url is None:
        raise CommandError(
            "runintake takes messages from RabbitMQ, and TXTASKS has no 'broker_url'. Set it."
        )
    if not queue or len(f"{queue}.refused".encode()) > MAX_NAME_BYTES:
        raise CommandError(
            f"--queue {queue!r}: name a queue; with .refused behind it, the name may have {MAX_NAME_BYTES} bytes."
        )
    if queue.startswith(f"{config.queue_prefix}."):
        raise CommandError(
            f"--queue {queue}: queues that begin with {config.queue_prefix}. carry hints for workers, and their "
            "messages are no tasks. Name the queue of the other application."
        )
    if prefetch > MOST_PREFETCH:
        raise CommandError(f"--prefetch {prefetch}: AMQP allows {MOST_PREFETCH:,} at most.")
    try:
        check_functions(alias)
    except TxTasksError as error:
        raise CommandError(str(error)) from None
