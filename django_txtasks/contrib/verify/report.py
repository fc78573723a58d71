"""The text of a verdict, for people and for programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from django_txtasks.contrib.verify.storm import Log
from django_txtasks.contrib.verify.verdict import Check, Verdict
from django_txtasks.core.ground.wording import counted

LOSING = ("cut off the broker", "delete the queue of hints", "purge the hints")
REQUIREMENTS = {
    1: "Committed tasks run",
    2: "Rolled-back tasks never run",
    3: "None runs twice unless its author allowed it",
    4: "Crashes are noticed; each task is retried or given up by its policy",
    5: "Losing every message costs only latency",
    0: "Everything is tidy afterwards",
}


def lines(verdict: Verdict, log: Log) -> Iterator[str]:
    """Yield the report for people."""
    yield from _storm(log)
    yield ""
    for number, requirement in REQUIREMENTS.items():
        yield f"{number or ' '} {requirement}"
        yield from (_check(check) for check in _of(verdict, number))
        if number == 5:
            yield _messages(verdict, log)
    yield ""
    yield from _figures(verdict, log)
    yield ""
    yield (
        "Every promise was kept."
        if passed(verdict, log)
        else "A PROMISE WAS BROKEN: see FAIL above."
    )


def as_dict(verdict: Verdict, log: Log) -> dict[str, Any]:
    """Return the report for programs."""
    return {
        "ok": passed(verdict, log),
        "checks": [{**dataclasses.asdict(check), "holds": check.holds} for check in verdict.checks],
        "figures": verdict.figures,
        "dead": verdict.dead,
        "faults": dict(log.done),
        "idle_faults": dict(log.idle),
        "hints_purged": log.hints_purged,
        "kills": log.kills,
        "restarts": log.restarts,
        "storm_seconds": round(log.storm, 2),
        "drain_seconds": round(log.drain, 2),
        "drained": log.drained,
    }


def passed(verdict: Verdict, log: Log) -> bool:
    """Return True if every check holds and the storm calmed down in time."""
    return verdict.ok and log.drained


def _storm(log: Log) -> Iterator[str]:
    yield f"In {log.storm:.1f} s of storm:"
    for name, count in sorted(log.done.items()):
        yield f"  {count:4} x {name}"
    if log.idle:
        yield f"  {sum(log.idle.values()):4} x there was nothing to break at that moment"


def _check(check: Check) -> str:
    if check.holds:
        return f"  ok    {check.sentence}"
    more = f" and {check.count - len(check.wrong)} more" if check.count > len(check.wrong) else ""
    return f"  FAIL  {check.sentence}: {'; '.join(check.wrong)}{more}"


def _messages(verdict: Verdict, log: Log) -> str:
    if not any(log.done[name] for name in LOSING):
        return "  -     not tried: no hint was purged"
    missing = int(verdict.figures["lost"] + verdict.figures["left"])
    return (
        f"  {'FAIL' if missing else 'ok  '}  {', '.join(f'{log.done[name]} x {name}' for name in LOSING)}; "
        f"tasks missing after that: {missing}"
    )


def _figures(verdict: Verdict, log: Log) -> Iterator[str]:
    figures = verdict.figures
    yield (
        f"enqueued    {figures['committed']} committed, {figures['refused']} rolled back or failed, "
        f"{figures['unknown']} with an unknown outcome"
    )
    yield (
        f"ended       {figures['finished']} finished ({figures['merged']} of them merged), "
        f"{figures['dead']} dead, {figures['left']} left"
    )
    yield from (f"            {count} dead: {reason}" for reason, count in verdict.dead.items())
    yield (
        f"among them  {_of_figure(figures, 'ticks', 'tick')} of a schedule{_passed(figures)}, "
        f"{_asyncs(figures)}{_of_figure(figures, 'step effects', 'step')}, "
        f"{figures['slept'] + figures['waited']} that slept or waited, "
        f"{_of_figure(figures, 'ended batches', 'end')} of batches ({figures['failed batches']} failed)"
    )
    yield _line(figures, "total queue", ["lost", "unexpected", "duplicated", "recovered"])
    yield f"counter     {figures['counter']} after {_of_figure(figures, 'increments', 'increment')}"
    yield (
        f"attempts    {_of_figure(figures, 'starts', 'start')}, {_of_figure(figures, 'failures', 'failure')}, "
        f"{_of_figure(figures, 'crashes', 'crash', 'crashes')} counted"
    )
    yield (
        f"recovery    {_of_figure(figures, 'second starts', 'task')} cut short by a kill started again, after "
        f"{figures['median second start']:.1f} s (median), {figures['slowest second start']:.1f} s (slowest)"
    )
    restarts = counted(log.restarts, "process", "processes")
    yield f"processes   {counted(log.kills, 'worker')} killed, {restarts} restarted"
    state = "" if log.drained else " and NOT DONE: tasks still wait"
    yield f"drain       {log.drain:.1f} s after the storm{state}"


def _of_figure(figures: dict[str, int | float], key: str, *nouns: str) -> str:
    return counted(int(figures[key]), *nouns)


def _passed(figures: dict[str, int | float]) -> str:
    passed = figures["passed ticks"]
    return f" (passed besides: {passed}, since a task of it had waited for 10 s)" if passed else ""


def _asyncs(figures: dict[str, int | float]) -> str:
    return f"{figures['async']} of async functions, " if figures["async"] else ""


def _line(figures: dict[str, int | float], name: str, keys: Iterable[str]) -> str:
    return f"{name} {', '.join(f'{key} {figures[key]}' for key in keys)}"


def _of(verdict: Verdict, number: int) -> Iterator[Check]:
    return (check for check in verdict.checks if check.number == number)
