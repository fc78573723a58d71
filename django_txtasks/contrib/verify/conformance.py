"""The check of a worker in another language: ``manage.py txtasks_verify --worker COMMAND``."""

from __future__ import annotations

import dataclasses
import logging
import shlex
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from django.db import connections, router
from django.db.migrations.executor import MigrationExecutor

from django_txtasks.conf import Config, DeadNotices
from django_txtasks.contrib.verify.guest import EFFECTS, Broken, Guest, run
from django_txtasks.contrib.verify.guest_rules import RULES, register
from django_txtasks.contrib.verify.scratch import ALIAS, Scratch
from django_txtasks.exceptions import ScratchRefused

LEASE = 3.0
"""Seconds of the lease that the worker is asked to use, without ``--lease``."""


@dataclasses.dataclass(frozen=True)
class Judgement:
    """The judgement of one rule.

    Attributes:
        rule: the rule in words.
        passed: True if the worker keeps it.
        text: if the rule is broken, the finding and the remedy; if it is kept, a detail or empty text.
    """

    rule: str
    passed: bool
    text: str

    @property
    def line(self) -> str:
        """The judgement for people."""
        word = "passed" if self.passed else "FAILED"
        return f"{word}  {self.rule}{': ' if self.text else ''}{self.text}"


def check(
    command: str, config: Config, alias: str, lease: float | None, say: Callable[[str], None]
) -> Iterator[Judgement]:
    """Yield a judgement for each rule. The worker is started anew for each of them.

    If it does not register, the other rules are not tried.

    Args:
        command: starts the worker.
        alias: entry of DATABASES on whose server the scratch database is made.
        lease: seconds; None: ``LEASE``.

    Raises:
        Broken: the command cannot be started.
        ScratchRefused: the server is not PostgreSQL, or refuses the scratch database.
    """
    program = (shlex.split(command) or [""])[0]
    if shutil.which(program) is None:
        raise Broken(
            f"--worker names the program {program!r}, which cannot be started. Give its path."
        )
    with place(alias, say) as log:
        guest = Guest(command, config_of_cleaner(config), LEASE if lease is None else lease, log)
        for rule, function in RULES.items():
            judgement = judge(guest, rule, function)
            yield judgement
            if function is register and not judgement.passed:
                return


@contextmanager
def place(alias: str, say: Callable[[str], None]) -> Iterator[Path]:
    """Make a scratch database with the tables; yield the file for the worker's output, which stays.

    Raises:
        ScratchRefused: the server is not PostgreSQL, or refuses the scratch database.
    """
    if connections[alias].vendor != "postgresql":
        raise ScratchRefused(
            "--worker needs PostgreSQL: name an entry of DATABASES with --database."
        )
    with Scratch(alias, uuid.uuid4().hex[:12]) as scratch, _only_here():
        say(f"Scratch database: {scratch.name} ({scratch.version}).")
        _make_tables()
        log = Path(tempfile.mkdtemp(prefix="txtasks-worker-")) / "output.txt"
        say(f"Output of the worker: {log}.")
        yield log


def judge(guest: Guest, rule: str, function: Callable[[Guest], str]) -> Judgement:
    """Start the worker, check one rule, and kill the worker."""
    try:
        guest.start()
        return Judgement(rule, passed=True, text=function(guest))
    except Broken as broken:
        return Judgement(rule, passed=False, text=str(broken))
    finally:
        guest.end()


def config_of_cleaner(config: Config) -> Config:
    """Return the settings of the cleaner, with quick retries and without a broker."""
    return dataclasses.replace(
        config,
        broker_url=None, dead_notices=DeadNotices(), hand_over={}, external_queues=(),
        lifecycle_exchange="", retry_base=timedelta(milliseconds=100),
        retry_ceiling=timedelta(seconds=1), keep_finished=timedelta(days=1),
    )  # fmt: skip


@contextmanager
def _only_here() -> Iterator[None]:
    """Keep the site's routers from the scratch database, and the cleaner's log lines from the report."""
    before, router.routers = router.routers, []
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        router.routers = before


def _make_tables() -> None:
    executor = MigrationExecutor(connections[ALIAS])
    executor.migrate(executor.loader.graph.leaf_nodes("txtasks"))
    run(f"CREATE TABLE {EFFECTS} (key text NOT NULL)")
