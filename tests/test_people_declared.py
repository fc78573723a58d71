"""What a site declares about questions: each mistake has a name, at the declaration or in a check."""

import subprocess
import sys
from datetime import timedelta

import pytest
from django import forms
from probe import asking

from django_txtasks.contrib import people
from django_txtasks.contrib.people import checks, kinds, question
from django_txtasks.exceptions import InvalidDeclaration

pytestmark = pytest.mark.once


class Form(forms.Form):
    """A form of one field."""

    ok = forms.BooleanField()


class ButtonsForm(forms.Form):
    """Buttons without choices."""

    yes = forms.BooleanField(widget=people.Buttons)


class TwoButtonsForm(forms.Form):
    """Buttons of two fields, of which a person presses one."""

    one = forms.ChoiceField(choices=[("a", "A")], widget=people.Buttons)
    two = forms.ChoiceField(choices=[("b", "B")], widget=people.Buttons)


class FileForm(forms.Form):
    """A form with a file."""

    scan = forms.FileField()


WRONG = [
    ({"name": ""}, "the name must be printable text"),
    ({"name": "x" * 101}, "the name must be printable text"),
    ({"name": " x"}, "the name must be printable text"),
    ({"name": None}, "the name must be printable text"),
    ({"form": Form()}, "a class of Django forms"),
    ({"form": dict}, "a class of Django forms"),
    ({"form": FileForm}, "field 'scan' of FileForm takes a file"),
    ({"form": ButtonsForm}, "'yes' of ButtonsForm has Buttons and no choices"),
    ({"form": TwoButtonsForm}, "'one' and 'two' of TwoButtonsForm have Buttons"),
    ({"may": "change_order"}, "use a permission"),
    ({"may": "shop."}, "use a permission"),
    ({"may": True}, "use a permission"),
    ({"due": 5}, "due is 5"),
    ({"hold": timedelta(0)}, "hold is datetime.timedelta"),
    ({"hold": timedelta(days=40_000)}, "hold is datetime.timedelta"),
]


@pytest.fixture(autouse=True)
def own_kinds(monkeypatch):
    monkeypatch.setattr(kinds, "_kinds", dict(kinds._kinds))


@pytest.mark.parametrize(("options", "message"), WRONG, ids=str)
def test_what_cannot_be_a_kind_is_refused_where_it_is_declared(options, message):
    with pytest.raises(InvalidDeclaration, match=message):
        question(**{"name": "shop.x", "form": Form, "may": None, **options})
    assert kinds.find("shop.x") is None


def test_a_name_is_declared_in_one_place():
    for _ in range(2):
        one = question("shop.x", form=Form, may=None)  # the same place, loaded again
    assert kinds.find("shop.x") is one
    with pytest.raises(InvalidDeclaration, match=r"two places: \S+, line"):
        question("shop.x", form=Form, may=None)
    assert kinds.find("shop.x") is one


def test_who_declares_without_the_app_is_told_to_install_it():
    code = (
        "import django; from django.conf import settings\n"
        "settings.configure(INSTALLED_APPS=['django_txtasks'], USE_TZ=True, DATABASES={'default': {'ENGINE':\n"
        "    'django.db.backends.sqlite3', 'NAME': ':memory:'}})\n"
        "django.setup(); from django import forms; from django_txtasks.contrib.people import question\n"
        "from django_txtasks.database.side_tables import side_tables\n"
        "assert 'txtasks_question' not in [one.name for one in side_tables('default')]\n"
        "question('x', form=forms.Form, may=None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "InvalidDeclaration" in done.stderr
    assert "add 'django_txtasks.contrib.people' to INSTALLED_APPS" in done.stderr


def test_functions_that_ask_and_are_not_idempotent_are_found():
    found = {
        one.msg.partition(" ")[0] for one in checks.check_questions() if one.id == "txtasks.W050"
    }
    assert found == {"probe.asking.ask_once_only", "probe.asking.ask_in_an_inner_function"}


def test_questions_are_where_the_users_are(settings):
    assert [one for one in checks.check_questions() if one.id == "txtasks.E050"] == []
    settings.DATABASE_ROUTERS = ["test_people_declared.Elsewhere"]
    (found,) = [one for one in checks.check_questions() if one.id == "txtasks.E050"]
    assert "users in 'users'" in found.msg
    settings.DATABASE_ROUTERS = ["test_people_declared.Nowhere"]
    (found,) = [one for one in checks.check_questions() if one.id == "txtasks.E050"]
    assert "keep the table of questions away" in found.msg


class Elsewhere:
    """A router of a site whose users are in another database."""

    def db_for_write(self, model, **_):
        return "users" if model._meta.app_label == "auth" else None


class Nowhere:
    """A router that migrates no questions."""

    def allow_migrate(self, db, app_label, **_):
        return app_label != "txtasks_people"


def test_a_kind_is_known_by_its_name():
    assert kinds.find("probe.approval") is asking.approval
    assert kinds.find("gone") is None
