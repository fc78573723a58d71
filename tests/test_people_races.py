"""Two at once, each way round: people, and the task that gives up. Locks have one order: task, wait, question."""

from contextlib import ExitStack
from datetime import timedelta

import helpers
import pytest
from django.db import connection, transaction
from probe import asking
from test_people import YES, ask_as, asked, attempt_of, end_of_time, person, reason  # noqa: F401

from django_txtasks import Suspended, WaitTimedOut
from django_txtasks.contrib import people
from django_txtasks.contrib.people.asking import Asking, close
from django_txtasks.contrib.people.models import Question
from django_txtasks.contrib.people.refusals import Reason
from django_txtasks.models import Wait

pytestmark = [
    pytest.mark.usefixtures("rows", "quick"),
    pytest.mark.skipif(connection.vendor == "sqlite", reason="one writer at a time"),
]
LOCK_TASKS = "UPDATE txtasks_task SET priority = priority + 1"


def unlocked(table, column):
    """Return the rows of a table that no other session has locked."""
    return helpers.execute(f"SELECT {column} FROM {table} FOR UPDATE SKIP LOCKED")


def beside(stack, work):
    """Run ``work`` in another session until it waits for a lock; return its results, which come later."""
    results = []

    def run():
        try:
            results.append(work())
        except (Suspended, WaitTimedOut) as error:
            results.append(type(error))

    stack.enter_context(helpers.second_session(run))
    helpers.wait_until(helpers.somebody_waits)
    return results


def test_who_answers_locks_the_task_before_its_wait_and_its_question(person):  # noqa: F811
    ada, question = person("ada"), asked()
    with ExitStack() as thread, transaction.atomic():
        helpers.execute(LOCK_TASKS)
        results = beside(thread, lambda: people.answer(question, ada, YES))
        assert len(unlocked("txtasks_question", "id")) == 1
        assert len(unlocked("txtasks_wait", "name")) == 1
    assert results == [None]


def test_a_task_that_gives_up_locks_its_row_before_its_wait_and_its_question():
    attempt = attempt_of()
    with pytest.raises(Suspended):
        ask_as(attempt, timeout=3600)
    end_of_time()
    with ExitStack() as thread, transaction.atomic():
        helpers.execute(LOCK_TASKS)
        results = beside(thread, lambda: ask_as(attempt, timeout=3600))
        assert len(unlocked("txtasks_question", "id")) == 1
        assert len(unlocked("txtasks_wait", "name")) == 1
    assert results == [WaitTimedOut]
    assert Question.objects.get().closed_at is not None


def test_an_answer_that_is_not_committed_keeps_the_task_from_giving_up(person):  # noqa: F811
    ada, attempt = person("ada"), attempt_of()
    with pytest.raises(Suspended):
        ask_as(attempt, timeout=3600)
    end_of_time()
    with ExitStack() as thread, transaction.atomic():
        assert people.answer(Question.objects.get(), ada, YES) is None
        results = beside(thread, lambda: ask_as(attempt, timeout=3600))
    assert results == [(YES, ada.pk, "ada")]


def test_an_answer_waits_for_a_task_that_gives_up_and_is_told(person):  # noqa: F811
    ada, attempt = person("ada"), attempt_of()
    with pytest.raises(Suspended):
        ask_as(attempt, timeout=3600)
    end_of_time()
    question = Question.objects.get()
    with ExitStack() as thread, transaction.atomic():
        assert ask_in_open_transaction(attempt).wait.ended
        results = beside(thread, lambda: people.answer(question, ada, YES))
    assert reason(results[0]) is Reason.TOO_LATE
    assert Wait.objects.get().value is None


def ask_in_open_transaction(attempt):
    """Ask as the transaction of ``Kind.ask`` does."""
    one = Asking(
        kind=asking.approval, name="probe.approval", title="", suggested=None, to=None,
        not_by=[], due=None, timeout=timedelta(hours=1), on_due=None,
    )  # fmt: skip
    one._check()
    return one._ask("default", attempt)


def test_of_two_answers_at_once_the_first_counts_and_the_second_is_told(person):  # noqa: F811
    ada, bob, question = person("ada"), person("bob"), asked()
    with ExitStack() as thread, transaction.atomic():
        assert people.answer(question, ada, YES) is None
        results = beside(thread, lambda: people.answer(question, bob, YES))
    assert str(results[0]).startswith("ada answered at ")


def test_two_who_hide_a_question_from_themselves_at_once_both_do(person):  # noqa: F811
    ada, bob, question = person("ada"), person("bob"), asked()
    with ExitStack() as thread, transaction.atomic():
        assert people.hide_for_me(question, ada) is None
        results = beside(thread, lambda: people.hide_for_me(question, bob))
    assert results == [None]
    assert Question.objects.get().hidden_for == [str(ada.pk), str(bob.pk)]


def test_of_two_who_take_at_once_one_has_it(person):  # noqa: F811
    ada, bob, question = person("ada"), person("bob"), asked()
    with ExitStack() as thread, transaction.atomic():
        assert people.take(question, ada) is None
        results = beside(thread, lambda: people.take(question, bob))
    assert reason(results[0]) is Reason.TAKEN


def test_who_takes_while_a_colleague_answers_is_told(person):  # noqa: F811
    ada, bob, question = person("ada"), person("bob"), asked()
    with ExitStack() as thread, transaction.atomic():
        assert people.answer(question, ada, YES) is None
        results = beside(thread, lambda: people.take(question, bob))
    assert reason(results[0]) is Reason.ANSWERED
    assert Question.objects.get().assignee is None


def test_who_answers_while_a_colleague_takes_is_told(person):  # noqa: F811
    """The value is brought first, and rolled back with the refusal."""
    ada, bob, question = person("ada"), person("bob"), asked()
    with ExitStack() as thread, transaction.atomic():
        assert people.take(question, ada) is None
        results = beside(thread, lambda: people.answer(question, bob, YES))
    assert reason(results[0]) is Reason.TAKEN
    assert Wait.objects.get().ended_at is None
    assert people.answer(question, ada, YES) is None


def test_a_cleaner_that_has_looked_before_an_answer_leaves_it(person):  # noqa: F811
    ada, question = person("ada"), asked()
    assert people.answer(question, ada, YES) is None
    answered = Question.objects.get().closed_at
    assert close("default", [question.pk]) == 0
    assert Question.objects.get().closed_at == answered
