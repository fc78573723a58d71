"""Tasks that ask people: the first answer counts, and each other person is told the reason."""

import threading
from datetime import datetime, timedelta, timezone

import helpers
import pytest
from django import forms
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection, transaction
from probe import asking
from probe.models import Run
from test_lifecycle import claim_one, clean, ended, new_worker, record

from django_txtasks import Suspended, resume
from django_txtasks.contrib import people
from django_txtasks.contrib.people.asking import Asking
from django_txtasks.contrib.people.kinds import Kind
from django_txtasks.contrib.people.models import NEVER, Question
from django_txtasks.contrib.people.refusals import Reason
from django_txtasks.core.rows.attempts import Arrow
from django_txtasks.exceptions import ClaimLost, InvalidArguments, InvalidOption, StepRefused
from django_txtasks.features.steps.answering import token_of
from django_txtasks.models import FinishedTask, Status, Task, Wait
from django_txtasks.operations import operators
from django_txtasks.testing import run_due_tasks

pytestmark = pytest.mark.usefixtures("rows", "quick")
YES = {"approved": True, "reason": "ok"}
GONE = "The task has ended, and needs no answer. Choose another question."


@pytest.fixture
def person():
    """Make users by name: ``person("ada", "orders.change_order")``."""
    made = []

    def make(name, *permissions, **columns):
        user = User.objects.create(username=name, **columns)
        made.append(user)
        for one in permissions:
            app, codename = one.split(".")
            user.user_permissions.add(
                Permission.objects.get(content_type__app_label=app, codename=codename)
            )
        return User.objects.get(pk=user.pk)

    yield make
    LogEntry.objects.all().delete()
    Question.objects.all().delete()
    User.objects.filter(pk__in=[one.pk for one in made]).delete()


def asked(function=asking.approve, *args, **kwargs):
    """Return the question that a task asks."""
    handle = function.enqueue(*(args or ("k",)), **kwargs)
    run_due_tasks()
    return Question.objects.get(task_id=handle.id, closed_at=None)


def reason(refusal):
    return refusal and refusal.reason


def end_of_time():
    helpers.execute("UPDATE txtasks_wait SET until = '2020-01-01 00:00:00' WHERE until IS NOT NULL")
    helpers.execute(
        "UPDATE txtasks_task SET run_after = '2020-01-01 00:00:00' WHERE status = 'pending'"
    )


def end_of_hold():
    helpers.execute("UPDATE txtasks_question SET taken_until = '2020-01-01 00:00:00'")


# -- the way of a question ------------------------------------------------------------------------


@pytest.mark.smoke
def test_a_task_asks_waits_without_a_slot_and_goes_on_with_the_answer(person):
    ada, question = person("ada", first_name="Ada", last_name="Lovelace"), asked()
    row = helpers.row(question.task_id)
    assert (row.status, row.failures, row.snoozes) == (Status.PENDING, 0, 0)
    assert (question.title, question.kind, question.name) == ("k", *["probe.approval"] * 2)
    assert (question.due, question.due_at, question.assignee) == (None, NEVER, None)
    assert not run_due_tasks()
    assert people.take(question, ada) is None
    assert people.answer(question.pk, ada, YES) is None
    (ran,) = run_due_tasks()
    assert ran.result == "Ada Lovelace ok"
    question.refresh_from_db()
    assert (question.answered_by, question.answered_as) == (ada, "Ada Lovelace")
    assert (question.assignee, question.agreed, question.by_machine) == (None, None, False)
    assert question.closed_at >= question.asked_at


def test_a_free_question_is_answered_without_being_taken(person):
    question = asked()
    assert people.answer(question, person("ada"), YES) is None
    assert run_due_tasks()[0].result == "ada ok"


def test_an_async_task_asks(person):
    question = asked(asking.approve_async)
    assert people.answer(question, person("ada"), YES) is None
    assert run_due_tasks()[0].result == YES


@pytest.mark.smoke
def test_a_real_worker_is_woken_by_an_answer(person):
    ada, handle = person("ada"), asking.approve.enqueue("k")
    with helpers.working(threads=1):
        question = helpers.wait_until(Question.objects.first)
        helpers.wait_until(lambda: helpers.row(handle.id).status == Status.PENDING)
        assert people.answer(question, ada, YES) is None
        helpers.wait_until(lambda: helpers.finished(handle.id))
    assert [one.key for one in Run.objects.all()] == ["k: ada ok"]


def test_an_answer_that_is_rolled_back_was_never_given(person):
    ada, bob, question = person("ada"), person("bob"), asked()
    with transaction.atomic():
        assert people.answer(question, ada, YES) is None
        transaction.set_rollback(True)
    assert not run_due_tasks()
    assert people.answer(question, bob, YES) is None
    assert run_due_tasks()[0].result == "bob ok"


def test_a_refusal_leaves_the_transaction_of_the_caller_as_it_is(person):
    ada, bob, question = person("ada"), person("bob"), asked()
    people.take(question, ada)
    with transaction.atomic():
        Run.objects.create(key="mine")
        assert reason(people.answer(question, bob, YES)) is Reason.TAKEN
    assert Run.objects.get().key == "mine"
    assert Wait.objects.get().value is None


def test_four_eyes(person):
    ada, bob, first = person("ada"), person("bob"), asked(asking.approve_twice)
    people.answer(first, ada, YES)
    run_due_tasks()
    second = Question.objects.get(closed_at=None)
    assert second.name == "second look"
    refusal = people.answer(second, ada, YES)
    assert (refusal.reason, str(refusal)) == (
        Reason.NOT_BY_YOU,
        "You may not answer this question: another person has to. Leave it to a colleague.",
    )
    assert people.take(second, ada) == refusal
    assert people.answer(second, bob, YES) is None
    assert run_due_tasks()[0].result == ["ada", "bob"]


def test_the_value_is_the_same_in_each_attempt_also_once_the_user_is_gone(person):
    ada, question = person("ada"), asked()
    people.answer(question, ada, YES)
    ada.delete()
    assert run_due_tasks()[0].result == "ada ok"
    assert Question.objects.get().answered_by is None


def test_values_of_a_form_become_json(person, monkeypatch):
    from decimal import Decimal
    from uuid import UUID

    ada, question = person("ada"), asked(asking.approve_async)
    data = {
        "user": ada,
        "users": User.objects.filter(pk=ada.pk),
        "price": Decimal("1.10"),
        "day": datetime(2026, 1, 2, tzinfo=timezone.utc).date(),
        "at": datetime(2026, 1, 2, 3, tzinfo=timezone.utc),
        "span": timedelta(hours=1),
        "id": UUID(int=1),
        "parts": ({"n": 1},),
    }
    monkeypatch.setattr(asking.ApproveForm, "base_fields", {name: forms.Field() for name in data})
    assert people.answer(question, ada, data) is None
    assert run_due_tasks()[0].result == {
        "user": ada.pk,
        "users": [ada.pk],
        "price": "1.10",
        "day": "2026-01-02",
        "at": "2026-01-02T03:00:00+00:00",
        "span": "P0DT01H00M00S",
        "id": str(UUID(int=1)),
        "parts": [{"n": 1}],
    }


def test_an_answer_that_is_no_json_is_refused_and_changes_nothing(person):
    ada, question = person("ada"), asked()
    with pytest.raises(InvalidArguments, match="answer"):
        people.answer(question, ada, {**YES, "reason": object()})
    question.refresh_from_db()
    assert question.closed_at is None


# -- who has it -----------------------------------------------------------------------------------


def test_who_takes_has_it_until_its_hold_is_over(person):
    ada, bob, question = person("ada"), person("bob"), asked()
    assert people.take(question, ada) is None
    question.refresh_from_db()
    assert (question.assignee, question.taken_until - question.taken_at) == (
        ada,
        timedelta(hours=8),
    )
    for act in (people.take, lambda *who: people.answer(*who, YES)):
        refusal = act(question, bob)
        assert refusal.reason is Reason.TAKEN
        assert str(refusal).startswith("ada has this question until ")
    end_of_hold()
    assert people.take(question, bob) is None
    assert reason(people.answer(question, ada, YES)) is Reason.TAKEN
    assert people.take(question, bob) is None  # once more: it extends the time


def test_a_kind_without_hold_is_held_until_it_is_given_back(person):
    bob = person("bob", "orders.change_order")
    ada, question = person("ada", "orders.change_order"), asked(asking.approve_guarded)
    assert people.take(question, ada) is None
    question.refresh_from_db()
    assert question.taken_until is None
    refusal = people.take(question, bob)
    assert str(refusal).startswith("ada has this question. Choose another question")
    assert people.give_back(question, bob) == refusal
    assert people.give_back(question, ada, "ask Cy") is None
    question.refresh_from_db()
    assert (question.assignee, question.taken_at, question.note) == (None, None, "ask Cy")
    assert (
        str(people.give_back(question, ada))
        == "You do not have this question, so you cannot give it back."
    )
    assert people.take(question, bob) is None


@pytest.mark.parametrize("how", ["deactivated", "deleted"])
def test_a_question_of_a_user_who_is_gone_is_free_at_once(person, how):
    ada, bob, question = person("ada"), person("bob"), asked()
    people.take(question, ada)
    if how == "deleted":
        ada.delete()
    else:
        User.objects.filter(pk=ada.pk).update(is_active=False)
        ada.refresh_from_db()
        assert str(people.answer(question, ada, YES)) == "ada is not active."
    assert [one.pk for one in people.inbox(bob, "free").questions] == [question.pk]
    assert people.take(question, bob) is None


def test_who_may_not_answer_is_refused(person):
    question = asked(asking.approve_guarded)
    refusal = people.take(question, person("ada"))
    assert (refusal.reason, str(refusal)) == (
        Reason.NOT_ALLOWED,
        "You lack the permission orders.change_order. Ask the people who manage the users of this site for it.",
    )
    assert people.answer(question, person("bob", "orders.change_order"), YES) is None


def test_a_person_who_loses_the_permission_keeps_the_question_and_cannot_answer(person):
    ada, question = person("ada", "orders.change_order"), asked(asking.approve_guarded)
    people.take(question, ada)
    ada.user_permissions.clear()
    ada = User.objects.get(pk=ada.pk)
    assert reason(people.answer(question, ada, YES)) is Reason.NOT_ALLOWED
    bob = person("bob", "orders.change_order")
    assert reason(people.take(question, bob)) is Reason.TAKEN
    assert people.give_back(question, ada) is None


def test_a_kind_that_no_code_declares_is_not_answered(person):
    ada, question = person("ada"), asked()
    Question.objects.update(kind="gone.kind")
    refusal = people.answer(question, ada, YES)
    assert (
        str(refusal)
        == "No code here knows questions of the kind gone.kind. Tell the people who look after this site."
    )
    assert reason(people.take(question, ada)) is Reason.UNKNOWN_KIND


def test_a_manager_gives_a_question_to_a_colleague(person):
    boss = person("boss", "txtasks_people.assign_question")
    ada, bob, question = person("ada"), person("bob"), asked()
    people.take(question, ada)
    refusal = people.give_to(question, ada, bob)
    assert str(refusal).startswith("You lack the permission txtasks_people.assign_question. Ask")
    assert people.give_to(question, boss, bob, note="please") is None
    question.refresh_from_db()
    assert (question.assignee, question.note) == (bob, "please")
    entry = LogEntry.objects.get()
    assert (entry.user, entry.object_id, entry.change_message) == (
        boss,
        str(question.pk),
        "Given to bob.",
    )
    assert reason(people.answer(question, ada, YES)) is Reason.TAKEN
    assert people.answer(question, bob, YES) is None
    assert reason(people.give_to(question, boss, ada)) is Reason.ANSWERED
    assert LogEntry.objects.count() == 1


def test_a_question_is_not_given_to_a_person_who_may_not_answer(person):
    boss = person("boss", "txtasks_people.assign_question")
    ada, question = person("ada"), asked(asking.approve_guarded)
    refusal = people.give_to(question, boss, ada)
    assert str(refusal) == "ada lacks the permission orders.change_order. Choose another person."
    one = asked(asking.approve, "other", not_by=[ada.pk])
    refusal = people.give_to(one, boss, ada)
    assert refusal.reason is Reason.NOT_BY_YOU
    assert str(refusal) == "ada may not answer this question. Choose another person."


def test_a_hidden_question_comes_back(person):
    ada, bob, question = person("ada"), person("bob"), asked()
    people.take(question, ada)
    assert reason(people.hide(question, bob, timedelta(days=1))) is Reason.TAKEN
    assert reason(people.hide(question, bob, None)) is Reason.TAKEN
    assert people.hide(question, ada, timedelta(days=1), "customer calls back") is None
    assert people.counts(ada) == {"mine": 0, "free": 0, "overdue": 0, "all": 1}
    assert [one.note for one in people.inbox(ada, "all").questions] == ["customer calls back"]
    helpers.execute("UPDATE txtasks_question SET hidden_until = '2020-01-01 00:00:00'")
    assert people.counts(ada)["free"] == 1
    assert people.hide(question, ada, datetime(2090, 1, 1, tzinfo=timezone.utc)) is None
    assert people.counts(bob)["free"] == 0
    assert people.hide(question, bob, None) is None
    assert people.counts(ada)["free"] == 1
    assert people.hide(question, ada, timedelta(days=1)) is None
    assert people.take(question, ada) is None
    assert [one.pk for one in people.inbox(ada).questions] == [question.pk]
    assert people.hide(question, ada, None) is None  # nothing is hidden: the person still has it
    assert people.counts(ada)["mine"] == 1


def test_a_question_that_its_person_hides_is_free(person):
    ada, bob, question = person("ada"), person("bob"), asked()
    people.take(question, ada)
    assert people.hide(question, ada, timedelta(days=1)) is None
    question.refresh_from_db()
    assert (question.assignee, question.taken_at, question.taken_until) == (None, None, None)
    assert people.answer(question, bob, YES) is None


def test_a_question_that_is_hidden_for_one_person_stays_for_the_others(person):
    ada, bob, question = person("ada"), person("bob"), asked()
    other = asked(asking.approve, "other")
    people.take(question, ada)
    assert people.hide_for_me(question, ada, note="not my customer") is None
    question.refresh_from_db()
    assert (question.assignee, question.note, question.noted_as) == (None, "not my customer", "ada")
    assert [one.pk for one in people.inbox(ada, "free").questions] == [other.pk]
    assert (people.counts(ada)["free"], people.counts(bob)["free"]) == (1, 2)
    assert len(people.inbox(ada, "all").questions) == 2
    assert people.take_next(ada).pk == other.pk
    assert people.take_next(ada) is None
    assert people.hide_for_me(question, ada) is None  # again: the person is in the list once
    assert people.hide_for_me(question, ada, hidden=False) is None
    assert people.take_next(ada).pk == question.pk
    assert Question.objects.get(pk=question.pk).hidden_for == []
    assert reason(people.hide_for_me(question, person("cy", is_active=False))) is Reason.NOT_ALLOWED
    people.answer(question, ada, YES)
    assert reason(people.hide_for_me(question, bob)) is Reason.ANSWERED


def test_the_next_question_is_found_behind_many_that_are_hidden(person, monkeypatch):
    monkeypatch.setattr("django_txtasks.contrib.people.acts.ROWS_PER_LOOK", 2)
    ada = person("ada")
    for key in "abcdef":
        last = asked(asking.approve, key)
        if key != "f":
            people.hide_for_me(last, ada)
    assert people.take_next(ada).pk == last.pk


def test_the_next_question_is_the_first_due_one_of_all_kinds_without_hidden_ones(person):
    bob = person("bob", "orders.change_order")
    hidden, last = asked(asking.approve, "a"), asked(asking.approve, "b")
    first = asked(asking.approve_guarded)
    for day, one in enumerate([hidden, first, last], start=1):
        Question.objects.filter(pk=one.pk).update(
            due_at=datetime(2030, 1, day, tzinfo=timezone.utc)
        )
    people.hide_for_me(hidden, bob)
    assert [people.take_next(bob).pk for _ in range(2)] == [first.pk, last.pk]
    assert people.take_next(bob) is None


def test_a_note_has_the_name_of_its_author(person):
    ada, bob, question = person("ada", first_name="Ada"), person("bob"), asked()

    def noted():
        question.refresh_from_db()
        return question.note, question.noted_as

    people.write_note(question, ada, "ask Cy")
    assert noted() == ("ask Cy", "Ada")
    people.take(question, bob)
    people.give_back(question, bob, note="ask Cy")  # as the page sends it back
    assert noted() == ("ask Cy", "Ada")
    people.hide(question, bob, timedelta(days=1), note="Cy is ill")
    assert noted() == ("Cy is ill", "bob")
    people.write_note(question, ada, "")
    assert noted() == ("", "")


@pytest.mark.parametrize("until", [datetime(2090, 1, 1), 3600, "tomorrow"], ids=str)
def test_a_time_that_cannot_hide_is_refused(person, until):
    with pytest.raises(InvalidOption, match="until"):
        people.hide(asked(), person("ada"), until)


# -- refusals ---------------------------------------------------------------------------------------


def test_the_second_answer_is_told_who_was_first(person):
    ada, bob, question = person("ada"), person("bob"), asked()
    assert people.answer(question, ada, YES) is None
    for one, who in ((bob, "ada"), (ada, "You")):
        refusal = people.answer(question, one, YES)
        assert refusal.reason is Reason.ANSWERED
        assert str(refusal).startswith(f"{who} answered at ")
    assert reason(people.take(question, bob)) is Reason.ANSWERED
    assert reason(people.give_back(question, bob)) is Reason.ANSWERED
    assert reason(people.hide(question, bob, timedelta(days=1))) is Reason.ANSWERED
    assert run_due_tasks()[0].result == "ada ok"
    assert reason(people.answer(question, bob, YES)) is Reason.ANSWERED


def test_an_answer_to_a_cancelled_task_is_told(person):
    ada, question = person("ada"), asked()
    operators.cancel("default", [question.task_id], keep=True)
    assert not people.inbox(ada, "free").questions
    assert people.open_question(question) is None
    refusal = people.answer(question, ada, YES)
    assert refusal.reason is Reason.CANCELLED
    assert str(refusal).startswith("The task was cancelled at ")
    assert reason(people.take(question, ada)) is Reason.CANCELLED
    clean()
    assert Question.objects.get().closed_at is not None
    assert reason(people.answer(question, ada, YES)) is Reason.CANCELLED


def test_an_answer_that_comes_too_late_is_told(person):
    ada, question = person("ada"), asked(asking.approve, "k", 3600)
    end_of_time()
    assert people.open_question(question) == question
    (ran,) = run_due_tasks()
    assert ran.result == "nobody"
    assert Question.objects.get().closed_at is not None
    refusal = people.answer(question, ada, YES)
    assert refusal.reason is Reason.TOO_LATE
    assert str(refusal).startswith("Too late: the time for an answer ended at ")


def test_an_answer_after_the_time_counts_until_the_task_has_noticed(person):
    ada, question = person("ada"), asked(asking.approve, "k", 3600)
    end_of_time()
    assert people.answer(question, ada, YES) is None
    assert run_due_tasks()[0].result == "ada ok"


def test_an_answer_after_a_token_was_used_is_told(person):
    ada, question = person("ada"), asked()
    assert resume(token_of("default", question.task_id, question.name), {"reason": "mail"})
    assert not people.inbox(ada, "free").questions
    refusal = people.answer(question, ada, YES)
    assert str(refusal).startswith("The answer came in another way at ")
    (ran,) = run_due_tasks()
    assert ran.result == "none mail"
    assert Question.objects.get().closed_at is not None


def test_a_value_that_came_before_the_task_asks_needs_no_question():
    handle = asking.approve.enqueue("k")
    resume(token_of("default", handle.id, "probe.approval"), {"reason": "early"})
    (ran,) = run_due_tasks()
    assert ran.result == "none early"
    assert not Question.objects.exists()


def test_a_question_whose_rows_are_gone_is_told(person, txtasks):
    txtasks(keep_finished=0)
    ada, question = person("ada"), asked()
    operators.cancel("default", [question.task_id], keep=False)
    assert str(people.answer(question, ada, YES)) == GONE
    clean()
    assert not Question.objects.exists()
    assert reason(people.answer(question, ada, YES)) is Reason.ENDED
    assert reason(people.give_back(question, ada)) is Reason.ENDED
    assert people.open_question(question) is None


def test_a_time_of_another_day_has_its_date(person):
    ada, bob, question = person("ada"), person("bob"), asked()
    people.answer(question, ada, YES)
    helpers.execute("UPDATE txtasks_question SET closed_at = '2020-01-02 03:04:05'")
    at = "ada answered at 01/02/2020 3:04 a.m."
    assert str(people.take(question, bob)) == f"{at} If you do not agree, talk to ada."


# -- what the task says ----------------------------------------------------------------------------


def test_a_question_begins_with_a_person(person):
    ada, bob = person("ada"), person("bob")
    question = asked(asking.approve, "k", to=ada.pk)
    assert (question.assignee, question.taken_until is None) == (ada, False)
    assert reason(people.take(question, bob)) is Reason.TAKEN


@pytest.mark.parametrize("why", ["permission", "not_by", "inactive", "gone"])
def test_a_question_does_not_begin_with_a_person_who_may_not_answer(person, why):
    ada = person("ada", is_active=why != "inactive")
    if why == "permission":
        question = asked(asking.approve_guarded, "k", to=ada.pk)
    elif why == "not_by":
        question = asked(asking.approve, "k", to=ada.pk, not_by=[ada.pk])
    else:
        question = asked(asking.approve, "k", to=0 if why == "gone" else ada.pk)
    assert question.assignee is None


def test_a_due_question_enqueues_its_function(person):
    handle = asking.approve_reminded.enqueue("k", 3600)
    run_due_tasks()
    question, reminder = Question.objects.get(), Task.objects.exclude(pk=handle.id).get()
    assert abs((question.due - question.asked_at).total_seconds() - 3600) < 5
    assert abs((reminder.run_after - question.due).total_seconds()) < 5
    assert reminder.args == [question.pk]
    operators.run_now("default", [handle.id])
    run_due_tasks()
    assert Task.objects.count() == 2  # only one reminder, however often it asks
    operators.run_now("default", [reminder.pk])
    run_due_tasks()
    assert helpers.runs(f"due {question.pk}") == 1


WRONG = [
    ({"suggested": {"aproved": True}}, "the unknown field 'aproved'"),
    ({"suggested": True}, "use a dict"),
    ({"timeout": "soon"}, "timeout"),
    ({"timeout": -1}, "timeout"),
    ({"due": "soon"}, "due"),
    ({"on_due": "x"}, "on_due"),
    ({"title": "x" * 300}, None),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=lambda one: str(one)[:30])
def test_what_cannot_be_asked_is_refused_by_name(options, message):
    handle = asking.approve.enqueue("k", **{**options}) if "title" not in options else None
    if handle is None:
        assert len(asked(asking.approve, "x" * 300).title) == 200
        return
    run_due_tasks(reraise=False)
    if message == "timeout" and options["timeout"] == -1:
        assert helpers.finished(handle.id).result == "nobody"
        return
    error = helpers.row(handle.id).errors[-1]
    assert (error["type"], message in error["message"]) == ("InvalidOption", True)
    assert not Question.objects.exists()


def test_the_answer_agrees_with_what_was_suggested(person):
    ada = person("ada")
    yes, no = (asked(asking.approve, key, suggested={"approved": True}) for key in ("yes", "no"))
    people.answer(yes, ada, YES)
    people.answer(no, ada, {"approved": False, "reason": ""})
    assert [Question.objects.get(pk=one.pk).agreed for one in (yes, no)] == [True, False]
    run_due_tasks()
    found = people.figures("probe.approval", timedelta(days=1))
    assert (found.answered, found.suggested, found.agreed, found.by_machine) == (2, 2, 1, 0)
    assert found.p50 >= timedelta(0)
    assert people.answers_by_kind(timedelta(days=1))["probe.guarded"].answered == 0
    assert people.figures(asking.approval, timedelta(days=1)) == found
    with pytest.raises(InvalidOption, match="since"):
        people.figures("probe.approval", 5)


# -- the machine -----------------------------------------------------------------------------------


class Context:
    """The context of an attempt, as ``steps_of`` needs it."""

    def __init__(self, attempt):
        from django_txtasks.features.steps.context import Steps

        self._steps = Steps("default", attempt)


def ask_as(attempt, machine=None, kind: Kind = asking.approval, **options):
    """Ask as the attempt does."""
    return kind.ask(Context(attempt), machine=machine, **options)


def attempt_of(key="k"):
    asking.approve.enqueue(key)
    return claim_one(new_worker())


def test_a_machine_answers_at_once_and_is_asked_once():
    attempt, calls = attempt_of(), []

    def machine():
        assert not connection.in_atomic_block
        calls.append(1)
        return YES

    for _ in range(2):
        assert ask_as(attempt, machine, suggested={"approved": False}) == (YES, None, "")
    question = Question.objects.get()
    assert (len(calls), question.by_machine, question.agreed) == (1, True, False)
    assert question.closed_at is not None
    assert Task.objects.get().status == Status.CLAIMED


def test_a_machine_that_is_not_sure_leaves_it_to_people(person):
    attempt = attempt_of()
    with pytest.raises(Suspended):
        ask_as(attempt, lambda: None)
    assert people.answer(Question.objects.get(), person("ada"), YES) is None
    assert ask_as(attempt, lambda: {"approved": False, "reason": ""}).name == "ada"


def test_who_was_asked_before_the_machine_became_sure_is_heard(person):
    """The deploy that adds machine=."""
    attempt = attempt_of()
    with pytest.raises(Suspended):
        ask_as(attempt)
    for _ in range(2):
        with pytest.raises(Suspended):
            ask_as(attempt, lambda: pytest.fail("the machine was asked"))
    assert people.answer(Question.objects.get(), person("ada"), YES) is None
    assert ask_as(attempt, lambda: pytest.fail("the machine was asked")).name == "ada"


def test_a_value_that_comes_while_the_machine_thinks_counts():
    attempt = attempt_of()
    token = token_of("default", attempt.task_id, "probe.approval")

    def machine():
        assert resume(token, {"reason": "mail"})
        return YES

    assert ask_as(attempt, machine).data == {"reason": "mail"}
    assert not Question.objects.exists()


def test_a_machine_of_a_worker_that_was_lost_answers_nothing():
    attempt = attempt_of()

    def machine():
        helpers.execute("UPDATE txtasks_task SET attempt = attempt + 1")
        return YES

    with pytest.raises(ClaimLost):
        ask_as(attempt, machine)
    assert not Question.objects.exists()
    assert not Wait.objects.exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [(True, "use a dict"), ({"approved": True}, "no field 'reason'"), ({"x": 1}, "unknown")],
    ids=str,
)
def test_an_answer_of_a_machine_that_lacks_a_field_is_refused(given, message):
    with pytest.raises(InvalidOption, match=message):
        ask_as(attempt_of(), lambda: given)
    assert not Wait.objects.exists()


# -- beside batches, revivals, twins, and code that only waits -------------------------------------


def test_a_batch_of_two_ends_once_both_are_answered(person):
    from django_txtasks import batch

    ada = person("ada")
    with batch(name="two") as both:
        for key in ("a", "b"):
            asking.approve.enqueue(key)
    run_due_tasks()
    first, second = Question.objects.order_by("id")
    people.answer(first, ada, YES)
    run_due_tasks()
    assert both.status().finished_at is None
    people.answer(second, ada, YES)
    run_due_tasks()
    assert both.status().finished_at is not None


def test_a_task_that_is_revived_after_the_answer_gets_it_again(person):
    ada, question = person("ada"), asked()
    people.answer(question, ada, YES)
    attempt = claim_one(new_worker())
    record(ended(attempt, Arrow.BURY))
    assert Task.objects.get().status == Status.DEAD
    operators.revive("default", [question.task_id])
    assert run_due_tasks()[0].result == "ada ok"


def test_a_wait_of_earlier_code_gets_its_question(person):
    """The deploy that turns ctx.wait_for() into ask()."""
    from django_txtasks.features.steps.context import Steps

    attempt = attempt_of()
    with pytest.raises(Suspended):
        Steps("default", attempt).wait_for("probe.approval", None)
    with pytest.raises(Suspended):
        ask_as(attempt)
    assert people.answer(Question.objects.get(), person("ada"), YES) is None
    assert ask_as(attempt).name == "ada"


def test_an_attempt_that_lost_its_claim_asks_nothing():
    attempt = attempt_of()
    helpers.execute("UPDATE txtasks_task SET attempt = attempt + 1")
    with pytest.raises(ClaimLost):
        ask_as(attempt)
    assert not Question.objects.exists()


def test_a_task_in_another_database_does_not_ask():
    attempt = attempt_of()
    one = Asking(
        kind=asking.approval, name="x", title="", suggested=None, to=None, not_by=[],
        due=None, timeout=None, on_due=None,
    )  # fmt: skip
    with pytest.raises(StepRefused, match="from the database 'second'"):
        one._ask("second", attempt)


def test_questions_go_with_their_finished_task(person):
    ada, question = person("ada"), asked()
    people.answer(question, ada, YES)
    run_due_tasks()
    clean()
    assert Question.objects.exists()
    FinishedTask.objects.update(finished_at="2020-01-01T00:00Z")
    clean()
    assert not Question.objects.exists()


# -- take_next ---------------------------------------------------------------------------------------


def test_people_take_the_next_question_that_they_may_take(person):
    ada, bob = person("ada"), person("bob", "orders.change_order")
    plain = [asked(asking.approve, key).pk for key in "ab"]
    excluded = asked(asking.approve, "c", not_by=[ada.pk]).pk
    guarded = asked(asking.approve_guarded).pk
    assert [people.take_next(ada).pk for _ in range(2)] == plain
    assert people.take_next(ada) is None
    assert people.take_next(bob, "probe.approval").pk == excluded
    assert people.take_next(bob, "probe.approval") is None
    taken = people.take_next(bob)
    assert (taken.pk, taken.assignee) == (guarded, bob)
    operators.cancel("default", [taken.task_id], keep=True)


def test_a_question_that_needs_no_answer_is_not_the_next_one(person):
    gone, there = asked(asking.approve, "a"), asked(asking.approve, "b")
    operators.cancel("default", [gone.task_id], keep=True)
    assert people.take_next(person("ada")).pk == there.pk


@pytest.mark.skipif(connection.vendor == "sqlite", reason="one writer at a time")
def test_people_who_take_at_once_take_different_ones(person):
    ada, bob = person("ada"), person("bob")
    first, second = asked(asking.approve, "a"), asked(asking.approve, "b")
    locked, release, taken = threading.Event(), threading.Event(), []

    def hold():
        with transaction.atomic():
            taken.append(people.take_next(ada).pk)
            locked.set()
            assert release.wait(30)

    with helpers.second_session(hold):
        assert locked.wait(30)
        taken.append(people.take_next(bob).pk)
        release.set()
    assert taken == [first.pk, second.pk]
