"""manage.py txtasks_verify"""

from __future__ import annotations

import dataclasses
import json
import random
import signal
import sys
import threading
from argparse import ArgumentParser
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.db import connections

from django_txtasks.conf import Config, get_config
from django_txtasks.contrib.verify import conformance, report
from django_txtasks.contrib.verify.crew import THREADS
from django_txtasks.contrib.verify.guest import Broken
from django_txtasks.contrib.verify.plan import slow_share
from django_txtasks.contrib.verify.stage import Stage, open_stage
from django_txtasks.contrib.verify.storm import Options, StormFailed, usual_kinds
from django_txtasks.exceptions import ConfigError, ScratchRefused
from django_txtasks.management.console import PrintingCommand, one_database, switch

STOPPING = (signal.SIGTERM, signal.SIGINT)
PRODUCERS = 3
SLOW_SHARE_ON_SQLITE = 0.01
"""Share of slow tasks. It is small because an atomic task holds SQLite's only write lock."""


class Command(PrintingCommand):
    """Exit codes: 0 all checks hold; 1 a check fails, or it could not begin; 2 wrong options."""

    help = (
        "Kills workers and cuts connections, on your servers but in a scratch database, and reports whether all "
        "guarantees hold."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        one_database(parser, "Use its server")
        add("--tasks", type=int, default=1000, metavar="N", help="Number of tasks (1000).")
        add("--seconds", type=float, default=30.0, metavar="S", help="Length of the storm (30).")
        add("--every", type=float, default=1.0, metavar="S", help="Mean pause between faults (1).")
        add("--workers", type=int, default=4, metavar="N", help="Worker processes (4).")
        add("--lease", type=float, metavar="S", help="Replaces TXTASKS['lease']; 3 is quick.")
        add("--seed", type=int, metavar="N", help="Repeats the plan of an earlier storm.")
        text = "Check a worker in another language, which this command starts, instead of a storm."
        add("--worker", metavar="COMMAND", help=text)
        switch(parser, "--no-broker", "Leave RabbitMQ alone; workers scan.")
        switch(parser, "--json", "Print the report as JSON.")

    def handle(self, *args: Any, **options: Any) -> None:
        _refuse_nonsense(options)
        if options["worker"]:
            self._check_worker(get_config(), options)
            return
        seed = random.randrange(10**6) if options["seed"] is None else options["seed"]  # noqa: S311 -- a plan
        self.say(f"Seed: {seed}.")
        _leave_in_good_order()
        try:
            ok = self._verify(get_config(), seed, options)
        except (ScratchRefused, StormFailed, ConfigError) as error:
            raise CommandError(str(error)) from error
        if not ok:
            sys.exit(1)

    def _check_worker(self, config: Config, options: dict[str, Any]) -> None:
        _leave_in_good_order()
        command, alias, lease = options["worker"], options["database"], options["lease"]
        found = []
        try:
            for one in conformance.check(command, config, alias, lease, self.say):
                found.append(one)
                if not options["json"]:
                    self.show(one.line)
        except (ScratchRefused, Broken) as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            self.show(json.dumps([dataclasses.asdict(one) for one in found]))
        if not all(one.passed for one in found):
            sys.exit(1)

    def say(self, text: str) -> None:
        """Report progress, apart from the report."""
        self.warn(text)
        self.stderr.flush()

    def _verify(self, config: Config, seed: int, options: dict[str, Any]) -> bool:
        with open_stage(
            config,
            options["database"],
            lease=options["lease"],
            broker=not options["no_broker"],
            say=self.say,
        ) as stage:
            verdict, log = stage.play(_storm_options(stage, seed, options), self.say)
            stage.keep = not report.passed(verdict, log)
        if options["json"]:
            self.show(json.dumps({"seed": seed, **report.as_dict(verdict, log)}))
        else:
            self.show(*report.lines(verdict, log))
        return report.passed(verdict, log)


def _storm_options(stage: Stage, seed: int, options: dict[str, Any]) -> Options:
    kinds = usual_kinds(
        options["every"],
        server=stage.scratch.is_server,
        broker=stage.config.broker_url is not None,
        proxy=stage.proxy is not None,
    )
    return Options(
        seed=seed,
        tasks=options["tasks"],
        seconds=options["seconds"],
        workers=options["workers"],
        producers=PRODUCERS,
        slow=_slow_share(stage, options),
        kinds=kinds,
        drain=60 + 10 * stage.config.lease.total_seconds() + options["tasks"] / 20,
    )


def _slow_share(stage: Stage, options: dict[str, Any]) -> float:
    if not stage.scratch.is_server:
        return SLOW_SHARE_ON_SQLITE
    return slow_share(options["tasks"], options["seconds"], options["workers"] * THREADS)


def _refuse_nonsense(options: dict[str, Any]) -> None:
    if options["database"] not in connections:
        known = ", ".join(map(repr, connections))
        raise CommandError(f"Database {options['database']!r} is not in DATABASES: {known}.")
    for name in ("tasks", "seconds", "every", "workers", "lease"):
        value = options[name]
        if value is not None and value <= 0:
            raise CommandError(f"--{name} is {value}; it must be more than 0.")
    if not getattr(settings, "SETTINGS_MODULE", None):
        raise CommandError(
            "The storm's processes need a settings module: set DJANGO_SETTINGS_MODULE."
        )


def _leave_in_good_order() -> None:
    """Leave through every ``with`` block on the first signal, so that no scratch database or process is left
    behind.

    Later signals are ignored, because they would only disturb the clean-up.
    """
    if threading.current_thread() is threading.main_thread():
        for number in STOPPING:
            signal.signal(number, _leave)


def _leave(number: int, _frame: FrameType | None) -> None:
    for other in STOPPING:
        signal.signal(other, signal.SIG_IGN)
    sys.exit(128 + number)
