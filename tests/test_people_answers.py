"""The code of a site about questions: a misspelt field, user or permission is told, and forms are read."""

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import helpers
import pytest
from django import forms
from django.contrib.auth.models import User
from django.db import connections
from probe import asking
from test_lifecycle import claim_one, new_worker
from test_people import YES, ask_as, asked, attempt_of, person, reason  # noqa: F401

from django_txtasks import Suspended
from django_txtasks.contrib import people
from django_txtasks.contrib.people import checks, kinds, question, values
from django_txtasks.contrib.people.models import Question
from django_txtasks.contrib.people.refusals import Reason
from django_txtasks.exceptions import InvalidArguments, InvalidOption
from django_txtasks.models import Task, Wait
from django_txtasks.testing import run_due_tasks

pytestmark = pytest.mark.usefixtures("rows", "quick")


@pytest.fixture(autouse=True)
def own_kinds(monkeypatch):
    monkeypatch.setattr(kinds, "_kinds", dict(kinds._kinds))


def kind_of(form, **options):
    """Declare a kind of the test."""
    return question("probe.own", **{"form": form, "may": None, **options})


def asked_by(kind, **options):
    """Return the question that a task asks with this kind."""
    asking.approve.enqueue("k")
    with pytest.raises(Suspended):
        ask_as(claim_one(new_worker()), kind=kind, **options)
    return Question.objects.latest("pk")


# -- the fields of an answer ----------------------------------------------------------------------

WRONG = [
    ({"aproved": True}, "has the unknown field 'aproved'"),
    ({"approved": True}, "has no field 'reason'"),
    ({}, "has no field 'approved'"),
    ({**YES, "price": 5}, "has the unknown field 'price'"),
    (True, "is True; use a dict"),
    (None, "is None; use a dict"),
    ([["approved", True]], "use a dict"),
]


@pytest.mark.smoke
@pytest.mark.parametrize(("data", "message"), WRONG, ids=str)
def test_an_answer_with_other_fields_than_the_form_is_refused_by_name(person, data, message):  # noqa: F811
    ada, one = person("ada"), asked()
    with pytest.raises(InvalidOption, match=message) as error:
        people.answer(one, ada, data)
    assert "probe.approval" in str(error.value)
    assert "ApproveForm" in str(error.value) and "approved, reason" in str(error.value)
    assert Question.objects.get().closed_at is None
    assert not Wait.objects.get().ended_at
    assert people.answer(one, ada, YES) is None
    assert run_due_tasks()[0].result == "ada ok"


class OwnFieldsForm(asking.ApproveForm):
    """A form whose fields depend on what it is sent, and whose ``clean()`` adds a value and removes another."""

    confirm = forms.BooleanField(required=False)

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if self.data.get("lines"):
            for number in range(int(self.data["lines"])):
                self.fields[f"line_{number}"] = forms.IntegerField()

    def clean(self):
        """Add the total."""
        cleaned = super().clean()
        del cleaned["confirm"]
        return {**cleaned, "total": cleaned.get("line_0", 0) + cleaned.get("line_1", 0)}


def test_a_form_whose_fields_depend_on_its_data_is_an_answer_itself(person):  # noqa: F811
    ada, one = person("ada"), asked_by(kind_of(OwnFieldsForm))
    form = OwnFieldsForm({"approved": "on", "lines": "2", "line_0": "3", "line_1": "4"})
    assert form.is_valid()
    with pytest.raises(InvalidOption, match="unknown field 'line_0'"):
        people.answer(one, ada, form.cleaned_data)
    assert people.answer(one, ada, form) is None
    text = Wait.objects.get(task_id=one.task_id).value
    assert '"total":7' in text and "confirm" not in text


class OtherForm(forms.Form):
    """The form of another kind."""

    approved = forms.BooleanField(required=False)


@pytest.mark.parametrize(
    "form",
    [asking.ApproveForm(), OtherForm({"approved": "on"})],
    ids=["not valid", "of another class"],
)
def test_a_form_that_is_not_valid_or_of_another_class_is_no_answer(person, form):  # noqa: F811
    one = asked()
    with pytest.raises(InvalidOption, match="use a ApproveForm whose is_valid"):
        people.answer(one, person("ada"), form)
    assert Question.objects.get().closed_at is None


def test_a_value_that_cannot_be_stored_is_named(person):  # noqa: F811
    with pytest.raises(InvalidArguments, match="the answer"):
        people.answer(asked(), person("ada"), {**YES, "reason": object()})
    with pytest.raises(InvalidOption, match="no fields"):
        people.answer(asked_by(kind_of(forms.Form)), User.objects.get(username="ada"), YES)


def test_who_may_not_answer_is_told_so_whatever_the_fields_are(person):  # noqa: F811
    one = asked(asking.approve_guarded)
    assert reason(people.answer(one, person("ada"), {"x": 1})) is Reason.NOT_ALLOWED


# -- users who must not answer --------------------------------------------------------------------


@pytest.mark.parametrize("not_by", ["12", "ada", ["ada"], [b"x"], 12, {"a": 1}], ids=repr)
def test_users_who_cannot_exist_are_refused_by_name_and_not_left_out(not_by):
    """A text was a list of letters, and a name of a user excluded nobody."""
    with pytest.raises(InvalidOption, match=r"not_by of question 'probe\.approval'"):
        ask_as(attempt_of(), not_by=not_by)
    assert not Question.objects.exists()


def test_a_user_who_is_not_saved_is_refused():
    with pytest.raises(InvalidOption, match="neither a saved user nor the key"):
        ask_as(attempt_of(), not_by=[User(username="new")])


def test_users_may_be_a_queryset_or_any_keys(person):  # noqa: F811
    ada, bob = person("ada"), person("bob")
    for given in (User.objects.filter(pk=ada.pk), [str(ada.pk), None], (one for one in [ada])):
        with pytest.raises(Suspended):
            ask_as(attempt_of(), not_by=given)
        assert Question.objects.get().not_by == [str(ada.pk)]
        assert reason(people.answer(Question.objects.get(), ada, YES)) is Reason.NOT_BY_YOU
        assert people.answer(Question.objects.get(), bob, YES) is None
        Task.objects.all().delete()
        Wait.objects.all().delete()
        Question.objects.all().delete()


def test_a_kind_is_named_or_given(person):  # noqa: F811
    ada, one = person("ada"), asked()
    for kind in (asking.approval, "probe.approval"):
        assert [row.pk for row in people.inbox(ada, "free", kind=kind).questions] == [one.pk]
        assert people.counts(ada, kind)["free"] == 1
        assert people.take_next(ada, kind).pk == one.pk
        assert [row.pk for row in people.inbox(ada, kind=kind).questions] == [one.pk]
        assert people.give_back(one, ada) is None


# -- permissions ----------------------------------------------------------------------------------


class Generous:
    """A backend that grants what no model declares."""

    def has_perm(self, user_obj, perm, obj=None):
        """Grant it."""
        return True


def unknown_permissions():
    return [one for one in checks.check_questions() if one.id == "txtasks.W051"]


@pytest.mark.once
def test_a_misspelt_permission_is_found_by_a_check(settings):
    assert unknown_permissions() == []
    kind_of(forms.Form, may="orders.chnge_order")
    (found,) = unknown_permissions()
    assert "question('probe.own') has may='orders.chnge_order'" in found.msg
    assert "only superusers may answer" in found.msg
    assert found.hint == "Did you mean 'orders.change_order'?"
    settings.AUTHENTICATION_BACKENDS = ["test_people_answers.Generous"]
    assert len(unknown_permissions()) == 1


@pytest.mark.once
@pytest.mark.parametrize(
    "may",
    ["orders.delete_order", "auth.view_user", "txtasks.revive_task", "approvals.approve_purchase"],
)
def test_a_permission_that_a_model_declares_is_known(may):
    kind_of(forms.Form, may=may)
    assert unknown_permissions() == []


@pytest.mark.once
def test_a_permission_of_a_backend_of_the_project_is_left_to_it(settings):
    kind_of(forms.Form, may="billing.sign.contract")
    (found,) = unknown_permissions()
    assert found.hint == "Add it to Meta.permissions of a model."
    settings.AUTHENTICATION_BACKENDS = [
        "django.contrib.auth.backends.RemoteUserBackend",
        "test_people_answers.Generous",
    ]
    assert unknown_permissions() == []


# -- first values and figures ---------------------------------------------------------------------


class TypesForm(forms.Form):
    """Fields whose values are text in JSON."""

    weight = forms.DecimalField(localize=True)
    day = forms.DateField()
    at = forms.SplitDateTimeField()
    moment = forms.DateTimeField()
    hour = forms.TimeField()
    span = forms.DurationField()
    note = forms.CharField(required=False)


VALUES = {
    "weight": Decimal("1.500"),
    "day": date(2026, 11, 28),
    "at": datetime(2026, 11, 28, 12, tzinfo=timezone.utc),
    "moment": datetime(2026, 11, 28, 12, tzinfo=timezone.utc),
    "hour": datetime(2026, 1, 1, 9, 30).time(),
    "span": timedelta(hours=36),
    "note": "1.500",
}


def test_suggested_values_are_read_back_from_their_text(person):  # noqa: F811
    kind = kind_of(TypesForm)
    one = asked_by(kind, suggested=VALUES)
    one.refresh_from_db()
    assert values.as_initial(kind, one.suggested) == VALUES
    wrong = {"weight": "much", "day": "soon", "span": "long", "gone": "2026-11-28", "hour": 5}
    assert values.as_initial(kind, wrong) == wrong
    assert values.as_initial(kind, None) == {}


def test_an_instant_has_one_text_in_each_time_zone(person):  # noqa: F811
    kind = kind_of(TypesForm)
    one, ada = asked_by(kind, suggested={"moment": VALUES["moment"]}), person("ada")
    berlin = VALUES["moment"].astimezone(timezone(timedelta(hours=1)))
    assert people.answer(one, ada, {**VALUES, "moment": berlin}) is None
    assert Question.objects.get(pk=one.pk).agreed is True


def test_the_last_hour_of_the_calendar_is_an_answer_too(person):  # noqa: F811
    last = datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))
    one = asked_by(kind_of(TypesForm))
    assert people.answer(one, person("ada"), {**VALUES, "moment": last}) is None
    assert "9999-12-31T23:59:59.999999-05:00" in Wait.objects.get(task_id=one.task_id).value


def test_a_suggested_field_that_the_form_has_no_more_does_not_count(person):  # noqa: F811
    ada, one, two = person("ada"), asked(asking.approve, "a"), asked(asking.approve, "b")
    Question.objects.filter(pk=one.pk).update(suggested={"gone": 1, "approved": True})
    Question.objects.filter(pk=two.pk).update(suggested={"gone": 1})
    for each in (one, two):
        assert people.answer(each, ada, YES) is None
    agreed = Question.objects.order_by("pk").values_list("agreed", flat=True)
    assert list(agreed) == [True, None]


# -- notes, titles, and times ---------------------------------------------------------------------


def test_a_note_that_is_saved_unchanged_is_saved(person):  # noqa: F811
    ada, one = person("ada", first_name="Ada"), asked()
    assert people.write_note(one, ada, "ask Cy") is None
    assert people.write_note(one, person("bob"), " ask Cy ") is None
    one.refresh_from_db()
    assert (one.note, one.noted_as) == ("ask Cy", "Ada")
    assert people.write_note(one, ada, "  ") is None
    one.refresh_from_db()
    assert (one.note, one.noted_as) == ("", "")


def test_the_note_of_a_person_who_has_the_question_is_not_changed_by_another(person):  # noqa: F811
    ada, bob, one = person("ada"), person("bob"), asked()
    people.take(one, bob)
    people.write_note(one, bob, "mine")
    assert reason(people.hide_for_me(one, ada, note="yours")) is Reason.TAKEN
    one.refresh_from_db()
    assert (one.note, one.hidden_for) == ("mine", [])
    assert people.hide_for_me(one, ada) is None
    one.refresh_from_db()
    assert (one.note, one.hidden_for, one.assignee) == ("mine", [str(ada.pk)], bob)


def test_a_title_of_spaces_is_the_name():
    assert asked(asking.approve, " \t ").title == "probe.approval"


@pytest.mark.parametrize(
    "until", [datetime.max.replace(tzinfo=timezone.utc), timedelta(days=40_000)], ids=str
)
def test_a_time_that_no_page_can_show_is_refused(person, until):  # noqa: F811
    ada, one = person("ada"), asked()
    with pytest.raises(InvalidOption, match="until"):
        people.hide(one, ada, until)
    assert Question.objects.get().hidden_until is None


class PeopleInSecond:
    """A router of a site whose users and questions are in the second database."""

    def db_for_write(self, model, **_):
        """Return the second database for users and questions, and not for tasks."""
        return "second" if model._meta.app_label in ("auth", "txtasks_people") else None

    db_for_read = db_for_write


def test_a_reminder_is_in_the_transaction_of_its_question(second_database, settings):
    from django.core.management import call_command

    call_command("migrate", database="second", verbosity=0)
    settings.DATABASE_ROUTERS = ["test_people_answers.PeopleInSecond"]
    handle = asking.approve_reminded.using(using="second").enqueue("k", 3600)
    run_due_tasks(using="second")
    (asked_one,) = Question.objects.all()
    assert asked_one.task_id == handle.id
    (reminder,) = Task.objects.using("second").exclude(pk=handle.id)
    assert reminder.args == [asked_one.pk]
    assert not Task.objects.using("default").exists()
    connections["second"].close()
    assert helpers.runs() == 0
