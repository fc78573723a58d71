"""Two poisoned tasks beside others, in a process with several slots, and the last chances that run alone.

A crash of a process is a crash of each task in it. Last chances run in a process of their own, or, where no
supervisor starts one, in the same process while it holds nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

ONE_KIND = "each waiting row is claimable by exactly one kind"
NO_INNOCENT_DIES = "no task is dead but the poisons"
POISONS = 2
BESIDE, ALONE = "beside others", "alone"


class LastChanceRules(NamedTuple):
    """The rules of the claim; each can be left out.

    Attributes:
        leaves: claims beside others leave the last chance after a crash.
        takes: claims alone take it.
        waits: a claim alone waits until its process holds nothing.
        keeps_free: nothing is claimed beside a last chance.
    """

    leaves: bool = True
    takes: bool = True
    waits: bool = True
    keeps_free: bool = True

    def kinds(self, crashes: int, max_crashes: int) -> list[str]:
        """Return the kinds of claims that may take a row."""
        is_last = crashes > 0 and crashes >= max_crashes - 1
        kinds = [BESIDE] if not (is_last and self.leaves) else []
        return kinds + [ALONE] * (is_last and self.takes)


class Row(NamedTuple):
    """A task: "waiting", how it runs, "done" or "dead"."""

    at: str = "waiting"
    crashes: int = 0


Rows = tuple[Row, ...]
"""The first ones are the poisons."""


def first(tasks: int) -> Rows:
    """The state before anything has happened."""
    return (Row(),) * tasks


def steps(
    rules: LastChanceRules, max_crashes: int, has_own_process: bool, rows: Rows
) -> Iterator[tuple[str, Rows]]:
    """Yield each step that may come next, and the state after it. Tasks of one state are interchangeable."""
    for n, row in enumerate(rows):
        if row.at == "waiting":
            for kind in rules.kinds(row.crashes, max_crashes):
                if _has_room(rules, kind, has_own_process, rows):
                    yield f"{n} is claimed {kind}", _with(rows, n, row._replace(at=kind))
        elif row.at in (BESIDE, ALONE) and n >= POISONS:
            yield f"{n} ends", _with(rows, n, row._replace(at="done"))
        elif row.at in (BESIDE, ALONE):
            lost = {row.at} if has_own_process else {BESIDE, ALONE}
            yield (
                f"poison {n} ends its process, {row.at}",
                tuple(_crashed(one, max_crashes) if one.at in lost else one for one in rows),
            )


def _has_room(rules: LastChanceRules, kind: str, has_own_process: bool, rows: Rows) -> bool:
    """Say whether the process may claim a row of this kind beside what it holds."""
    holds = {one.at for one in rows}
    if kind == BESIDE:
        return has_own_process or ALONE not in holds or not rules.keeps_free
    others = {ALONE} if has_own_process else {BESIDE, ALONE}
    return not (others & holds) or not rules.waits


def one_kind(rules: LastChanceRules, max_crashes: int, rows: Rows) -> bool:
    """Say whether each waiting row is claimable by exactly one kind."""
    waiting = [one for one in rows if one.at == "waiting"]
    return all(len(rules.kinds(one.crashes, max_crashes)) == 1 for one in waiting)


def no_innocent_dies(rows: Rows) -> bool:
    """Say whether at most the poisons are dead."""
    return all(one.at != "dead" for one in rows[POISONS:])


def settled(rows: Rows) -> bool:
    """Say whether each task has ended."""
    return all(one.at in ("done", "dead") for one in rows)


def _crashed(row: Row, max_crashes: int) -> Row:
    crashes = row.crashes + 1
    return Row("dead" if crashes >= max_crashes else "waiting", crashes)


def _with(rows: Rows, n: int, row: Row) -> Rows:
    """Return the rows with another one at this place; poisons are alike, and so are the others."""
    changed = (*rows[:n], row, *rows[n + 1 :])
    return (*sorted(changed[:POISONS]), *sorted(changed[POISONS:]))
