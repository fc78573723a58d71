"""manage.py txtasks_task"""

from __future__ import annotations

import json
import re
import sys
import threading
from argparse import ArgumentParser, ArgumentTypeError
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import CommandError
from django.utils.dateparse import parse_datetime
from django.utils.timezone import is_aware, make_aware

from django_txtasks.conf import get_config
from django_txtasks.core.ground.wording import counted
from django_txtasks.exceptions import InvalidChoice
from django_txtasks.management.console import DatabaseCommand, stop_signals, switch
from django_txtasks.operations import Moved, Skipped, order_of
from django_txtasks.operations.choice import FILTERS
from django_txtasks.operations.moved import MAX_COUNTED
from django_txtasks.operations.pages import MAX_ROWS_WITH_ERRORS
from django_txtasks.operations.record import user_of_process
from django_txtasks.operations.rows import Place
from django_txtasks.operations.slices import Order
from django_txtasks.operations.watcher import Watcher
from django_txtasks.signals.tracebacks import printable

VERBS = {
    "revive": "revive", "discard": "discard", "hold": "hold", "resume": "resume", "run": "run_now",
    "cancel": "cancel", "stop": "ask_to_stop", "again": "again",
}  # fmt: skip
UNCHANGED = 1
EARLIEST, LATEST = 1970, 9998
"""Years of a time for ``--since``."""
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class _Stopped(Exception):
    """The command was told to stop."""


class _UntilSignal(Watcher):
    """Ends the call between two statements after SIGINT or SIGTERM."""

    def __init__(self) -> None:
        self.stop = threading.Event()

    def looked(self, rows: int) -> None:
        if self.stop.is_set():
            raise _Stopped

    def may_go_on(self) -> None:
        if self.stop.is_set():
            raise _Stopped

    def done(self, place: Place, moved: Moved) -> None:
        self.moved = moved


class Command(DatabaseCommand):
    """Exit codes: 0 done; 1 a task was not changed, or wrong options; 2 the database cannot be queried."""

    help = (
        "Changes tasks: revive or discard dead ones, hold, run or cancel pending ones, resume held ones, stop "
        "running ones, enqueue ended ones again. Give ids or filters; it shows what it found, and asks."
    )
    of_database = "Database of the tasks"

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("verb", choices=list(VERBS))
        parser.add_argument("ids", nargs="*", metavar="ID", help="Full ids of tasks.")
        parser.add_argument("--queue", metavar="Q", help="Tasks of this queue.")
        parser.add_argument("--task", metavar="NAME", help="Tasks of this function.")
        parser.add_argument(
            "--cause", type=int, metavar="N", help="Tasks with this cause of the last failure."
        )
        parser.add_argument(
            "--error", metavar="TEXT",
            help=f"Tasks with this text in the last error; of the first {MAX_ROWS_WITH_ERRORS:,} tasks only.",
        )  # fmt: skip
        parser.add_argument("--lane", metavar="LANE", help="Tasks of this lane.")
        parser.add_argument(
            "--since", type=_time, metavar="TIME",
            help="Tasks due since then: 2h, 30m, 1d, or 2026-11-27T02:00.",
        )  # fmt: skip
        parser.add_argument("--limit", type=int, metavar="N", help="Change at most N tasks.")
        parser.add_argument(
            "--spread", type=_span, metavar="SPAN",
            help="revive, run: each task at a random time within this span, such as 10m.",
        )  # fmt: skip
        switch(parser, "--dry-run", "Show, and change nothing.")
        switch(parser, "--yes", "Do not ask.")
        switch(parser, "--json", "Print one JSON object.")

    def run(self, alias: str, options: dict[str, Any]) -> None:
        """Show the tasks that were found, ask, and change them."""
        order, as_json = _order(alias, options), options["json"]
        moved = order.dry_run()
        if not as_json:
            self._preview(order, moved)
        if moved.changed and not options["dry_run"]:
            if not options["yes"]:
                self._ask(order, as_json=as_json)
            moved = self._carry_out(order)
        if as_json:
            self.show(json.dumps(moved.as_json()))
        else:
            self._report(order, moved)
        if not (moved.changed or moved.skipped):
            _refuse_unknown_queue(order)
        if moved.skipped:
            lines = [f"Not {order.verb.done}: {counted(moved.skipped, 'task')}."]
            lines += map(_line_of, moved.reasons)
            raise CommandError("\n".join(map(printable, lines)), returncode=UNCHANGED)

    def _preview(self, order: Order, found: Moved) -> None:
        self.show(f"Tasks to be {order.verb.done}: {_count(found)} ({order.choice}).")
        self.show(*(f"  {one.id}  {one.state}  {one.queue}  {one.task}" for one in found.samples))
        if found.changed > len(found.samples):
            self.show("  …")
        if found.has_more and order.choice.error is not None:
            self.show(
                f"Only the errors of {MAX_ROWS_WITH_ERRORS:,} tasks were read: more may match."
            )

    def _ask(self, order: Order, *, as_json: bool) -> None:
        if as_json or not sys.stdin.isatty():
            raise CommandError("Nothing was changed. Without a terminal to ask, give --yes.")
        self.show(f"Shall they be {order.verb.done}? [y/N]")
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise CommandError("Nothing was changed.")

    def _carry_out(self, order: Order) -> Moved:
        until = _UntilSignal()
        order = replace(order, clicked=order.click, watcher=until)
        with stop_signals(lambda *_: until.stop.set()):
            try:
                *_, moved = order.carry_out()
            except _Stopped:
                raise CommandError(
                    f"Stopped. Tasks {order.verb.done}: {until.moved.changed:,}. The others are unchanged; the "
                    "same command goes on."
                ) from None
        return moved

    def _report(self, order: Order, moved: Moved) -> None:
        if moved.dry_run:
            self.show("Nothing was changed." if moved.changed else "No task was found.")
        else:
            self.show(f"Tasks {order.verb.done}: {moved.changed:,}.")
        if moved.left_over:
            more = "+" if moved.has_more else ""
            self.show(f"Left over by --limit: {moved.left_over:,}{more}.")
        for one in moved.samples:
            if one.new_id is not None:
                self.show(f"  {one.id} is enqueued again as {one.new_id}")


def _order(alias: str, options: dict[str, Any]) -> Order:
    name = VERBS[options["verb"]]
    filters: Any = {one: options[one] for one in (*FILTERS, "limit")}
    filters.update(using=alias, by=user_of_process())
    try:
        order, _ = order_of(name, options["ids"], filters, options["spread"])
    except InvalidChoice as error:
        raise CommandError(str(error)) from None
    if options["spread"] is not None and not order.verb.can_spread:
        raise CommandError(f"--spread is for revive and run, not for {options['verb']}.")
    return order


def _refuse_unknown_queue(order: Order) -> None:
    queue, queues = order.choice.queue, get_config().queues
    if queue is not None and queue not in queues:
        raise CommandError(f"TXTASKS['queues'] has no {queue}; it has: {', '.join(queues)}.")


def _count(moved: Moved) -> str:
    return f"{moved.changed:,}{'+' * (moved.changed >= MAX_COUNTED and moved.has_more)}"


def _line_of(one: Skipped) -> str:
    more = f" and {one.count - 1:,} more" if one.count > 1 else ""
    return f"  {one.example}{more}: {one.reason}"


def _span(text: str) -> timedelta:
    """Return a time such as ``90s``, ``30m``, ``2h`` or ``1d``."""
    found = _SPAN.fullmatch(text)
    if found is None:
        raise ArgumentTypeError(f"{text!r} is not a time such as 90s, 30m, 2h or 1d")
    try:
        return timedelta(**{_UNITS[found[2]]: float(found[1])})
    except OverflowError:
        raise ArgumentTypeError(f"{text!r} is too long") from None


def _time(text: str) -> datetime | timedelta:
    """Return a time of the day, or a time ago. Without a zone it is in the time zone of the settings."""
    if _SPAN.fullmatch(text):
        return _span(text)
    try:
        found = parse_datetime(text)
    except ValueError:
        found = None
    if found is None:
        raise ArgumentTypeError(f"{text!r} is not a time such as 2h, or 2026-11-27T02:00")
    if not EARLIEST <= found.year <= LATEST:
        raise ArgumentTypeError(f"{text!r} is not a time from {EARLIEST} to {LATEST}")
    return found if is_aware(found) else make_aware(found)
