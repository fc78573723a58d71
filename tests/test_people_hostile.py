"""The pages for people: strange requests, colleagues who are faster, deploys, and settings of a site."""

import re
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import pytest
from django import forms
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType
from django.db import connections
from django.test import Client
from django.utils.translation import override
from orders.models import Order
from probe import asking
from test_people import YES as DATA
from test_people import asked, end_of_hold, person  # noqa: F401
from test_people_answers import TypesForm, asked_by, kind_of, own_kinds  # noqa: F401
from test_people_pages import ADMIN, ASSIGN, INBOX, MAY, YES, page, signed_in, text_of

from django_txtasks.contrib import people
from django_txtasks.contrib.people import lists, showing
from django_txtasks.contrib.people.models import Question
from django_txtasks.models import FinishedTask, Task, Wait
from django_txtasks.operations import operators
from django_txtasks.testing import run_due_tasks

pytestmark = pytest.mark.usefixtures("rows", "quick")


def fields_of(response):
    """Return name and value of each field with a value in a page."""
    return re.findall(r'name="([\w-]+)" value="([^"]*)"', response.content.decode())


# -- what a person may see and do -----------------------------------------------------------------


def test_the_history_of_a_question_is_for_who_may_see_the_question(person):  # noqa: F811
    clerk, boss = person("clerk", is_staff=True), person("boss", MAY, is_staff=True)
    question = asked(asking.approve_guarded, "secret title")
    address = f"{ADMIN}{question.pk}/history/"
    answer = signed_in(clerk).get(address)
    assert (answer.status_code, b"secret title" in answer.content) == (403, False)
    assert b"secret title" in signed_in(boss).get(address).content
    own = asked(asking.approve, "own title")
    assert b"own title" in signed_in(clerk).get(f"{ADMIN}{own.pk}/history/").content


def test_only_a_manager_learns_which_user_names_exist(person):  # noqa: F811
    client, question = signed_in(person("ada")), asked()
    person("bob")
    lacks = "You lack the permission txtasks_people.assign_question."
    for to in ("bob", "nobody", ""):
        for address in (page(question), INBOX):
            fields = {"act": "give_to", "to": to, "question": question.pk}
            answer = client.post(address, fields)
            assert lacks in text_of(answer)
            assert "No user has the name" not in text_of(answer)


def test_a_post_needs_a_token_also_on_a_site_without_the_middleware(person, settings):  # noqa: F811
    settings.MIDDLEWARE = [one for one in settings.MIDDLEWARE if "csrf" not in one]
    ada, question = person("ada", is_staff=True), asked()
    client = signed_in(ada, enforce_csrf_checks=True)
    for address in (page(question), INBOX, ADMIN, f"{ADMIN}{question.pk}/change/"):
        assert client.post(address, {"act": "take", "question": question.pk}).status_code == 403
    assert Question.objects.get().assignee is None
    shown = client.get(page(question))
    (token,) = {value for name, value in fields_of(shown) if name == "csrfmiddlewaretoken"}
    answer = client.post(page(question), {**YES, "csrfmiddlewaretoken": token})
    assert answer.status_code == 302


@pytest.mark.parametrize(
    "after",
    [
        "9999-12-31T23:59:59-23:59/1",
        "0001-01-01T00:00:00+23:59/1",
        "2026-01-01T00:00:00.000001+01:00/1",
    ],
)
def test_a_place_at_the_end_of_time_is_no_error(person, after):  # noqa: F811
    asked()
    answer = signed_in(person("ada")).get(INBOX, {"box": "all", "after": after})
    assert answer.status_code == (200 if after.startswith("2026") else 404)


MARKUP = "<script>alert(1)</script>\"'&{{ 7|add:7 }}%(who)s%s"


def test_markup_stays_text_wherever_it_comes_from(person):  # noqa: F811
    name = MARKUP[:30]
    ada = person("ada", ASSIGN, MAY, first_name=name, is_staff=True, is_superuser=True)
    bob, order = person("bob", first_name=name), Order.objects.create(customer=MARKUP)
    suggested = {"reason": MARKUP}
    one, two = (
        asked(asking.approve.using(subject=order), MARKUP, suggested=suggested) for _ in "ab"
    )
    people.write_note(one, ada, MARKUP)
    people.take(two, bob)
    client = signed_in(ada)
    pages = [client.get(INBOX, {"box": box.value, "search": ""}) for box in people.Box]
    pages += [client.get(INBOX, {"box": "all", "search": MARKUP, "next": MARKUP})]
    for root, end in ((INBOX, "/"), (ADMIN, "/change/")):
        pages += [client.get(f"{root}{row.pk}{end}", {"next": MARKUP}) for row in (one, two)]
        chosen = {"act": "answer_form", "question": [one.pk, two.pk]}
        pages += [client.post(root, chosen)]
        pages += [client.post(root, {**chosen, "act": "give_to", "to": MARKUP})]
        pages += [client.post(f"{root}{two.pk}{end}", {"act": "note", "note": MARKUP + "x"})]
    pages += [client.post(page(one), {**YES, "answer-reason": MARKUP}, follow=True)]
    pages += [client.post(page(one), {**YES, "answer-reason": MARKUP + "y"})]
    for each in pages:
        assert b"alert(1)</script>" not in each.content, each.request
        assert b"14" not in re.findall(rb"alert\(1\)[^<]*", each.content)
    assert sum(b"&lt;script&gt;alert(1)" in each.content for each in pages) > 10


# -- a colleague was faster ------------------------------------------------------------------------


def test_each_chosen_question_is_told_also_one_that_is_gone(person):  # noqa: F811
    """It was a page "Forbidden", and nothing was given back; a deleted question was left out silently."""
    ada, bob, boss = person("ada", MAY), person("bob", MAY), person("boss", ASSIGN, MAY)
    client = signed_in(ada)
    keys = [asked(asking.approve_guarded, key).pk for key in "abc"]
    for key in keys:
        people.take(key, ada)
    ada.user_permissions.clear()
    people.give_to(keys[1], boss, bob)
    Question.objects.filter(pk=keys[2]).delete()
    answer = client.post(INBOX, {"act": "give_back", "question": keys})
    assert answer.status_code == 409
    gone = "2 of the chosen questions are not there any more, or are not shown to you."
    assert gone in text_of(answer) and "Given back. a" in text_of(answer)
    assert list(Question.objects.order_by("pk").values_list("assignee", flat=True)) == [
        None,
        bob.pk,
    ]
    answer = client.post(INBOX, {"act": "answer_form", "question": [keys[2], "00" + str(keys[2])]})
    assert "1 of the chosen questions is not there any more" in text_of(answer)
    free = asked(asking.approve, "free")
    chosen = {"question": [free.pk, keys[1]]}
    for act in ({"act": "answer_form"}, {"act": "answer", "answer-reason": ""}):
        answer = client.post(INBOX, {**act, **chosen})
        assert "1 of the chosen questions is not there any more" in text_of(answer)
    assert "1 of 1 answered" in text_of(answer)


def test_each_question_of_one_form_is_told_its_own_error(person, monkeypatch):  # noqa: F811
    def clean(form):
        form.add_error("reason", f"too dear: {form.question.title}")

    monkeypatch.setattr(asking.ApproveForm, "clean", clean)
    client, keys = signed_in(person("ada")), [asked(asking.approve, key).pk for key in "ab"]
    answer = client.post(INBOX, {**YES, "question": keys})
    assert "a: Reason: too dear: a" in text_of(answer)
    assert "b: Reason: too dear: b" in text_of(answer)
    assert "One answer to 2 questions" in text_of(answer)
    assert not Question.objects.exclude(closed_at=None).exists()


def test_a_double_click_is_one_answer(person):  # noqa: F811
    client, question = signed_in(person("ada")), asked()
    for _ in range(2):
        answer = client.post(page(question), YES, follow=True)
        assert answer.redirect_chain == [(INBOX, 302)]
        assert "Your answer is saved: k. Approved: yes · Reason: ok" in text_of(answer)
    assert LogEntry.objects.count() == 1
    answer = client.post(page(question), {**YES, "answer-reason": "no"})
    assert "Your second answer was not used. Your first answer of" in text_of(answer)


def test_a_note_that_a_colleague_has_written_since_stays(person):  # noqa: F811
    ada, bob, question = person("ada", ASSIGN), person("bob"), asked()
    people.write_note(question, bob, "call Cy")
    client = signed_in(ada)
    for act in ({"act": "take"}, {"act": "note"}, {"act": "give_back"}, {"act": "hide", "hide_for": "day"},
                {"act": "not_for_me"}, {"act": "for_me"}, {"act": "give_to", "to": "ada"}):  # fmt: skip
        shown = dict(fields_of(client.get(page(question))))
        fields = {"note": shown["note"], "note_was": shown["note_was"], **act}
        Question.objects.update(note="Cy has called, all is well", noted_as="bob")
        assert client.post(page(question), fields).status_code == 302, act
        question.refresh_from_db()
        assert (question.note, question.noted_as) == ("Cy has called, all is well", "bob"), act


def test_a_typed_note_is_never_lost(person):  # noqa: F811
    ada, bob, question = person("ada", ASSIGN), person("bob"), asked()
    client, note = signed_in(ada), "Cy pays on Monday"
    client.post(page(question), {"act": "take", "note": note})
    question.refresh_from_db()
    assert (question.note, question.noted_as, question.assignee) == (note, "ada", ada)
    answer = client.post(page(question), {"act": "give_to", "to": "nobody", "note": "for you"})
    assert "Your note was not saved: for you" in text_of(answer)
    people.give_to(question, ada, bob)
    fields = {"act": "hide", "hide_for": "day", "note": "not today", "note_was": note}
    answer = client.post(page(question), fields)
    assert "bob has this question" in text_of(answer)
    assert "Your note was not saved: not today" in text_of(answer)
    client.post(page(question), {"act": "give_to", "to": "ada", "note": "", "note_was": note})
    client.post(page(question), {"act": "note", "note": "", "note_was": note})
    question.refresh_from_db()
    assert question.note == ""


def test_a_long_answer_that_did_not_count_is_shown_to_its_end(person):  # noqa: F811
    ada, bob, question = person("ada"), person("bob"), asked()
    long = "x" * 2_000
    people.answer(question, ada, {"approved": False, "reason": long})
    answer = signed_in(bob).post(page(question), {**YES, "answer-reason": f"{long}THE END"})
    assert "THE END" in text_of(answer)
    assert "x…" in text_of(answer)  # the answer of the colleague, which the page shortens
    assert "x" * 500 + "…" in text_of(signed_in(ada).get(page(question)))


class ChoiceForm(forms.Form):
    """A form with a field that is easily forgotten."""

    reason = forms.CharField()
    decision = forms.ChoiceField(choices=[("y", "Yes"), ("n", "No")])


def test_a_form_with_an_error_loses_no_text_if_a_colleague_was_faster(person):  # noqa: F811
    ada, bob, question = person("ada"), person("bob"), asked_by(kind_of(ChoiceForm))
    people.answer(question, ada, {"reason": "ok", "decision": "y"})
    answer = signed_in(bob).post(page(question), {"act": "answer", "answer-reason": "my long text"})
    assert "Not used: your answer Reason my long text" in text_of(answer)


# -- values that no row can keep, and languages ------------------------------------------------------


class LargeForm(forms.Form):
    """Fields in which a person can type what cannot be stored."""

    text = forms.CharField(required=False)
    number = forms.IntegerField(required=False)
    data = forms.JSONField(required=False)


@pytest.mark.parametrize(
    "typed",
    [
        {"answer-text": "x" * 300_000},
        {"answer-number": "9" * 1_000},
        {"answer-data": "[" * 50 + "]" * 50},
    ],
    ids=["long", "number", "deep"],
)
def test_an_answer_that_cannot_be_stored_is_an_error_of_its_form(person, typed):  # noqa: F811
    ada, kind = person("ada"), kind_of(LargeForm)
    one, two = asked_by(kind), asked_by(kind)
    client = signed_in(ada)
    answer = client.post(page(one), {"act": "answer", **typed})
    assert (answer.status_code, "This answer cannot be stored." in text_of(answer)) == (200, True)
    answer = client.post(INBOX, {"act": "answer", "question": [one.pk, two.pk], **typed})
    assert (answer.status_code, "This answer cannot be stored." in text_of(answer)) == (200, True)
    assert "One answer to 2 questions" in text_of(answer)
    assert not Question.objects.exclude(closed_at=None).exists()
    assert client.post(page(one), {"act": "answer", "answer-text": "short"}).status_code == 302


@pytest.mark.once
def test_suggested_numbers_and_times_are_those_of_the_reader(person, settings):  # noqa: F811
    """Unchanged, they come back as they were suggested: 1.500 was read as 1500, and a time had no field at all."""
    settings.LANGUAGE_CODE, settings.TIME_ZONE = "de", "Europe/Berlin"
    settings.USE_THOUSAND_SEPARATOR = True
    at = datetime(2026, 11, 28, 12, tzinfo=timezone.utc)
    suggested = {
        "weight": Decimal("1.500"), "day": at.date(), "at": at, "moment": at,
        "hour": at.time(), "span": timedelta(hours=36), "note": "1.500",
    }  # fmt: skip
    ada, question = person("ada"), asked_by(kind_of(TypesForm), suggested=suggested)
    client = signed_in(ada)
    with override("de"):
        shown = client.get(page(question))
        fields = {name: value for name, value in fields_of(shown) if name.startswith("answer-")}
        assert fields["answer-weight"] == "1,500"
        assert (fields["answer-day"], fields["answer-moment"]) == (
            "28.11.2026",
            "28.11.2026 13:00:00",
        )
        assert (fields["answer-at_0"], fields["answer-at_1"]) == ("28.11.2026", "13:00:00")
        answer = client.post(page(question), {"act": "answer", **fields}, follow=True)
        said = "Weight: 1,500 · Day: 28. November 2026 · At: 28. November 2026 13:00 · "
        assert said in text_of(answer)
        assert "Hour: 12:00 · Span: 1 12:00:00 · Note: 1.500" in text_of(answer)
    question.refresh_from_db()
    assert question.agreed is True


# -- deploys, deleted users, other sites -------------------------------------------------------------


def test_an_answer_of_earlier_code_is_shown_without_its_field(person, monkeypatch):  # noqa: F811
    ada, question = person("ada", is_staff=True), asked(suggested={"reason": "x"})
    people.answer(question, ada, DATA)
    run_due_tasks()
    monkeypatch.setattr(asking.ApproveForm, "base_fields", {"decision": forms.CharField()})
    other = asked(asking.approve, "other")
    Question.objects.filter(pk=other.pk).update(suggested={"reason": "x", "approved": True})
    client = signed_in(ada)
    for address in (INBOX, page(question), f"{ADMIN}{question.pk}/change/", page(other)):
        assert client.get(address).status_code == 200
    assert "Approved yes Reason ok" in text_of(client.get(page(question)))
    assert client.post(page(other), {"act": "answer", "answer-decision": "no"}).status_code == 302


def test_a_page_lives_on_when_users_and_kinds_are_deleted(person):  # noqa: F811
    ada, bob, boss = person("ada"), person("bob"), person("boss", ASSIGN, is_superuser=True)
    one, two = asked(asking.approve, "one"), asked(asking.approve, "two")
    people.write_note(one, bob, "note")
    people.take(one, bob)
    people.hide_for_me(two, bob)
    people.answer(two, ada, DATA)
    for user in (ada, bob):
        user.delete()
    Question.objects.filter(pk=one.pk).update(kind="gone.kind")
    client = signed_in(boss)
    for address in (f"{INBOX}?box=all", page(one), page(two), f"{INBOX}?kind=gone.kind&box=all"):
        answer = client.get(address)
        assert answer.status_code == 200, address
    assert "ada answered at" in text_of(client.get(page(two)))
    for fields in (
        {"act": "answer_form"},
        {"act": "answer"},
        {"act": "take"},
        {"act": "not_for_me"},
    ):
        answer = client.post(f"{INBOX}?box=all", {**fields, "question": one.pk})
        assert "No code here knows questions of the kind gone.kind." in text_of(answer)


def test_a_permission_with_two_dots_and_its_people(person):  # noqa: F811
    """A manager got a server error, because Django's ``with_perm()`` refuses such a permission."""
    content_type = ContentType.objects.get_for_model(Order)
    dotted = Permission.objects.create(
        content_type=content_type, codename="sign.contract", name="Sign"
    )
    try:
        boss, bob = person("boss", ASSIGN), person("bob")
        person("cy", is_active=False).user_permissions.add(dotted)
        bob.user_permissions.add(dotted)
        question = asked_by(kind_of(asking.ApproveForm, may="orders.sign.contract"))
        shown = signed_in(boss).get(page(question)).content.decode()
        assert re.findall(r'<option value="(\w+)">', shown)[-1:] == ["bob"]
        assert "cy" not in re.findall(r'<option value="(\w+)">', shown)
        bob = User.objects.get(pk=bob.pk)
        assert people.answer(question, bob, DATA) is None
    finally:
        dotted.delete()


def test_the_names_of_a_long_list_are_those_of_active_users(person, monkeypatch):  # noqa: F811
    monkeypatch.setattr(showing, "MOST_PEOPLE", 2)
    for name in ("a1", "a2", "a3"):
        person(name, is_active=False)
    boss = person("boss", ASSIGN)
    assert ("boss", "boss") in showing.people_for(None)
    assert boss.is_active


class Replica:
    """A router that reads from a copy of the database, which lags behind."""

    def db_for_read(self, model, **_):
        """Return the copy for the models of this app."""
        return "second" if model._meta.app_label == "txtasks_people" else None

    def db_for_write(self, model, **_):
        """Return the database."""
        return "default"


def test_pages_read_no_copy_of_the_database(person, second_database, settings):  # noqa: F811
    """The copy has no question at all: after an answer that counted, the page was a server error."""
    from django.core.management import call_command

    call_command("migrate", database="second", verbosity=0)
    ada, one, two, three = (
        person("ada", is_staff=True),
        *(asked(asking.approve, key) for key in "abc"),
    )
    client = signed_in(ada)
    settings.DATABASE_ROUTERS = ["test_people_hostile.Replica"]
    for root, question in ((INBOX, one), (ADMIN, two)):
        address = page(question) if root == INBOX else f"{ADMIN}{question.pk}/change/"
        assert client.get(address).status_code == 200
        answer = client.post(address, YES, follow=True)
        assert "Your answer is saved" in text_of(answer) and "Reason: ok" in text_of(answer)
    answer = client.post(INBOX, {**YES, "question": three.pk}, follow=True)
    assert "1 of 1 answered. Your answer is saved: c. Approved: yes" in text_of(answer)
    connections["second"].close()


def test_an_answer_counts_also_if_its_task_has_ended_and_is_gone(person, monkeypatch):  # noqa: F811
    """A worker and the cleaner may be faster than the page."""
    from django_txtasks.contrib.people import acts

    def quick(question, user, data, answer=acts.answer):
        refusal = answer(question, user, data)
        for rows in (Question, Wait, Task, FinishedTask):
            rows.objects.all().delete()
        return refusal

    monkeypatch.setattr(acts, "answer", quick)
    client = signed_in(person("ada"))
    answer = client.post(page(asked()), YES, follow=True)
    assert "Your answer is saved: k. Approved: yes · Reason: ok" in text_of(answer)
    answer = client.post(INBOX, {**YES, "question": asked().pk}, follow=True)
    assert "1 of 1 answered. Your answer is saved: k. Approved: yes" in text_of(answer)


@pytest.mark.parametrize("atomic", [True, False], ids=["one transaction", "autocommit"])
def test_acts_count_also_if_a_request_is_one_transaction(person, atomic, monkeypatch):  # noqa: F811
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", atomic)
    ada, bob = person("ada"), person("bob")
    one, two, three = (asked(asking.approve, key) for key in "abc")
    people.take(two, bob)
    answer = signed_in(ada).post(INBOX, {**YES, "question": [one.pk, two.pk, three.pk]})
    assert "2 of 3 answered" in text_of(answer) and "b: bob has this question" in text_of(answer)
    assert answer.status_code == 409
    assert signed_in(bob).post(page(one), YES).status_code == 409
    by = Question.objects.order_by("pk").values_list("answered_as", flat=True)
    assert list(by) == ["ada", "", "ada"]
    assert len(run_due_tasks()) == 2
    end_of_hold()
    assert signed_in(ada).post(page(two), YES).status_code == 302


def test_an_empty_page_in_the_middle_of_a_list_is_not_its_end(person, monkeypatch):  # noqa: F811
    monkeypatch.setattr(lists, "ROWS_PER_LOOK", 2)
    monkeypatch.setattr(lists, "MOST_LOOKS", 2)
    ada = person("ada")
    for _ in range(4):
        asked(asking.approve, "excluded", not_by=[ada.pk])
    asked(asking.approve, "mine to take")
    client = signed_in(ada)
    answer = client.get(f"{INBOX}?box=free")
    assert "No question is on this page. The list goes on." in text_of(answer)
    assert "mine to take" in text_of(client.get(answer.context["next_page"]))


def test_a_search_takes_each_character_as_it_is(person):  # noqa: F811
    titles = ["100% of A", "100 of A", "a_b", "axb", "c\\d", "c/d", 'it\'s "so"']
    for title in titles:
        asked(asking.approve, title)
    client = signed_in(person("ada"))
    for text, found in (
        ("100%", ["100% of A"]), ("a_b", ["a_b"]), ("c\\", ["c\\d"]), ("%", ["100% of A"]),
        ("_", ["a_b"]), ("'s \"", ["it's \"so\""]), ("[a-c]", []), ("of a", titles[:2]),
    ):  # fmt: skip
        rows = client.get(INBOX, {"box": "all", "search": text}).context["rows"]
        assert [row.question.title for row, _address in rows] == found, text


def test_a_form_that_changes_its_class_between_page_and_answer(person, monkeypatch):  # noqa: F811
    ada, question = person("ada"), asked()
    client = signed_in(ada)
    client.get(page(question))
    fields = {"decision": forms.ChoiceField(choices=[("y", "Yes")])}
    monkeypatch.setattr(asking.ApproveForm, "base_fields", fields)
    answer = client.post(page(question), YES)
    assert (answer.status_code, "This field is required." in text_of(answer)) == (200, True)
    operators.cancel("default", [question.task_id], keep=True)
    answer = client.post(page(question), YES)
    assert "The task was cancelled at" in text_of(answer)


def test_a_user_of_the_pages_who_is_nobody_sees_the_door(person):  # noqa: F811
    question = asked()
    for address in (INBOX, page(question), f"{INBOX}?box=all"):
        assert Client().get(address).status_code == 302
