"""A poisoned async task beside others: an event loop that takes all of them, and threads that take last chances.

A crash of a process is a crash of each task in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

ONE_KIND = "each waiting row is claimable by exactly one kind"
FEW_DIE = "no more tasks die than run beside the poison in threads"
LOOP, THREADS = "loop", "threads"


class LoopRules(NamedTuple):
    """The rules of the claim; each can be left out.

    Attributes:
        loop_leaves: the loop leaves the last chance after a crash.
        threads_take: the threads take it.
    """

    loop_leaves: bool = True
    threads_take: bool = True

    def kinds(self, crashes: int, max_crashes: int) -> list[str]:
        """Return the kinds that may claim a row."""
        is_last = crashes > 0 and crashes >= max_crashes - 1
        kinds = [LOOP] if not (is_last and self.loop_leaves) else []
        return kinds + [THREADS] * (is_last and self.threads_take)


class Row(NamedTuple):
    """A task: "waiting", where it runs, "done" or "dead"."""

    at: str = "waiting"
    crashes: int = 0


Rows = tuple[Row, ...]
"""The first one is the poison."""


def first(tasks: int) -> Rows:
    """The state before anything has happened."""
    return (Row(),) * tasks


def steps(
    rules: LoopRules, threads: int, max_crashes: int, rows: Rows
) -> Iterator[tuple[str, Rows]]:
    """Yield each step that may come next, and the state after it. Tasks of one state are interchangeable."""
    room = threads - sum(one.at == THREADS for one in rows)
    for n, row in enumerate(rows):
        if row.at == "waiting":
            for kind in rules.kinds(row.crashes, max_crashes):
                if kind == LOOP or room > 0:
                    yield f"{kind} claims {n}", _with(rows, n, row._replace(at=kind))
        elif row.at in (LOOP, THREADS) and n:
            yield f"{n} ends", _with(rows, n, row._replace(at="done"))
        elif row.at in (LOOP, THREADS):
            yield (
                f"the poison ends the process with the {row.at}",
                tuple(_crashed(one, max_crashes) if one.at == row.at else one for one in rows),
            )


def one_kind(rules: LoopRules, max_crashes: int, rows: Rows) -> bool:
    """Say whether each waiting row is claimable by exactly one kind."""
    waiting = [one for one in rows if one.at == "waiting"]
    return all(len(rules.kinds(one.crashes, max_crashes)) == 1 for one in waiting)


def few_die(threads: int, rows: Rows) -> bool:
    """Say whether no more tasks are dead than can run in the threads at once."""
    return sum(one.at == "dead" for one in rows) <= threads


def settled(rows: Rows) -> bool:
    """Say whether each task has ended."""
    return all(one.at in ("done", "dead") for one in rows)


def _crashed(row: Row, max_crashes: int) -> Row:
    crashes = row.crashes + 1
    return Row("dead" if crashes >= max_crashes else "waiting", crashes)


def _with(rows: Rows, n: int, row: Row) -> Rows:
    """Return the rows with another one at this place; the others of the poison are in order, as they are alike."""
    changed = (*rows[:n], row, *rows[n + 1 :])
    return (changed[0], *sorted(changed[1:]))
