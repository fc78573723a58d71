"""What the setting hand_over, calls and commands refuse, and who shows that a drain serves a queue."""

import pickle
import threading

import helpers
import pytest
from asgiref.sync import async_to_sync
from django.core.management import CommandError, call_command
from probe import relay, tasks

from django_txtasks import enqueue_many, enqueue_task, external, task
from django_txtasks.conf import get_config, parse
from django_txtasks.core.rows import workers
from django_txtasks.exceptions import Away, ConfigError, InvalidOption, UnknownQueue
from django_txtasks.features.batches.api import batch
from django_txtasks.features.hand_over.process import DrainProcess
from django_txtasks.features.hand_over.rows import MESSAGE
from django_txtasks.features.hand_over.targets import make
from django_txtasks.features.reports import names
from django_txtasks.insight import audit, explain, status
from django_txtasks.models import Task, Worker
from django_txtasks.overview import overview

pytestmark = pytest.mark.usefixtures("rows", "target")
paid = external("billing.paid", queue_name="events")


@task(atomic=True)
def in_one_transaction():
    """A task that promises what another system cannot keep."""


@pytest.fixture
def target(txtasks):
    txtasks(queues=["default", "events"], hand_over={"events": "probe.relay.send"})


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"hand_over": {"events": "exchange:shop"}}, "no TXTASKS\\['broker_url'\\]"),
        ({"hand_over": {"mail": "probe.relay.send"}}, "not among TXTASKS\\['queues'\\]"),
        ({"hand_over": {"events": "relay"}}, "use 'exchange:NAME'"),
        ({"hand_over": {"events": "exchange:"}}, "use 'exchange:NAME'"),
        ({"hand_over": {"events": {"too": "probe.relay.send"}}}, "use 'exchange:NAME'"),
        ({"hand_over": {"events": {"to": "a.b", "ordered": 1}}}, "use 'exchange:NAME'"),
        ({"hand_over": ["events"]}, "must be a dict"),
    ],
    ids=["broker", "queue", "path", "name", "key", "ordered", "list"],
)
def test_a_wrong_setting_is_refused(setting, words):
    with pytest.raises(ConfigError, match=words):
        parse({"queues": ["default", "events"], **setting})


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("probe.relay.missing", "cannot be imported"),
        ("probe.relay.got", "a list: name a function"),
    ],
    ids=["missing", "list"],
)
def test_a_target_that_is_none_is_refused_at_the_start(txtasks, path, words):
    txtasks(hand_over={"events": path})
    with pytest.raises(CommandError, match=words):
        call_command("rundrain", batch=True)


def test_an_object_may_make_its_own_target(txtasks):
    class App:
        def txtasks_target(self, queue, *, ordered):
            return queue, ordered

    txtasks(hand_over={"events": {"to": "probe.relay.app", "ordered": True}})
    relay.app = App()
    try:
        assert make(get_config(), "events") == ("events", True)
    finally:
        del relay.app


@pytest.mark.parametrize(
    ("function", "word"),
    [
        (paid.using(unique_key="k"), "unique_key="),
        (paid.using(unique_key="k", settle=5), "unique_key="),
        (paid.using(lane="k"), "lane="),
        (paid.using(on_success=tasks.note), "a hook"),
        (paid.using(timeout=5), "timeout="),
        (tasks.pay.using(queue_name="events"), "compensate="),
        (in_one_transaction.using(queue_name="events"), "atomic=True"),
    ],
    ids=["key", "settle", "lane", "hook", "timeout", "compensate", "atomic"],
)
def test_a_call_with_what_only_workers_keep_is_refused_before_any_sql(txtasks, function, word):
    txtasks(lanes={"k": {"at_most": 1}})
    for enqueue in (lambda: enqueue_task(function), lambda: enqueue_many([(function, ())])):
        with pytest.raises(InvalidOption, match=f"has {word}, but the queue 'events'"):
            enqueue()
    assert not Task.objects.exists()


def test_a_member_of_a_batch_is_refused():
    with pytest.raises(InvalidOption, match="a batch"), batch():
        enqueue_task(paid, 1)
    assert not Task.objects.exists()


def test_an_external_task_is_refused_in_a_queue_of_workers():
    with pytest.raises(InvalidOption, match="the queue 'default' is for workers"):
        enqueue_task(external("billing.paid", queue_name="default"))
    with pytest.raises(UnknownQueue):
        enqueue_task(external("billing.paid", queue_name="nowhere"))


def test_an_external_task_is_an_enqueueable_like_others():
    first = paid.using(once="7").enqueue(7)
    assert not paid.using(once="7").enqueue(7).is_new and first.is_new
    copy = pickle.loads(pickle.dumps(paid.using(priority=4)))  # noqa: S301
    async_to_sync(copy.aenqueue)(8)  # in this thread, whose session ``rows`` closes
    assert sorted(Task.objects.values_list("priority", flat=True)) == [0, 4]
    with pytest.raises(TypeError, match="in another system"):
        paid(7)
    assert "billing.paid" in repr(paid)


def test_a_message_that_is_made_already_travels_in_the_headers():
    wanted = helpers.uuid.uuid4()
    handle = paid.with_message({"body": [1]}, task_id=wanted).enqueue(1)
    assert handle.id == wanted
    assert helpers.row(wanted).headers == {MESSAGE: {"body": [1]}}


def test_a_message_keeps_its_place_beside_the_headers_of_a_tracer(monkeypatch):
    from contextlib import nullcontext

    from django_txtasks.features.traces import tracing

    class Tracer:
        name = "mine"

        def enqueueing(self, call):
            return nullcontext({"traceparent": "00"})

    monkeypatch.setattr(tracing, "tracers", [Tracer()])
    told = paid.with_message({"body": 1})
    handles = [told.enqueue(1), *enqueue_many([(told, (1,)), (paid, (2,))])]
    sent = {"mine": {"traceparent": "00"}}
    assert [helpers.row(one.id).headers for one in handles] == [
        {MESSAGE: {"body": 1}, **sent},
        {MESSAGE: {"body": 1}, **sent},
        sent,
    ]


def test_runworkers_leaves_the_queue_out_and_refuses_it_by_name():
    with pytest.raises(CommandError, match="rundrain --queue events"):
        call_command("runworkers", queue=["events"], batch=True)
    handle = enqueue_task(tasks.note.using(queue_name="events"), "x")  # a worker has the function
    call_command("runworkers", batch=True, no_cleaner=True)
    assert helpers.row(handle.id).status == "pending"


def test_runworkers_refuses_to_run_without_a_queue(txtasks):
    txtasks(queues=["events"])
    with pytest.raises(CommandError, match="none for workers"):
        call_command("runworkers", batch=True)


def test_rundrain_refuses_a_queue_of_workers(txtasks):
    with pytest.raises(CommandError, match="Its tasks are for runworkers"):
        call_command("rundrain", queue=["default"])
    txtasks(hand_over={})
    with pytest.raises(CommandError, match="is empty"):
        call_command("rundrain")


def a_drain(**changes):
    """The row of a living drain."""
    from datetime import timedelta

    return workers.register(
        "default",
        queues=["events"],
        threads=0,
        listening=None,
        lease=timedelta(seconds=60),
        task_names=[workers.DRAIN_MARK],
        **changes,
    )


def found_by_audit():
    return {one.name for one in audit.audit("default", get_config())}


def test_status_and_audit_see_who_serves_the_queue():
    enqueue_task(paid, 1)
    assert "overdue_undrained" in found_by_audit()
    (reason,) = explain.explain("default", Task.objects.get().pk)
    assert "no living drain" in reason.text and "rundrain --queue events" in reason.lift
    a_drain()
    assert "overdue_undrained" not in found_by_audit()
    now = status.snapshot("default")
    assert (now.workers.alive, now.workers.drains, now.workers.threads) == (0, 1, 0)
    assert now.queues["events"].served_by == 1
    (reason,) = explain.explain("default", Task.objects.get().pk)
    assert "has not taken the task yet" in reason.text


def problems():
    return {one.name for one in overview(max_age=0).problems}


def test_a_site_whose_tasks_are_all_handed_over_needs_no_worker():
    enqueue_task(paid, 1)
    assert "no_worker" in problems()
    a_drain()
    assert "no_worker" not in problems()
    tasks.note.enqueue("for a worker")
    assert "no_worker" in problems()


def test_the_status_names_a_target_that_cannot_be_reached():
    """As with a dead broker: at once, and not after the minute in which rows get late."""
    relay.reset()
    relay.answers["billing.paid"] = Away("nothing listens there.")
    enqueue_task(paid, 1)
    process = DrainProcess(get_config(), ["default"], ["events"])
    thread = threading.Thread(target=process.run)
    thread.start()
    try:
        helpers.wait_until(lambda: "target_away" in problems())
        found = next(one for one in overview(max_age=0).problems if one.name == "target_away")
        assert found.text == (
            "A drain of queue events cannot reach its target: nothing listens there. 1 task waits."
        )
        assert not found.is_warning and "handed_slowly" not in problems()
        relay.answers.clear()
        helpers.wait_until(lambda: "target_away" not in problems())
    finally:
        process.stop.request()
        thread.join(helpers.PATIENCE)
    assert not thread.is_alive()


def test_a_drain_hides_no_undeclared_name_and_makes_none():
    a_drain()
    enqueue_task(paid, 1)
    assert names.undeclared("default", ["events"]) == {}


def test_an_audit_sees_an_older_worker_that_claims_from_the_queue():
    from datetime import timedelta

    assert "handed_and_served" not in found_by_audit()
    workers.register(
        "default", queues=["events"], threads=1, listening=None, lease=timedelta(seconds=60)
    )
    assert "handed_and_served" in found_by_audit()


def test_rundrain_registers_and_leaves():
    handle = enqueue_task(paid, 1)
    relay.reset()
    call_command("rundrain", batch=True)
    assert helpers.finished(handle.id).outcome == "handed"
    assert not Worker.objects.exists()
