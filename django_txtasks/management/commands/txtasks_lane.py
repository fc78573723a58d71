"""manage.py txtasks_lane"""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from django_txtasks.exceptions import ConfigError
from django_txtasks.features.lanes import changes as lane_changes
from django_txtasks.features.lanes.rules import KEYS, problem_of_name
from django_txtasks.features.lanes.status import LaneStatus, known_lanes, status_of_lanes
from django_txtasks.management.console import DatabaseCommand, switch
from django_txtasks.operations.record import user_of_process


class Command(DatabaseCommand):
    """Exit codes: 0 done, or it was so already; 1 wrong options; 2 the database cannot be queried."""

    help = "Shows lanes, overrides their limits, pauses and resumes them. Running tasks continue."
    of_database = "Database of the lanes"

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("verb", choices=["list", "limit", "pause", "resume"])
        parser.add_argument("lanes", nargs="*", metavar="LANE", help="Names of lanes.")
        parser.add_argument(
            "--at-most", type=int, metavar="N", help="limit: tasks that run at once."
        )
        parser.add_argument(
            "--rate", metavar="N/UNIT", help="limit: starts, such as 10/s or 100/m."
        )
        parser.add_argument(
            "--burst", type=int, metavar="N", help="limit: tasks that may start at the same time."
        )
        parser.add_argument(
            "--weight", type=float, metavar="W", help="limit: share compared with other lanes."
        )
        switch(
            parser,
            "--as-in-settings",
            "limit: follow the settings again, except for the limits that are given.",
        )
        parser.add_argument("--reason", default="", help="pause: a note for others.")

    def run(self, alias: str, options: dict[str, Any]) -> None:
        """Carry out the verb."""
        names, verb = options["lanes"], options["verb"]
        for name in names:
            if problem := problem_of_name(name):
                raise CommandError(f"{name!r} is not a lane: {problem}.")
        if verb == "list":
            for one in status_of_lanes(alias, names or known_lanes(alias)):
                self.show(line_of(one))
            return
        if not names:
            raise CommandError(f"Say which lanes to {verb}.")
        for name in names:
            self.show(f"{name}: {getattr(self, f'_{verb}')(alias, name, options)}")
        if old := lane_changes.workers_that_ignore_lanes(alias):
            self.warn(
                "Workers of an older release ignore the limits of lanes until they are replaced: "
                f"{', '.join(old)}"
            )

    def _limit(self, alias: str, name: str, options: dict[str, Any]) -> str:
        given = {key: options[key] for key in KEYS if options[key] is not None}
        if not (given or options["as_in_settings"]):
            raise CommandError(
                "Say which limit: --at-most, --rate, --burst, --weight or --as-in-settings."
            )
        values = {**dict.fromkeys(KEYS), **given} if options["as_in_settings"] else given
        try:
            lane_changes.limit(alias, name, values, by=user_of_process())
        except ConfigError as error:
            raise CommandError(str(error)) from None
        (now,) = status_of_lanes(alias, [name])
        return f"its limits are {now.limits}"

    def _pause(self, alias: str, name: str, options: dict[str, Any]) -> str:
        is_new = lane_changes.pause(alias, name, by=user_of_process(), reason=options["reason"])
        return "paused" if is_new else "was paused already"

    def _resume(self, alias: str, name: str, options: dict[str, Any]) -> str:
        was = lane_changes.resume(alias, name, by=user_of_process())
        return "resumed" if was else "was not paused"


def line_of(lane: LaneStatus) -> str:
    """Return a lane as one line for people."""
    waiting = f"{lane.waiting}{' or more' if lane.may_have_more else ''} waiting"
    parts = [f"limits: {lane.limits}", f"{lane.running} running", waiting]
    if not lane.is_known:
        parts.append("not served, no rule in TXTASKS['lanes']")
    if lane.paused_at is not None:
        why = f" ({lane.reason})" if lane.reason else ""
        parts.append(
            f"paused since {lane.paused_at:%Y-%m-%d %H:%M:%S} by {lane.paused_by or '?'}{why}"
        )
    elif lane.is_full:
        parts.append("full")
    elif lane.held_for:
        parts.append(f"asked to wait for {lane.held_for:.1f} s")
    elif lane.opens_in:
        parts.append(f"next start in {lane.opens_in:.1f} s")
    return f"{lane.name}: {', '.join(parts)}"
