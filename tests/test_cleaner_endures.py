"""Many claims to recover, and rows that cannot be moved, do not keep a cleaner from its other work."""

import uuid
from datetime import timedelta

import helpers
import pytest
from django.db import connection

from django_txtasks.conf import get_config
from django_txtasks.core.cleaning import Cleaner, rescue
from django_txtasks.models import Cleaner as Row
from django_txtasks.models import DatabaseNow, FinishedTask, OnCrash, Outcome, Status, Task, Worker

pytestmark = pytest.mark.usefixtures("rows")


def claims_of_a_lost_worker(count, **columns):
    worker = Worker.objects.create(
        id=uuid.uuid4(), host="web1", pid=7, queues=["default"], threads=1, lease=15, lost=True
    )
    return Task.objects.bulk_create(
        Task(
            id=uuid.uuid4(), task_name="x", status=Status.CLAIMED, worker=worker.pk, attempt=1,
            claimed_at=DatabaseNow(), on_crash=OnCrash.RETRY, **columns,
        )
        for _ in range(count)
    )  # fmt: skip


def test_a_cleaner_that_recovers_for_long_tells_workers_and_says_that_it_is_there(monkeypatch):
    monkeypatch.setattr(rescue, "CLAIMS_PER_WORKER", 2)
    claims_of_a_lost_worker(5)
    now, told, beats = [1000.0], [], []

    def notify(tasks):
        told.append(len(tasks))
        beats.append(Row.objects.get().seen_at)
        now[0] += get_config().lease.total_seconds()

    cleaner = Cleaner(get_config(), notify=notify, clock=lambda: now[0])
    pauses = []
    cleaner.run(lambda seconds: pauses.append(seconds) or len(pauses) == 3, lambda counts: None)
    assert told == [2, 2, 1]
    assert pauses[:2] == [0.0, 0.0]
    assert len(set(beats)) == 3


def test_much_to_recover_of_one_worker_keeps_no_other_waiting(monkeypatch):
    monkeypatch.setattr(rescue, "CLAIMS_PER_WORKER", 2)
    first = {task.pk for task in claims_of_a_lost_worker(5)}
    told, others = [], set()

    def notify(tasks):
        told.append({task_id for task_id, _ in tasks})
        if len(told) == 1:
            others.update(task.pk for task in claims_of_a_lost_worker(1))

    cleaner, turns = Cleaner(get_config(), notify=notify), iter(range(3))
    cleaner.run(lambda seconds: next(turns, None) is None, lambda counts: None)
    assert told.index(others) < 3
    assert set.union(*told) == first | others


def test_many_lost_workers_have_their_turns(monkeypatch):
    """However long one claim takes: a turn lasts a moment, and the next one goes on with the next worker."""
    now = [1000.0]
    lost = {claims_of_a_lost_worker(2)[0].worker for _ in range(3)}

    def tell(event, **facts):
        now[0] += rescue.TURN_SECONDS

    one = rescue.Rescue(get_config(), "default", notify=None, emit=tell, clock=lambda: now[0])
    turns = []
    for _ in range(3):
        held = set(Task.objects.filter(status=Status.CLAIMED).values_list("pk", "worker"))
        assert one.recover_lost() == {"retried": 1}
        assert one.is_unfinished
        left = set(Task.objects.filter(status=Status.CLAIMED).values_list("pk", "worker"))
        turns += [worker for _, worker in held - left]
    assert set(turns) == lost


def test_claims_of_a_worker_that_is_lost_no_more_are_left_alone(monkeypatch):
    """A replica that lacks the last commits was promoted: it lives."""
    monkeypatch.setattr(rescue, "CLAIMS_PER_WORKER", 2)
    monkeypatch.setattr(
        rescue, "TURN_SECONDS", 60.0
    )  # a busy machine ends the turn after one claim
    claims = claims_of_a_lost_worker(5)
    cleaner = Cleaner(get_config())
    assert cleaner.find_lost()["retried"] == 2
    Worker.objects.update(lost=False)
    assert cleaner.find_lost()["retried"] == 0
    assert Task.objects.filter(status=Status.CLAIMED).count() == len(claims) - 2


def test_one_call_recovers_all_claims_of_lost_workers(monkeypatch):
    monkeypatch.setattr(rescue, "CLAIMS_PER_WORKER", 2)
    claims_of_a_lost_worker(5)
    counts = Cleaner(get_config()).run_once()
    assert counts["retried"] == 5
    assert not Task.objects.filter(status=Status.CLAIMED).exists()


@pytest.mark.skipif(connection.vendor != "postgresql", reason="others count further")
def test_claims_that_nobody_can_move_are_tried_once_in_a_round(monkeypatch):
    """Of two workers, so that there is always one of which some are left."""
    monkeypatch.setattr(rescue, "CLAIMS_PER_WORKER", 1)
    bent = [*claims_of_a_lost_worker(2), *claims_of_a_lost_worker(3)]
    helpers.execute("UPDATE txtasks_task SET crashes = 2147483647")  # one more is too many
    skipped = []

    def tell(event, **facts):
        skipped.append(facts)

    one = rescue.Rescue(get_config(), "default", notify=None, emit=tell, clock=lambda: 0.0)
    unfinished = []
    for _ in range(4):
        assert not one.recover_lost()
        unfinished.append(one.is_unfinished)
    assert unfinished == [True, True, True, False]
    assert {facts["task_id"] for facts in skipped} == {task.pk for task in bent}


def test_a_cleaner_whose_own_row_cannot_be_written_cleans_all_the_same(caplog, txtasks):
    """Before ``migrate``, or without a privilege on its table."""
    txtasks(lease=0.3, heartbeat_interval=0.1)
    (claim,) = claims_of_a_lost_worker(1)
    turns = iter(range(5))
    helpers.execute("ALTER TABLE txtasks_cleaner RENAME TO txtasks_elsewhere")
    try:
        Cleaner(get_config()).run(lambda pause: next(turns, None) is None, lambda counts: None)
    finally:
        helpers.execute("ALTER TABLE txtasks_elsewhere RENAME TO txtasks_cleaner")
    assert helpers.row(claim.pk).status == Status.PENDING
    about = [text for text in caplog.messages if "its own row" in text]
    assert len(about) == 1 and "manage.py migrate" in about[0]


def test_a_cleaner_that_cleans_once_beats_in_no_row():
    claims_of_a_lost_worker(1)
    assert Cleaner(get_config()).run_once()["retried"] == 1
    assert not Row.objects.exists()


def test_a_claim_that_cannot_be_counted_stops_no_other_and_is_told_of_once(caplog):
    """SQLite keeps text in a column of numbers, which Python cannot add to."""
    bent, sound = claims_of_a_lost_worker(2)
    crashes = "many" if connection.vendor == "sqlite" else 2147483647
    helpers.execute("UPDATE txtasks_task SET crashes = %s WHERE id = %s", crashes, bent.pk.hex)
    cleaner = Cleaner(get_config())
    assert [cleaner.run_once()["retried"] for _ in range(2)] == [1, 0]
    assert helpers.row(sound.pk).status == Status.PENDING
    assert [str(bent.pk) in text for text in caplog.messages].count(True) == 1


def test_an_expired_task_whose_id_has_finished_before_stops_no_other(caplog):
    hour = timedelta(hours=1)
    bent, *sound = (
        Task.objects.create(id=uuid.uuid4(), task_name="x", expires_at=DatabaseNow() - hour)
        for _ in range(4)
    )
    FinishedTask.objects.create(id=bent.pk, task_name="x", outcome=Outcome.SUCCEEDED)
    caplog.set_level("ERROR")
    assert Cleaner(get_config()).run_once()["expired"] == len(sound)
    assert [one.pk for one in Task.objects.all()] == [bent.pk]
    assert [str(bent.pk) in text for text in caplog.messages] == [True]
