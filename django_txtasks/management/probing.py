"""Options of commands that keep running, such as liveness files and HTTP probes."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from django.core.management.base import CommandError

from django_txtasks.management.console import stop_signals, switch
from django_txtasks.processes.probe_server import Page
from django_txtasks.processes.probes import Liveness, LivenessOfAll, Probes

MAX_DIGITS = 10
"""Digits of an option. Python refuses to parse a number of more than 4,300 digits."""
LAST_PORT = 65_535
P = TypeVar("P", Liveness, LivenessOfAll)


def loop_options(parser: ArgumentParser, databases: str = "") -> None:
    """Add the options of each command that keeps running: for probes, for its databases and for its log.

    Args:
        databases: start of the help of ``--database``, such as "Clean the tasks"; empty = no such option.
    """
    parser.add_argument(
        "--liveness-file", metavar="PATH", help="Touch this file while the loop turns."
    )
    parser.add_argument(
        "--probe-port", type=port, metavar="PORT",
        help="Answer /live and /ready over HTTP at this port.",
    )  # fmt: skip
    parser.add_argument(
        "--probe-address", default="", metavar="ADDRESS",
        help="Answer probes at this address only, such as 127.0.0.1. Default: all interfaces.",
    )  # fmt: skip
    if databases:
        parser.add_argument(
            "--database", action="append", dest="databases", metavar="ALIAS",
            help=f"{databases} of this database; may be repeated (default).",
        )  # fmt: skip
    text = "Write all log lines as JSON, with the task's id on each line of a task."
    switch(parser, "--log-json", text)


def liveness_at(file: str | None, make: Callable[[], P]) -> P:
    """Return the Liveness that ``make`` makes. Raise CommandError if its file cannot be written."""
    try:
        return make()
    except OSError as error:
        raise CommandError(f"--liveness-file {file} cannot be written: {error.strerror}.") from None


def probes_at(
    port: int | None,
    address: str,
    liveness: Liveness | LivenessOfAll,
    pages: Mapping[str, Page] | None = None,
) -> Probes | None:
    """Start to answer probes, if there is a port. Raise CommandError if port or address cannot be used."""
    if not port:
        if address:
            raise CommandError(f"--probe-address {address} also needs --probe-port.")
        return None
    try:
        return Probes(liveness, port, address, pages)
    except (OSError, OverflowError, RuntimeError) as error:
        where = f" --probe-address {address}" if address else ""
        raise CommandError(f"--probe-port {port}{where} cannot be used: {error}.") from None


@contextmanager
def answering_until_stopped(
    options: Mapping[str, Any],
    make: Callable[[str | None], P],
    stop: Callable[..., None],
    pages: Mapping[str, Page] | None = None,
) -> Iterator[P]:
    """Answer probes as the options of ``loop_options`` say, and call ``stop`` on a signal, until the block ends.

    Args:
        make: returns the Liveness with this file. It is the value of the block.
    """
    file = options["liveness_file"]
    liveness = liveness_at(file, lambda: make(file))
    probes = probes_at(options["probe_port"], options["probe_address"], liveness, pages)
    try:
        with stop_signals(stop):
            yield liveness
    finally:
        if probes is not None:
            probes.close()


def port(text: str) -> int:
    """Parse the number of a TCP port."""
    if (number := positive(text)) > LAST_PORT:
        raise ArgumentTypeError(f"{text!r} is not a port: {LAST_PORT} is the last one")
    return number


def positive(text: str) -> int:
    """Parse an option that must be a whole number of at least 1."""
    if not text.isdecimal() or len(text) > MAX_DIGITS or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)
