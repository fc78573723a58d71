"""Follow-ups are tasks of the same transaction: hooks, compensation, dead notices."""

import json
import uuid

import django
import helpers
import pika
import pytest
from django.core import mail
from django.core.management import call_command
from django.db import transaction
from probe import tasks
from probe.models import Run

from django_txtasks.checks import check_settings
from django_txtasks.conf import get_config, parse
from django_txtasks.core.cleaning import Cleaner
from django_txtasks.core.rows import outcomes, workers
from django_txtasks.core.rows.attempts import Arrow, Ended
from django_txtasks.exceptions import ClaimLost, ConfigError, InvalidDeclaration, InvalidOption
from django_txtasks.functions import task
from django_txtasks.models import FinishedTask, Status, Task
from django_txtasks.operations import operators
from django_txtasks.testing import run_due_tasks

pytestmark = pytest.mark.usefixtures("rows")


def lone(value):
    """A function that is declared in tests."""


def work(*handles):
    """Let a worker run until these have left the live table, or are dead."""
    with helpers.working():
        helpers.wait_until(
            lambda: (
                not Task.objects.filter(pk__in=[one.id for one in handles])
                .exclude(status=Status.DEAD)
                .exists()
            )
        )
        helpers.wait_until(
            lambda: not Task.objects.filter(status__in=["pending", "claimed"]).exists()
        )


def told():
    """Return (key, attempt) of each run of the hook, in order."""
    return list(Run.objects.order_by("attempt", "key").values_list("key", "attempt"))


def claim(handle):
    """Claim a task as a worker would, and lose the worker."""
    worker = workers.register(
        "default", queues=["default"], threads=1, listening=None, lease=get_config().lease
    )
    with transaction.atomic():
        (attempt,) = helpers.claim(worker).claimed
    assert attempt.task_id == handle.id
    return attempt


def crash(handle):
    attempt = claim(handle)
    helpers.execute("UPDATE txtasks_worker SET lost = TRUE")
    back = []
    counts = Cleaner(get_config(), notify=back.extend).run_once()
    return attempt, counts, back


def test_success_is_told_with_the_result(quick):
    work(tasks.told.enqueue("fine"))
    assert told() == [("success told", 1)]
    event = FinishedTask.objects.get(task_name="probe.tasks.tell").result
    assert event["args"] == ["fine"]
    assert event["result"] == "fine"
    assert event["error"] is None


def test_each_retry_and_the_success_are_told(quick):
    work(tasks.told.enqueue("x", failures=2))
    assert told() == [("retry told", 1), ("retry told", 2), ("success told", 3)]
    events = [done.result for done in FinishedTask.objects.filter(task_name="probe.tasks.tell")]
    retried = [event for event in events if event["event"] == "retry"]
    assert sorted(event["failures"] for event in retried) == [1, 2]
    assert retried[0]["error"] == {"type": "ValueError", "message": "x"}


def test_failure_is_told_when_the_task_is_dead(quick):
    work(tasks.told.enqueue("x", failures=9))
    assert told() == [("retry told", 1), ("retry told", 2), ("failure told", 3)]


def test_a_crash_that_leaves_a_task_dead_is_told():
    handle = tasks.told_of_a_crash.enqueue("x")
    _, counts, back = crash(handle)
    assert counts["buried"] == 1
    hook = Task.objects.get(task_name="probe.tasks.tell")
    assert back == [(hook.pk, "default")]
    (event,) = hook.args
    assert (event["event"], event["crashes"], event["error"]["type"]) == (
        "failure",
        1,
        "WorkerLost",
    )


def test_an_atomic_task_enqueues_its_hook_in_its_own_transaction(quick):
    work(tasks.told_atomic.enqueue("x"))
    assert told() == [("success told_atomic", 1)]


@pytest.mark.parametrize("kept", [0, None])
@pytest.mark.parametrize("first", [tasks.numbers, tasks.numbers_atomic])
def test_the_next_one_gets_the_result(first, kept, quick, txtasks):
    txtasks(keep_finished=kept)
    work(first.enqueue([1, 2]), first.enqueue((3, 4)), first.enqueue(None))
    assert helpers.runs() == 3
    assert [helpers.runs(key) for key in ("sum 3", "sum 7", "sum None")] == [1, 1, 1]


def test_one_request_names_the_next_one():
    tasks.told.using(on_success=tasks.add_up.with_result()).enqueue([5])
    run_due_tasks()
    assert (helpers.runs("sum 5"), helpers.runs()) == (1, 1)


def test_a_big_result_is_handed_on_as_it_is():
    values = ['x\u20ac"\\' * 1000] * 20
    tasks.told.using(on_success=tasks.tell_size.with_result()).enqueue(values)
    run_due_tasks()
    assert helpers.runs(f"{len(values)} of {len(values[0])}") == 1


def test_what_fails_has_no_result_for_the_next_one():
    handle = tasks.numbers.enqueue("none")
    run_due_tasks(reraise=False)
    assert handle.status() == "dead"
    assert Task.objects.count() == 1


def test_a_result_is_for_on_success_and_for_a_function_that_takes_it():
    with pytest.raises(InvalidDeclaration, match="only a task that succeeds has a result"):
        task(on_failure=tasks.add_up.with_result())(lone)
    with pytest.raises(InvalidOption, match="only a task that succeeds has a result"):
        tasks.told.using(on_retry=tasks.add_up.with_result()).enqueue("x")
    with pytest.raises(InvalidDeclaration, match="cannot be called with one argument, the result"):
        task(on_success=tasks.nothing.with_result())(lone)
    with pytest.raises(InvalidDeclaration, match=r"with using\(\)"):
        task(on_success=tasks.add_up.using(priority=3).with_result())(lone)


def test_an_arrow_that_is_rolled_back_leaves_no_hook():
    attempt = claim(tasks.told.enqueue("x"))
    done = Ended(attempt=attempt, arrow=Arrow.FINISH, result='"x"')
    with pytest.raises(KeyError), transaction.atomic():
        outcomes.record("default", [done], config=get_config())
        raise KeyError
    assert not Task.objects.filter(task_name="probe.tasks.tell").exists()


def test_an_attempt_that_lost_its_claim_leaves_no_hook():
    handle = tasks.told_atomic.enqueue("x")
    attempt, *_ = crash(handle)
    done = Ended(attempt=attempt, arrow=Arrow.FINISH, result='"x"')
    assert outcomes.record("default", [done], config=get_config()).lost
    with pytest.raises(ClaimLost), transaction.atomic():
        outcomes.finish("default", done, config=get_config())
    assert not Task.objects.filter(task_name="probe.tasks.tell").exists()


def test_hooks_written_by_hand_in_another_form_stop_nobody(quick):
    handle = tasks.told.enqueue("x")
    helpers.execute("UPDATE txtasks_task SET hooks = %s", "[1]")
    work(handle)
    assert told() == []


def test_a_hook_is_a_task_function_declared_before():
    with pytest.raises(InvalidDeclaration, match=r"on_success=.*no task function"):
        task(on_success=print)(tasks.plain)
    with pytest.raises(InvalidDeclaration, match="enqueued as it was declared"):
        task(on_failure=tasks.tell.using(priority=5))(tasks.plain)
    with pytest.raises(InvalidDeclaration, match="compensate= and atomic=True"):
        task(compensate=tasks.undo, atomic=True)(tasks.plain)


# -- compensation ---------------------------------------------------------------------------------


def test_a_crash_is_compensated_with_the_same_arguments(quick):
    handle = tasks.pay.enqueue("order 1", amount=5)
    _, counts, back = crash(handle)
    assert counts["buried"] == 1
    assert helpers.row(handle.id).status == Status.DEAD
    undo = Task.objects.get(task_name="probe.tasks.undo")
    assert back == [(undo.pk, "default")]
    work(undo_handle := type("Handle", (), {"id": undo.pk}))
    assert helpers.finished(undo_handle.id)
    assert helpers.runs("undo order 1 5") == 1


def test_a_compensated_task_cannot_be_revived():
    handle = tasks.pay.enqueue("order 1", amount=5)
    crash(handle)
    assert operators.revive("default", [handle.id]) == []
    assert helpers.row(handle.id).status == Status.DEAD
    assert operators.discard("default", [handle.id], keep=True)


def test_what_is_idempotent_too_is_tried_again_and_compensated_in_the_end(quick):
    handle = tasks.try_to_pay.enqueue("order 1", amount=5)
    for number in (1, 2):
        _, counts, back = crash(handle)
        row = helpers.row(handle.id)
        assert (row.status, row.crashes, counts["retried"]) == (Status.PENDING, number, 1)
        assert row.errors[-1]["message"].startswith(
            f"worker lost in mid-task, crash {number} of 3: "
        )
        assert not row.is_compensated
        helpers.execute("UPDATE txtasks_task SET run_after = enqueued_at")
    _, counts, back = crash(handle)
    row = helpers.row(handle.id)
    assert (row.status, row.crashes, counts["buried"]) == (Status.DEAD, 3, 1)
    assert "crash 3 of 3" in row.errors[-1]["message"]
    assert "Its compensation was enqueued" in row.errors[-1]["message"]
    assert row.is_compensated
    assert list(Task.objects.compensated()) == [row]
    undo = Task.objects.get(task_name="probe.tasks.undo")
    assert (back, undo.args, undo.kwargs) == ([(undo.pk, "default")], ["order 1"], {"amount": 5})
    assert operators.revive("default", [handle.id]) == []
    assert operators.discard("default", [handle.id], keep=True)


def test_a_failure_after_a_crash_is_not_compensated_and_can_be_revived(quick):
    handle = tasks.try_to_pay.using(max_attempts=1).enqueue("order 1", amount=5)
    crash(handle)
    attempt = claim(handle)
    failed = Ended(attempt=attempt, arrow=Arrow.BURY, error={"type": "ValueError"})
    with transaction.atomic():
        assert outcomes.record("default", [failed], config=get_config()).done
    row = helpers.row(handle.id)
    assert (row.status, row.crashes, row.is_compensated) == (Status.DEAD, 1, False)
    assert not Task.objects.compensated().exists()
    assert not Task.objects.filter(task_name="probe.tasks.undo").exists()
    assert operators.revive("default", [handle.id])


def test_one_crash_is_enough_if_so_declared(quick):
    handle = tasks.try_to_pay.using(max_crashes=1).enqueue("order 1", amount=5)
    crash(handle)
    assert helpers.row(handle.id).is_compensated
    assert Task.objects.filter(task_name="probe.tasks.undo").count() == 1


def test_a_failure_is_not_compensated(quick):
    """The function itself has said that it did not succeed; only a crash leaves that open."""
    handle = tasks.pay_too_much.enqueue("order 1", amount=5)
    work(handle)
    assert helpers.row(handle.id).status == Status.DEAD
    assert not Task.objects.filter(task_name="probe.tasks.undo").exists()
    assert operators.revive("default", [handle.id])


def test_a_late_finish_of_a_lost_attempt_is_said_beside_the_task(quick):
    handle = tasks.until_released.enqueue("late")
    tasks.released.clear()
    with helpers.working(threads=1) as worker:
        helpers.wait_until(lambda: helpers.runs("late"))
        helpers.execute("UPDATE txtasks_worker SET lost = TRUE WHERE id = %s", worker.writer.id.hex)
        Cleaner(get_config()).run_once()
        tasks.released.set()
        helpers.wait_until(lambda: helpers.row(handle.id).late_finishes)
    dead = helpers.row(handle.id)
    assert dead.status == Status.DEAD
    (late,) = dead.late_finishes
    assert late["attempt"] == 1
    assert late["abandoned_at"] == dead.errors[0]["at"] < late["finished_at"]


def test_a_late_finish_is_said_beside_a_finished_task_too():
    attempt = claim(tasks.note.enqueue())
    outcomes.record("default", [Ended(attempt=attempt, arrow=Arrow.FINISH)], config=get_config())
    outcomes.note_late_finish("default", attempt)
    assert helpers.finished(attempt.task_id).late_finishes[0]["attempt"] == 1


# -- dead notices ---------------------------------------------------------------------------------


def test_a_death_is_mailed_once(quick, txtasks):
    txtasks(dead_notices={"mail": ["ops@example.com"]})
    handle = tasks.reject.enqueue()
    work(handle)
    (sent,) = mail.outbox
    assert sent.to == ["ops@example.com"]
    assert "probe.tasks.reject" in sent.subject
    assert "the address does not exist" in sent.body
    assert str(handle.id) in sent.body


def test_a_mail_server_that_is_away_is_tried_again(quick, txtasks, settings):
    txtasks(dead_notices={"mail": ["ops@example.com"]})
    if django.VERSION >= (6, 1):
        settings.MAILERS = {"default": {"BACKEND": "probe.mail.AwayAtFirst"}}
    else:
        settings.EMAIL_BACKEND = "probe.mail.AwayAtFirst"
    from probe.mail import AwayAtFirst

    AwayAtFirst.calls = 0
    work(tasks.reject.enqueue())
    assert AwayAtFirst.calls == 3
    assert len(mail.outbox) == 1


def test_a_death_calls_the_users_own_task(quick, txtasks):
    txtasks(dead_notices={"task": "probe.tasks.notice"})
    work(tasks.reject.enqueue())
    assert helpers.runs("notice reject") == 1


def test_the_death_of_a_notice_is_not_told_again(quick, txtasks):
    txtasks(dead_notices={"task": "probe.tasks.failing_notice"})
    work(tasks.reject.enqueue())
    assert helpers.runs("failing notice") == 1
    assert helpers.counts()["dead"] == 2


def test_a_lost_workers_dead_task_is_told(txtasks):
    txtasks(dead_notices={"mail": ["ops@example.com"]}, queues=["mail", "other"])
    handle = tasks.mail.enqueue("x")
    worker = workers.register(
        "default", queues=["mail"], threads=1, listening=None, lease=get_config().lease
    )
    with transaction.atomic():
        helpers.claim(worker, 1, "mail")
    helpers.execute("UPDATE txtasks_worker SET lost = TRUE")
    call_command("runcleaner", once=True, verbosity=0)
    notice = Task.objects.exclude(pk=handle.id).get()
    assert notice.task_name == "django_txtasks.notices.mail_dead_notice"
    assert notice.queue_name == "mail"  # there is no queue called default here


@pytest.fixture
def exchange(broker):
    """A foreign exchange, and a queue that is bound to it."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    with pika.BlockingConnection(pika.URLParameters(broker)) as amqp:
        channel = amqp.channel()
        channel.queue_declare(name)
        yield name, channel
        channel.exchange_delete(name)
        channel.queue_delete(name)


def test_a_death_is_published_once_the_exchange_is_there(exchange, quick, txtasks):
    name, channel = exchange
    txtasks(dead_notices={"exchange": name})
    handle = tasks.reject.enqueue()
    with helpers.working():
        notice = helpers.wait_until(
            lambda: Task.objects.filter(
                task_name="django_txtasks.notices.publish_dead_notice", failures__gt=0
            ).first()
        )
        channel.exchange_declare(name, "topic")
        channel.queue_bind(name, name, "#")
        helpers.wait_until(lambda: helpers.finished(notice.pk))
    messages = []
    while (found := channel.basic_get(name, auto_ack=True))[0]:
        messages.append((found[0].routing_key, json.loads(found[2])["task_id"]))
    assert ("default", str(handle.id)) in messages


@pytest.mark.parametrize(
    ("notices", "message"),
    [
        ("ops@example.com", "must be a dict"),
        ({"mial": ["a@b"]}, "unknown key 'mial'. Did you mean 'mail'?"),
        ({"mail": "ops@example.com"}, "list of addresses"),
        ({"mail": ["ops"]}, "list of addresses"),
        ({"task": 3}, "must be a name"),
        ({"exchange": "dead"}, "no TXTASKS\\['broker_url'\\]"),
    ],
)
def test_wrong_notices_are_refused(notices, message):
    with pytest.raises(ConfigError, match=message):
        parse({"dead_notices": notices})


def test_a_notice_to_an_unknown_task_is_found_by_the_check(txtasks):
    txtasks(dead_notices={"task": "probe.tasks.nobody"})
    assert [found.id for found in check_settings()] == ["txtasks.E013"]
