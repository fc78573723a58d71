"""Worker processes that die, or have to be replaced, again and again, and the task function that ran in them.

A task that ends its process comes back when a cleaner recovers it, and ends the next process. Rows of ended
workers tell this. The reads are bounded: at most ``MOST_ROWS`` ended workers and ``MOST_FINISHED`` finished tasks.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import TextField
from django.db.models.functions import Cast
from django.utils.translation import gettext as _

from django_txtasks.conf import get_config
from django_txtasks.core.ground.wording import span
from django_txtasks.core.rows.workers import MEMORY, STUCK, UNKNOWN
from django_txtasks.database.transactions import only_reading
from django_txtasks.insight.finding import manage
from django_txtasks.models import DatabaseNow, EndedWorker, FinishedTask, Moment, Outcome

NAME = "dying_workers"
"""Name of the problem and of the finding, for programs."""
WITHIN = timedelta(minutes=5)
FEWEST = 3
"""Number of deaths within ``WITHIN`` from which on they are a problem."""
MOST_ROWS, MOST_FINISHED = 500, 200
STATEMENT_TIMEOUT = timedelta(seconds=5)
LONGEST_LIST = 3
"""Number of functions that a sentence names."""


class Death(NamedTuple):
    """The end of one process: see ``workers.End``."""

    at: datetime
    host: str
    how: str
    held: Mapping[str, str]


class Suspect(NamedTuple):
    """A task function that may have ended processes.

    Attributes:
        queue: the queue of one of its tasks.
        ran_in: number of dead processes in which it ran.
        alone_in: the number in which no other function ran.
        succeeds: True if one of its tasks has succeeded meanwhile.
    """

    function: str
    queue: str
    ran_in: int
    alone_in: int
    succeeds: bool = False


@dataclass(frozen=True)
class Deaths:
    """Processes that died or were replaced within ``WITHIN``, often enough for a problem.

    Attributes:
        number: of processes, at most ``MOST_ROWS``.
        hows: number of processes by their end, such as ``signal 9``, the most frequent first.
        suspects: the functions that have probably ended them; empty = none ran in several of them.
        others: functions that ran in most of them, too, and are less likely.
    """

    alias: str
    number: int
    hows: Mapping[str, int]
    suspects: tuple[Suspect, ...] = ()
    others: tuple[Suspect, ...] = ()

    def names(self, function: str) -> bool:
        """Return True if this function is a suspect."""
        return any(one.function == function for one in self.suspects)

    def __str__(self) -> str:
        return f"{self.fact} {self.suspicion} {self.remedy}"

    @property
    def fact(self) -> str:
        """The number of deaths and their kinds, in the language of the reader."""
        kinds = ", ".join(f"{in_words(how)}: {number}" for how, number in self.hows.items())
        text = _("%(count)s worker processes died or were replaced within %(span)s (%(kinds)s).")
        return text % {"count": self.number, "span": span(WITHIN), "kinds": kinds}

    @property
    def suspicion(self) -> str:
        """The functions that ran in them."""
        if not self.suspects:
            return _("No task function ran in several of them.")
        parts = [
            _("%(function)s ran in %(n)s of %(all)s.")
            % {"function": one.function, "n": one.ran_in, "all": self.number}
            for one in self.suspects
        ]
        if self.others:
            others = [f"{one.function} ({one.ran_in})" for one in self.others]
            parts.append(_("Less likely: %(functions)s.") % {"functions": ", ".join(others)})
        return " ".join(parts)

    @property
    def remedy(self) -> str:
        """The advice."""
        if not self.suspects:
            return _(
                "Look at the machines first: memory that runs out ends processes by signal 9. The log of "
                "runworkers has the end of each process."
            )
        hold = [
            manage(f"txtasks_task hold --task {shlex.quote(one.function)}", self.alias)
            for one in self.suspects
        ]
        queues = sorted({shlex.quote(one.queue) for one in self.suspects})
        text = _(
            "Hold its waiting tasks: %(hold)s. If new ones keep coming, or none waits just then, pause the queue: "
            "%(pause)s. Then repair the function, or cancel the held tasks and discard the dead ones. Until then "
            "revive none of them: each may end a process again."
        )
        pause = manage(f"txtasks_queue pause {' '.join(queues)}", self.alias)
        return text % {"hold": "; ".join(hold), "pause": pause}


def deaths(alias: str) -> Deaths | None:
    """Return the recent deaths; None = there are too few for a problem.

    A process that was replaced because of ``--max-rss`` counts only if it was younger than ``WITHIN``.

    Raises:
        DatabaseError: the database cannot be reached.
    """
    with only_reading(alias, STATEMENT_TIMEOUT):
        found = list(_recent(alias))
        if _occasions(found) < FEWEST:
            return None
        suspects, others = _suspects(alias, found)
    hows = Counter(one.how for one in found)
    return Deaths(alias, len(found), dict(hows.most_common()), suspects, others)


def _recent(alias: str) -> Iterator[Death]:
    now = DatabaseNow()
    late = EndedWorker.objects.using(alias).filter(ended_at__gt=now - WITHIN).exclude(how="")
    rows = late.order_by("-ended_at")
    # If the column itself were selected, Django would sort by its conversion, and the database read every row.
    rows = rows.annotate(at=Cast("ended_at", Moment()), functions=Cast("held", TextField()))
    ends = rows.values_list("started_at", "at", "host", "how", "functions")[:MOST_ROWS]
    for started_at, ended_at, host, how, functions in ends:
        is_old = None in (started_at, ended_at) or ended_at - started_at >= WITHIN
        if not (how == MEMORY and is_old):
            yield Death(ended_at, host, how, _functions(functions))


def _functions(text: str | None) -> dict[str, str]:
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):  # a person can write any text with SQL
        return {}
    return {str(one): str(queue) for one, queue in found.items()} if isinstance(found, dict) else {}


def _occasions(found: Sequence[Death]) -> int:
    """Return the number of deaths, where unknown ends at once count as one, also on several hosts."""
    at_once = get_config().lease / 2
    number, unseen = 0, None
    for one in found:  # the last one first
        if one.how == UNKNOWN:
            if unseen is not None and unseen - one.at <= at_once:
                continue
            unseen = one.at
        number += 1
    return number


def _suspects(
    alias: str, found: Sequence[Death]
) -> tuple[tuple[Suspect, ...], tuple[Suspect, ...]]:
    """Return the functions that have probably ended these processes, and others that ran in most of them.

    Only functions that ran in most of them count. A function that ran alone in one of them is the likeliest, then
    a function of which no task has succeeded meanwhile, then the function with the most of them. A process that
    was replaced for its memory is no evidence against the function that was alone in it.
    """
    ran_in = Counter(function for one in found for function in one.held)
    alone_in = Counter(
        next(iter(one.held)) for one in found if len(one.held) == 1 and one.how != MEMORY
    )
    queues = {function: queue for one in found for function, queue in one.held.items()}
    most = max(ran_in.values(), default=0)
    fewest = min(most, len(found) // 2 + 1)
    names = [function for function, number in ran_in.items() if number >= max(2, fewest)]
    succeeded = _succeeded(alias) if len(names) > 1 else set()
    ranked = sorted(
        Suspect(one, queues[one], ran_in[one], alone_in[one], one in succeeded) for one in names
    )
    ranked.sort(key=_likelihood, reverse=True)
    likely = [one for one in ranked if _likelihood(one) == _likelihood(ranked[0])]
    others = ranked[len(likely) :]
    return tuple(likely[:LONGEST_LIST]), tuple(others[:LONGEST_LIST])


def _likelihood(one: Suspect) -> tuple[bool, bool, int]:
    return one.alone_in > 0, not one.succeeds, one.ran_in


def _succeeded(alias: str) -> set[str]:
    """Return the functions of the tasks that have succeeded last."""
    rows = FinishedTask.objects.using(alias).filter(finished_at__gt=DatabaseNow() - WITHIN)
    ends = rows.order_by("-finished_at").values_list("task_name", "outcome")[:MOST_FINISHED]
    return {name for name, outcome in ends if outcome == Outcome.SUCCEEDED}


def in_words(how: str) -> str:
    """Return the end of a process for people."""
    if how == UNKNOWN:
        return _("nobody saw how")
    if how == MEMORY:
        return _("more memory than --max-rss allows")
    if how == STUCK:
        return _("a task did not end after its timeout")
    if number := re.fullmatch(r"signal (\d+)", how):
        names = {one.value: f" ({one.name})" for one in signal.Signals}
        return _("signal %(n)s") % {"n": number[1] + names.get(int(number[1]), "")}
    if number := re.fullmatch(r"exit code (\d+)", how):
        return _("exit code %(n)s") % {"n": number[1]}
    return how
