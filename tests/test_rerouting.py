"""A hint that reaches a worker without the task's declaration is sent on to a worker that has it."""

from datetime import timedelta

import helpers
import pytest
from django.db import connection, transaction
from probe import tasks

from django_txtasks.conf import get_config
from django_txtasks.core.declaring import registry
from django_txtasks.core.enqueueing.commit_hints import hooks_in
from django_txtasks.core.rows import workers
from django_txtasks.core.working.hint_inbox import HintInbox
from django_txtasks.fast.rerouting import Rerouting
from django_txtasks.models import Task, Worker

pytestmark = pytest.mark.usefixtures("rows")
NEVER = 600  # a poll interval that no test lives to see: what runs was told by a hint
NOTE, GIVE = "probe.tasks.note", "probe.tasks.give"


@pytest.mark.about("rerouting")
def test_tasks_that_one_of_two_workers_declares_run_by_hints(broker, txtasks):
    txtasks(poll_interval=NEVER)
    others = [name for name in registry.names() if name != NOTE]
    with helpers.working(names=others), helpers.working(names=[NOTE]):
        for number in range(1, 7):
            tasks.note.enqueue(f"{number}")
            helpers.wait_until(lambda number=number: helpers.counts()["finished"] == number)


def registered(queues, names):
    """A worker's row, as it writes it when it starts."""
    return workers.register(
        "default",
        queues=queues,
        task_names=names,
        threads=1,
        listening=True,
        lease=timedelta(seconds=60),
    )


@pytest.fixture
def sent_by(txtasks):
    """Have ids looked up; return the hints that are then sent to the publisher."""

    def look_at(ours, ids):
        txtasks(broker_url="amqp://127.0.0.1:1")
        with transaction.atomic():
            ours.note(ids)
            ours.look()
            hooks = [hook for _, hook in hooks_in(connection.run_on_commit)]
            transaction.set_rollback(True)
        txtasks(broker_url=None)
        return sorted(
            (task, queue)
            for hook in hooks
            for queue, of_queue in hook.of_queue.items()
            for task in of_queue
        )

    return look_at


@pytest.fixture
def ours():
    """The rerouting of a worker that declares ``give`` alone."""
    registered(["default"], [GIVE])
    subscription = helpers.subscription("default", "mail", names=[GIVE])
    return Rerouting(get_config(), subscription, HintInbox())


@pytest.mark.once
def test_only_what_waits_for_another_living_worker_is_sent_on_and_once(sent_by, ours):
    wanted, later = tasks.note.enqueue(), tasks.note.using(run_after=5).enqueue()
    not_served = tasks.note.using(queue_name="mail").enqueue()
    unknown, held = tasks.die.enqueue(), tasks.note.enqueue()
    Task.objects.filter(pk=held.id).update(status="held")
    ids = [one.id for one in (wanted, later, not_served, unknown, held)]
    registered(["default"], [NOTE])
    lost = registered(["default", "mail"], [NOTE, "probe.tasks.die"])
    Worker.objects.filter(pk=lost).update(lost=True)
    assert sent_by(ours, ids) == sorted([(wanted.id, "default"), (later.id, "default")])
    assert sent_by(ours, ids) == []


@pytest.mark.once
def test_workers_of_the_same_code_send_nothing_on_and_ask_seldom(
    sent_by, ours, django_assert_num_queries
):
    registered(["default"], [GIVE])
    ids = [tasks.note.enqueue().id]
    with django_assert_num_queries(1):
        for _ in range(10):
            ours.note(ids)
            ours.look()
    assert sent_by(ours, ids) == []


@pytest.mark.once
def test_a_worker_that_starts_later_is_heard_of(sent_by, ours):
    ids = [tasks.note.enqueue().id]
    assert sent_by(ours, ids) == []
    registered(["default"], [NOTE])
    ours._next_look = 0.0  # a poll interval later
    assert sent_by(ours, ids) == [(ids[0], "default")]


@pytest.mark.once
@pytest.mark.parametrize("wrong", [None, 1, "text", {"a": 1}, [1, None, ["default"]]], ids=str)
def test_what_somebody_wrote_into_a_workers_row_stops_no_other(sent_by, ours, wrong):
    row = Worker.objects.filter(pk=registered(["default"], [NOTE]))
    row.update(**({"queues": wrong} if wrong is not None else {"task_names": {}}))
    assert sent_by(ours, [tasks.note.enqueue().id]) == []
    row.update(queues=["default"], task_names=[wrong])
    ours._next_look = 0.0
    assert sent_by(ours, [tasks.note.enqueue().id]) == []
