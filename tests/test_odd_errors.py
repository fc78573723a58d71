"""Errors that Python itself cannot show: the attempt ends as after any other one, and its thread goes on."""

import helpers
import pytest
from django.db import transaction
from probe import tasks
from probe.models import Run

from django_txtasks import task

pytestmark = pytest.mark.usefixtures("rows", "quick")


class Mute(Exception):
    """Ends the process where its text is asked for."""

    def __str__(self):
        raise SystemExit(3)


class Endless(BaseException):
    """Raises another one of its kind where its text is asked for."""

    def __str__(self):
        raise Endless


class Hidden(Exception):
    """Cannot be asked whether it is a group of errors."""

    @property
    def exceptions(self):
        raise LookupError("it is not known")


ERRORS = {
    "position": lambda: SyntaxError("no template", ("page.html", 1, "first", "{% if")),
    "mute": Mute,
    "endless": Endless,
    "hidden": Hidden,
}
KINDS = {"position": "SyntaxError", "mute": "Mute", "endless": "Endless", "hidden": "LookupError"}
"""Types that the row has."""


def leave_python(failures, error):
    """Say how long to wait: a backoff function that is wrong."""
    raise SystemExit(4)


@task(max_attempts=1)
def leave_transaction(kind):
    """Leave an open transaction and an odd error."""
    transaction.atomic().__enter__()
    Run.objects.create(key="undone")
    raise ERRORS[kind]()


@task(max_attempts=2, backoff=leave_python)
def fail_with_backoff():
    transaction.atomic().__enter__()
    Run.objects.create(key="undone")
    raise ValueError("as told")


@pytest.mark.parametrize(("kind", "name"), KINDS.items())
def test_an_error_that_cannot_be_shown_ends_its_attempt_alone(kind, name, caplog):
    with helpers.working(threads=1):
        odd = leave_transaction.enqueue(kind)
        helpers.wait_until(lambda: helpers.row(odd.id).status == "dead")
        after = tasks.note.enqueue("after it")
        helpers.wait_until(lambda: helpers.finished(after.id))
    [error] = helpers.row(odd.id).errors
    assert error["type"] == name
    assert "in leave_transaction" in error["traceback"]
    assert f"Task {odd.id}" in caplog.text
    assert (helpers.runs("undone"), helpers.runs("after it")) == (0, 1)


def test_a_backoff_function_that_leaves_python_ends_nothing():
    with helpers.working(threads=1):
        odd = fail_with_backoff.enqueue()
        helpers.wait_until(lambda: helpers.row(odd.id).status == "dead")
        after = tasks.note.enqueue("after it")
        helpers.wait_until(lambda: helpers.finished(after.id))
    assert [one["type"] for one in helpers.row(odd.id).errors] == ["ValueError"] * 2
    assert (helpers.runs("undone"), helpers.runs("after it")) == (0, 1)
