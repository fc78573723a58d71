"""The real statements beside plain Python, in random order, with everything old tried again and again.

Old attempts, sights of workers and lists of orphans stay in their bundles, so that each of them comes
late sooner or later. After each rule the whole tables are compared. What happens at the same time
is not tried here: see test_model.py for every order, and test_lifecycle.py for locks.

The same examples are tried each time. To try others, and more of them:

    TXTASKS_TEST_EXAMPLES=2000 pytest tests/test_state_machine.py
"""

from __future__ import annotations

import os
import time
from datetime import timedelta

import helpers
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)
from model.package import ALIAS, assert_alike
from model.tables import PERSON
from model.workers_machine import CallersAndWorkers, ended_of

from django_txtasks.core.ground.retention import Horizon
from django_txtasks.core.rows import cleaning, overdue, workers
from django_txtasks.core.rows.attempts import Arrow
from django_txtasks.exceptions import ClaimLost

ANY_AGE = timedelta(seconds=-1)
"""Older than in a second: all rows, also those of this very millisecond."""


class Machine(CallersAndWorkers):
    """And what cleaners and people do, and what must be so after every rule."""

    sights, orphans = Bundle("sights"), Bundle("orphans")

    # -- cleaners and people ------------------------------------------------------------------------------

    @rule(target=sights)
    def see_workers(self):
        seen = cleaning.living_workers(ALIAS)
        assert {worker.id: worker.beat for worker in seen} == {
            key: row.beat for key, row in self.tables.workers.items() if not row.lost
        }
        self.old_sights += seen
        return multiple(
            *sorted(seen, key=lambda worker: list(self.tables.workers).index(worker.id))
        )

    @rule(sight=sights)
    def lose(self, sight):
        assert self.package.lose(sight) == self.tables.lose(sight.id, sight.beat)

    @rule(target=orphans, at_once=st.booleans())
    def see_orphans(self, at_once):
        """And recover them, now or later or both."""
        seen = helpers.orphans(ALIAS)
        assert {orphan.attempt.fence for orphan in seen} == self.tables.orphans()
        self.old_orphans += seen
        for orphan in seen if at_once else ():
            self._recover(orphan, stopped=False)
        return multiple(*seen)

    @precondition(lambda self: self._busy())
    @rule(target=orphans, by_hand=st.booleans(), at_once=st.booleans())
    def crash(self, by_hand, at_once):
        """Declare a worker with claims lost, or delete its row by hand."""
        worker = self._busy()[0]
        if by_hand:
            helpers.execute("DELETE FROM txtasks_worker WHERE id = %s", worker.hex)
            del self.tables.workers[worker]
        else:
            workers.give_up(ALIAS, worker)
            self.tables.give_up(worker)
        return self.see_orphans(at_once)

    def _busy(self):
        return [key for key in self.tables.workers if self.tables.claims_of(key)]

    @rule(orphan=orphans, stopped=st.booleans())
    def recover(self, orphan, stopped):
        self._recover(orphan, stopped=stopped)

    @precondition(lambda self: self._busy())
    @rule()
    def stop(self):
        """A worker has to end in the midst of its tasks: it lets them go."""
        worker = self._busy()[0]
        workers.give_up(ALIAS, worker)
        self.tables.give_up(worker)
        holder = cleaning.Holder(worker, "a worker")
        for orphan in cleaning.orphans(ALIAS, holder, cleaning.held_by(ALIAS, holder)):
            self._recover(orphan, stopped=True)

    def _recover(self, orphan, *, stopped):
        try:
            arrow = self.package.recover(orphan, stopped=stopped).value
        except ClaimLost:
            arrow = None
        assert arrow == self.tables.recover(orphan.attempt.fence, stopped=stopped)

    @rule()
    def tidy_up(self):
        cleaning.forget_lost_workers(ALIAS, ANY_AGE)
        self.tables.forget_lost_workers()
        cleaning.expire(ALIAS, keeps=bool)
        self.tables.expire()
        cleaning.prune(ALIAS, Horizon(ANY_AGE))
        self.tables.finished.clear()
        for queue in ("default", "mail"):
            found = [
                one.task_id
                for priority in overdue.priorities(ALIAS, queue)
                for one in overdue.page(ALIAS, queue, priority, ANY_AGE, behind=None, limit=1000)
            ]
            assert set(found) == set(self.tables.claimable([queue]))
            assert overdue.mark_notified(ALIAS, found) == found

    @rule(name=st.sampled_from(sorted(PERSON)), ids=CallersAndWorkers.some_tasks)
    def a_person_acts(self, name, ids):
        moved = {task_id for task_id, _ in self.package.by_person(name, ids)}
        assert moved == self.tables.by_person(name, ids)

    # -- what must be so after every rule --------------------------------------------------------------------

    @invariant()
    def the_tables_are_alike(self):
        assert_alike(self.tables)
        assert helpers.runs("effect") == self.effects
        # The next ids and times come later, on SQLite too: rows are claimed in the same order each time.
        time.sleep(0.002)

    @invariant()
    def nothing_old_has_an_effect(self):
        """All that came late is tried again after each claim and each beat."""
        if not self.something_is_new:
            return
        self.something_is_new = False
        late = [one for one in self.old_attempts if not self.tables.holds(one.fence)]
        buried = [ended_of((attempt, Arrow.BURY, False)) for attempt in late]
        assert self.package.record(buried, keep=True).lost == buried
        for ended in buried:
            with pytest.raises(ClaimLost):
                self.package.move(ended)
        for sight in self.old_sights:
            if not self.tables.would_lose(sight.id, sight.beat):
                assert not self.package.lose(sight)
        for orphan in self.old_orphans:
            if not self.tables.holds(orphan.attempt.fence):
                with pytest.raises(ClaimLost):
                    self.package.recover(orphan, stopped=False)

    @invariant()
    def crashes_are_bounded(self):
        assert all(row.crashes <= row.max_crashes for row in self.tables.tasks.values())


EXAMPLES = os.environ.get("TXTASKS_TEST_EXAMPLES")


@pytest.mark.usefixtures("rows")
def test_the_statements_do_what_plain_python_says():
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=int(EXAMPLES or 30),
            stateful_step_count=50,
            # Making a failing example small takes minutes: only when it is asked for.
            phases=[Phase.generate, *([Phase.shrink] if EXAMPLES else [])],
            derandomize=not EXAMPLES,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
