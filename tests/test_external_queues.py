"""The setting ``external_queues``, in enqueueing, commands and schedules."""

import time
from datetime import datetime, timezone

import helpers
import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from probe import tasks

from django_txtasks import enqueue_task, external, task
from django_txtasks.conf import get_config, parse
from django_txtasks.exceptions import ConfigError, InvalidOption
from django_txtasks.features.batches.api import batch
from django_txtasks.features.figures.adding_up import OF_FUNCTIONS, add_up, enter
from django_txtasks.features.figures.of_arrows import append_others
from django_txtasks.features.schedules.elsewhere import is_elsewhere
from django_txtasks.features.schedules.status import status_of_schedules
from django_txtasks.features.schedules.ticker import Ticker
from django_txtasks.models import Schedule, Stat, Task

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("rows", "queue")]
page = external("render.page", queue_name="render")


@task(atomic=True)
def in_one_transaction():
    """A task that promises what a worker in another language does not know."""


@pytest.fixture
def queue(txtasks):
    txtasks(queues=["default", "render"], external_queues=["render"])


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"external_queues": "render"}, "must be a list of names"),
        ({"external_queues": [7]}, "must be a list of names"),
        ({"external_queues": ["rendr"]}, "'rendr', which is not among TXTASKS\\['queues'\\]"),
        (
            {"external_queues": ["render"], "hand_over": {"render": "probe.relay.send"}},
            "TXTASKS\\['hand_over'\\] both name the queue 'render'",
        ),
    ],
    ids=["text", "number", "unknown", "handed over"],
)
def test_a_wrong_setting_is_refused(setting, words):
    with pytest.raises(ConfigError, match=words):
        parse({"queues": ["default", "render"], **setting})


def test_an_external_task_is_enqueued_for_a_worker_in_another_language():
    made = page.using(run_after=60, expires=3600, priority=3, once="7").enqueue("a", width=7)
    row = helpers.row(made.id)
    assert (row.task_name, row.queue_name) == ("render.page", "render")
    assert (row.args, row.kwargs, row.priority) == (["a"], {"width": 7}, 3)
    assert not page.using(once="7").enqueue("a").is_new
    assert tasks.note.using(queue_name="render").enqueue("a function of ours").is_new


@pytest.mark.parametrize(
    ("function", "word"),
    [
        (page.using(unique_key="k"), "unique_key="),
        (page.using(lane="k"), "lane="),
        (page.using(on_success=tasks.note), "a hook"),
        (tasks.pay.using(queue_name="render"), "compensate="),
        (in_one_transaction.using(queue_name="render"), "atomic=True"),
    ],
    ids=["key", "lane", "hook", "compensate", "atomic"],
)
def test_a_call_that_the_protocol_leaves_to_runworkers_is_refused(txtasks, function, word):
    """Its row would wait for ever."""
    txtasks(lanes={"k": {"at_most": 1}})
    with pytest.raises(InvalidOption, match=f"has {word}, but .* for workers in other languages"):
        enqueue_task(function)
    assert not Task.objects.exists()


def test_a_time_limit_is_allowed_because_the_claim_returns_it():
    assert helpers.row(page.using(timeout=5).enqueue().id).timeout == 5


def test_a_member_of_a_batch_is_refused():
    with pytest.raises(InvalidOption, match="a batch"), batch():
        enqueue_task(page, 1)
    assert not Task.objects.exists()


def test_an_external_task_in_a_queue_of_workers_hears_of_the_setting():
    with pytest.raises(InvalidOption, match=r"TXTASKS\['external_queues'\]"):
        enqueue_task(external("render.page", queue_name="default"))


def test_runworkers_leaves_the_queue_alone_and_refuses_it_by_name(txtasks):
    assert get_config().queues_of_workers == ("default",)
    elsewhere, ours = tasks.note.using(queue_name="render").enqueue("theirs"), tasks.give.enqueue(1)
    call_command("runworkers", batch=True)
    assert helpers.finished(ours.id)
    assert helpers.row(elsewhere.id).status == "pending"
    with pytest.raises(CommandError, match="'render' is in TXTASKS\\['external_queues'\\]"):
        call_command("runworkers", queue=["render"], batch=True)
    txtasks(queues=["render"], external_queues=["render"])
    with pytest.raises(CommandError, match=r"All queues are in .*'external_queues'"):
        call_command("runworkers", batch=True)


def test_a_schedule_needs_no_function_of_this_code():
    assert is_elsewhere("render.page", "render")
    assert not is_elsewhere("render.page", "default")
    Schedule.objects.create(
        name="nightly", task_name="render.page", queue_name="render", every=3600.0, args=["all"],
        next_at=datetime(2020, 1, 1, tzinfo=timezone.utc),
    )  # fmt: skip
    ticker = Ticker(
        get_config(), "default", notify=None, emit=lambda *_, **facts: None, clock=time.monotonic
    )
    assert ticker.work(float("inf"))["scheduled"]
    assert Task.objects.get().task_name == "render.page"
    assert [one.problem for one in status_of_schedules("default")] == [""]


def test_free_names_of_external_tasks_take_few_rows_of_figures():
    """A name with a number in it would take all places of the counts since ever, for good."""
    with transaction.atomic():
        append_others("default", [("render", f"page.{n}") for n in range(150)])
        append_others("default", [("default", f"ours.{n}") for n in range(150)])
        assert enter("default")
        add_up("default", 1000)
    for width in OF_FUNCTIONS:
        rows = Stat.objects.filter(width=width, task_name__gt="")
        theirs = rows.filter(queue_name="render")
        assert (len(theirs), sum(one.other for one in theirs)) == (101, 150)
        assert rows.filter(queue_name="default").count() == 150
