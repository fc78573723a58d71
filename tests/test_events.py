"""Events: a task for each subscriber, in the publisher's transaction, each with its own retries."""

import warnings

import helpers
import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from probe import framework, tasks

from django_txtasks import NoSubscribersWarning, apublish, checks, publish, subscribe, task
from django_txtasks.conf import parse
from django_txtasks.exceptions import (
    ConfigError,
    InvalidArguments,
    InvalidDeclaration,
    UnknownEvent,
)
from django_txtasks.features.events import api as events
from django_txtasks.models import Task
from django_txtasks.testing import run_due_tasks

pytestmark = pytest.mark.usefixtures("rows", "quick")

HAPPENED = ["probe.tasks.hear", "probe.tasks.hear_too"]


@pytest.fixture
def forgotten(monkeypatch):
    """Forget a test's subscriptions afterwards, so that no other test sees them."""
    monkeypatch.setattr(
        events, "_subscribers", {event: dict(of) for event, of in events._subscribers.items()}
    )


@pytest.mark.smoke
def test_each_subscriber_has_a_task_with_its_own_retries():
    handles = publish("probe.happened", "k", fails=True)
    assert [one.task_name for one in handles] == HAPPENED
    assert [helpers.row(one.id).priority for one in handles] == [0, 7]
    while run_due_tasks(reraise=False):
        pass
    assert (helpers.runs("k heard"), helpers.runs("k heard, too")) == (3, 1)
    assert [one.status() for one in handles] == ["dead", "succeeded"]


@pytest.mark.smoke
def test_what_rolls_back_was_never_published():
    with transaction.atomic():
        publish("probe.happened", "k")
        transaction.set_rollback(True)
    assert not Task.objects.exists()


def test_all_subscribers_or_none(forgotten):
    subscribe("probe.happened")(tasks.note)
    with transaction.atomic():
        with pytest.raises(InvalidArguments, match=r"probe\.tasks\.note"):
            publish("probe.happened", "k", fails=True)
        tasks.give.enqueue(1)  # the transaction is usable
    assert [one.task_name for one in Task.objects.all()] == ["probe.tasks.give"]


def test_an_event_from_async_code():
    handles = async_to_sync(apublish)("probe.also", "k")
    assert [one.task_name for one in handles] == ["probe.tasks.hear_too"]
    run_due_tasks()
    assert helpers.runs("k heard, too") == 1


def test_tasks_of_djangos_api_and_options_of_using_subscribe(forgotten):
    subscribe("probe.other")(framework.note)
    subscribe("probe.other")(tasks.note.using(priority=7))
    publish("probe.other", "k")
    assert sorted((one.task_name, one.priority) for one in Task.objects.all()) == [
        ("probe.framework.note", 0),
        ("probe.tasks.note", 7),
    ]


def test_a_function_that_is_declared_again_has_one_task(forgotten):
    for _ in range(2):
        subscribe("probe.other")(task(tasks.plain))
    assert events.subscribers("probe.other") == ["probe.tasks.plain"]


@pytest.mark.parametrize(
    ("event", "function"),
    [
        ("", tasks.note),
        ("a\n", tasks.note),
        ("x" * 201, tasks.note),
        (tasks.note, tasks.note),
        ("e", len),
        ("e", tasks.plain),
    ],
)
def test_what_cannot_subscribe_is_refused(event, function, forgotten):
    with pytest.raises(InvalidDeclaration, match="@subscribe"):
        subscribe(event)(function)


# -- wrong names ------------------------------------------------------------------------------------


def test_an_event_that_nobody_hears_warns_its_publisher():
    with pytest.warns(NoSubscribersWarning, match=r"Did you mean 'probe\.happened'\?") as found:
        assert publish("probe.hapened") == []
    assert found[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoSubscribersWarning)
        publish("nothing like it")


def test_named_events_are_the_only_ones(txtasks):
    txtasks(events=["probe.happened", "probe.also"])
    publish("probe.also", "k")
    with pytest.raises(UnknownEvent, match=r"Did you mean 'probe\.also'\?"):
        publish("probe.alsso", "k")
    assert not [one for one in checks.check_settings() if "event" in one.msg]


def test_checks_compare_named_events_with_subscribers(txtasks):
    txtasks(events=["probe.happened", "probe.unheard"])
    found = {one.id: one.msg for one in checks.check_settings()}
    assert "'probe.also'" in found["txtasks.E025"]
    assert "probe.tasks.hear_too" in found["txtasks.E025"]
    assert "'probe.unheard'" in found["txtasks.W026"]


@pytest.mark.parametrize("value", ["order.paid", [1], {"a": 1}, 7])
def test_events_of_the_settings_are_a_list_of_names(value):
    with pytest.raises(ConfigError, match="events"):
        parse({"events": value})
    assert parse({"events": None}).events is None
    assert parse({"events": ["a"]}).events == ("a",)
