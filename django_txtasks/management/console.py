"""What the long-running commands share: a readable log and signals that stop them."""

from __future__ import annotations

import logging
import signal
import threading
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.core.management.base import CommandError

from django_txtasks import checks, logs

CHECKS = ["txtasks"]
"""What a long-running command checks as it starts. Of the project's other checks some ask the database, and take
a lock that somebody holds for a missing feature (Django 6.1 on SQLite: fields.E180); they belong to ``check``."""
LEVELS = {0: logging.WARNING, 1: logging.INFO}


def log_json_option(parser: ArgumentParser) -> None:
    """Add ``--log-json``."""
    parser.add_argument(
        "--log-json",
        action="store_true",
        help="Write all log lines as JSON, with the task's id on those of a task.",
    )


def show_log(verbosity: int, *, as_json: bool = False) -> None:
    """Write the package's events to stderr, unless the project's LOGGING does something with them.

    Args:
        as_json: every line of the process is JSON, whoever writes it.
    """
    logger = logging.getLogger("django_txtasks")
    if as_json:
        logs.write_json()
        if logger.level == logging.NOTSET:
            logger.setLevel(LEVELS.get(verbosity, logging.DEBUG))
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(process)d %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(LEVELS.get(verbosity, logging.DEBUG))


def refuse_without_tables(alias: str) -> None:
    """Raise CommandError if the database can be reached and cannot hold tasks."""
    problems = checks.check_tables(databases=[alias])
    if problems:
        raise CommandError("\n".join(f"{problem.msg} {problem.hint}" for problem in problems))


@contextmanager
def stop_signals(request: Callable[..., None]) -> Iterator[None]:
    """Call ``request`` on SIGTERM and SIGINT; outside the main thread, where Python allows none, do nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, request) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
