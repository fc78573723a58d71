"""Text from outside with NUL and half an emoji, which databases refuse: at each place where it reaches a column.

It is refused by name before any SQL, or stored as escapes. The caller's transaction can be used afterwards.
"""

import json
import socket
from contextlib import contextmanager
from datetime import timedelta

import helpers
import pytest
from django.contrib.auth.models import User
from django.db import transaction
from probe import asking, tasks
from test_lifecycle import claim_one, new_worker
from test_people import ask_as, person  # noqa: F401

from django_txtasks import (
    StepRefused,
    Suspended,
    TxTasksError,
    batch,
    enqueue_task,
    external,
    operations,
    publish,
    resume,
    subscribe,
)
from django_txtasks.conf import get_config
from django_txtasks.contrib.people import acts
from django_txtasks.contrib.people.models import Question
from django_txtasks.core.ground.payload import clean_text
from django_txtasks.core.rows import cleaners, outcomes, workers
from django_txtasks.core.rows.attempts import Arrow, Ended
from django_txtasks.core.working.registration import release_of
from django_txtasks.features.hand_over.external import ExternalTask
from django_txtasks.features.lanes import changes as lanes
from django_txtasks.features.progress.notes import checked
from django_txtasks.features.progress.rows import write_progress
from django_txtasks.features.schedules import ticks
from django_txtasks.features.stacks.requests import request_stack
from django_txtasks.features.steps.answering import token_of
from django_txtasks.features.traces import tracing
from django_txtasks.models import (
    Cleaner,
    FinishedTask,
    Lane,
    PausedQueue,
    Schedule,
    StackRequest,
    Task,
    Worker,
)
from django_txtasks.operations import pausing

pytestmark = pytest.mark.usefixtures("rows", "quick")
TEXT = "x\x00\ud83d"
CLEAN = r"x\x00\ud83d"


def batch_named():
    with batch(name=TEXT):
        tasks.note.enqueue()


def answered():
    resume(token_of("default", claimed().task_id, "a"), TEXT)


def outside(**options):
    return external("billing.paid", queue_name="events").using(**options)


def wrong_message():
    message = {"headers": {"stamp": TEXT}}
    enqueue_task(ExternalTask("billing.paid", "events").with_message(message), 1)


REFUSED = {
    "argument": lambda: tasks.note.enqueue(TEXT),
    "key of an argument": lambda: tasks.whatever.enqueue({TEXT: 1}),
    "argument of another system": lambda: outside().enqueue(TEXT),
    "name of another system's task": lambda: external(TEXT, queue_name="events"),
    "message of another system": wrong_message,
    "queue": lambda: tasks.note.using(queue_name=TEXT).enqueue(),
    "lane": lambda: tasks.note.using(lane=TEXT).enqueue(),
    "limit of a lane": lambda: lanes.limit("default", "a", {"rate": TEXT}),
    "unique key": lambda: tasks.note.using(unique_key=TEXT).enqueue(),
    "idempotency key": lambda: tasks.note.using(once=TEXT).enqueue(),
    "batch": batch_named,
    "value of a wait": answered,
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED.keys())
def test_text_that_people_and_code_give_is_refused_by_name(call, target):
    with transaction.atomic():
        with pytest.raises((TxTasksError, ValueError)) as refused:
            call()
        assert "SQL" not in str(refused.value) and not isinstance(refused.value, UnicodeError)
        tasks.note.enqueue("after")
    assert Task.objects.filter(args=["after"]).exists()


def failed(attempt, error):
    outcomes.move("default", Ended(attempt, Arrow.RETRY, error=error))


def error_of_task():
    helpers.execute("UPDATE txtasks_task SET hooks = '{}'")
    failed(claimed(), {"type": TEXT, "class": TEXT, "message": TEXT, "traceback": TEXT})
    (error,) = Task.objects.get().errors
    assert {error[key] for key in ("type", "class", "message", "traceback")} == {CLEAN}
    return error["message"]


def claimed():
    enqueue_task(tasks.note)
    return claim_one(new_worker())


def error_of_commit_hook():
    attempt = claimed()
    ended = Ended(attempt, Arrow.FINISH, result="null", error={"message": TEXT})
    outcomes.record("default", [ended._replace(error={})], config=get_config())
    outcomes.note_hook_error("default", ended)
    return FinishedTask.objects.get().errors[-1]["message"]


def error_for_hook():
    enqueue_task(tasks.note.using(on_failure=tasks.give))
    ended = Ended(claim_one(new_worker()), Arrow.BURY, error={"type": "E", "message": TEXT})
    outcomes.record("default", [ended], config=get_config())
    return Task.objects.get(task_name="probe.tasks.give").args[0]["error"]["message"]


def queue_paused():
    pausing.pause("default", "mail", by=TEXT, reason=TEXT)
    found = PausedQueue.objects.get()
    assert found.paused_by == CLEAN
    return found.reason


def lane_paused():
    lanes.pause("default", "a", by=TEXT, reason=TEXT)
    found = Lane.objects.get()
    assert found.paused_by == CLEAN
    return found.reason


def error_of_schedule():
    Schedule.objects.create(
        name="a", task_name="probe.tasks.note", every=1, next_at="2026-01-01 00:00Z"
    )

    def refuse(schedule, *_):
        raise TxTasksError(TEXT)

    ticks.write_ticks("default", ticks.Scope(["probe.tasks.note"], ["default"]), refuse, limit=None)
    return Schedule.objects.get().error


def error_of_cleaner():
    one = cleaners.register("default", interval=timedelta(1), lease=timedelta(1))
    cleaners.failed("default", one, TEXT)
    return Cleaner.objects.get().error


def host(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: TEXT)
    new_worker()
    cleaners.register("default", interval=timedelta(1), lease=timedelta(1))
    assert Cleaner.objects.get().host == CLEAN
    return Worker.objects.get().host


def release(txtasks):
    txtasks(release=lambda: TEXT)
    config = get_config()
    workers.register(
        "default",
        queues=[],
        threads=1,
        listening=None,
        lease=config.lease,
        release=release_of(config),
    )
    return Worker.objects.get().release


def progress_note():
    worker = new_worker()
    write_progress("default", worker, {"@away events": checked(1, note=f"{TEXT}{CLEAN[1:]}")})
    return Worker.objects.get().progress["@away events"][2]


def who_asks_for_a_stack():
    attempt = claimed()
    request_stack(attempt.task_id, by=TEXT)
    return StackRequest.objects.get().asked_by


def who_operates():
    from django.contrib.admin.models import LogEntry

    User.objects.create_superuser("root", password="secret")
    handle = enqueue_task(tasks.note)
    operations.cancel([handle.id], by=TEXT)
    return LogEntry.objects.get().change_message.split(" by ")[1].rstrip(".")


STORED = {
    one.__name__: one
    for one in (
        error_of_task,
        error_of_commit_hook,
        error_for_hook,
        queue_paused,
        lane_paused,
        error_of_schedule,
        error_of_cleaner,
        host,
        release,
        progress_note,
        who_asks_for_a_stack,
        who_operates,
    )
}


@pytest.mark.parametrize("call", STORED.values(), ids=STORED.keys())
def test_text_that_explains_something_is_stored_as_escapes(call, request):
    needed = call.__code__.co_varnames[: call.__code__.co_argcount]
    assert call(**{name: request.getfixturevalue(name) for name in needed}) == CLEAN


def test_a_name_of_a_step_and_a_value_of_it_are_refused_by_name():
    from django_txtasks.features.steps import context

    with pytest.raises(StepRefused):
        context.check_name(TEXT)
    with pytest.raises(TxTasksError):
        context.text_of_value("a", TEXT)


def test_headers_of_a_tracer_are_left_out_and_the_task_is_enqueued(monkeypatch):
    class Odd:
        name = "odd"

        @contextmanager
        def enqueueing(self, call):
            yield {"trace": TEXT}

    monkeypatch.setattr(tracing, "tracers", [])
    tracing.add_tracer(Odd())
    with transaction.atomic():
        enqueue_task(tasks.note)
    assert Task.objects.get().headers is None


def test_questions_of_people_keep_titles_and_notes_and_refuse_values(person):  # noqa: F811
    asking.approve.enqueue("k")
    attempt = claim_one(new_worker())
    with pytest.raises(TxTasksError):
        ask_as(attempt, suggested={"reason": TEXT})
    with pytest.raises(Suspended):
        ask_as(attempt, title=TEXT)
    question = Question.objects.get()
    assert question.title == CLEAN
    assert acts.write_note(question, person("ada"), TEXT) is None
    assert Question.objects.get().note == CLEAN


def test_the_text_of_an_event_for_another_system_is_refused_by_name(target, monkeypatch):
    monkeypatch.setattr("django_txtasks.features.events.api._subscribers", {})
    subscribe("order.paid")(external("billing.paid", queue_name="events"))
    with transaction.atomic(), pytest.raises(TxTasksError):
        publish("order.paid", TEXT)
    assert not Task.objects.exists()


@pytest.mark.once
def test_what_is_stored_as_escapes_stays_as_it_is_when_it_is_stored_again():
    assert clean_text(TEXT) == CLEAN == clean_text(CLEAN)
    assert json.loads(json.dumps(clean_text("🙂"))) == "🙂"
