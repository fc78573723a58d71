"""The pages for people: lists and questions, for users of the site and in the admin; who may do which act."""

import re
from datetime import timedelta

import pytest
import test_german
from approvals.models import Purchase
from approvals.tasks import approval, decide
from django import forms
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils.translation import override
from orders.models import Order
from probe import asking
from test_people import asked, end_of_time, person  # noqa: F401 -- a fixture

from django_txtasks.contrib import people
from django_txtasks.contrib.people import lists, refusals, showing
from django_txtasks.contrib.people.lists import Box
from django_txtasks.contrib.people.models import Question
from django_txtasks.models import FinishedTask, Link, Task
from django_txtasks.operations import operators
from django_txtasks.testing import run_due_tasks

pytestmark = pytest.mark.usefixtures("rows", "quick")
INBOX, ADMIN = "/inbox/", "/admin/txtasks_people/question/"
YES = {"act": "answer", "answer-approved": "on", "answer-reason": "ok"}
MAY = "orders.change_order"
ASSIGN = "txtasks_people.assign_question"


def signed_in(user, **options):
    client = Client(**options)
    client.force_login(user)
    return client


def page(question):
    return f"{INBOX}{question.pk}/"


def text_of(response):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", response.content.decode()))


# -- the way of an answer ---------------------------------------------------------------------------


@pytest.mark.smoke
def test_a_person_takes_the_next_question_and_answers_it(person):  # noqa: F811
    ada, question = (
        person("ada"),
        asked(asking.approve, "order 7", suggested={"reason": "as usual"}),
    )
    client = signed_in(ada)
    assert "order 7" in text_of(client.get(f"{INBOX}?box=free"))
    answer = client.post(INBOX, {"take_next": "1"}, follow=True)
    assert "Taken." in text_of(answer)
    assert "You have it until" in text_of(answer)
    assert 'value="as usual"' in answer.content.decode()
    answer = client.post(page(question), YES, follow=True)
    assert answer.redirect_chain == [(INBOX, 302)]
    assert "Your answer is saved: order 7" in text_of(answer)
    assert "Answered by you" in text_of(answer)
    assert "The task goes on with the answer that counts" in text_of(client.get(page(question)))
    assert run_due_tasks()[0].result == "ada ok"
    shown = text_of(client.get(page(question)))
    assert re.search(r"The task ended at \d+:\d+ [ap]\.m\.: succeeded", shown)
    FinishedTask.objects.all().delete()
    assert "The task has ended." in text_of(client.get(page(question)))
    assert [one.change_message for one in LogEntry.objects.order_by("pk")] == [
        "Taken.",
        "Answered.",
    ]


def test_no_free_question_is_said(person):  # noqa: F811
    answer = signed_in(person("ada")).post(INBOX, {"take_next": "1"})
    assert (answer.status_code, "No question is free." in text_of(answer)) == (409, True)
    assert "No question is in this list." in text_of(answer)


def test_the_second_answer_is_told_who_was_first_and_loses_no_text(person):  # noqa: F811
    ada, bob, question = person("ada", first_name="Ada"), person("bob"), asked()
    assert people.answer(question, ada, {"approved": True, "reason": ""}) is None
    answer = signed_in(bob).post(page(question), {**YES, "answer-reason": "my long reason"})
    assert answer.status_code == 409
    assert re.search(
        r'role="alert">Your answer was not used: Ada answered at ', answer.content.decode()
    )
    assert "Not used: your answer Approved yes Reason my long reason" in text_of(answer)
    assert "The answer Approved yes" in text_of(answer)
    assert "Your answer was not used: Ada answered" in text_of(answer)
    assert 'class="txp-answer"' not in answer.content.decode()


def test_the_answer_is_shown_to_the_person_who_gave_it(person):  # noqa: F811
    client, question = signed_in(person("ada")), asked()
    no = {**YES, "answer-reason": "Bad payer"}
    del no["answer-approved"]
    noted = client.post(page(question), no, follow=True)
    assert "Approved: no · Reason: Bad payer" in text_of(noted)
    assert text_of(client.get(INBOX)).count("Approved: no · Reason: Bad payer") == 1
    assert "The answer Approved no Reason Bad payer" in text_of(client.get(page(question)))


def test_the_key_enter_gives_if_a_colleague_is_named_and_else_saves_the_note(person):  # noqa: F811
    client, question = signed_in(person("ada", ASSIGN)), asked()
    bob = person("bob", first_name="Bob")
    for address in (page(question), INBOX):
        assert (
            '<button name="act" value="enter" hidden></button>'
            in client.get(address).content.decode()
        )
    client.post(page(question), {"act": "enter", "note": "look", "to": ""})
    question.refresh_from_db()
    assert (question.note, question.assignee) == ("look", None)
    said = client.post(INBOX, {"act": "enter", "question": question.pk, "to": "BOB"}, follow=True)
    question.refresh_from_db()
    assert question.assignee == bob and "Given to Bob." in text_of(said)


def test_each_reason_is_said_in_words(person):  # noqa: F811
    ada, bob = person("ada", first_name="Ada"), person("bob")
    client, taken = signed_in(bob), asked(asking.approve, "taken")
    people.take(taken, ada)
    cancelled = asked(asking.approve, "cancelled")
    operators.cancel("default", [cancelled.task_id], keep=True)
    excluded = asked(asking.approve, "excluded", not_by=[bob.pk])
    late = asked(asking.approve, "late", 3600)
    end_of_time()
    run_due_tasks()
    for question, words in (
        (taken, "Ada has this question until"),
        (cancelled, "The task was cancelled at"),
        (excluded, "You may not answer this question: another person has to. Leave it"),
        (late, "Too late: the time for an answer ended at"),
    ):
        shown = client.get(page(question))
        assert words in text_of(shown)
        assert 'value="answer"' not in shown.content.decode()
        answer = client.post(page(question), YES)
        assert (answer.status_code, words in text_of(answer)) == (409, True), words


def test_a_late_answer_of_any_type_is_shown_in_words(person, monkeypatch):  # noqa: F811
    fields = {
        "day": forms.DateField(),
        "size": forms.ChoiceField(choices=[("Big ones", [("l", "Large")])]),
        "parts": forms.MultipleChoiceField(choices=[("a", "Door"), ("b", "Roof")]),
    }
    monkeypatch.setattr(asking.ApproveForm, "base_fields", fields)
    ada, question = person("ada"), asked()
    given = {"answer-day": "2026-11-28", "answer-size": "l", "answer-parts": ["a", "b"]}
    answer = signed_in(ada).post(page(question), {"act": "answer", **given}, follow=True)
    assert "Day: Nov. 28, 2026 · Size: Large · Parts: Door, Roof" in text_of(answer)
    answer = signed_in(person("bob")).post(page(question), {"act": "answer", **given})
    assert "Not used: your answer Day Nov. 28, 2026 Size Large Parts Door, Roof" in text_of(answer)


def test_a_form_that_is_not_valid_keeps_its_values(person, monkeypatch):  # noqa: F811
    def clean(form):
        seen.append((form.question.pk, form.user.pk))
        raise forms.ValidationError("not today")

    seen, ada, question = [], person("ada"), asked()
    monkeypatch.setattr(asking.ApproveForm, "clean", clean)
    answer = signed_in(ada).post(page(question), YES)
    assert (answer.status_code, "not today" in text_of(answer)) == (200, True)
    assert 'value="ok"' in answer.content.decode()
    assert seen == [(question.pk, ada.pk)]
    assert Question.objects.get().closed_at is None


def test_the_arguments_of_the_task_are_shown_without_secrets(person):  # noqa: F811
    question = asked(asking.approve, "k-17", suggested={"reason": "x"})
    named = dict(showing.arguments_of(question))
    assert named["key"] == "[redacted]"  # the name of the parameter
    assert named["suggested"] == '{"reason": "x"}'
    assert "suggested" in text_of(signed_in(person("ada")).get(page(question)))
    operators.cancel("default", [question.task_id], keep=True)
    assert dict(showing.arguments_of(question)) == named
    FinishedTask.objects.all().delete()
    assert showing.arguments_of(question) == []


def test_a_question_of_an_unknown_kind_is_shown_and_not_answered(person):  # noqa: F811
    question = asked()
    Question.objects.update(kind="gone.kind")
    boss = signed_in(person("boss", ASSIGN))
    for answer in (boss.get(page(question)), boss.post(page(question), YES)):
        assert "No code here knows questions of the kind gone.kind." in text_of(answer)
    assert Question.objects.get().closed_at is None


def test_a_second_answer_of_the_same_person_is_told_which_one_counts(person):  # noqa: F811
    client, question = signed_in(person("ada")), asked()
    client.post(page(question), YES)
    answer = client.post(page(question), {**YES, "answer-reason": "another one"})
    question.refresh_from_db()
    at = refusals.time_of(question.closed_at)
    text = text_of(answer)
    assert f"Your second answer was not used. Your first answer of {at} counts." in text
    assert "You answered at" not in text and "Noted" not in text
    assert "Not used: your answer Approved yes Reason another one" in text
    assert (answer.status_code, run_due_tasks()[0].result) == (409, "ada ok")


def test_a_question_shows_the_other_questions_of_its_task_and_how_the_task_ended(person):  # noqa: F811
    ada, bob = person("ada", first_name="Ada"), person("bob", first_name="Bob")
    first, other = asked(asking.approve_twice, "order 7"), asked(asking.approve, "another task")
    shown = text_of(signed_in(ada).get(page(first)))
    assert "Other questions of the same task" not in shown
    people.answer(first, ada, {"approved": True, "reason": "known"})
    run_due_tasks()
    second = Question.objects.get(closed_at=None, task_id=first.task_id)
    people.take(second, bob)
    shown = text_of(signed_in(bob).get(page(second)))
    found = (
        r"Other questions of the same task order 7 · Ada answered at \S+ [ap]\.m\. Approved: yes"
    )
    assert re.search(found + " · Reason: known", shown)
    shown = signed_in(ada).get(page(first))
    assert "The task has gone on, and waits for the answer to another question." in text_of(shown)
    assert f'href="{page(second)}?next=' in shown.content.decode()
    assert "order 7 · Bob has it until" in text_of(shown)
    assert "another task" not in text_of(shown)
    people.answer(second, bob, {"approved": False, "reason": "no"})
    run_due_tasks()
    shown = text_of(signed_in(ada).get(page(first)))
    assert "succeeded" in shown and "Bob answered at" in shown
    assert "Approved: no · Reason: no" in shown
    shown = text_of(signed_in(bob).get(page(second)))
    assert "order 7 · Ada answered at" in shown and "You answered at" in shown
    Question.objects.filter(pk=first.pk).update(answered_as="", by_machine=True, answered_by=None)
    assert "A machine answered at" in text_of(signed_in(bob).get(page(second)))
    Question.objects.filter(pk=first.pk).update(by_machine=False)
    assert "without an answer" in text_of(signed_in(bob).get(page(second)))
    Question.objects.filter(pk=first.pk).update(kind="probe.guarded")
    assert "Other questions" not in text_of(signed_in(bob).get(page(second)))
    assert other.task_id != first.task_id


def test_a_stopped_task_is_told_where_its_question_was_answered(person):  # noqa: F811
    ada, question = person("ada"), asked()
    people.answer(question, ada, {"approved": True, "reason": ""})
    Task.objects.filter(pk=question.task_id).update(status="dead")
    shown = text_of(signed_in(ada).get(page(question)))
    assert "The task has stopped, and a person who looks after tasks must help." in shown
    Task.objects.filter(pk=question.task_id).delete()


# -- the other acts ---------------------------------------------------------------------------------


def test_take_give_back_hide_and_note(person):  # noqa: F811
    ada, question = person("ada"), asked()
    client, place = signed_in(ada), f"{INBOX}?box=all"
    address = f"{page(question)}?next={place}"
    for act, fields, goes_to, said in (
        ("take", {}, address, "Taken."),
        ("note", {"note": "asked Cy"}, address, "Note saved."),
        ("hide", {"hide_for": "day"}, place, "Free, and hidden from all until"),
        ("show", {}, address, "Shown to all again."),
        ("take", {}, address, "Taken."),
        ("give_back", {"note": "Bob knows"}, place, "Given back."),
    ):
        answer = client.post(address, {"act": act, **fields}, follow=True)
        assert answer.redirect_chain == [(goes_to, 302)]
        assert said in text_of(answer)
    question.refresh_from_db()
    assert (question.assignee, question.note) == (None, "Bob knows")
    said = [one.change_message for one in LogEntry.objects.order_by("pk")]
    assert said[:4] == ["Taken.", "Note saved.", "Hidden from all.", "Shown to all again."]
    assert said[4:] == ["Taken.", "Given back."]


def test_a_question_that_is_hidden_from_all_is_free_and_can_be_shown_again(person):  # noqa: F811
    ada, bob = person("ada"), person("bob")
    question = asked(asking.approve, "order 7", due=-5)
    people.take(question, bob)
    client, place = signed_in(bob), f"{INBOX}?box=all"
    said = client.post(
        f"{page(question)}?next={place}", {"act": "hide", "hide_for": "day"}, follow=True
    )
    question.refresh_from_db()
    assert question.assignee is None
    assert question.hidden_until > question.asked_at + timedelta(hours=23)
    until = refusals.time_at_end(question.hidden_until)
    assert f"Free, and hidden from all until {until}. order 7" in text_of(said)
    assert f"Free · hidden from all until {until}" in text_of(said)
    for address in (place, f"{INBOX}?box=overdue"):
        shown = signed_in(ada).get(address).content.decode()
        assert f'<button name="show" value="{question.pk}"' in shown
    assert 'value="show"' in signed_in(ada).get(page(question)).content.decode()
    said = signed_in(ada).post(place, {"show": question.pk}, follow=True)
    assert said.redirect_chain == [(place, 302)]
    assert "Shown to all again. order 7" in text_of(said)
    assert "hidden" not in text_of(said)
    assert _titles(ada, "free") == ["order 7"]


def test_a_note_is_told_as_it_was_saved(person):  # noqa: F811
    client, question = signed_in(person("ada")), asked()
    for note, was, said in (
        ("", "", "The note is empty."),
        ("ask Cy", "", "Note saved."),
        ("ask Cy", "ask Cy", "The note is as before."),
        (" ", "ask Cy", "Note removed."),
    ):
        fields = {"act": "note", "note": note, "note_was": was}
        assert said in text_of(client.post(page(question), fields, follow=True))
        question.refresh_from_db()
        assert question.note == note.strip()


@pytest.mark.parametrize("act", ["note", "give_back", "give_to", "not_for_me"])
def test_no_note_is_replaced_that_its_reader_has_not_seen(person, act):  # noqa: F811
    ada, bob = person("ada", ASSIGN), person("bob", first_name="Bob")
    client, question = signed_in(ada), asked()
    if act == "give_back":
        people.take(question, ada)
    Question.objects.update(note="call Cy", noted_as="Bob")
    fields = {"act": act, "note": "mine", "note_was": "", "to": "bob"}
    answer = client.post(page(question), fields)
    assert answer.status_code == 409
    assert "Bob has written another note since you opened this page: “call Cy”" in text_of(answer)
    shown = answer.content.decode()
    assert 'name="note" value="mine"' in shown and 'name="note_was" value="call Cy"' in shown
    question.refresh_from_db()
    assert (question.note, question.noted_as) == ("call Cy", "Bob")
    assert question.assignee == (ada if act == "give_back" else None)
    assert not LogEntry.objects.exists()
    assert client.post(page(question), {**fields, "note_was": "call Cy"}).status_code == 302
    question.refresh_from_db()
    assert (question.note, question.noted_as) == ("mine", "ada")
    assert question.assignee == (bob if act == "give_to" else None)


def test_a_text_that_is_too_long_is_refused_and_kept(person, monkeypatch):  # noqa: F811
    fields = {"reason": forms.CharField(max_length=20)}
    monkeypatch.setattr(asking.ApproveForm, "base_fields", fields)
    client, question = signed_in(person("ada")), asked()
    answer = client.post(page(question), {"act": "note", "note": "n" * 501})
    assert answer.status_code == 409
    assert "The note has 501 characters, and may have 500. Make it shorter." in text_of(answer)
    assert f'name="note" value="{"n" * 501}"' in answer.content.decode()
    shown = client.get(page(question)).content.decode()
    assert 'maxlength="20"' not in shown and 'maxlength="500"' not in shown
    assert "at most 500 characters" in shown
    answer = client.post(page(question), {"act": "answer", "answer-reason": "r" * 21})
    assert "Ensure this value has at most 20 characters (it has 21)." in text_of(answer)
    assert f'value="{"r" * 21}"' in answer.content.decode()


def test_a_question_of_a_colleague_has_no_field_for_a_note(person):  # noqa: F811
    boss, bob, question = person("boss", ASSIGN), person("bob"), asked()
    assert 'name="note"' in signed_in(boss).get(page(question)).content.decode()
    people.take(question, bob)
    shown = signed_in(boss).get(page(question)).content.decode()
    assert 'name="note"' not in shown and 'value="give_to"' in shown
    answer = signed_in(boss).post(page(question), {"act": "enter", "to": ""})
    assert "Type the user name of a colleague." in text_of(answer)


def test_a_question_that_is_taken_from_a_colleague_says_from_whom(person):  # noqa: F811
    boss, bob = person("boss", ASSIGN), person("bob", first_name="Bob")
    one, two, client = asked(asking.approve, "a"), asked(asking.approve, "b"), signed_in(boss)
    people.take(one, bob)
    fields = {"act": "give_to", "question": [one.pk, two.pk]}
    said = text_of(client.post(f"{INBOX}?box=all", {**fields, "to": "boss"}, follow=True))
    assert "Given to you. a (taken from Bob), b" in said
    said = text_of(client.post(f"{INBOX}?box=all", {**fields, "to": "bob"}, follow=True))
    assert "Given to Bob. a, b" in said


def test_an_error_keeps_the_ticks_and_the_name_and_links_to_the_refused(person):  # noqa: F811
    ada, bob = person("ada", ASSIGN), person("bob", first_name="Bob")
    one, two, three = (asked(asking.approve, key) for key in "abc")
    people.take(one, bob)
    client, place = signed_in(ada), f"{INBOX}?box=all"
    keys = [one.pk, two.pk]
    shown = client.post(place, {"act": "give_to", "to": "nobody", "question": keys})
    ticks = re.findall(r'id="txp-(\d+)" [^>]*checked', shown.content.decode())
    assert ticks == [str(key) for key in keys]
    assert 'value="nobody"' in shown.content.decode()
    shown = client.post(place, {"act": "take", "question": [*keys, three.pk]}).content.decode()
    assert re.findall(r'id="txp-(\d+)" [^>]*checked', shown) == [str(one.pk)]
    assert re.search(rf'role="alert"><a href="{page(one)}[^>]*>a</a>: Bob has this', shown)


def test_a_question_that_i_may_not_answer_says_why_in_the_list(person):  # noqa: F811
    ada, boss = person("ada"), person("boss", ASSIGN)
    question = asked(asking.approve, "second look", not_by=[ada.pk, boss.pk])
    shown = signed_in(ada).get(f"{INBOX}?box=all")
    assert "You may not answer this question: another person has to." in text_of(shown)
    assert 'type="checkbox"' not in shown.content.decode()
    assert 'name="take"' not in shown.content.decode()
    shown = signed_in(boss).get(f"{INBOX}?box=all").content.decode()  # who may give it away
    assert 'type="checkbox"' in shown and 'name="take"' not in shown
    people.hide(question, person("bob"), timedelta(days=1))
    assert 'name="show"' not in signed_in(ada).get(f"{INBOX}?box=all").content.decode()


def test_an_empty_list_of_mine_says_what_waits(person):  # noqa: F811
    client = signed_in(person("ada"))
    assert "wait" not in text_of(client.get(INBOX))
    for number, said in ((1, "1 question waits: see I may take"), (2, "2 questions wait: see")):
        asked(asking.approve, str(number))
        shown = client.get(INBOX)
        assert said in text_of(shown)
    assert 'href="/inbox/?box=free">2 questions' in shown.content.decode()


def test_a_person_who_may_not_see_a_question_gets_back_to_the_list(person):  # noqa: F811
    shown = signed_in(person("ada")).get(page(asked(asking.approve_guarded, "secret title")))
    assert shown.status_code == 403
    assert "You may not see this question" in text_of(shown)
    assert f'<a href="{INBOX}">Back to the list</a>' in shown.content.decode()


def test_a_refused_act_writes_no_entry(person):  # noqa: F811
    ada, bob, question = person("ada"), person("bob"), asked()
    people.take(question, ada)
    for act in ({"act": "take"}, {"act": "hide", "hide_for": "day"}, {"act": "note", "note": "x"}):
        answer = signed_in(bob).post(page(question), act)
        assert "ada has this question until" in text_of(answer)
    answer = signed_in(bob).post(page(question), {"act": "give_back"})
    assert answer.status_code == 409
    assert not LogEntry.objects.exists()
    assert Question.objects.get().note == ""


def test_a_manager_gives_questions_to_a_colleague(person):  # noqa: F811
    boss, bob = person("boss", ASSIGN), person("bob", MAY, first_name="Bob")
    question, other = asked(asking.approve_guarded), asked(asking.approve, "x", not_by=[bob.pk])
    client = signed_in(boss)
    shown = client.get(page(question)).content.decode()
    assert '<option value="bob">Bob</option>' in shown
    assert "boss</option>" not in shown
    answer = client.post(page(question), {"act": "give_to", "to": "nobody"})
    assert "No user has the name nobody." in text_of(answer)
    answer = client.post(page(question), {"act": "give_to", "to": "boss"})
    assert "You lack the permission orders.change_order." in text_of(answer)
    both = {"act": "give_to", "to": "bob", "question": [question.pk, other.pk]}
    answer = client.post(f"{INBOX}?box=all", both)
    assert answer.status_code == 409
    assert "x: Bob may not answer this question" in text_of(answer)
    assert Question.objects.get(pk=question.pk).assignee == bob
    assert [one.change_message for one in LogEntry.objects.all()] == ["Given to Bob."]


def test_many_are_taken_and_those_that_refuse_stay(person):  # noqa: F811
    ada, bob = person("ada"), person("bob")
    one, two, three = (asked(asking.approve, key) for key in "abc")
    people.take(three, bob)
    answer = signed_in(ada).post(f"{INBOX}?box=free", {"act": "take", "question": [one.pk, two.pk]})
    assert answer.status_code == 302
    answer = signed_in(ada).post(INBOX, {"act": "give_back", "question": [one.pk, three.pk]})
    assert "c: bob has this question until" in text_of(answer)
    holders = Question.objects.order_by("pk").values_list("assignee", flat=True)
    assert list(holders) == [None, ada.pk, bob.pk]
    for act in ("take", "answer_form", "answer"):
        answer = signed_in(ada).post(INBOX, {"act": act})
        assert "No question is chosen." in text_of(answer)
    both = {"act": "take", "question": [one.pk, two.pk, three.pk]}
    answer = signed_in(ada).post(INBOX, both)
    assert "Taken. a, b" in text_of(answer) and "c: bob has this question" in text_of(answer)


def test_one_answer_to_many_questions_is_told_for_each_of_them(person):  # noqa: F811
    ada, bob = person("ada"), person("bob", first_name="Bob")
    one, two, late, taken, not_by = (
        asked(asking.approve, key, **options)
        for key, options in (
            ("a", {}),
            ("b", {}),
            ("c", {}),
            ("d", {}),
            ("e", {"not_by": [ada.pk]}),
        )
    )
    keys = [row.pk for row in (one, two, late, taken, not_by)]
    client = signed_in(ada)
    page_of_form = client.post(f"{INBOX}?box=all", {"act": "answer_form", "question": keys})
    assert page_of_form.status_code == 200
    assert "One answer to 5 questions" in text_of(page_of_form)
    assert [f'name="question" value="{key}"' in page_of_form.content.decode() for key in keys] == [
        True
    ] * 5
    assert not Question.objects.exclude(closed_at=None).exists()
    people.answer(late, bob, {"approved": False, "reason": ""})
    people.take(taken, bob)
    answer = client.post(f"{INBOX}?box=all", {**YES, "question": keys})
    assert answer.status_code == 409
    text = text_of(answer)
    assert "2 of 5 answered. Your answer is saved: a, b. Approved: yes · Reason: ok" in text
    assert "c: Bob answered at" in text
    assert "d: Bob has this question until" in text
    assert "e: You may not answer this question" in text
    by_ada = Question.objects.filter(answered_by=ada).order_by("pk")
    assert [row.title for row in by_ada] == ["a", "b"]
    assert sorted(str(done.result) for done in run_due_tasks()) == ["Bob", "ada ok", "ada ok"]
    entries = LogEntry.objects.filter(change_message="Answered.")
    assert {int(entry.object_id) for entry in entries} == {one.pk, two.pk}
    again = client.post(f"{INBOX}?box=all", {**YES, "question": keys[:2]})
    assert text_of(again).count("You answered at") == 2


def test_one_answer_that_the_form_refuses_for_some_is_given_to_the_others(person, monkeypatch):  # noqa: F811
    def clean(form):
        if form.question.title == "b":
            raise forms.ValidationError("not this one")
        return form.cleaned_data

    monkeypatch.setattr(asking.ApproveForm, "clean", clean)
    client, questions = signed_in(person("ada")), [asked(asking.approve, key) for key in "ab"]
    keys = [one.pk for one in questions]
    answer = client.post(INBOX, {**YES, "question": keys})
    assert "1 of 2 answered. Your answer is saved: a." in text_of(answer)
    assert "b: not this one" in text_of(answer)
    answer = client.post(INBOX, {**YES, "question": keys[1:]})
    assert answer.status_code == 200
    assert "not this one" in text_of(answer) and 'value="ok"' in answer.content.decode()


def test_questions_of_two_kinds_are_not_answered_together(person):  # noqa: F811
    ada = person("ada", MAY)
    keys = [asked(asking.approve, "a").pk, asked(asking.approve_guarded, "b").pk]
    answer = signed_in(ada).post(INBOX, {"act": "answer_form", "question": keys})
    assert "Questions of different kinds have different forms. Choose one kind." in text_of(answer)
    ada.user_permissions.clear()
    people.take(keys[0], ada)
    Question.objects.filter(pk=keys[1]).update(assignee=ada)
    answer = signed_in(ada).post(INBOX, {"act": "answer_form", "question": keys[1:]})
    assert "You lack the permission orders.change_order." in text_of(answer)


def test_values_that_are_suggested_alike_are_suggested_together(person):  # noqa: F811
    suggested = {"reason": "as usual"}
    one, two = (asked(asking.approve, key, suggested=suggested) for key in "ab")
    other, client = asked(asking.approve, "c"), signed_in(person("ada"))
    for keys, number in (([one.pk, two.pk], 1), ([one.pk, other.pk], 0)):
        answer = client.post(INBOX, {"act": "answer_form", "question": keys})
        assert answer.content.decode().count('value="as usual"') == number


def test_a_question_that_is_not_for_me_leaves_my_list_and_comes_back(person):  # noqa: F811
    client, question = signed_in(person("ada")), asked(asking.approve, "order 7")
    said = client.post(INBOX, {"act": "not_for_me", "question": question.pk}, follow=True)
    assert "Hidden from you; others still see it. order 7" in text_of(said)
    assert "No question is in this list." in text_of(client.get(f"{INBOX}?box=free"))
    assert "order 7 Free · hidden from you" in text_of(client.get(f"{INBOX}?box=all"))
    assert "order 7" in text_of(signed_in(person("bob")).get(f"{INBOX}?box=free"))
    for_me = {"for_me": question.pk}
    assert "You see this question again." in text_of(client.post(INBOX, for_me, follow=True))
    people.hide_for_me(question, User.objects.get(username="ada"))
    shown = client.get(page(question)).content.decode()
    assert 'value="for_me"' in shown and 'value="not_for_me"' not in shown
    said = client.post(page(question), {"act": "for_me"}, follow=True)
    assert "You see this question again. order 7" in text_of(said)
    assert 'value="not_for_me"' in said.content.decode()
    said = client.post(page(question), {"act": "not_for_me", "note": "Bob knows him"}, follow=True)
    assert said.redirect_chain == [(INBOX, 302)]
    assert "ada: Bob knows him" in text_of(client.get(f"{INBOX}?box=all"))


def test_a_search_shows_what_it_has_found(person):  # noqa: F811
    asked(asking.approve, "Order of Miller"), asked(asking.approve, "Order of Brown")
    client = signed_in(person("ada"))
    shown = client.get(f"{INBOX}?box=all&search= miller ")
    assert "Order of Miller" in text_of(shown) and "Order of Brown" not in text_of(shown)
    assert 'value="miller"' in shown.content.decode()
    assert "Open questions with “miller” in the title. Answered questions are not" in text_of(shown)
    for label in ("Mine 0", "I may take 2", "All 2"):
        assert label in text_of(shown)
    assert "search=miller" not in shown.content.decode().partition("</nav>")[0]
    assert "aria-current" not in shown.content.decode()
    nothing = text_of(client.get(f"{INBOX}?search=x%00"))
    assert "in its title. Answered questions are not searched." in nothing


def test_a_search_goes_on_on_its_next_page(person, monkeypatch):  # noqa: F811
    monkeypatch.setitem(lists.inbox.__kwdefaults__, "size", 1)
    for key in ("Miller 1", "Brown", "Miller 2"):
        asked(asking.approve, key)
    client = signed_in(person("ada"))
    first = client.get(f"{INBOX}?box=all&search=miller")
    second = text_of(client.get(first.context["next_page"]))
    assert "Miller 2" in second and "Brown" not in second


def test_a_question_links_to_the_objects_that_the_reader_may_view(person, monkeypatch):  # noqa: F811
    order = Order.objects.create(customer="Miller")
    question = asked(asking.approve.using(subject=order))
    Link.objects.create(task_id=question.task_id, subject_type="shop.gone", subject_id="7")
    Link.objects.create(task_id=question.task_id, subject_type="orders.order", subject_id="x")
    staff = person("staff", "approvals.view_purchase", MAY, is_staff=True)
    address, client = f"{ADMIN}{question.pk}/change/", signed_in(staff)
    own = f'About: <a href="/orders/{order.pk}/">order Order object ({order.pk})</a>'
    assert "About:" not in client.get(page(question)).content.decode()  # an order has no page
    monkeypatch.setattr(Order, "get_absolute_url", lambda one: f"/orders/{one.pk}/", raising=False)
    assert own in client.get(page(question)).content.decode()
    assert own in client.get(address).content.decode()
    assert "About:" not in signed_in(person("bob")).get(page(question)).content.decode()
    purchase = Purchase.objects.create(customer="Brown", total=7)
    bought = asked(asking.approve.using(subject=purchase))
    in_admin = f'<a href="/admin/approvals/purchase/{purchase.pk}/change/">order Brown: 7.00</a>'
    assert in_admin in client.get(page(bought)).content.decode()
    assert (
        "About:"
        not in signed_in(User.objects.get(username="bob")).get(page(bought)).content.decode()
    )
    clerk = signed_in(person("clerk", is_staff=True))  # staff without the permission to view orders
    assert "About:" not in clerk.get(page(bought)).content.decode()
    monkeypatch.setattr(Purchase, "get_absolute_url", lambda one: "/own/", raising=False)
    assert in_admin in client.get(f"{ADMIN}{bought.pk}/change/").content.decode()
    assert '"/own/"' in client.get(page(bought)).content.decode()
    purchase.delete()
    assert "About:" not in client.get(page(bought)).content.decode()


def test_the_pages_say_who_i_am_and_let_me_out(person):  # noqa: F811
    client = signed_in(person("ada", first_name="Ada"))
    shown = client.get(INBOX)
    assert "Logged in as Ada Log out" in text_of(shown)
    assert 'method="post" action="/logout/"' in shown.content.decode()
    assert "Logged in as" not in text_of(client.post("/logout/", follow=True))
    assert client.get(INBOX).status_code == 302


# -- lists ------------------------------------------------------------------------------------------


def test_the_lists(person):  # noqa: F811
    ada, bob, boss = (
        person("ada", MAY),
        person("bob"),
        person("boss", "txtasks_people.view_question"),
    )
    mine, _free = asked(asking.approve, "mine"), asked(asking.approve, "free")
    asked(asking.approve_guarded, "guarded", due=-5)
    people.take(mine, ada)
    assert _titles(ada, "mine") == ["mine"]
    assert _titles(ada, "free") == ["guarded", "free"]
    assert _titles(ada, "overdue") == ["guarded"]
    assert _titles(bob, "all") == ["mine", "free"]
    assert sorted(_titles(boss, "all")) == ["free", "guarded", "mine"]
    assert _titles(boss, "free") == ["free"]
    assert _titles(ada, "all", kind="probe.guarded") == ["guarded"]
    assert signed_in(bob).get(f"{INBOX}?kind=probe.guarded").status_code == 404
    assert "overdue since" in text_of(signed_in(ada).get(f"{INBOX}?box=overdue"))


def _titles(user, box, **query):
    answer = signed_in(user).get(INBOX, {"box": box, **query})
    return [row.question.title for row, _address in answer.context["rows"]]


def test_a_list_goes_on_after_its_last_row(person, monkeypatch):  # noqa: F811
    monkeypatch.setitem(lists.inbox.__kwdefaults__, "size", 2)
    ada, titles, address = person("ada"), [], f"{INBOX}?box=free"
    for key in "abcde":
        asked(asking.approve, key)
    while address:
        answer = signed_in(ada).get(address)
        titles.append("".join(row.question.title for row, _ in answer.context["rows"]))
        address = answer.context["next_page"]
    assert titles == ["ab", "cd", "e"]


def test_numbers_stop(person, monkeypatch):  # noqa: F811
    assert showing.number(999) == "999"
    assert showing.number(1_000) == "1,000+"


WRONG = [
    "?box=x", "?kind=x", "?after=x", "?after=2026-01-01T00:00:00/1",
    "?after=2026-01-01T00:00:00%2B00:00/9999999999999999999",
    "?after=2026-13-01T00:00:00%2B00:00/1", "?after=0001-01-01T00:00:00%2B14:00/1",
    "99999999999999999999/", "123456/",
]  # fmt: skip


@pytest.mark.parametrize("address", WRONG)
def test_an_address_that_no_page_has_is_not_found(person, address):  # noqa: F811
    assert signed_in(person("ada")).get(INBOX + address).status_code == 404


@pytest.mark.parametrize(
    "fields",
    [{}, {"act": "x"}, {"act": "hide"}, {"act": "take", "question": "x"}, {"take": "-1"}],
    ids=str,
)
def test_a_post_that_no_page_sends_is_refused(person, fields):  # noqa: F811
    assert signed_in(person("ada")).post(INBOX, fields).status_code == 400


def test_a_post_to_a_question_that_no_page_sends_is_refused(person):  # noqa: F811
    client, question = signed_in(person("ada", ASSIGN)), asked()
    for fields in ({}, {"act": "x"}, {"act": "hide"}, {"act": "hide", "hide_for": "x"}):
        assert client.post(page(question), fields).status_code == 400
    answer = client.post(page(question), {"act": "give_to", "to": "a\0b"})
    assert "No user has the name" in text_of(answer)


@pytest.mark.parametrize("root", [INBOX, ADMIN], ids=["site", "admin"])
def test_a_list_reads_no_task_but_by_its_id(person, root):  # noqa: F811
    ada = person("ada", is_staff=True, is_superuser=True)
    for key in "ab":
        asked(asking.approve, key)
    client = signed_in(ada)
    for box in Box:
        with CaptureQueriesContext(
            connection,
        ) as seen:
            assert client.get(f"{root}?box={box.value}").status_code == 200
        ours = [
            one["sql"]
            for one in seen
            if re.search(r"\btxtasks_(task|wait|finishedtask)\b", one["sql"])
        ]
        assert len(ours) <= 2
        for sql in ours:
            assert "JOIN" not in sql
            assert re.search(r"WHERE .*\b(task_)?id.{0,3} IN \(", sql), sql


def test_a_page_of_many_people_asks_for_each_permission_once(person):  # noqa: F811
    boss, ada = person("boss", ASSIGN), person("ada", MAY)
    for key in "abcd":
        people.take(asked(asking.approve_guarded, key), ada)
    ada.user_permissions.clear()
    with CaptureQueriesContext(connection) as seen:
        answer = signed_in(boss).get(f"{INBOX}?box=all")
    assert text_of(answer).count("may not answer it any more") == 4
    of_ada = [
        one for one in seen if "auth_permission" in one["sql"] and f"= {ada.pk}" in one["sql"]
    ]
    assert len(of_ada) <= 2


# -- who may ------------------------------------------------------------------------------------------

ACTS = [
    YES, {"act": "take"}, {"act": "give_back"}, {"act": "hide", "hide_for": "day"}, {"act": "note", "note": "x"},
    {"act": "give_to", "to": "ada"}, {"act": "not_for_me"},
]  # fmt: skip


@pytest.mark.parametrize("fields", ACTS, ids=lambda one: one["act"])
@pytest.mark.parametrize("root", [INBOX, ADMIN], ids=["site", "admin"])
@pytest.mark.parametrize("who", ["anonymous", "no permission", "not_by", "deactivated"])
def test_who_may_not_changes_nothing(person, who, root, fields):  # noqa: F811
    ada = person("ada", *([] if who == "no permission" else [MAY]), is_staff=True)
    question = asked(asking.approve_guarded, "k", not_by=[ada.pk] if who == "not_by" else [])
    before = Question.objects.values().get()
    client = Client() if who == "anonymous" else signed_in(ada)
    if who == "deactivated":
        User.objects.filter(pk=ada.pk).update(is_active=False)
    address = page(question) if root == INBOX else f"{ADMIN}{question.pk}/change/"
    answer = client.post(address, fields)
    expected = {"anonymous": 302, "deactivated": 302, "no permission": 403, "not_by": 409}
    assert answer.status_code == expected[who]
    if answer.status_code == 302:
        assert answer.url.startswith("/login/" if root == INBOX else "/admin/login/")
    assert Question.objects.values().get() == before
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize("who", ["anonymous", "no permission", "deactivated"])
def test_who_may_not_sees_nothing(person, who):  # noqa: F811
    ada, question = person("ada"), asked(asking.approve_guarded, "secret title")
    client = Client() if who == "anonymous" else signed_in(ada)
    if who == "deactivated":
        User.objects.filter(pk=ada.pk).update(is_active=False)
    answers = [client.get(page(question)), client.get(f"{INBOX}?box=all")]
    answers += [
        client.post(INBOX, {**YES, "act": act, "question": question.pk, "to": "ada"})
        for act in ("take", "give_back", "give_to", "not_for_me", "answer_form", "answer")
    ]
    assert not any("secret title" in one.content.decode() for one in answers)
    assert Question.objects.get().assignee is None


def test_who_lost_the_permission_may_give_back_only(person):  # noqa: F811
    ada, question = person("ada", MAY), asked(asking.approve_guarded)
    people.take(question, ada)
    ada.user_permissions.clear()
    client = signed_in(ada)
    shown = client.get(page(question))
    assert "You lack the permission orders.change_order. Ask" in text_of(shown)
    assert 'value="give_back"' in shown.content.decode()
    assert 'value="answer"' not in shown.content.decode()
    assert client.post(page(question), YES).status_code == 409
    assert client.post(page(question), {"act": "give_back"}).status_code == 302
    assert client.get(page(question)).status_code == 403


@pytest.mark.parametrize("fields", [*ACTS, {"take_next": "1"}], ids=str)
def test_each_act_needs_the_token_of_its_page(person, fields):  # noqa: F811
    ada, question = person("ada", MAY), asked(asking.approve_guarded)
    client = signed_in(ada, enforce_csrf_checks=True)
    for address in (page(question), INBOX):
        assert client.post(address, fields).status_code == 403
        client.get(address, fields)
    assert Question.objects.get().assignee is None


@pytest.mark.parametrize(
    "place", ["https://evil.example/", "//evil.example/", "javascript:alert(1)", "/\\evil.example"]
)
def test_an_act_leads_to_no_other_site(person, place):  # noqa: F811
    client, question = signed_in(person("ada")), asked()
    assert place not in client.get(page(question), {"next": place}).content.decode()
    assert client.post(page(question), {**YES, "next": place}).url == INBOX


# -- the admin ----------------------------------------------------------------------------------------


def test_the_admin_has_the_same_lists_and_links_to_the_task(person):  # noqa: F811
    ada = person("ada", is_staff=True, is_superuser=True)
    question, client = asked(asking.approve, "order 7"), signed_in(ada)
    assert ADMIN in client.get("/admin/").content.decode()
    shown = client.get(f"{ADMIN}?box=free").content.decode()
    assert "order 7" in shown
    one = client.get(f"{ADMIN}{question.pk}/change/").content.decode()
    task = f"/admin/txtasks/task/{question.task_id}/change/"
    assert task in one
    of_task = f"{ADMIN}?task={question.task_id}"
    assert of_task in client.get(task).content.decode()
    assert client.get(of_task).url == f"{ADMIN}{question.pk}/change/"
    assert client.get(f"{ADMIN}?task=x").status_code == 404
    answer = client.post(f"{ADMIN}{question.pk}/change/", YES, follow=True)
    assert answer.redirect_chain == [(ADMIN, 302)]
    assert "Your answer is saved: order 7" in text_of(answer)
    assert "Answered." in client.get(f"{ADMIN}{question.pk}/history/").content.decode()
    run_due_tasks()
    done = f"/admin/txtasks/finishedtask/{question.task_id}/change/"
    assert done in client.get(f"{ADMIN}{question.pk}/change/").content.decode()
    assert of_task in client.get(done).content.decode()


def test_the_page_of_a_task_without_questions_has_no_link(person):  # noqa: F811
    handle = asking.remind.using(run_after=3600).enqueue(1)
    client = signed_in(person("ada", is_staff=True, is_superuser=True))
    assert "?task=" not in client.get(f"/admin/txtasks/task/{handle.id}/change/").content.decode()


@pytest.mark.parametrize("address", ["x", "9" * 30, "-1", "1_0"])
def test_the_admin_finds_no_impossible_question(person, address):  # noqa: F811
    client = signed_in(person("ada", is_staff=True, is_superuser=True))
    assert client.get(f"{ADMIN}{address}/change/").status_code == 404


def test_the_admin_is_for_staff(person):  # noqa: F811
    assert signed_in(person("ada")).get(ADMIN).status_code == 302
    client = signed_in(person("boss", is_staff=True))
    assert client.get(ADMIN).status_code == 200  # some kinds are for every active user
    assert client.get(f"{ADMIN}add/").status_code == 403


def test_the_admin_is_for_who_may_see_some(person, monkeypatch):  # noqa: F811
    question, client = asked(), signed_in(person("boss", is_staff=True))
    monkeypatch.setattr("django_txtasks.contrib.people.admin.kinds_for", lambda user: [])
    for address in (ADMIN, f"{ADMIN}{question.pk}/change/"):
        assert client.get(address).status_code == 403
    assert ADMIN not in client.get("/admin/").content.decode()


# -- the demo -----------------------------------------------------------------------------------------


def test_the_demo_asks_people_and_a_machine(person, capsys):  # noqa: F811
    call_command("approvals", orders=12)
    run_due_tasks()
    ada, bob, cy = (User.objects.get(username=name) for name in ("ada", "bob", "cy"))
    try:
        assert Purchase.objects.filter(state="approved").count() >= 1
        assert people.inbox(ada, "free").questions
        assert not people.inbox(cy, "free").questions  # the author, who also lacks the permission
        while (question := people.take_next(ada)) is not None:
            assert people.answer(question, ada, {"decision": "approve", "reason": ""}) is None
        run_due_tasks()
        second = people.inbox(bob, "free").questions
        assert second
        assert {one.name for one in second} == {"second look"}
        for one in second:
            assert people.answer(one, bob, {"decision": "refuse", "reason": "too much"}) is None
        run_due_tasks()
        states = Purchase.objects.values_list("state", "total")
        assert {state for state, total in states if total > 5_000} == {"refused"}
        assert {state for state, total in states if total <= 5_000} == {"approved"}
    finally:
        Purchase.objects.all().delete()
        for one in (ada, bob, cy):
            one.delete()


def test_the_form_of_the_demo_wants_a_reason_for_a_no():
    assert "reason" in approval.form({"decision": "refuse"}).errors
    assert approval.form({"decision": "refuse", "reason": "no money"}).is_valid()
    assert "decision" in approval.form({"reason": "no money"}).errors  # the key Enter in the field


@pytest.fixture
def purchase_question(person):  # noqa: F811
    """A question of the demo, whose form has buttons."""
    purchase = Purchase.objects.create(customer="Miller", total=2_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("approvals.tasks.guess", lambda purchase, task_id: None)
        yield asked(decide, purchase.pk)
    purchase.delete()


@pytest.mark.parametrize("root", [INBOX, ADMIN], ids=["site", "admin"])
def test_a_button_is_an_answer(person, purchase_question, root):  # noqa: F811
    client = signed_in(person("ada", "approvals.approve_purchase", is_staff=True))
    key = purchase_question.pk
    address = f"{root}{key}/" if root == INBOX else f"{root}{key}/change/"
    shown = client.get(address).content.decode()
    assert (
        '<button name="answer-decision" value="approve" class="txp-main">Approve</button>' in shown
    )
    assert '<button name="answer-decision" value="refuse" class="">Refuse</button>' in shown
    assert "A machine suggests: Decision: Approve" in text_of(client.get(address))
    assert ">Answer</button>" not in shown
    for pressed, error in (
        ({}, "This field is required."),
        ({"answer-decision": "refuse"}, "Say why"),
    ):
        answer = client.post(address, {"act": "answer", "answer-reason": "", **pressed})
        assert (answer.status_code, error in text_of(answer)) == (200, True)
    fields = {"act": "answer", "answer-decision": "refuse", "answer-reason": "no money"}
    answer = client.post(address, fields, follow=True)
    assert "Reason: no money · Decision: Refuse" in text_of(answer)
    assert run_due_tasks()[0].result == "refused"


@pytest.mark.once
def test_the_form_of_the_demo_is_german(person, purchase_question, settings):  # noqa: F811
    settings.LANGUAGE_CODE = "de"
    client = signed_in(person("ada", "approvals.approve_purchase"))
    with override("de"):
        shown = text_of(client.get(page(purchase_question)))
        for text in ("Grund", "Entscheidung", "Genehmigen", "Ablehnen"):
            assert text in shown
        assert "Anmelden" in text_of(Client().get("/login/"))


# -- German -------------------------------------------------------------------------------------------


@pytest.mark.once
def test_the_pages_are_german(person, settings):  # noqa: F811
    settings.LANGUAGE_CODE = "de"
    ada = person("ada", MAY, ASSIGN, is_staff=True)
    bob, client = person("bob", MAY), signed_in(ada)
    taken, mine = asked(asking.approve_guarded, "X42"), asked(asking.approve_guarded, "X43")
    Question.objects.filter(pk=taken.pk).update(due_at=taken.asked_at)
    people.take(taken, bob)
    people.hide(mine, ada, timedelta(days=1), "X44")
    hidden = asked(
        asking.approve.using(subject=Order.objects.create()), "X45", suggested={"reason": "X46"}
    )
    people.hide_for_me(hidden, ada)
    bob.user_permissions.clear()
    with override("de"):
        for root in (INBOX, ADMIN):
            key = f"{taken.pk}"
            one = f"{root}{key}/" if root == INBOX else f"{root}{key}/change/"
            answers = [client.get(f"{root}?box={box.value}") for box in Box]
            answers += [client.get(one), client.post(one, YES), client.post(root, {"act": "take"})]
            answers += [client.post(root, {"act": "answer_form", "question": mine.pk})]
            answers += [
                client.get(f"{root}?search=x"),
                client.get(one.replace(key, f"{hidden.pk}")),
            ]
            for answer in answers:
                found = set(test_german.english_in(answer.content.decode()))
                # a label of the form and a name of an argument, which are the project's
                assert found - {"Reason", "suggested"} == set()
    assert "darf sie nicht mehr beantworten" in text_of(client.get(f"{INBOX}?box=all"))
