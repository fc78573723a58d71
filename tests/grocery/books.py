"""The account of a month: compares what was asked with what has run, what it did, and what is left.

Its facts come from independent places: the answers that web processes got, the lines of task functions in a file,
the rows that these functions wrote, and the tables of the tasks after all has calmed down.
"""

from __future__ import annotations

import itertools
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings

from django_txtasks.models import Batch, FinishedTask, Outcome, Status, Task, Wait
from grocery import tasks, web
from grocery.models import Asked, Cancelled, Effect, Token

CUT_SHORT = {"WorkerLost", "WorkerStopped"}
EXACTLY_ONCE = {"atomic", "retrying", "receipt"}
AT_MOST_ONCE = {"default", "compensated", "async default"}
"""Kinds that do not run again after a crash."""
STEPS = {"steps": ("step 1", "step 2", "step 3"), "async steps": ("step 1", "step 2")}
LATE_SECONDS = 10
"""No tick gets a task while the schedule's last one has been due for longer than this, and has not begun."""
UNCOUNTED = {"unique", "batch"}
"""Kinds whose effects have another key than the request."""
FOLLOW_UPS = {"thanks", "heard", "refund", "told", "tick", "night"}


class Books:
    """All that is known at the end of a month."""

    def __init__(self, promises: Path, runs: Path) -> None:
        self.promised: dict[str, set[str]] = {"begun": set(), "committed": set(), "refused": set()}
        for line in promises.read_text().splitlines():
            word, _, name = line.partition(" ")
            self.promised[word].add(name)
        self.runs, self.runs_of_keys = Counter[str](), Counter[tuple[str, str]]()
        self.task_of: dict[tuple[str, str], str] = {}
        for line in runs.read_text().splitlines():
            kind, key, task = line.split("\t")
            self.runs[task] += 1
            self.runs_of_keys[kind, key] += 1
            self.task_of[kind, key] = task
        self.asked = list(Asked.objects.all())
        self.live = {task.id: task for task in Task.objects.all()}
        self.finished = {task.id: task for task in FinishedTask.objects.all()}
        effects = list(Effect.objects.values_list("kind", "key", "number"))
        self.effects = Counter((kind, key) for kind, key, _ in effects)
        self.newest: dict[str, int] = defaultdict(int)
        for kind, key, number in effects:
            if kind == "unique":
                self.newest[key] = max(number, self.newest[key])
        self.told = {key: number for kind, key, number in effects if kind == "told"}

    def figures(self) -> dict[str, Any]:
        """Return what happened, in numbers."""
        kinds = Counter(one.kind for one in self.asked)
        dead = Counter(
            f"{one.kind}: {self._reason(self.live[one.task])}"
            for one in self.asked
            if one.task in self.live
        )
        return {
            "requests": len(self.promised["begun"]),
            "committed": len({one.request for one in self.asked}),
            "rolled back": len(self.promised["refused"]),
            "tasks": len(self.live) + len(self.finished),
            "asked": dict(kinds.most_common()),
            "dead": dict(dead.most_common()),
            "crashes": sum(one.crashes for one in self._rows()),
            "runs again after a crash": sum(
                self.runs[str(one.id)] > 1 + one.failures for one in self._rows() if one.crashes
            ),
            "merged": sum(one.outcome == Outcome.MERGED for one in self.finished.values()),
            "ticks": {name: len(self._ticks(name)) for name in ("tick", "night")},
        }

    def complaints(self) -> list[str]:
        """Return a sentence for each promise that was not kept."""
        checks = (
            self._promises, self._ends, self._strangers, self._counts, self._hooks, self._steps, self._keys,
            self._merged, self._batches, self._cancelled, self._results, self._schedules, self._leftovers,
        )  # fmt: skip
        return list(itertools.chain.from_iterable(check() for check in checks))

    def _rows(self) -> Iterator[Any]:
        return itertools.chain(self.live.values(), self.finished.values())

    def _of(self, *kinds: str) -> list[Asked]:
        return [one for one in self.asked if one.kind in kinds]

    def _reason(self, task: Task) -> str:
        return task.errors[-1]["type"] if task.errors else "no error"

    def _has_succeeded(self, one: Asked) -> bool:
        row = self.finished.get(one.task)
        return row is not None and row.outcome == Outcome.SUCCEEDED

    # -- nothing is lost, nothing else ran ----------------------------------------------------------------

    def _promises(self) -> Iterator[str]:
        there = {one.request for one in self.asked}
        for name in self.promised["committed"] - there:
            yield f"lost: request {name} was committed, and is not there"
        for name in self.promised["refused"] & there:
            yield f"request {name} was rolled back, and is there"

    def _ends(self) -> Iterator[str]:
        """Each committed task has ended, in one place, for a reason that is known."""
        for one in self.asked:
            row, is_finished = self.live.get(one.task), one.task in self.finished
            if one.kind == "batch":
                continue
            if row is not None and is_finished:
                yield f"{one.kind} {one.task} is finished, and is not"
            elif row is not None and row.status != Status.DEAD:
                yield f"{one.kind} {one.task} has not ended: {row.status}, {row.attempt}, {row.errors[-1:]}"
            elif row is not None and not self._may_be_dead(one, row):
                yield f"{one.kind} {one.task} is dead: {row.errors}"
            elif row is None and not is_finished:
                is_removed = one.kind == "mail" and self.effects["mail", one.key]
                if not is_removed:
                    yield f"lost: {one.kind} {one.task} is nowhere"

    def _may_be_dead(self, one: Asked, row: Task) -> bool:
        reason = self._reason(row)
        if one.kind in AT_MOST_ONCE:
            return reason in CUT_SHORT
        if one.kind in ("member", "many"):
            return reason == "Reject"
        if one.kind == "timed out":
            return row.failures == row.max_attempts
        return one.kind == "failing" and row.failures == tasks.MOST_FAILURES

    def _strangers(self) -> Iterator[str]:
        """Nothing ran that no committed transaction has asked for."""
        known = {(one.kind, one.key) for one in self.asked}
        asked = {one.task for one in self.asked}
        steps = {key for kind, key in known if kind in STEPS}
        for kind, key in {*self.effects, *self.runs_of_keys} - known:
            if kind not in FOLLOW_UPS and not (kind.startswith("step ") and key in steps):
                yield f"{kind} {key} ran, and was never committed"
        follow_ups = ("thank_", "hear_", "refund", "tell_", "tick", "close_books_")
        for row in self._rows():
            name = row.task_name.rpartition(".")[2]
            is_hook = name.startswith(follow_ups) and not name.startswith("tell_carrier")
            if row.id not in asked and not is_hook:
                yield f"{row.task_name} {row.id} is there, and was never committed"

    # -- nothing is doubled -------------------------------------------------------------------------------

    def _counts(self) -> Iterator[str]:
        for one in self.asked:
            if one.kind in UNCOUNTED or one.kind in STEPS:
                continue
            effects, runs = self.effects[one.kind, one.key], self.runs[str(one.task)]
            row = self.live.get(one.task) or self.finished.get(one.task)
            if one.kind in EXACTLY_ONCE and effects != 1:
                yield f"{one.kind} {one.task} had {effects} effects instead of 1"
            if one.kind in AT_MOST_ONCE and row and runs > 1 + row.failures:
                yield f"{one.kind} {one.task} ran {runs} times with {row.failures} failures"
            if self._has_succeeded(one) and not effects:
                yield f"{one.kind} {one.task} has succeeded without its effect"
            if row and runs > row.attempt:
                yield f"{one.kind} {one.task} ran {runs} times in {row.attempt} attempts"

    def _hooks(self) -> Iterator[str]:
        for kind, hook in (
            ("idempotent", "thanks"),
            ("failing", "heard"),
            ("compensated", "refund"),
        ):
            for one in self._of(kind):
                is_due = self._has_succeeded(one) if kind == "idempotent" else one.task in self.live
                if self.effects[hook, one.key] != is_due:
                    yield f"{kind} {one.task}: {self.effects[hook, one.key]} {hook} instead of {int(is_due)}"

    def _steps(self) -> Iterator[str]:
        for one in self._of(*STEPS):
            for step in STEPS[one.kind]:
                if self.effects[step, one.key] != 1:
                    yield f"{one.kind} {one.task}: {step} was done {self.effects[step, one.key]} times"

    def _keys(self) -> Iterator[str]:
        found = defaultdict(set)
        for one in self._of("once"):
            found[one.key].add(one.task)
        for key, ids in found.items():
            if len(ids) > 1:
                yield f"once {key}: {len(ids)} tasks"

    def _merged(self) -> Iterator[str]:
        """Each request under a unique key has a run with its own or with newer arguments."""
        for one in self._of("unique"):
            number = int(one.request.rpartition("-")[2])
            if self.newest[one.key] < number:
                yield f"unique {one.task}: no run for request {number} of {one.key}"
            row = self.finished.get(one.task)
            if row and row.outcome == Outcome.MERGED and row.merged_into not in self.finished:
                yield f"unique {one.task} was merged into {row.merged_into}, which has not finished"

    def _batches(self) -> Iterator[str]:
        asked = self._of("batch")
        members = defaultdict(list)
        for one in self._of("member"):
            members[one.request].append(one.task)
        for one in asked:
            key = str(one.task)
            has_failed = any(member in self.live for member in members[one.request])
            if self.effects["told", key] != 1 or self.told[key] != has_failed:
                yield f"batch {key} was told {self.effects['told', key]} times, failed {self.told.get(key)}"
        if open_ones := Batch.objects.filter(finished_at=None).count():
            yield f"{open_ones} batches have not ended"

    def _cancelled(self) -> Iterator[str]:
        answers = dict(Cancelled.objects.values_list("task", "answer"))
        for one in self._of("later"):
            runs, is_cancelled = self.runs[str(one.task)], answers.get(one.task) == "CANCELLED"
            if is_cancelled and runs:
                yield f"later {one.task} was cancelled, and ran"
            if not is_cancelled and not runs:
                yield f"later {one.task} did not run: {answers.get(one.task)}"

    def _results(self) -> Iterator[str]:
        answered = {token.key: token.counts for token in Token.objects.all()}
        for one in self._of("idempotent", "async", "async steps", "steps"):
            row = self.finished.get(one.task)
            wanted = one.key
            if one.kind == "steps":
                wanted = web.ANSWER if answered.get(one.key) else "silence"
            if row is not None and row.result != wanted:
                yield f"{one.kind} {one.task} has the result {row.result!r} instead of {wanted!r}"

    # -- schedules, and what is left ----------------------------------------------------------------------

    def _ticks(self, name: str) -> list[int]:
        return sorted(int(key) for kind, key in self.effects if kind == name)

    def _schedules(self) -> Iterator[str]:
        every = {
            "tick": max(1, settings.DAY_SECONDS // tasks.TICKS_A_DAY),
            "night": settings.DAY_SECONDS,
        }
        for name, seconds in every.items():
            ticks = self._ticks(name)
            for key in ticks:
                if self.effects[name, str(key)] > 1:
                    yield f"{name} {key} ran {self.effects[name, str(key)]} times"
            for before, after in itertools.pairwise(ticks):
                if after - before > seconds + 1 and not self._was_late(name, before):
                    yield f"{name}: none between {before} and {after}"

    def _was_late(self, name: str, tick: int) -> bool:
        """Return True if the task of a tick waited so long that the next ticks get no task."""
        row = self.finished.get(uuid.UUID(self.task_of[name, str(tick)]))
        return row is not None and row.started_at.timestamp() - tick > LATE_SECONDS

    def _leftovers(self) -> Iterator[str]:
        asked = {one.task for one in self.asked}
        for row in self.live.values():
            is_tick = row.status == Status.PENDING and row.args in (["tick"], ["night"])
            if row.id not in asked and not is_tick:
                yield f"{row.task_name} {row.id} has not finished: {row.status}, {row.errors[-1:]}"
        waits = Wait.objects.exclude(task_id__in=[*self.live, *self.finished])
        if waits.exists():
            yield f"{waits.count()} waits of tasks that are gone"
