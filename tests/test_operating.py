"""txtasks_task: an operator changes tasks from a shell."""

import io
import json
import os
import signal
import sys
import uuid
from datetime import datetime, timedelta, timezone

import helpers
import pytest
from django.core.management import CommandError, call_command
from probe import tasks

from django_txtasks import enqueue_many
from django_txtasks.management.commands import txtasks_task
from django_txtasks.models import Task
from django_txtasks.operations import pages, slices

pytestmark = pytest.mark.usefixtures("rows")


def operate(*args, **options):
    """Return what the command prints."""
    output = io.StringIO()
    call_command("txtasks_task", *map(str, args), stdout=output, **options)
    return output.getvalue()


def make(count, status="dead", function=tasks.note, **columns):
    ids = [one.id for one in enqueue_many([(function, (f"{n}",)) for n in range(count)])]
    Task.objects.filter(pk__in=ids).update(status=status, **columns)
    return ids


def states():
    return sorted(Task.objects.values_list("status", flat=True))


class Terminal(io.StringIO):
    """A person at the keyboard, who answers with this text."""

    def isatty(self):
        return True


VERBS = [
    ("revive", "dead", ["pending"]),
    ("discard", "dead", []),
    ("hold", "pending", ["held"]),
    ("resume", "held", ["pending"]),
    ("run", "pending", ["pending"]),
    ("cancel", "held", []),
    ("again", "dead", ["dead", "pending"]),
]


@pytest.mark.parametrize(("verb", "before", "after"), VERBS)
def test_each_verb_by_id(verb, before, after):
    ids = make(1, before)
    text = operate(verb, *ids, yes=True)
    assert states() == after
    assert str(ids[0]) in text and ": 1." in text


def test_it_shows_count_and_samples_and_asks(monkeypatch):
    ids = make(7)
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    with pytest.raises(CommandError, match="Nothing was changed"):
        operate("revive", queue="default")
    assert states() == ["dead"] * 7
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    text = operate("revive", queue="default")
    assert "Tasks to be revived: 7 (queue=default)." in text
    assert [str(one) in text for one in ids] == [True] * 5 + [False] * 2
    assert "Shall they be revived? [y/N]" in text and "Tasks revived: 7." in text
    assert states() == ["pending"] * 7


def test_what_dies_after_the_question_is_left(monkeypatch):
    make(2)

    class Slow(Terminal):
        def readline(self):
            moment = datetime.now(timezone.utc) + timedelta(milliseconds=50)
            make(1, run_after=moment)
            helpers.wait_until(lambda: datetime.now(timezone.utc) > moment)
            return "yes\n"

    monkeypatch.setattr(sys, "stdin", Slow())
    assert "Tasks revived: 2." in operate("revive", queue="default")
    assert states() == ["dead", "pending", "pending"]


@pytest.mark.parametrize("options", [{}, {"json": True}])
def test_without_a_terminal_it_needs_yes(options, monkeypatch):
    make(1)
    monkeypatch.setattr(sys, "stdin", Terminal("y\n") if options else io.StringIO("y\n"))
    with pytest.raises(CommandError, match="give --yes"):
        operate("revive", queue="default", **options)
    assert states() == ["dead"]
    operate("revive", queue="default", yes=True, **options)
    assert states() == ["pending"]


def test_a_dry_run_needs_no_answer():
    make(3)
    assert "Nothing was changed" in operate("revive", queue="default", dry_run=True)
    assert states() == ["dead"] * 3


def test_counts_are_bounded(monkeypatch):
    monkeypatch.setattr(slices, "MAX_COUNTED", 3)
    monkeypatch.setattr(txtasks_task, "MAX_COUNTED", 3)
    make(6)
    assert "Tasks to be revived: 3+ (queue" in operate("revive", queue="default", dry_run=True)
    text = operate("revive", queue="default", limit=2, yes=True)
    assert "Tasks to be revived: 2 (" in text and "Left over by --limit: 3+." in text


def test_json():
    (task_id,) = make(1)
    found = json.loads(operate("again", task_id, yes=True, json=True))
    (sample,) = found["samples"]
    assert (found["changed"], sample["id"], sample["state"]) == (1, str(task_id), "dead")
    assert Task.objects.filter(pk=sample["new_id"], status="pending").exists()
    found = json.loads(operate("revive", task_id, dry_run=True, json=True))
    assert found["changed"] == 1 and found["dry_run"]


def test_again_names_the_new_task():
    (task_id,) = make(1)
    text = operate("again", task_id, yes=True)
    new = Task.objects.get(status="pending")
    assert f"{task_id} is enqueued again as {new.pk}" in text


@pytest.mark.parametrize("as_json", [False, True])
def test_a_task_in_the_wrong_state_is_named(as_json):
    (task_id,) = make(1, "held")
    with pytest.raises(CommandError, match=f"{task_id}: it is held, not dead") as error:
        operate("revive", task_id, yes=True, json=as_json)
    assert error.value.returncode == 1


def test_an_unknown_id_is_named():
    unknown = uuid.uuid4()
    with pytest.raises(CommandError, match=f"{unknown}: there is no such task"):
        operate("revive", unknown, *make(1), yes=True)
    assert states() == ["pending"]  # the others are done


def test_nothing_matches():
    assert "No task was found." in operate("revive", queue="mail", yes=True)
    with pytest.raises(CommandError, match="no mial; it has: default, mail"):
        operate("revive", queue="mial", yes=True)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["revive"], "Say which tasks"),
        (["revive", "01a208ef"], "not the full id"),
        (["revive", "--limit=5"], "Say which tasks"),
        (["revive", "--queue=mail", "--since=yesterday"], "not a time such as 2h"),
        (["revive", "--queue=mail", "--since=2026-13-01T00:00"], "not a time such as 2h"),
        (["revive", "--queue=mail", "--since=100000000000d"], "is too long"),
        (["revive", "--queue=mail", "--spread=9999999999999999h"], "is too long"),
        (["revive", "--queue=mail", "--since=0001-01-01T00:00+14:00"], "is not a time from 1970"),
        (["revive", "--queue=mail", "--since=9999-12-31T23:59-14:00"], "is not a time from 1970"),
        (["revive", "--queue=mail", "--spread=10"], "not a time such as 90s"),
        (["hold", "--queue=mail", "--spread=10m"], "--spread is for revive and run"),
        (["revive", "--queue=mail", "--limit=0"], "limit is 0"),
        (["destroy", "--queue=mail"], "invalid choice"),
        (["revive", "--queue=mail", "--database=nowhere"], "not in DATABASES"),
    ],
)
def test_wrong_options_are_refused(args, says):
    with pytest.raises(CommandError, match=says):
        operate(*args)


def test_filters_and_times():
    make(2, run_after=datetime.now(timezone.utc) - timedelta(hours=3), cause=-5)
    make(3, errors=[{"type": "OSError", "message": "no route"}])
    count = "Tasks to be revived: {} ".format
    assert count(3) in operate("revive", "--since=1h", "--dry-run")
    assert count(5) in operate("revive", "--since=2020-01-01T00:00", "--dry-run")
    assert count(2) in operate("revive", "--cause=-5", "--dry-run")
    assert count(3) in operate("revive", "--error=no route", "--dry-run")
    operate("revive", "--cause=-5", "--spread=10m", "--yes")
    assert Task.objects.filter(status="pending").count() == 2


def test_a_walk_that_stopped_says_so(monkeypatch):
    monkeypatch.setattr(pages, "MAX_ROWS_WITH_ERRORS", 2)
    make(3, errors=[{"type": "OSError", "message": "no route"}])
    text = operate("revive", error="OSError", dry_run=True)
    assert "Tasks to be revived: 2 " in text and "more may match" in text


def test_ctrl_c_between_slices_says_what_is_done(monkeypatch):
    monkeypatch.setattr(slices, "ROWS_PER_SLICE", 2)
    make(6)
    take = slices.VERBS["revive"].take

    def interrupt(*args):
        os.kill(os.getpid(), signal.SIGINT)
        return take(*args)

    verb = slices.VERBS["revive"]._replace(take=interrupt)
    monkeypatch.setitem(slices.VERBS, "revive", verb)
    with pytest.raises(CommandError, match="Tasks revived: 2"):
        operate("revive", queue="default", yes=True)
    assert states() == ["dead"] * 4 + ["pending"] * 2
    monkeypatch.undo()
    assert "Tasks revived: 4." in operate("revive", queue="default", yes=True)


def test_ctrl_c_is_heard_where_few_tasks_match(monkeypatch):
    monkeypatch.setattr(pages, "ROWS_PER_PAGE", 2)
    make(6)
    make(1, run_after=datetime.now(timezone.utc), task_name="probe.tasks.mail")
    read = pages.Walk._page
    pages_read = []

    def interrupt(*args):
        pages_read.append(args)
        if len(pages_read) == 6:  # the second page of the call; the dry run has read four
            os.kill(os.getpid(), signal.SIGINT)
        return read(*args)

    monkeypatch.setattr(pages.Walk, "_page", interrupt)
    with pytest.raises(CommandError, match="Tasks revived: 0"):
        operate("revive", task="probe.tasks.mail", yes=True)
    assert len(pages_read) == 6
    assert states() == ["dead"] * 7
