"""Helpers of the commands: log output, stop signals, exit, and checks of the database."""

from __future__ import annotations

import contextlib
import difflib
import logging
import signal
import sys
import threading
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from django.core.checks import CheckMessage
from django.core.management.base import BaseCommand, CommandError, OutputWrapper
from django.db import DatabaseError, InterfaceError, connections, router

from django_txtasks import checks, hints, signals
from django_txtasks.core.ground.wording import in_english
from django_txtasks.database import sessions
from django_txtasks.database.errors import text_of
from django_txtasks.models import Task
from django_txtasks.processes import descriptors
from django_txtasks.processes.orphans import work_in_a_child
from django_txtasks.processes.remains import exit_now
from django_txtasks.signals import logs
from django_txtasks.signals.tracebacks import printable

CHECKS = ["txtasks"]
"""The checks that a long-running command makes at its start. The project's other checks are left to ``check``:
some query the database, and take a lock that another process may hold (Django 6.1 on SQLite: fields.E180).
"""
CONNECT_TIMEOUT_SECONDS = 5.0
"""Longest time for a look at the databases. If packets are dropped, a server answers after minutes or never."""
LAST_WORDS_SECONDS = 3.0
"""Longest time for log handlers and unsent hints when a process ends without waiting for its threads."""
HUNG_LOG_SECONDS = 1.0
"""The same, after the log was waited for in vain."""
MOST_SECONDS = 1e9
"""Longest time that an option may give, in seconds: about 32 years."""
UNREACHABLE = 2
"""Exit code of a command that cannot query its database."""
NEAR = 0.8
"""Least similarity of a name that is suggested, by ``difflib``."""
READER_GONE = 128 + 13
"""Exit code of a command whose reader has closed the pipe: that of a program that SIGPIPE has ended."""
LEVELS = {0: logging.WARNING, 1: logging.INFO}


class OwnCommand(BaseCommand):
    """A command of the package. Its standard input and output may be closed, also while it writes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        descriptors.open_closed_ones()  # before the first pipe or connection
        super().__init__(*args, **kwargs)

    def run_from_argv(self, argv: list[str]) -> None:
        """Run the command. If the reader of its output has gone, as ``head`` does, end without a traceback."""
        try:
            super().run_from_argv(argv)
        except BrokenPipeError:
            if not descriptors.silence_broken_ones(was_refused=True):
                raise  # another pipe
            sys.exit(READER_GONE)
        except SystemExit:
            descriptors.silence_broken_ones()
            raise
        if descriptors.silence_broken_ones():
            sys.exit(READER_GONE)


class PrintingCommand(OwnCommand):
    """A command that prints text from the database, in English."""

    def execute(self, *args: Any, **options: Any) -> Any:
        """Run the command. Its texts do not depend on the site's language, so that scripts can rely on them."""
        with in_english():
            return super().execute(*args, **options)

    def show(self, *lines: str) -> None:
        """Print lines. Control characters, and letters that the output's encoding lacks, are escaped."""
        for line in lines:
            self.stdout.write(_in_letters_of(self.stdout, printable(line)))

    def warn(self, line: str) -> None:
        """Print a line to stderr, escaped as by ``show``."""
        self.stderr.write(_in_letters_of(self.stderr, printable(line)))


def _in_letters_of(stream: OutputWrapper, line: str) -> str:
    """Return a line that the stream can encode: a letter that its encoding lacks becomes an escape."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return line.encode(encoding, "backslashreplace").decode(encoding)


def in_one_line(error: BaseException) -> str:
    """Return a database error as one line for a terminal."""
    return printable(" ".join(text_of(error).split()))


def refuse_odd_seconds(
    option: str, seconds: float | None, *, may_be_zero: bool = True, returncode: int = 1
) -> None:
    """Raise CommandError if an option has no number of seconds of at least 0, such as ``nan`` or ``inf``."""
    if seconds is not None and not 0 <= seconds <= MOST_SECONDS:
        text = f"{option} is {seconds:g}; it must be a number of seconds from 0 to {MOST_SECONDS:,.0f}."
        raise CommandError(text, returncode=returncode)
    if seconds == 0 and not may_be_zero:
        raise CommandError(f"{option} is {seconds}; it must be more than 0 seconds.")


def switch(parser: ArgumentParser, name: str, text: str, **more: Any) -> None:
    """Add an option without a value."""
    parser.add_argument(name, action="store_true", help=text, **more)


def one_database(parser: ArgumentParser, text: str) -> None:
    """Add ``--database``, which names one."""
    parser.add_argument("--database", default="default", metavar="ALIAS", help=f"{text} (default).")


def near(name: str, known: Iterable[str]) -> str:
    """Ask whether a similar name was meant, for the middle of a sentence; empty text: none is similar."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=NEAR)
    return f" (did you mean {found[0]!r}?)" if found else ""


def in_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of a table as lines, the first column to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([first.ljust(widths[0]), *map(str.rjust, others, widths[1:])])
        for first, *others in rows
    ]


class DatabaseCommand(PrintingCommand):
    """A command that queries one database, prints the result and ends."""

    requires_system_checks = CHECKS
    of_database = "Whose tasks"

    def add_arguments(self, parser: ArgumentParser) -> None:
        one_database(parser, self.of_database)

    def handle(self, *args: Any, **options: Any) -> None:
        alias = options["database"]
        if alias not in connections:
            raise CommandError(f"Database {alias!r} is not in DATABASES.")
        try:
            refuse_without_tables(alias)
            self.run(alias, options)
        except (DatabaseError, InterfaceError) as error:
            text = f"Database {alias!r} cannot be queried or written: {in_one_line(error)}"
            raise CommandError(text, returncode=UNREACHABLE) from None

    def run(self, alias: str, options: dict[str, Any]) -> None:
        """Do the command's work."""
        raise NotImplementedError


class LoopCommand(OwnCommand):
    """A command that runs until it is told to stop, and logs in the background."""

    requires_system_checks = CHECKS
    _called_from_command_line: bool  # Django sets it

    def handle(self, *args: Any, **options: Any) -> None:
        work_in_a_child(owns_process=self._called_from_command_line)
        show_log(options["verbosity"], as_json=options["log_json"])
        with signals_in_background(own_process=self._called_from_command_line):
            self.run(options)

    def run(self, options: dict[str, Any]) -> None:
        """Do the command's work."""
        raise NotImplementedError


def show_log(verbosity: int, *, as_json: bool = False) -> None:
    """Write the package's log lines to stderr, unless the project's LOGGING handles them.

    Args:
        as_json: write every log line of the process as JSON.
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


def served(databases: Sequence[str] | str | None) -> list[str]:
    """Return the aliases of ``--database``, each once.

    A database that does not answer within a few seconds is waited for later.

    Raises:
        CommandError: one of them cannot hold tasks.
    """
    named = [databases] if isinstance(databases, str) else databases  # from call_command()
    aliases = list(dict.fromkeys(named or ["default"]))
    problems: list[CheckMessage] = []
    for alias in aliases:
        if alias in connections and not router.allow_migrate_model(alias, Task):
            raise CommandError(
                f"A router keeps tasks away from database {alias!r}: it has no tables for them. Let "
                "DATABASE_ROUTERS allow the app 'txtasks' there, and migrate it."
            )
    look_at(aliases, lambda alias: problems.extend(checks.refusals(alias)))
    _refuse(problems)
    return aliases


def look_at(aliases: Sequence[str], look: Callable[[str], None]) -> None:
    """Call a function with each alias, each in a thread of its own with its own connections.

    Wait for a few seconds only, so that a database that does not answer delays nothing else.

    Raises:
        Exception: the first error of the function.
    """
    errors: list[Exception] = []

    def work(alias: str) -> None:
        try:
            if alias in connections:
                sessions.leave_pool(alias)  # a forked child could not use the pool
            look(alias)
        except Exception as error:  # for example a driver that is not installed
            errors.append(error)
        finally:
            connections.close_all()

    started = [threading.Thread(target=work, args=[alias], daemon=True) for alias in aliases]
    for thread in started:
        thread.start()
    end = time.monotonic() + CONNECT_TIMEOUT_SECONDS
    for thread in started:
        thread.join(max(0.0, end - time.monotonic()))
    if errors:
        raise errors[0]


def refuse_without_tables(alias: str) -> None:
    """Raise CommandError if the database answers but cannot hold tasks."""
    if alias in connections:
        sessions.wait_for_any_backend(alias)
    _refuse(checks.refusals(alias))


def _refuse(problems: Sequence[CheckMessage]) -> None:
    if problems:
        raise CommandError("\n".join(f"{problem.msg} {problem.hint}" for problem in problems))


@contextmanager
def stop_signals(request: Callable[..., None]) -> Iterator[None]:
    """Call ``request`` on SIGTERM and SIGINT. Outside the main thread, Python allows no handlers: do nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, request) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def signals_in_background(*, own_process: bool, by_one_thread: bool = True) -> Iterator[None]:
    """Write the log and call receivers of signals in a background thread inside the block.

    If that thread hangs at the end, the process still ends; Python alone would wait for its lock.

    Args:
        own_process: True if there is no caller to return to.
        by_one_thread: as for ``signals.in_background``.
    """
    background, code = None, 1
    try:
        with signals.in_background(by_one_thread=by_one_thread) as background:
            yield
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
        raise
    finally:
        if own_process and background is not None and background.is_stuck:
            end_process(code, seconds=HUNG_LOG_SECONDS)


def end_process(code: int, *, seconds: float | None = None) -> NoReturn:
    """End the process without waiting for other threads, after the log and unsent hints had their time.

    Args:
        seconds: longest time for that (FLUSH_SECONDS + LAST_WORDS_SECONDS).
    """
    thread = threading.Thread(target=_last_words, name="txtasks-last-words", daemon=True)
    thread.start()
    thread.join(signals.FLUSH_SECONDS + LAST_WORDS_SECONDS if seconds is None else seconds)
    exit_now(code)


def _last_words() -> None:
    with contextlib.suppress(AttributeError, OSError, ValueError):  # stdout is missing or closed
        sys.stdout.flush()  # output of tasks
    signals.flush()
    hints.flush()
    logging.shutdown()
