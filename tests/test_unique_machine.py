"""Requests with unique keys, whatever happens to them: none is lost, none is left over, each is served."""

import contextlib
import os
import time
from datetime import timedelta

import helpers
import pytest
from django.db import transaction
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)
from probe import tasks

from django_txtasks import cancel_task
from django_txtasks.conf import get_config
from django_txtasks.core.rows import cleaning, engines, outcomes, workers
from django_txtasks.core.rows.attempts import Arrow, Ended
from django_txtasks.core.rows.turn import Capacity, Scan, TurnRequest
from django_txtasks.exceptions import ClaimLost
from django_txtasks.models import FinishedTask, Outcome, Task
from django_txtasks.operations import operators

QUEUES = ("default", "mail")


class Requests(RuleBasedStateMachine):
    """Each request is followed to its end."""

    requests, attempts = Bundle("requests"), Bundle("attempts")

    def __init__(self) -> None:
        super().__init__()
        helpers.empty_tables()
        self.worker = self._register()
        self.step = 0
        self.committed: dict[object, int] = {}  # request -> step of its commit
        self.claimed: dict[object, int] = {}  # task -> step of its first claim
        self.held: dict[object, object] = {}  # task -> the attempt that holds it

    def _register(self):
        lease = get_config().lease
        return workers.register(
            "default", queues=list(QUEUES), threads=4, listening=None, lease=lease
        )

    def _count(self) -> int:
        self.step += 1
        time.sleep(0.002)
        return self.step

    @rule(
        target=requests,
        shelf=st.sampled_from(["a", "a", "b", ""]),
        queue=st.sampled_from(["default", "default", "mail"]),
        priority=st.sampled_from([0, 0, 7]),
        later=st.sampled_from([False, False, False, True]),
        attempts=st.sampled_from([None, None, 2]),
        commits=st.sampled_from([True, True, False]),
    )
    def request(self, *, shelf, queue, priority, later, attempts, commits):
        wanted = tasks.tidy.using(
            queue_name=queue,
            priority=priority,
            run_after=3600 if later else None,
            max_attempts=attempts,
        )
        with transaction.atomic():
            handle = wanted.enqueue("x", shelf=shelf)
            transaction.set_rollback(not commits)
        if commits:
            self.committed[handle.id] = self._count()
        return handle.id

    @rule(room=st.integers(1, 4), hinted=st.none() | st.lists(requests, min_size=1, max_size=3))
    def claim(self, room, hinted):
        wanted = helpers.subscription(*QUEUES)
        scan = None if hinted else Scan(QUEUES)
        step = self._count()
        with transaction.atomic():
            workers.beat("default", self.worker, running=0, listening=None)
            request = TurnRequest(Capacity(room), hinted or (), scan)
            result = engines.claim(wanted, self.worker, request, with_keys=True)
        assert len(result.claimed) <= room
        for one in result.claimed:
            self.claimed.setdefault(one.task_id, step)
            self.held[one.task_id] = one
            self._left_nothing_behind(one)

    def _left_nothing_behind(self, attempt):
        """No other row of its key that could have been merged waits."""
        row = Task.objects.get(pk=attempt.task_id)
        if row.unique_key is None or row.attempt > 1:
            return
        twins = Task.objects.due().filter(
            unique_key=row.unique_key, attempt=0, max_attempts=row.max_attempts, expires_at=None
        )
        assert not twins.exists()

    @rule(arrow=st.sampled_from(list(Arrow)), keep=st.booleans())
    def end(self, arrow, keep):
        if not self.held:
            return
        task_id = min(self.held, key=str)
        ended = Ended(attempt=self.held.pop(task_id), arrow=arrow, error={"type": "E"})
        config = get_config()
        with transaction.atomic():
            assert outcomes.record("default", [ended], config=config).done == [ended]

    @rule(
        task_id=requests,
        does=st.sampled_from(["hold", "resume", "run_now", "cancel", "cancel in python", "revive"]),
    )
    def somebody_acts(self, task_id, does):
        if does == "cancel in python":
            cancel_task(task_id)
            return
        more = {"keep": True} if does == "cancel" else {}
        getattr(operators, does)("default", [task_id], **more)

    @rule()
    def the_worker_is_lost(self):
        helpers.execute("UPDATE txtasks_worker SET lost = TRUE")
        for orphan in helpers.orphans():
            with contextlib.suppress(ClaimLost), transaction.atomic():
                cleaning.recover("default", orphan, lambda _: timedelta(0), get_config())
        self.held.clear()
        self.worker = self._register()

    @rule()
    def clean(self):
        cleaning.expire("default", keeps=bool)

    @invariant()
    def each_request_is_there_and_served(self):
        live = dict(Task.objects.values_list("id", "attempt"))
        ended = {one.id: one for one in FinishedTask.objects.all()}
        assert set(live).isdisjoint(ended)
        assert set(self.committed) <= set(live) | set(ended)
        for task_id, one in ended.items():
            if one.outcome != Outcome.MERGED:
                continue
            assert one.attempt == 0
            winner = one.merged_into
            assert winner in live or winner in ended
            assert winner not in ended or ended[winner].outcome != Outcome.MERGED
            assert self.claimed[winner] > self.committed[task_id]

    def teardown(self):
        """Whatever was held or is due later may run now: then nothing is left over."""
        operators.resume("default", [one.id for one in Task.objects.all()])
        operators.revive("default", [one.id for one in Task.objects.all()])
        self.the_worker_is_lost()
        helpers.execute("UPDATE txtasks_task SET run_after = enqueued_at, expires_at = NULL")
        for _ in range(200):
            operators.revive("default", [one.id for one in Task.objects.all()])
            self.claim(4, None)
            if not self.held:
                break
            while self.held:
                self.end(Arrow.FINISH, keep=True)
        assert not Task.objects.exists()
        self.each_request_is_there_and_served()


EXAMPLES = os.environ.get("TXTASKS_TEST_EXAMPLES")


@pytest.mark.usefixtures("rows")
def test_no_request_is_lost_or_left_over():
    run_state_machine_as_test(
        Requests,
        settings=settings(
            max_examples=int(EXAMPLES or 25),
            stateful_step_count=40,
            phases=[Phase.generate, *([Phase.shrink] if EXAMPLES else [])],
            derandomize=not EXAMPLES,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
