"""Many tasks changed from the admin: the page that asks, and the task ``django_txtasks.bulk``."""

from __future__ import annotations

import re
import threading
import uuid
from datetime import timedelta
from itertools import product

import helpers
import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection, transaction
from django.utils import timezone
from probe import tasks

from django_txtasks import Retry, TaskFailed, enqueue_many
from django_txtasks.admin import bounded, bulk, confirming
from django_txtasks.core.rows.attempts import Attempt
from django_txtasks.exceptions import ClaimLost
from django_txtasks.features.bulk import NAME, attempt, ordering
from django_txtasks.features.steps import rows as steps
from django_txtasks.models import FinishedTask, Status, Task, Worker
from django_txtasks.operations import operators, pages, pausing, slices, verbs
from django_txtasks.operations.choice import Choice
from django_txtasks.operations.slices import Order
from django_txtasks.stats import by_cause

pytestmark = pytest.mark.usefixtures("rows", "quick")
LIST = "/admin/txtasks/task/"


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """A request changes four tasks, the page's first button two, a slice two."""
    monkeypatch.setattr(confirming, "MAX_IN_REQUEST", 4)
    monkeypatch.setattr(bulk, "MAX_IN_REQUEST", 4)
    monkeypatch.setattr(bulk, "NUMBER_FIRST", 2)
    monkeypatch.setattr(slices, "ROWS_PER_SLICE", 2)


@pytest.fixture
def kept(txtasks):
    txtasks(keep_finished=3600)


@pytest.fixture
def ann(person):
    """A person who may view, revive, discard, hold and cancel tasks."""
    person("view_task", "revive_task", "discard_task", "hold_task", "cancel_task")


def make(count, status="dead", **columns):
    handles = enqueue_many([(tasks.note, (f"{n}",)) for n in range(count)])
    ids = [one.id for one in handles]
    Task.objects.filter(pk__in=ids).update(status=status, **columns)
    return ids


def served(queue="default", names=(NAME,)):
    """Add a living worker's row, which runs nothing."""
    Worker.objects.create(
        id=uuid.uuid4(),
        host="h",
        pid=1,
        queues=[queue],
        task_names=list(names),
        threads=1,
        lease=60.0,
    )


def send(client, action="revive", query="?state=dead", **data):
    """Send an action for all pages of a list."""
    one = str(Task.objects.values_list("pk", flat=True).first())
    sent = {"action": action, "index": "0", "_selected_action": one, "select_across": "1", **data}
    return client.post(f"{LIST}{query}", sent)


def states():
    return sorted(Task.objects.exclude(task_name=NAME).values_list("status", flat=True))


def ordered(name="revive", status=Status.DEAD, alias="default", **filters):
    order = Order(name=name, choice=Choice(**filters), alias=alias, status=status, by="ann")
    return ordering.enqueue(order, "default", None)


# ---- the page


def test_few_tasks_are_asked_about_and_changed_at_once(client, ann):
    ids = make(4, cause=7)
    make(1, "held")
    html = send(client, query="?cause=7").content.decode()
    assert "4 tasks are chosen." in html and all(str(one) in html for one in ids)
    assert states() == ["dead"] * 4 + ["held"] and not LogEntry.objects.exists()
    answer = send(client, query="?cause=7", confirmed="yes")
    assert answer.status_code == 302
    assert states() == ["held"] + ["pending"] * 4
    assert LogEntry.objects.count() == 4


def test_many_tasks_are_asked_about(client, ann):
    ids = make(6)
    served()
    html = send(client).content.decode()
    assert "6 tasks match." in html and 'value="task"' in html and 'value="hand"' not in html
    assert sum(f"default · {one}" in html for one in ids) == 4  # five, if a request changes more
    assert "runs in queue default" in html and "within 10 minutes" in html
    assert states() == ["dead"] * 6 and not LogEntry.objects.exists()


def test_a_cause_of_more_queues_than_a_list_reads_is_asked_about(client, ann, monkeypatch):
    """Otherwise an action for all pages would change some of the tasks, and say nothing of the others."""
    make(3, cause=7)
    Task.objects.filter(pk__in=make(1, cause=7)).update(queue_name="other")
    served()
    monkeypatch.setattr(by_cause, "MAX_PROBES", 1)
    html = send(client, query="?cause=7&state=dead").content.decode()
    assert 'value="task"' in html
    assert "has read only the first 1 queues and causes" in html and "only 10,000 rows" not in html
    assert states() == ["dead"] * 4


def test_an_action_that_cannot_be_undone_says_so(client, ann):
    make(6)
    html = send(client, "discard").content.decode()
    assert "A discarded task is never tried again" in html
    assert "within 10 minutes" not in html


def test_the_first_tasks_are_tried_alone(client, ann):
    make(6)
    served()
    send(client, way="first")
    assert states() == ["dead"] * 4 + ["pending"] * 2


def test_without_a_worker_there_are_slices_by_hand(client, ann):
    make(6)
    served(names=["probe.tasks.note"])
    html = send(client).content.decode()
    assert "No living worker can run the task" in html and 'value="task"' not in html
    send(client, way="task")
    assert states() == ["dead"] * 6
    text = client.get(LIST, follow=True).content.decode()
    assert "first 4 tasks" not in text
    send(client, way="hand")
    assert states() == ["dead"] * 2 + ["pending"] * 4
    assert "These were the first 4 tasks." in client.get(LIST).content.decode()
    assert "2 tasks are chosen." in send(client, way="hand").content.decode()
    send(client, confirmed="yes")
    assert states() == ["pending"] * 6


@pytest.mark.parametrize("bound", [pages.Bound(3, 600.0), pages.Bound(10_000, -1.0)])
def test_a_request_by_hand_reads_few_rows_and_says_so(client, ann, monkeypatch, bound):
    make(6)
    served(names=["probe.tasks.note"])
    monkeypatch.setattr(pages, "ROWS_PER_PAGE", 2)
    monkeypatch.setattr(bulk, "BY_HAND_BOUND", bound)
    send(client, way="hand")
    assert states() == ["dead"] * 3 + ["pending"] * 3 if bound.rows == 3 else ["dead"] * 6
    text = client.get(LIST).content.decode()
    assert f"This request has read only {bound.rows} rows, and others may match." in text


def test_a_search_for_lanes_by_hand_ends_in_time(monkeypatch):
    make(2, "pending", lane="a")
    order = Order(name="hold", choice=Choice(queue="mail"), alias="default", by="ann")
    lanes = iter(["a", "b", ""])
    monkeypatch.setattr(
        pages.lane_buckets, "look", lambda alias, behind, seconds: ([], next(lanes))
    )
    assert order.first_ids(4, pages.Bound(10_000, 0.0)) == ([], True)
    assert next(lanes) == "b"


def test_tasks_are_spread_by_hand_too(client, ann):
    make(6)
    before = timezone.now()
    send(client, way="hand", spread="3600")
    revived = Task.objects.filter(status="pending").values_list("run_after", flat=True)
    assert len(revived) == 4
    assert max(revived) > before + timedelta(seconds=30)
    assert max(revived) < timezone.now() + timedelta(hours=1, minutes=1)


@pytest.mark.parametrize(
    "query",
    ["?q=note", "?exception=shop.Declined", "?due=overdue", "?queue=@unknown", "?task=@unknown", "?state=retrying",
     "?lane=", "?cause=x", "?state=dead", "?queue=no"],
)  # fmt: skip
def test_a_list_that_is_chosen_by_more_is_not_ordered(query, client, person, monkeypatch):
    """A task would change other tasks than the list has."""
    person("view_task", "hold_task")
    served()
    make(6, "pending", cause=3)
    monkeypatch.setattr(bounded, "MAX_ROWS", 5)
    answer = send(client, "hold", query, way="task")
    if answer.status_code == 200:
        assert "Remove the other filters" in answer.content.decode()
    assert not Task.objects.filter(task_name=NAME).exists()
    assert states() == ["pending"] * 6


def test_a_site_that_shows_only_some_rows_orders_nothing(client, ann, monkeypatch):
    from django.contrib import admin

    served()
    make(6)
    pages_of_tasks = admin.site.get_model_admin(Task)
    rows = type(pages_of_tasks).get_queryset
    monkeypatch.setattr(
        type(pages_of_tasks),
        "get_queryset",
        lambda self, request: rows(self, request).filter(lane=""),
    )
    assert "Remove the other filters" in send(client, way="task").content.decode()
    assert not Task.objects.filter(task_name=NAME).exists()


def test_without_the_permission_nothing_is_ordered(client, person):
    person("view_task", "hold_task")
    make(6)
    served()
    send(client, way="task")
    send(client, way="hand")
    assert states() == ["dead"] * 6
    assert not Task.objects.filter(task_name=NAME).exists() and not LogEntry.objects.exists()


def test_a_click_is_one_task_and_one_entry(client, ann):
    make(6, cause=-3, queue_name="mail")
    served("mail")
    answer = send(client, query="?cause=-3&queue=mail&state=dead", way="task", spread="600")
    order = Task.objects.get(task_name=NAME)
    assert answer.url == f"{LIST}{order.pk}/change/"
    assert (order.priority, order.queue_name, order.on_crash) == (100, "mail", "retry")
    assert order.kwargs["filters"] == {"queue": "mail", "cause": -3}
    assert order.kwargs["total"] == 6 and order.kwargs["spread"] == 600
    entry = LogEntry.objects.get()
    assert entry.object_id == str(order.pk) and entry.user.username == "ann"
    assert entry.change_message == "Revive, for all dead tasks (queue=mail, cause=-3)."


def test_another_served_queue_is_taken(client, ann):
    make(6)
    served("mail")
    send(client, way="task")
    assert Task.objects.get(task_name=NAME).queue_name == "mail"
    pausing.pause("default", "mail", by="ann")
    assert ordering.queue_for("default", "mail") is None


def test_buttons_stand_above_the_list_of_a_cause(client, ann):
    make(2, cause=9)
    make(2, "pending", cause=9)
    html = client.get(f"{LIST}?cause=9").content.decode()
    assert re.findall(r'form="txtasks-all" name="action" value="(\w+)"', html) == [
        "revive",
        "hold",
        "discard",
    ]
    assert 'form="txtasks-all"' not in client.get(LIST).content.decode()
    send(client, "hold", "?cause=9", confirmed="yes")
    assert states() == ["dead"] * 2 + ["held"] * 2


# ---- the task


def test_the_task_changes_all(client, ann, kept):
    make(7, cause=5)
    other = make(1, cause=6)[0]
    served()
    with helpers.working(names=[NAME]):
        send(client, query="?cause=5", way="task")
        handle = helpers.wait_until(lambda: FinishedTask.objects.filter(task_name=NAME).first())
    assert states() == ["dead"] + ["pending"] * 7
    assert Task.objects.get(pk=other).status == "dead"
    assert handle.result["changed"] == 7 and handle.result["skipped"] == 0
    assert LogEntry.objects.count() == 1


@pytest.mark.parametrize(
    ("name", "status", "then"),
    [("hold", "pending", "held"), ("resume", "held", "pending"), ("run_now", "pending", "pending")],
)
def test_other_changes_leave_tasks_in_other_states(name, status, then, kept):
    later = timezone.now() + timedelta(hours=1)
    make(5, status, run_after=later)
    make(2, "dead")
    handle = ordered(name, Status(status), queue="default")
    with helpers.working(names=[NAME]):
        assert handle.result(60)["changed"] == 5
    assert states() == sorted(["dead"] * 2 + [then] * 5)


def test_only_pending_tasks_are_cancelled(kept):
    make(3, "pending")
    make(2, "held")
    handle = ordered("cancel", Status.PENDING, task="probe.tasks.note")
    with helpers.working(names=[NAME]):
        assert handle.result(60)["changed"] == 3
    assert states() == ["held"] * 2


def test_tasks_that_die_again_are_taken_once(monkeypatch, kept):
    ids, taken = make(9, cause=1), []

    def revive_and_bury(alias, ids, spread=None):
        moved = operators.revive(alias, ids, spread)
        taken.extend(one for one, _ in moved)
        Task.objects.filter(pk__in=[one for one, _ in moved]).update(status="dead", cause=1)
        return moved

    verb = verbs.VERBS["revive"]._replace(take=verbs._arrow(revive_and_bury, spreads=True))
    monkeypatch.setitem(verbs.VERBS, "revive", verb)
    handle = ordered(cause=1)
    with helpers.working(names=[NAME]):
        assert handle.result(60)["changed"] == 9
    assert sorted(taken) == sorted(ids)


def test_tasks_that_come_after_the_click_are_left(kept):
    make(3)
    handle = ordered(queue="default")
    helpers.wait_until(lambda: pages.click_of("default", 0).at > handle_click(handle))
    late = make(2, run_after=timezone.now())
    with helpers.working(names=[NAME]):
        assert handle.result(60)["changed"] == 3
    assert set(Task.objects.filter(status="dead").values_list("pk", flat=True)) == set(late)


def handle_click(handle):
    return Task.objects.get(pk=handle.id).kwargs["click"][0]


@pytest.fixture
def gate(monkeypatch):
    """The second slice waits for the test."""
    reached, opened, calls = threading.Event(), threading.Event(), []

    def revive(alias, ids, spread=None):
        calls.append(ids)
        if len(calls) == 2:
            reached.set()
            assert opened.wait(60)
        return operators.revive(alias, ids, spread)

    verb = verbs.VERBS["revive"]._replace(take=verbs._arrow(revive, spreads=True))
    monkeypatch.setitem(verbs.VERBS, "revive", verb)
    yield reached, opened
    opened.set()


def test_the_entry_of_the_click_gets_the_counts(client, ann):
    make(7, cause=5)
    served()
    send(client, query="?cause=5", way="task")
    with helpers.working(names=[NAME]):
        helpers.wait_until(lambda: not Task.objects.filter(task_name=NAME).exists())
    entry = LogEntry.objects.get()
    assert entry.change_message == "Tasks revived: 7 (cause=5), by ann."
    assert entry.user.username == "ann"


def watched(monkeypatch, **times):
    """Note what the task does: ``check`` and ``slice``; ``times`` are constants of its module."""
    did = []
    for name, value in times.items():
        monkeypatch.setattr(attempt, name, value)
    check, done = attempt.BulkAttempt._check, attempt.BulkAttempt.done

    def note_check(self, note):
        did.append(note or "check")
        check(self, note)

    def note_slice(self, place, moved):
        did.append("slice")
        done(self, place, moved)

    monkeypatch.setattr(attempt.BulkAttempt, "_check", note_check)
    monkeypatch.setattr(attempt.BulkAttempt, "done", note_slice)
    return did


def test_it_checks_for_a_cancel_also_where_no_task_matches(monkeypatch, kept):
    """Otherwise a filter that few tasks match would walk through all rows, and hear nobody."""
    did = watched(monkeypatch, CHECK_SECONDS=0)
    monkeypatch.setattr(pages, "ROWS_PER_PAGE", 3)
    make(9)
    handle = ordered(cause=None, lane="none")
    with helpers.working(names=[NAME]):
        assert handle.result(60)["changed"] == 0
    assert did == [f"{n} tasks looked at" for n in (3, 6, 9, 9)]


def test_lanes_without_a_matching_task_are_no_reason_to_be_deaf(monkeypatch, kept):
    did = watched(monkeypatch, CHECK_SECONDS=0)
    monkeypatch.setattr(pages, "LANES_SECONDS", 0)
    for name in "abc":
        make(1, "pending", lane=name)
    handle = ordered("hold", Status.PENDING, queue="mail")
    with helpers.working(names=[NAME]):
        assert handle.result(60)["changed"] == 0
    assert len(did) >= 3


def test_it_does_not_check_after_each_of_many_short_statements(monkeypatch, kept):
    did = watched(monkeypatch, CHECK_SECONDS=3600)
    monkeypatch.setattr(pages, "ROWS_PER_PAGE", 3)
    make(9)
    handle = ordered(queue="default")
    with helpers.working(names=[NAME]):
        assert handle.result(60)["changed"] == 9
    assert did == ["check", "slice"] * 5


def test_a_cancel_during_the_last_slice_loses_no_counts(monkeypatch, kept):
    make(4)
    handle = ordered(queue="default")
    done = attempt.BulkAttempt.done

    def cancel_at_the_end(self, place, moved):
        done(self, place, moved)
        if moved.changed == 4:
            transaction.on_commit(handle.cancel)

    monkeypatch.setattr(attempt.BulkAttempt, "done", cancel_at_the_end)
    with helpers.working(names=[NAME]):
        assert handle.result(60)["changed"] == 4


@pytest.mark.parametrize("filters", [{}, {"lane": "b"}, {"cause": 4}], ids=str)
@pytest.mark.parametrize(("name", "state"), [("hold", "pending"), ("resume", "held")])
def test_another_attempt_leaves_what_people_have_done_since(
    name, state, filters, monkeypatch, kept
):
    """After each slice the attempt ends, and a person undoes what the slice has done."""
    for queue, lane, priority in product(("default", "mail"), ("", "a", "b"), (0, 5)):
        make(3, state, lane=lane, priority=priority, queue_name=queue, cause=4)
    number = Task.objects.filter(**filters).count()
    handle = ordered(name, Status(state), **filters)
    Task.objects.filter(pk=handle.id).update(max_attempts=100)
    undone, may_go_on = set(), attempt.BulkAttempt.may_go_on

    def undo_and_end(self):
        after = "held" if name == "hold" else "pending"
        changed = set(Task.objects.filter(status=after).values_list("pk", flat=True))
        if new := changed - undone - {handle.id}:
            Task.objects.filter(pk__in=new).update(status=state)
            undone.update(new)
            raise Retry("ended", after=timedelta(0))
        may_go_on(self)

    monkeypatch.setattr(attempt.BulkAttempt, "may_go_on", undo_and_end)
    with helpers.working(names=[NAME]):
        result = handle.result(120)
    assert (
        result["changed"] + result["skipped"] == number
    )  # a scan of the worker may have locked a task


def test_an_attempt_that_was_given_up_changes_nothing_more():
    handle = ordered(queue="default")
    first = claimed(handle, 1)
    assert steps.take_place("default", first, "place", "0") == "0"
    steps.move_place("default", first, "place", "1")
    second = claimed(handle, 2)
    assert steps.take_place("default", second, "place", "0") == "1"
    with pytest.raises(ClaimLost):
        steps.move_place("default", first, "place", "2")
    steps.move_place("default", second, "place", "3")
    third = claimed(handle, 3)
    with pytest.raises(ClaimLost):
        steps.take_place(
            "default", third._replace(worker=uuid.uuid4(), task_id=make(1)[0]), "place", "0"
        )
    assert steps.take_place("default", third, "place", "0") == "3"


def claimed(handle, number):
    """Let a worker that does not live claim the task."""
    attempt = Attempt(handle.id, number, uuid.uuid4())
    Task.objects.filter(pk=handle.id).update(
        status="claimed", attempt=number, worker=attempt.worker, claimed_at=timezone.now()
    )
    return attempt


@pytest.mark.skipif(connection.vendor == "sqlite", reason="a slice that waits locks the file")
def test_it_shows_its_progress_and_is_cancelled_between_slices(gate, kept, client, ann):
    reached, opened = gate
    make(8)
    handle = ordering.enqueue(
        Order(name="revive", choice=Choice(), alias="default", status=Status.DEAD), "default", 8
    )
    with helpers.working(names=[NAME]):
        assert reached.wait(60)
        assert helpers.wait_until(handle.progress).total == 8
        handle.cancel()
        opened.set()
        with pytest.raises(TaskFailed, match="is cancelled"):
            handle.result(60)
    assert states() == ["dead"] * 4 + ["pending"] * 4
    again = ordered()
    with helpers.working(names=[NAME]):
        assert again.result(60)["changed"] == 4
    assert states() == ["pending"] * 8


def test_after_kill_9_in_the_middle_it_goes_on(processes, txtasks, tmp_path, monkeypatch):
    monkeypatch.undo()  # the processes have slices of their own size
    txtasks(lease=3, poll_interval=0.1, clean_interval=1, keep_finished=3600)
    Task.objects.bulk_create(
        Task(id=uuid.uuid4(), task_name="probe.tasks.note", status="dead", failures=1)
        for _ in range(2200)
    )
    handle, marker = ordered(queue="default"), tmp_path / "marker"
    env = {
        "DJANGO_SETTINGS_MODULE": "failpoints.settings",
        "TXTASKS_FAILPOINT": f"revive:kill:{marker}",
    }
    processes.start("runworkers", "--task", NAME, env=env)
    helpers.wait_until(marker.exists)
    helpers.wait_until(lambda: not Task.objects.filter(pk=handle.id, worker=None).exists())
    processes.start("runcleaner")
    result = handle.result(60)
    assert helpers.finished(handle.id).crashes == 1
    assert result["changed"] == 2200  # of both attempts
    assert states() == ["pending"] * 2200


def test_two_at_once_take_each_task_once(kept):
    ids = make(20)
    handles = [ordered(queue="default") for _ in range(2)]
    with helpers.working(threads=2, names=[NAME]):
        counts = [one.result(60) for one in handles]
    assert sum(one["changed"] for one in counts) <= len(ids)
    with helpers.working(names=[NAME]):
        ordered(queue="default").result(
            60
        )  # what both have skipped, because the other had it locked
    assert states() == ["pending"] * len(ids)
