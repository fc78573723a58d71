"""One call of an operator: slices of tasks, each in a transaction of its own."""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from itertools import islice
from typing import Any

from django.db import connections, transaction

from django_txtasks.database.transactions import repeated
from django_txtasks.exceptions import InvalidChoice
from django_txtasks.models import Status
from django_txtasks.operations.choice import Choice, seconds_of
from django_txtasks.operations.moved import MAX_COUNTED, Moved, Taken
from django_txtasks.operations.operators import Spread
from django_txtasks.operations.pages import Bound, Walk, click_of, rows_of_ids
from django_txtasks.operations.record import Record
from django_txtasks.operations.rows import Click, Row
from django_txtasks.operations.verbs import VERBS, Verb
from django_txtasks.operations.watcher import Watcher

ROWS_PER_SLICE = 500
UNKNOWN = "there is no such task, or it has ended and is no longer kept"


@dataclass(frozen=True, kw_only=True)
class Order:
    """One call.

    Attributes:
        by: a user of the site, or the name of a person.
        spread: each task becomes due at a random time within this span.
        status: only tasks in this state; None = in each state of the verb.
        clicked: the moment of the call, if it was before; None = now.
        task: the task that carries the call out: its entry in the admin's log gets the counts.
        watcher: see ``Watcher``.
    """

    name: str
    choice: Choice
    alias: str
    spread: timedelta | float | None = None
    by: Any = ""
    status: Status | None = None
    clicked: Click | None = None
    task: uuid.UUID | None = None
    watcher: Watcher = field(default_factory=Watcher)

    @cached_property
    def click(self) -> Click:
        """The moment of the call. Tasks that come later are not chosen, also after a dry run and a question."""
        return self.clicked or click_of(self.alias, seconds_of(self.spread))

    @property
    def verb(self) -> Verb:
        """The verb of this name."""
        return VERBS[self.name]

    def first_ids(self, most: int, bound: Bound) -> tuple[list[uuid.UUID], bool]:
        """Return the ids of the tasks that ``carry_out`` would change first, and whether the bound was reached."""
        rows, walk = self._found(self.click, bound)
        ids = [row.id for row in islice(rows, most)]
        return ids, walk is not None and walk.is_cut

    def dry_run(self) -> Moved:
        """Return what ``carry_out`` would do, and change nothing."""
        rows, walk = self._found(self.click)
        most = min(self.choice.limit or MAX_COUNTED, MAX_COUNTED)
        moved = Moved(dry_run=True)
        for slice_ in _sliced(islice(rows, most)):
            wrong = self._wrong(slice_)
            right = [row for row in slice_ if row.id not in wrong]
            moved = moved.plus(right, Taken(dict.fromkeys(row.id for row in right), wrong))
        return self._with_rest(moved, rows, walk, counts_more=most < MAX_COUNTED)

    def carry_out(self) -> Generator[Moved, None, None]:
        """Yield the counts so far after each slice has committed. If the caller stops, these slices stay done."""
        self._refuse_one_long_transaction()
        known, now = self.click, click_of(self.alias, seconds_of(self.spread))
        rows, walk = self._found(known._replace(end=now.end))
        moved = self.watcher.moved
        record = Record(self.name, self.verb.done, self.choice, self.by, task=self.task)
        try:
            for slice_ in _sliced(islice(rows, self.choice.limit)):
                self.watcher.may_go_on()
                moved = repeated(self.alias, self._slice(slice_, moved, now, record))
                yield moved
        finally:
            record.tell(moved)
        yield self._with_rest(moved, rows, walk, counts_more=self.choice.limit is not None)

    def _slice(self, rows: list[Row], before: Moved, now: Click, record: Record) -> Any:
        """Return a function that changes one slice in its own transaction, and returns the counts with it."""
        wrong = self._wrong(rows)
        right = [row for row in rows if row.id not in wrong]

        def work() -> Moved:
            moved = before.without(wrong)
            with transaction.atomic(using=self.alias):
                for status in dict.fromkeys(row.status for row in right):
                    group = [row for row in right if row.status == status]
                    moved = moved.plus(group, self.verb.take(self.alias, group, self._times(now)))
                record.note(moved)
                self.watcher.done(rows[-1].place, moved)
            return moved

        return work

    def _times(self, now: Click) -> Spread | None:
        seconds = seconds_of(self.spread)
        if Status.DEAD in self.verb.walked and self.verb.can_spread:
            # later than the click, even if the clock has been set back: the walk of dead tasks ends at the click
            return Spread(now.at, seconds, after=self.click.at)
        # the walk of tasks that are due later begins behind these times
        return Spread(now.at, seconds) if seconds or self.verb.later else None

    def _found(self, click: Click, bound: Bound | None = None) -> tuple[Iterator[Row], Walk | None]:
        if self.choice.ids:
            return iter(self._rows_of_ids()), None
        states = self.verb.walked if self.status is None else (self.status,)
        walk = Walk(
            self.alias, self.choice, states, click, later=self.verb.later, watcher=self.watcher, bound=bound,
        )  # fmt: skip
        return walk.rows(), walk

    def _rows_of_ids(self) -> Iterator[Row]:
        for ids in _sliced(iter(self.choice.ids)):
            found = {row.id: row for row in rows_of_ids(self.alias, ids)}
            yield from (found.get(one) or Row(one) for one in ids)

    def _wrong(self, rows: Iterable[Row]) -> dict[uuid.UUID, str]:
        """Return why rows are in no state for this verb, by id."""
        wanted = " or ".join(dict.fromkeys(self.verb.states))
        return {
            row.id: f"it is {row.status}, not {wanted}" if row.status else UNKNOWN
            for row in rows
            if row.status not in self.verb.states
        }

    def _with_rest(
        self, moved: Moved, rows: Iterator[Row], walk: Walk | None, *, counts_more: bool
    ) -> Moved:
        """Return the counts with the number of tasks behind the limit."""
        left = sum(1 for _ in islice(rows, MAX_COUNTED)) if counts_more else 0
        is_full = left >= MAX_COUNTED or (not counts_more and next(rows, None) is not None)
        return replace(
            moved, left_over=left, has_more=is_full or (walk is not None and walk.is_cut)
        )

    def _refuse_one_long_transaction(self) -> None:
        choice = self.choice
        blocks: list[Any] = connections[self.alias].atomic_blocks
        most = choice.limit or len(choice.ids) or ROWS_PER_SLICE + 1
        if most > ROWS_PER_SLICE and any(not block._from_testcase for block in blocks):
            raise InvalidChoice(
                f"A transaction is open, and this call may change more than {ROWS_PER_SLICE} tasks, each slice in "
                f"a transaction of its own. Call it outside of atomic(), or with limit={ROWS_PER_SLICE}."
            )


def _sliced(rows: Iterator[Any]) -> Iterator[list[Any]]:
    while found := list(islice(rows, ROWS_PER_SLICE)):
        yield found
