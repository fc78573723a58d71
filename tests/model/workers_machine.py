"""The actions of callers and workers as rules: half of the machine in test_state_machine.py."""

from __future__ import annotations

import dataclasses
import time
import uuid
from contextlib import suppress
from datetime import timedelta

import helpers
from django.db import transaction
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    multiple,
    precondition,
    rule,
)
from probe import tasks as functions

from django_txtasks.core.rows import workers
from django_txtasks.core.rows.attempts import Arrow, Attempt, Counted, Ended, claims_of
from django_txtasks.exceptions import ClaimLost
from model.package import ALIAS, LATER, Package, RolledBack
from model.tables import Row, Tables, WorkerRow

FUNCTIONS = {
    functions.note: Row("default", 0, runs_again=False, max_crashes=3, due=True),
    functions.slow_once: Row("default", 0, runs_again=True, max_crashes=3, due=True),
    functions.die: Row("default", 0, runs_again=True, max_crashes=2, due=True),
    functions.mail: Row("mail", 7, runs_again=False, max_crashes=3, due=True),
}


OUTCOMES = {Arrow.FINISH: "succeeded", Arrow.CANCEL: "cancelled"}


def ended_of(one):
    attempt, arrow, later = one
    delay = LATER if later else timedelta(0)
    if arrow is Arrow.RELEASE and later:  # the arguments do not fit: nothing counts
        return Ended(
            attempt=attempt,
            arrow=arrow,
            delay=delay,
            error={"type": "Error"},
            counted=Counted.NOTHING,
        )
    return Ended(attempt=attempt, arrow=arrow, delay=delay, error={"type": "Error"})


class CallersAndWorkers(RuleBasedStateMachine):
    """Each rule does the same to the database and to ``tables``."""

    tasks, attempts = Bundle("tasks"), Bundle("attempts")
    places = st.integers(0, 1)
    seldom = st.sampled_from([False, False, True])
    queues = st.sampled_from([("default",), ("default", "mail")])
    limits = st.integers(1, 4)
    some_tasks = st.lists(tasks, min_size=1, max_size=4)
    endings = st.lists(
        st.tuples(attempts, st.sampled_from(Arrow), seldom),
        min_size=1,
        max_size=3,
        unique_by=lambda one: one[0].fence,
    )
    finishes = st.lists(attempts, min_size=1, max_size=3, unique_by=lambda one: one.fence)
    hinting = {
        "place": places,
        "queues": queues,
        "ids": st.lists(tasks, max_size=4),
        "limit": limits,
        "keep": st.booleans(),
        "unanswered": seldom,
    }
    claiming = {
        "place": places,
        "queues": queues,
        "limit": limits,
        "keep": st.booleans(),
        "unanswered": seldom,
    }

    def __init__(self) -> None:
        super().__init__()
        helpers.empty_tables()
        self.package, self.tables = Package(), Tables()
        self.known: set[tuple[uuid.UUID, int]] = set()
        self.fences: set[tuple[uuid.UUID, int, uuid.UUID]] = set()
        self.effects = 0
        self.old_attempts, self.old_sights, self.old_orphans = [], [], []
        self.something_is_new = False
        self.processes = [self._register(), self._register()]

    # -- callers ----------------------------------------------------------------------------------------

    @initialize(target=tasks)
    def begin_with_tasks(self):
        return multiple(*(self.enqueue(function, False, "commits") for function in FUNCTIONS))

    @rule(
        target=tasks,
        function=st.sampled_from(list(FUNCTIONS)),
        later=seldom,
        caller=st.sampled_from(["commits", "commits", "rolls back", "rolls a savepoint back"]),
    )
    def enqueue(self, function, later, caller):
        delayed = function.using(run_after=LATER) if later else function
        handles = []

        with transaction.atomic():
            with suppress(RolledBack), transaction.atomic():
                handles.append(delayed.enqueue())
                if caller == "rolls a savepoint back":
                    raise RolledBack
            transaction.set_rollback(caller == "rolls back")
        (handle,) = handles
        time.sleep(0.002)
        if caller == "commits":
            self.tables.tasks[handle.id] = dataclasses.replace(FUNCTIONS[function], due=not later)
        return handle.id

    @rule(ids=some_tasks)
    def cancel(self, ids):
        assert self.package.cancel(ids) == self.tables.cancel(dict.fromkeys(ids))

    # -- workers ----------------------------------------------------------------------------------------

    def _register(self):
        worker = self.package.register()
        self.tables.workers[worker] = WorkerRow()
        return worker

    def _was_lost(self, place):
        """Its turn was rolled back, and it goes on under a new id."""
        assert not self.tables.beat(self.processes[place])
        self.processes[place] = self._register()
        return multiple()

    @rule(place=places, does=st.sampled_from(["beat", "beat", "unregister", "give up"]))
    def beat_or_leave(self, place, does):
        worker = self.processes[place]
        if does == "beat":
            assert self.package.beat(worker) == self.tables.beat(worker)
            self.something_is_new = True
        elif does == "unregister":
            workers.unregister(ALIAS, worker)
            self.tables.unregister(worker)
        else:
            workers.give_up(ALIAS, worker)
            self.tables.give_up(worker)

    @rule(target=attempts, **claiming)
    def claim(self, **how):
        return self._turn([], **how)

    @precondition(lambda self: self.known)
    @rule(target=attempts, ended=endings, **claiming)
    def turn(self, ended, **how):
        return self._turn(ended, **how)

    @rule(target=attempts, **claiming)
    def turn_of_a_busy_worker(self, *, place, **how):
        """All that it holds has failed: it may claim the same tasks again, and only the attempt differs."""
        held = [one for one in self.old_attempts if self.tables.holds(one.fence)]
        mine = [one for one in held if one.worker == self.processes[place]]
        return self._turn([(one, Arrow.RETRY, False) for one in mine], place=place, **how)

    def _turn(self, ended, *, place, queues, limit, keep, unanswered):
        worker = self.processes[place]
        batch = sorted(map(ended_of, ended), key=lambda one: one.attempt.task_id)
        try:
            recorded, claimed = self.package.turn(worker, batch, queues, limit, keep=keep)
        except RolledBack:
            return self._was_lost(place)
        held = [one for one in batch if self.tables.holds(one.attempt.fence)]
        done = sorted(recorded.done, key=lambda one: one.attempt.task_id)
        assert (done, recorded.busy) == (held, [])
        assert recorded.lost == [one for one in batch if one not in held]
        for one in held:
            self._take(one, keep)
        due = self.tables.claimable(queues)[:limit]
        priorities = [self.tables.tasks[attempt.task_id].priority for attempt in claimed]
        assert priorities == [self.tables.tasks[key].priority for key in due]
        return self._claimed(worker, claimed, unanswered)

    @rule(target=attempts, **hinting)
    def claim_hinted(self, **how):
        return self._hinted_turn([], **how)

    @precondition(lambda self: self.known)
    @rule(target=attempts, finished=finishes, **hinting)
    def hinted_turn(self, finished, *, place, **how):
        mine = [one for one in finished if one.worker == self.processes[place]]
        return self._hinted_turn([(one, Arrow.FINISH, False) for one in mine], place=place, **how)

    def _hinted_turn(self, ended, *, place, queues, ids, limit, keep, unanswered):
        tables, worker = self.tables, self.processes[place]
        batch = sorted(map(ended_of, ended), key=lambda one: one.attempt.task_id)
        held = [one for one in batch if tables.holds(one.attempt.fence)]
        due = set(tables.claimable(queues)) & set(ids)
        pending = {
            key
            for key in set(ids) & set(tables.tasks)
            if tables.tasks[key].status == "pending"
            and tables.tasks[key].queue in queues
            and not tables.tasks[key].asked
        }
        known = set(tables.tasks) | set(tables.finished)
        try:
            written = self.package.hinted_turn(worker, batch, queues, ids, limit, keep=keep)
        except RolledBack:
            return self._was_lost(place)
        if written is None:  # it takes more than one statement, which others have tried
            return multiple()
        done, found = written
        assert sorted(done, key=lambda one: one.attempt.task_id) == held
        for one in held:
            self._take(one, keep)
        taken = {attempt.task_id for attempt in found.claimed}
        assert taken <= due
        assert len(found.claimed) == min(limit, len(due))
        assert set(found.later) == pending - taken
        ended_now = {one.attempt.task_id for one in held}  # MariaDB looks after it has removed them
        assert set(found.absent) - ended_now == set(ids) - known - ended_now
        return self._claimed(worker, found.claimed, unanswered)

    def _claimed(self, worker, attempts, unanswered):
        """The turn was committed; perhaps its answer was lost, and the worker knows nothing of it."""
        assert self.tables.beat(worker)
        for attempt in attempts:
            fence = self.tables.claim(attempt.task_id, worker)
            assert attempt.fence == fence
            assert fence not in self.fences
            self.fences.add(fence)
        self.old_attempts += attempts
        self.something_is_new = True
        if unanswered:
            return multiple()
        self.known |= {(attempt.task_id, attempt.number) for attempt in attempts}
        return multiple(*sorted(attempts, key=lambda one: one.task_id))

    @rule(place=places)
    def reconcile(self, place):
        worker = self.processes[place]
        there = claims_of(ALIAS, worker)
        assert there == self.tables.claims_of(worker)
        for task_id, number in there - self.known:
            attempt = Attempt(task_id, number, worker, "", "", "", "", 0, 0, 0, [])
            self.package.move(Ended(attempt=attempt, arrow=Arrow.RELEASE))
            assert self.tables.move(attempt.fence, "release", later=False)

    @rule(attempt=attempts, keep=st.booleans())
    def finish_alone(self, attempt, keep):
        """Without looking first, as an atomic task does: the statement itself is fenced."""
        held = self.tables.holds(attempt.fence)
        try:
            self.package.finish(attempt, keep=keep)
        except ClaimLost:
            assert not held
            return
        assert held
        self.effects += 1
        self.tables.finish(attempt.task_id, "succeeded", keep=keep)

    @rule(
        attempt=attempts,
        arrow=st.sampled_from([Arrow.RETRY, Arrow.BURY, Arrow.RELEASE, Arrow.SNOOZE]),
        later=seldom,
    )
    def move_alone(self, attempt, arrow, later):
        held = self.tables.holds(attempt.fence)
        ended = ended_of((attempt, arrow, later))
        try:
            self.package.move(ended)
        except ClaimLost:
            assert not held
        else:
            assert held
            self._take(ended, keep=True)

    def _take(self, ended, keep):
        if ended.arrow in OUTCOMES:
            self.tables.finish(ended.attempt.task_id, OUTCOMES[ended.arrow], keep=keep)
        else:
            later = bool(ended.delay)
            assert self.tables.move(ended.attempt.fence, ended.arrow.value, later=later)
