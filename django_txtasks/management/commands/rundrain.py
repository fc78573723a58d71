"""manage.py rundrain"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from functools import partial
from typing import Any

from django.core.management.base import CommandError

from django_txtasks.conf import Config, get_config
from django_txtasks.exceptions import ConfigError
from django_txtasks.features.hand_over.process import DrainProcess
from django_txtasks.features.hand_over.targets.calling import TooManyHang
from django_txtasks.management.console import LoopCommand, end_process, served, switch
from django_txtasks.management.probing import answering_until_stopped, loop_options
from django_txtasks.processes.probes import LivenessOfAll

EXIT_CODE_LEFT = 3


class Command(LoopCommand):
    """Exit codes: 0 stopped as told, or nothing is due with ``--batch``; 1 not started, or cut short; 3 with
    ``--batch``, a target could not be reached, and due tasks are left.
    """

    help = (
        "Hands over the tasks of queues in TXTASKS['hand_over'] to other systems. Run one or more."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--queue",
            action="append",
            metavar="Q",
            help="Hand over this queue (may be repeated). Default: all of TXTASKS['hand_over'].",
        )
        switch(
            parser,
            "--batch",
            f"End when nothing is due; with {EXIT_CODE_LEFT} if a target fails and tasks are left.",
        )
        loop_options(parser, "Hand over the tasks")

    def run(self, options: dict[str, Any]) -> None:
        config = get_config()
        queues = _queues(config, options["queue"])
        aliases = served(options["databases"])
        try:
            process = DrainProcess(config, aliases, queues, until_idle=options["batch"])
        except ConfigError as error:
            raise CommandError(str(error)) from None
        make = partial(LivenessOfAll, process.livenesses)
        with answering_until_stopped(options, make, process.stop.request) as together:
            try:
                process.run(together.turned)
            except TooManyHang as error:
                self._end(str(error))
        if process.stop.now and self._called_from_command_line:
            self._end("A pass has not ended in time, and is rolled back.")
        if process.left:
            reasons = "\n".join(process.left)
            raise CommandError(f"Due tasks are left: {reasons}", returncode=EXIT_CODE_LEFT)

    def _end(self, why: str) -> None:
        """End the process with an error. A thread that is stuck must not keep it alive."""
        if not self._called_from_command_line:
            raise CommandError(why)
        self.stderr.write(why)
        end_process(1)


def _queues(config: Config, wanted: Sequence[str] | None) -> list[str]:
    if not config.hand_over:
        raise CommandError(
            "No queue is handed over: TXTASKS['hand_over'] is empty. Name a queue and its target there."
        )
    for name in wanted or ():
        if name not in config.hand_over:
            known = ", ".join(map(repr, config.hand_over))
            raise CommandError(
                f"Queue {name!r} is not in TXTASKS['hand_over'], which has {known}. Its tasks are for runworkers."
            )
    return list(dict.fromkeys(wanted or config.hand_over))
