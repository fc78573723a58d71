"""Dead notices have a brake: ten per minute one by one, then digests that count every dead task."""

from datetime import timedelta

import helpers
import pytest
from django.core import mail
from django.core.management import call_command
from django.db import connections, transaction
from probe import tasks

from django_txtasks.conf import get_config
from django_txtasks.core.rows.attempts import Arrow, Attempt, Ended
from django_txtasks.core.rows.follow_ups import follow
from django_txtasks.features.notices.brake import (
    DEATHS_PER_MINUTE,
    LONGEST_PAUSE_SECONDS,
    MINUTE_SECONDS,
    Brake,
    brakes,
)
from django_txtasks.features.notices.of_rows import DIGEST, MAIL
from django_txtasks.models import FinishedTask, Status, Task

pytestmark = pytest.mark.usefixtures("rows")


class Clock:
    """Monotonic seconds that a test moves."""

    now = 1000.0

    def __call__(self):
        return self.now


def storm(count):
    """Let tasks die of their first error."""
    for _ in range(count):
        tasks.fail.enqueue()
    helpers.execute("UPDATE txtasks_task SET max_attempts = 1 WHERE task_name = 'probe.tasks.fail'")
    call_command("runworkers", batch=True, threads=4, verbosity=0)
    assert Task.objects.in_state(Status.DEAD).count() == count


def test_a_storm_is_told_of_by_ten_mails_and_a_digest(quick, txtasks):
    txtasks(dead_notices={"mail": ["ops@example.com"]})
    storm(DEATHS_PER_MINUTE + 15)
    assert len(mail.outbox) == DEATHS_PER_MINUTE
    (digest,) = Task.objects.filter(task_name=DIGEST)
    assert digest.run_after - digest.enqueued_at > timedelta(seconds=MINUTE_SECONDS)
    helpers.execute("UPDATE txtasks_task SET run_after = enqueued_at WHERE task_name = %s", DIGEST)
    call_command("runworkers", batch=True, verbosity=0)
    assert len(mail.outbox) == DEATHS_PER_MINUTE + 1
    assert mail.outbox[-1].subject == f"Dead tasks: {DEATHS_PER_MINUTE + 15}"
    assert f"{DEATHS_PER_MINUTE + 15}  probe.tasks.fail\n" in mail.outbox[-1].body


def test_a_digest_of_tasks_that_somebody_has_looked_after_is_not_sent(quick, txtasks):
    txtasks(dead_notices={"mail": ["ops@example.com"]})
    tasks_of_ours = Task.objects.filter(task_name=DIGEST)
    storm(DEATHS_PER_MINUTE + 1)
    assert tasks_of_ours.exists()
    Task.objects.in_state(Status.DEAD).delete()
    helpers.execute("UPDATE txtasks_task SET run_after = enqueued_at")
    call_command("runworkers", batch=True, verbosity=0)
    assert len(mail.outbox) == DEATHS_PER_MINUTE


def test_every_way_of_telling_gets_the_digest(quick, txtasks):
    txtasks(dead_notices={"task": "probe.tasks.give"})
    storm(DEATHS_PER_MINUTE + 1)
    helpers.execute("UPDATE txtasks_task SET run_after = enqueued_at WHERE task_name = %s", DIGEST)
    call_command("runworkers", batch=True, verbosity=0)
    (event,) = [
        one.result
        for one in FinishedTask.objects.filter(task_name="probe.tasks.give")
        if one.result["event"] == "digest"
    ]
    assert (event["count"], event["dead"]) == (
        DEATHS_PER_MINUTE + 1,
        {"probe.tasks.fail": DEATHS_PER_MINUTE + 1},
    )
    assert (event["database"], event["task_id"], event["error"]) == ("default", None, None)


def died():
    attempt = Attempt(tasks.note.using().enqueue().id, 1, None, task_name="x", queue_name="default")
    return Ended(attempt=attempt, arrow=Arrow.BURY, error={"type": "E", "message": "m"})


def test_a_digest_that_was_rolled_back_is_enqueued_by_the_next_death(txtasks):
    txtasks(dead_notices={"mail": ["ops@example.com"]})
    deaths = [died() for _ in range(DEATHS_PER_MINUTE + 1)]
    with transaction.atomic():
        follow("default", deaths, get_config())
        transaction.set_rollback(True)
    with transaction.atomic():
        follow("default", deaths[:1], get_config())
    assert [one.task_name for one in Task.objects.exclude(task_name="probe.tasks.note")] == [DIGEST]
    with transaction.atomic():
        follow("default", deaths, get_config())
    assert Task.objects.filter(task_name=DIGEST).count() == 1
    assert not Task.objects.filter(task_name=MAIL).exists()


def test_each_database_has_a_brake_of_its_own():
    assert brakes["default"] is brakes["default"] is not brakes["other"]
    assert set(brakes) == {"default", "other"} and "default" in connections


@pytest.mark.once
def test_while_a_storm_lasts_digests_come_at_growing_intervals_and_nothing_else():
    clock = Clock()
    brake = Brake(clock)
    assert brake.ask(4) == (4, None)
    assert brake.ask(DEATHS_PER_MINUTE) == (DEATHS_PER_MINUTE - 4, MINUTE_SECONDS)
    brake.digest_enqueued(MINUTE_SECONDS)
    pauses = []
    for _ in range(6 * 3600):  # one death a second, for a night
        clock.now += 1
        singles, pause = brake.ask(1)
        assert singles == 0
        if pause is not None:
            pauses.append(pause)
            brake.digest_enqueued(pause)
    assert pauses[:7] == [120, 240, 480, 960, 1920, LONGEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS]
    assert len(pauses) < 12


@pytest.mark.once
def test_after_a_quiet_while_deaths_are_told_of_one_by_one_again():
    clock = Clock()
    brake = Brake(clock)
    brake.ask(DEATHS_PER_MINUTE + 1)
    brake.digest_enqueued(MINUTE_SECONDS)
    clock.now += 2 * MINUTE_SECONDS
    assert brake.ask(2) == (2, None)


@pytest.mark.once
def test_ten_deaths_in_each_minute_need_no_digest():
    clock = Clock()
    brake = Brake(clock)
    for _ in range(5):
        assert brake.ask(DEATHS_PER_MINUTE) == (DEATHS_PER_MINUTE, None)
        clock.now += MINUTE_SECONDS
