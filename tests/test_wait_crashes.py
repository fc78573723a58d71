"""Waiting tasks whose process is killed, fails, is cut off or frozen at each place: where they ask, where the
worker gives the row back, and where the value is brought.

Real workers and a cleaner run; each wait's name says which fault it meets, once. At the end no task waits,
each task got the value that counted, and each effect exists once.
"""

from datetime import timedelta

import helpers
import pytest
from django.db import connection, transaction
from django.utils import timezone
from failpoints import waits
from probe.models import Run, wait_for_the_writer
from test_step_crashes import QUICK, start

from django_txtasks import resume
from django_txtasks.features.steps.answering import token_of
from django_txtasks.models import Task, Wait
from django_txtasks.operations import operators

FROZEN_AT = {
    "early": ["bring commit", "ask commit"],
    "between": ["suspend commit"],
    "late": ["look", "asked", "suspend", "wake"],
}


@pytest.fixture
def started(processes, txtasks, tmp_path):
    """Start workers and a cleaner; yield their log. Killed ones restart later each time, so there are many."""
    txtasks(**QUICK)
    wait_for_the_writer(connection)  # who may be frozen
    env = {
        "DJANGO_SETTINGS_MODULE": "failpoints.settings",
        "TXTASKS_WAIT_FAULTS": str(tmp_path),
    }
    return start(processes, 6, env)


class Waits:
    """Tasks that wait, by the plans of their waits, and the processes that bring them values."""

    def __init__(self, places, kinds, log):
        from failpoints import tasks  # declares tasks, which other tests do not know

        self.ask, self.bring, self.log = tasks.ask, tasks.bring, log
        self.plans = [
            waits.Plan(when, place, kind)
            for kind in kinds
            for when in places
            for place in places[when]
        ]
        self.ids = {}

    def of(self, when):
        return [plan for plan in self.plans if plan.when == when]

    def token(self, plan):
        return token_of("default", self.ids[plan], plan.name)

    def bring_to(self, when):
        """Have a value brought to each of these; return the ids of the tasks that do."""
        with transaction.atomic():
            return [self.bring.enqueue(self.token(one), one.name).id for one in self.of(when)]

    def wait_until(self, true):
        helpers.wait_until(lambda: helpers.patiently(true), what=self.log)

    def begin(self):
        """Enqueue all; those to whom the value comes first are held until it is there."""
        with transaction.atomic():
            self.ids = {plan: self.ask.enqueue(plan.name).id for plan in self.plans}
            early = [self.ids[plan] for plan in self.of("early")]
            operators.hold("default", early)
        bringers = self.bring_to("early")
        self.wait_until(lambda: not Task.objects.filter(pk__in=bringers).exists())
        operators.resume("default", early)

    def go_on(self):
        """Bring the values once all tasks wait."""
        late, far = [self.ids[plan] for plan in self.of("late")], timezone.now() + timedelta(365)
        waiting = Task.objects.filter(pk__in=late, status="pending", run_after__gt=far)
        self.wait_until(lambda: waiting.count() == len(late))
        self.bring_to("late")
        self.wait_until(lambda: not Task.objects.exists())


def check(places, kinds, directory, log):
    all_ = Waits(places, kinds, log)
    all_.begin()
    all_.go_on()
    for plan in all_.plans:
        struck = (directory / plan.name).exists()
        assert struck or plan.may_miss, f"{plan.name}: the fault has not struck"
        check_one(plan, all_.ids[plan])
        assert resume(all_.token(plan), "later") is False


def check_one(plan, task_id):
    """Check one task: the effects of its steps, and the value that it got."""
    runs = Run.objects.filter(key__startswith=f"{plan.name} ")
    counted = [one.attempt for one in runs if one.key.endswith(" counted")]
    effects = sorted(one.key.rpartition(" ")[2] for one in runs if not one.key.endswith(" counted"))
    got = helpers.finished(task_id).result
    assert effects == ["after", "before"], plan.name
    assert [got] == (["nobody"] if plan.when == "never" else counted), plan.name
    wait = Wait.objects.get(task_id=task_id)
    assert wait.ended_at, plan.name
    assert (wait.value is None) == (plan.when == "never"), plan.name


def test_nobody_waits_for_ever_whatever_kills_or_fails_those_who_ask_and_bring(started, tmp_path):
    """Only PostgreSQL's driver shows the socket that is to be cut."""
    kinds = ["kill", "raise", *(["cut"] if connection.vendor == "postgresql" else [])]
    check(waits.PLACES, kinds, tmp_path, started)


def test_nobody_waits_for_ever_where_workers_freeze_and_wake_up(started, tmp_path):
    """For two leases: they are declared lost, and come back with what they were about to do."""
    check(FROZEN_AT, ["stop"], tmp_path, started)
