"""Words of other queues, and words that are nearly right, are answered with ours, before any SQL."""

import uuid
from datetime import datetime, timedelta

import helpers
import pytest
from probe import framework, tasks

from django_txtasks import task
from django_txtasks.backends.compat import InvalidTask
from django_txtasks.core.declaring import foreign, registry
from django_txtasks.exceptions import (
    InvalidArguments,
    InvalidDeclaration,
    InvalidOption,
    TxTasksError,
    UnknownOption,
)
from django_txtasks.handles import TaskHandle
from django_txtasks.models import Task

pytestmark = pytest.mark.once


def plain():
    pass


@pytest.fixture(autouse=True)
def nothing_is_left(rows):
    before = dict(registry._declarations)
    yield
    registry._declarations.clear()
    registry._declarations.update(before)
    assert not Task.objects.exists()


# -- methods


@pytest.mark.parametrize("method", foreign.METHODS)
@pytest.mark.parametrize("function", [tasks.note, framework.add], ids=["ours", "Django's"])
def test_a_method_of_another_queue_is_answered_with_ours(function, method):
    assert not hasattr(function, method)
    with pytest.raises(
        AttributeError, match=rf"has no \.{method}\(…\)\. Use \.a?(enqueue|using)\("
    ):
        getattr(function, method)


def test_delay_is_answered_with_enqueue():
    with pytest.raises(AttributeError) as caught:
        tasks.note.delay("a")
    said = "<task function probe.tasks.note> has no .delay(…). Use .enqueue(…)."
    assert str(caught.value) == said


@pytest.mark.parametrize("name", foreign.OF_HANDLES)
def test_a_method_of_another_queues_result_is_answered_with_ours(name):
    handle = TaskHandle(uuid.uuid4(), "probe.tasks.note", "default", "default")
    assert not hasattr(handle, name)
    with pytest.raises(
        AttributeError, match=rf"^A TaskHandle has no \.{name}\. Use \.(a?result|cancel|status)\("
    ):
        getattr(handle, name)


def test_an_attribute_that_no_handle_has_is_missing_as_ever():
    handle = TaskHandle(uuid.uuid4(), "probe.tasks.note", "default", "default")
    with pytest.raises(AttributeError, match="'TaskHandle' object has no attribute 'nothing'"):
        handle.nothing  # noqa: B018
    with pytest.raises(AttributeError):  # made without __init__, as copy and pickle do
        object.__new__(TaskHandle).id  # noqa: B018


@pytest.mark.parametrize("function", [tasks.note, framework.add], ids=["ours", "Django's"])
def test_an_attribute_that_nobody_has_is_missing_as_ever(function):
    with pytest.raises(AttributeError, match="object has no attribute 'nothing'"):
        function.nothing  # noqa: B018
    with pytest.raises(AttributeError):  # made without __init__, as copy and pickle do
        object.__new__(type(function)).nothing  # noqa: B018


# -- options


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("countdown", "fn.using(run_after=…).enqueue(…), with seconds"),
        ("eta", "fn.using(run_after=…)"),
        ("retry", "@task(max_attempts=…)"),
        ("max_retries", "@task(max_attempts=…)"),
        ("unique", "@task(unique_key=…)"),
        ("queue", "queue_name=…"),
        ("bind", "takes_context=True"),
        ("acks_late", "idempotent=True"),
        ("link", "on_success=…"),
    ],
)
def test_an_option_of_another_queue_is_answered_with_ours(option, says):
    for give in (
        lambda: task(**{option: 3}),
        lambda: tasks.note.using(**{option: 3}),
        lambda: framework.add.using(**{option: 3}),
    ):
        with pytest.raises(UnknownOption) as caught:
            give()
        assert f"has no option {option!r}. Here it is" in str(caught.value)
        assert says in str(caught.value)
    with pytest.raises(InvalidArguments) as caught:
        tasks.note.enqueue("a", **{option: 3})
    assert f"no parameter {option!r}. Here it is" in str(caught.value)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("give", "says"),
    [
        (
            lambda: task(queue_nmae="mail"),
            "@task has no option 'queue_nmae'. Did you mean 'queue_name'?",
        ),
        (lambda: task(run_after=60), "It is said of one task: fn.using(run_after=…).enqueue(…)."),
        (lambda: task(xyz=1), "It has 'queue_name', 'priority', 'max_attempts'"),
        (lambda: task(rate_limit="1/s"), "It has 'queue_name', 'priority', 'max_attempts'"),
        (
            lambda: tasks.note.using(priorty=1),
            "probe.tasks.note.using() has no option 'priorty'. Did you mean 'priority'?",
        ),
        (
            lambda: tasks.note.using(atomic=True),
            "It is declared with the function: @task(atomic=…).",
        ),
        (lambda: framework.add.using(using="second"), "using(backend=…), with TASKS"),
        (lambda: framework.add.using(database="second"), "using(backend=…), with TASKS"),
        (lambda: framework.add.using(takes_context=True), "@task(takes_context=…)"),
    ],
    ids=range(9),
)
def test_an_option_in_the_wrong_place_or_spelling_is_answered_with_the_right_one(give, says):
    with pytest.raises(UnknownOption) as caught:
        give()
    assert says in str(caught.value)
    assert isinstance(caught.value, TypeError)


# -- keywords of a call


@pytest.mark.parametrize(
    ("function", "keywords", "says"),
    [
        (tasks.pay, {"keey": "a", "amount": 1}, "no parameter 'keey'. Did you mean 'key'?"),
        (tasks.note, {"kee": "a"}, "it has no parameter 'kee'. Did you mean 'key'?"),
        (tasks.note, {"zzz": "a"}, "it has no parameter 'zzz'. It has 'key'."),
        (tasks.die, {"zzz": "a"}, "it has no parameter 'zzz'. It has none."),
        (tasks.note, {"run_after": 60}, "It is an option: fn.using(run_after=…).enqueue(…)."),
        (tasks.note, {"atomic": True}, "It is an option: @task(atomic=…)."),
        (tasks.pay, {"key": "a"}, "missing a required"),
        (framework.add, {"nubmer": 1}, "no parameter 'nubmer'"),
    ],
    ids=range(8),
)
def test_a_wrong_keyword_is_named_before_the_missing_one(function, keywords, says):
    with pytest.raises(InvalidArguments) as caught:
        function.enqueue(**keywords)
    assert says in str(caught.value)


# -- times


@pytest.mark.parametrize("option", ["run_after", "expires"])
@pytest.mark.parametrize(
    ("value", "says"),
    [
        (1763830000, "a moment in time, use an aware datetime"),
        (float("nan"), "seconds from now on"),
        (float("-inf"), "seconds from now on"),
        (True, "aware datetime, a timedelta, or seconds"),
        ("60", "aware datetime, a timedelta, or seconds"),
        (datetime(2030, 1, 1), "naive"),
    ],
    ids=str,
)
def test_a_time_that_may_mean_something_else_is_refused(option, value, says):
    with pytest.raises(InvalidOption, match=says):
        tasks.note.using(**{option: value}).enqueue()
    with pytest.raises((TxTasksError, InvalidTask)):
        framework.add.using(**{option: value}).enqueue(1)


@pytest.mark.parametrize("value", [0, -5, float("nan"), 2e9, "60", datetime(2030, 1, 1)], ids=str)
def test_a_declaration_expires_some_time_from_now(value):
    with pytest.raises((InvalidDeclaration, InvalidOption)):
        task(expires=value)(plain)


def test_a_number_is_seconds_wherever_a_duration_is():
    assert task(expires=90, timeout=90)(plain).declaration.expires == timedelta(seconds=90)
    for function in (tasks.note, framework.give):
        later = function.using(run_after=90, expires=1200.5).enqueue("a")
        row = helpers.row(later.id)
        ahead = [row.run_after - row.enqueued_at, row.expires_at - row.enqueued_at]
        assert [round(one.total_seconds() / 30) for one in ahead] == [3, 40]
        row.delete()
