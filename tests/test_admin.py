"""The admin's pages show everything, escaped, and take a person's arrows by permission only."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.contrib.messages import get_messages
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.views.debug import SafeExceptionReporterFilter
from probe import on_loop

from django_txtasks.admin import bounded, columns, shown
from django_txtasks.features.redaction import declaring as redaction
from django_txtasks.models import Cleaner, FinishedTask, OnCrash, Outcome, Status, Task, Worker
from django_txtasks.operations import slices

pytestmark = [pytest.mark.django_db, pytest.mark.smoke]

MARKUP = "<script>alert(1)</script>"
TASKS = "/admin/txtasks/task/"
FINISHED = "/admin/txtasks/finishedtask/"
WORKERS = "/admin/txtasks/worker/"
KNOWN = "orders.tasks.send_receipt"
LOADS_AGAIN = '<noscript><meta http-equiv="refresh" content="2"></noscript>'
ASYNC = on_loop.nap.declaration.name

# action, the state it starts from, a state it does not start from, what it says
ARROWS = [
    ("revive", Status.DEAD, Status.HELD, "1 task revived.", "no longer dead"),
    ("discard", Status.DEAD, Status.PENDING, "1 task discarded.", "no longer dead"),
    ("hold", Status.PENDING, Status.DEAD, "1 task held.", "no longer pending"),
    ("resume", Status.HELD, Status.DEAD, "1 task resumed.", "no longer held"),
    ("cancel", Status.PENDING, Status.HELD, "1 task cancelled.", "no longer pending"),
    ("run_now", Status.PENDING, Status.CLAIMED, "1 task made due now.", "no longer pending"),
    (
        "ask_to_stop",
        Status.CLAIMED,
        Status.DEAD,
        "1 task asked to stop. If it does not end within 10 s, its page says how to end it.",
        "no longer running, already asked, or changing state at this moment",
    ),
]
ACTIONS = [arrow[0] for arrow in ARROWS]
AFTER = {
    "revive": Status.PENDING,
    "hold": Status.HELD,
    "resume": Status.PENDING,
    "run_now": Status.PENDING,
    "ask_to_stop": Status.CLAIMED,
}


def row(status: str = Status.PENDING, **columns: Any) -> Task:
    if status == Status.CLAIMED:
        columns = {"worker": uuid.uuid4(), "claimed_at": timezone.now(), **columns}
    values = {"id": uuid.uuid4(), "task_name": KNOWN, "status": status, **columns}
    return Task.objects.create(**values)


def finished(**columns: Any) -> FinishedTask:
    values = {"id": uuid.uuid4(), "task_name": KNOWN, "outcome": Outcome.SUCCEEDED, **columns}
    return FinishedTask.objects.create(**values)


def logged_in(*permissions: str, superuser: bool = False) -> Client:
    name = uuid.uuid4().hex
    user = User.objects.create(username=name, is_staff=True, is_superuser=superuser)
    user.user_permissions.set(
        Permission.objects.filter(content_type__app_label="txtasks", codename__in=permissions)
    )
    assert user.user_permissions.count() == len(permissions)
    client = Client()
    client.force_login(user)
    return client


def viewer(*actions: str) -> Client:
    """Log in a user who may view everything and take these actions."""
    models = ("task", "finishedtask", "worker")
    views = [f"view_{model}" for model in models]
    return logged_in(*views, *(f"{action}_task" for action in actions))


def send(client: Client, action: str, *ids: uuid.UUID, query: str = "", **more: str) -> list[str]:
    """Take an action as the list's form does, and return the messages shown."""
    data = {"action": action, "index": "0", "_selected_action": [str(one) for one in ids]}
    data |= {"confirmed": "yes", **more}  # see test_admin_confirm.py
    response = client.post(f"{TASKS}{query}", data)
    assert response.status_code in (200, 302)
    return [str(message) for message in get_messages(response.wsgi_request)]


def page(client: Client, url: str) -> str:
    response = client.get(url)
    assert response.status_code == 200
    return response.content.decode()


def shown_ids(client: Client, url: str) -> set[uuid.UUID]:
    response = client.get(url)
    assert response.status_code == 200
    return {one.pk for one in response.context["cl"].result_list}


# -- actions


@pytest.mark.parametrize(("action", "state", "other", "done", "reason"), ARROWS)
def test_a_permitted_user_moves_the_rows_in_the_state_and_hears_of_the_others(
    action: str, state: str, other: str, done: str, reason: str
) -> None:
    task, bystander = row(state), row(other)
    assert send(viewer(action), action, task.pk, bystander.pk) == [
        done,
        f"1 task unchanged: {reason}.",
    ]
    assert Task.objects.get(pk=bystander.pk).status == other
    if action in AFTER:
        assert Task.objects.get(pk=task.pk).status == AFTER[action]
    else:
        assert not Task.objects.filter(pk=task.pk).exists()
        assert FinishedTask.objects.get(pk=task.pk).outcome in (
            Outcome.CANCELLED,
            Outcome.DISCARDED,
        )


@pytest.mark.parametrize("action", ACTIONS)
def test_each_action_needs_its_own_permission(action: str) -> None:
    tasks = [row(state) for state in Status.values]
    client = viewer(*(other for other in ACTIONS if other != action))
    assert f'value="{action}"' not in page(client, TASKS)
    send(client, action, *(task.pk for task in tasks))
    assert {task.pk: task.status for task in tasks} == dict(
        Task.objects.values_list("pk", "status")
    )


@pytest.mark.parametrize("action", ACTIONS)
def test_a_user_who_may_only_view_neither_sees_an_action_nor_can_send_one(action: str) -> None:
    tasks = [row(state) for state in Status.values]
    client = viewer()
    assert 'name="action"' not in page(client, TASKS)
    for task in tasks:
        assert "txtasks-act" not in page(client, f"{TASKS}{task.pk}/change/").split("</style>")[-1]
    send(client, action, *(task.pk for task in tasks))
    assert {task.pk: task.status for task in tasks} == dict(
        Task.objects.values_list("pk", "status")
    )
    assert not LogEntry.objects.exists()


def test_an_action_without_the_permission_to_view_is_refused() -> None:
    task = row(Status.DEAD)
    client = logged_in("revive_task")
    assert (
        client.post(TASKS, {"action": "revive", "_selected_action": str(task.pk)}).status_code
        == 403
    )
    assert Task.objects.get().status == Status.DEAD


def test_nobody_adds_changes_or_deletes() -> None:
    task, done = row(), finished()
    worker = Worker.objects.create(
        id=uuid.uuid4(), host="h", pid=1, queues=[], threads=1, lease=15.0
    )
    client = logged_in(superuser=True)
    for url, one in ((TASKS, task), (FINISHED, done), (WORKERS, worker)):
        assert client.get(f"{url}add/").status_code == 403
        assert client.get(f"{url}{one.pk}/delete/").status_code == 403
        assert client.post(f"{url}{one.pk}/change/", {"priority": "5"}).status_code == 403
        assert "delete_selected" not in page(client, url)
        form = page(client, f"{url}{one.pk}/change/")
        assert "_save" not in form and "<textarea" not in form and 'type="text"' not in form
    send(client, "delete_selected", task.pk, post="yes")
    assert Task.objects.get().priority == 0


def test_the_page_of_a_task_offers_the_arrows_of_its_state() -> None:
    client = viewer(*ACTIONS)
    for state in Status.values:
        form = page(client, f"{TASKS}{row(state).pk}/change/")
        offered = {action for action in ACTIONS if f'name="action" value="{action}"' in form}
        assert offered == {action for action, start, *_ in ARROWS if start == state}


@pytest.mark.parametrize("action", ACTIONS)
def test_a_button_of_a_task_leads_back_to_the_task(action: str) -> None:
    state = next(start for name, start, *_ in ARROWS if name == action)
    client, ends = viewer(action), action not in AFTER
    for confirmed in ({"confirmed": "yes"}, {}):
        task = row(state)
        there = f"{TASKS}{task.pk}/change/"
        assert 'name="on_page"' in page(client, there)
        sent = {"action": action, "index": "0", "_selected_action": str(task.pk), "on_page": "yes"}
        answer = client.post(TASKS, sent | confirmed)
        if answer.status_code == 200:  # it asks, and leads back, too
            assert f'href="{there}"' in answer.content.decode()
            assert 'name="on_page"' in answer.content.decode()
        else:
            assert answer.url == (f"{FINISHED}{task.pk}/change/" if ends else there)


def test_a_task_that_has_no_page_for_the_person_leads_back_to_the_list(settings: Any) -> None:
    client = logged_in("view_task", "cancel_task")
    sent = {"action": "cancel", "index": "0", "on_page": "yes", "confirmed": "yes"}
    assert client.post(TASKS, sent | {"_selected_action": str(row().pk)}).url == TASKS
    settings.TXTASKS = {"keep_finished": 0}
    assert client.post(TASKS, sent | {"_selected_action": str(row().pk)}).url == TASKS


def test_reviving_forgives_and_makes_due_now() -> None:
    later = timezone.now() + timedelta(hours=1)
    task = row(Status.DEAD, failures=5, crashes=3, attempt=8, run_after=later)
    send(viewer("revive"), "revive", task.pk)
    task = Task.objects.get()
    assert (task.failures, task.crashes, task.attempt) == (0, 0, 8)
    assert Task.objects.due().exists()


def test_resuming_keeps_the_time() -> None:
    later = (timezone.now() + timedelta(hours=1)).replace(microsecond=0)
    task = row(Status.HELD, run_after=later)
    send(viewer("resume"), "resume", task.pk)
    assert Task.objects.get().run_after == later


def test_discarded_tasks_are_not_kept_where_nothing_is_kept(settings: Any) -> None:
    settings.TXTASKS = {"keep_finished": 0}
    task = row(Status.DEAD)
    assert send(viewer("discard"), "discard", task.pk) == ["1 task discarded."]
    assert not Task.objects.exists() and not FinishedTask.objects.exists()
    assert LogEntry.objects.get().is_deletion()


def compensated(**columns: Any) -> Task:
    return row(Status.DEAD, on_crash=OnCrash.COMPENSATE, crashes=1, **columns)


def test_a_compensated_task_is_not_revived_and_the_person_hears_why() -> None:
    task, dead, pending = compensated(), row(Status.DEAD, crashes=1), row()
    failed = row(Status.DEAD, on_crash=OnCrash.COMPENSATE, failures=5)
    assert send(viewer("revive"), "revive", task.pk, dead.pk, pending.pk, failed.pk) == [
        "2 tasks revived.",
        "1 task left dead, because its compensation was enqueued: undone work must not be done again.",
        "1 task unchanged: no longer dead.",
    ]
    assert Task.objects.get(status=Status.DEAD).pk == task.pk


def test_compensated_is_what_crashed_and_declared_a_compensation() -> None:
    task = compensated()
    others = [
        row(Status.DEAD, crashes=1),
        row(Status.DEAD, on_crash=OnCrash.COMPENSATE, failures=5),
        row(Status.HELD, on_crash=OnCrash.COMPENSATE, crashes=1),
    ]
    assert list(Task.objects.compensated()) == [task]
    for one in (task, *others):
        assert Task.objects.get(pk=one.pk).is_compensated == (one is task)


def test_the_page_of_a_compensated_task_offers_to_discard_it_only() -> None:
    client = viewer(*ACTIONS)
    form = page(client, f"{TASKS}{compensated().pk}/change/")
    offered = {action for action in ACTIONS if f'name="action" value="{action}"' in form}
    assert offered == {"discard"}
    assert '<small class="quiet">compensated</small>' in page(client, TASKS)


def test_the_history_says_who_did_it() -> None:
    task = row(Status.DEAD, task_name="n" * 200)
    client = viewer(*ACTIONS)
    for action in ("revive", "hold", "resume", "cancel"):
        send(client, action, task.pk)
    entries = LogEntry.objects.order_by("pk")
    assert [entry.change_message for entry in entries] == [
        "Revived.",
        "Held.",
        "Resumed.",
        "Cancelled.",
    ]
    assert {entry.object_id for entry in entries} == {str(task.pk)}
    detail = page(client, f"{FINISHED}{task.pk}/change/")
    name = User.objects.get().username
    assert all(f"<strong>{name}</strong>: {e.change_message}" in detail for e in entries)


def test_a_task_left_alone_has_no_history() -> None:
    send(viewer("revive"), "revive", row(Status.HELD).pk)
    assert not LogEntry.objects.exists()


def test_a_task_that_has_left_the_filtered_list_is_reported() -> None:
    """Somebody else has revived it while the page was open."""
    task = row(Status.PENDING)
    messages = send(viewer("revive"), "revive", task.pk, query="?state=dead")
    assert messages == ["1 task unchanged: no longer dead."]


def test_all_tasks_of_all_pages_move_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "ROWS_PER_SLICE", 50)
    Task.objects.bulk_create(
        Task(id=uuid.uuid4(), task_name=KNOWN, status=Status.DEAD) for _ in range(120)
    )
    bystanders = [row(Status.HELD), row(Status.PENDING)]
    client = viewer("revive")
    one = Task.objects.filter(status=Status.DEAD)[0].pk
    messages = send(client, "revive", one, select_across="1")
    assert messages == ["120 tasks revived."]
    assert LogEntry.objects.count() == 120
    assert Task.objects.get(pk=bystanders[0].pk).status == Status.HELD


def test_all_tasks_of_all_pages_are_those_of_the_filter() -> None:
    dead = [row(Status.DEAD, queue_name=queue) for queue in ("default", "mail")]
    client = viewer("revive")
    query = "?queue=default&state=dead"
    assert send(client, "revive", dead[0].pk, query=query, select_across="1") == ["1 task revived."]
    assert Task.objects.get(pk=dead[1].pk).status == Status.DEAD


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("action", ["hold", "cancel", "run_now"])
def test_a_task_that_a_worker_is_just_claiming_is_left_alone(action: str) -> None:
    task = row()
    client = viewer(action)
    with claiming(task):
        messages = send(client, action, task.pk)
    assert messages == ["1 task unchanged: no longer pending."]
    assert Task.objects.get().status in (Status.PENDING, Status.CLAIMED)
    assert not LogEntry.objects.exists()


@contextmanager
def claiming(task: Task) -> Iterator[None]:
    """A worker's claim that has not committed; SQLite has one writer, so there it has."""
    claim = "UPDATE txtasks_task SET status = 'claimed', worker = id, claimed_at = run_after"
    other = connection if connection.vendor == "sqlite" else connection.copy()
    other.set_autocommit(other is connection)
    try:
        with other.cursor() as cursor:
            cursor.execute(f"{claim} WHERE id = %s", [task.pk.hex])
        yield
    finally:
        if other is not connection:
            other.rollback()
            other.close()


@pytest.mark.parametrize("action", ["revive", "resume", "run_now"])
def test_workers_are_told_of_tasks_that_became_due(
    action: str, settings: Any, django_capture_on_commit_callbacks: Any
) -> None:
    settings.TXTASKS = {"broker_url": "amqp://guest:guest@127.0.0.1:1/%2F"}
    start = {name: state for name, state, *_ in ARROWS}[action]
    task, client = row(start), viewer(action)
    with django_capture_on_commit_callbacks() as callbacks:
        send(client, action, task.pk)
    assert [hook.__self__.of_queue for hook in callbacks] == [{"default": [task.pk]}]


# -- lists


def test_filters_by_state_queue_and_task() -> None:
    tasks = {state: row(state) for state in Status.values}
    unserved = row(queue_name="elsewhere")
    foreign = row(task_name="elsewhere.tasks.run")
    client = viewer()
    for state in (Status.CLAIMED, Status.DEAD, Status.HELD):
        assert shown_ids(client, f"{TASKS}?state={state}") == {tasks[state].pk}
    everything = set(Task.objects.values_list("pk", flat=True))
    assert shown_ids(client, f"{TASKS}?queue=default") == everything - {unserved.pk}
    assert shown_ids(client, f"{TASKS}?queue=@unknown") == {unserved.pk}
    assert shown_ids(client, f"{TASKS}?task={KNOWN}") == everything - {foreign.pk}
    assert shown_ids(client, f"{TASKS}?task=@unknown") == {foreign.pk}


def test_finished_tasks_filter_by_outcome() -> None:
    tasks = {outcome: finished(outcome=outcome).pk for outcome in Outcome.values}
    client = viewer()
    for outcome, pk in tasks.items():
        assert shown_ids(client, f"{FINISHED}?outcome={outcome}") == {pk}


def test_due_tasks_are_told_from_later_and_overdue_ones() -> None:
    now = timezone.now()
    later = row(run_after=now + timedelta(minutes=5))
    due = row(run_after=now - timedelta(seconds=20))
    overdue = row(run_after=now - timedelta(minutes=2))
    row(Status.DEAD, run_after=now - timedelta(minutes=2))
    client = viewer()
    assert shown_ids(client, f"{TASKS}?due=later") == {later.pk}
    assert shown_ids(client, f"{TASKS}?due=due") == {due.pk, overdue.pk}
    assert shown_ids(client, f"{TASKS}?due=overdue") == {overdue.pk}


def test_claims_that_nothing_will_end_are_found_and_marked() -> None:
    now = timezone.now()
    old = {"started_at": now - timedelta(hours=2), "claimed_at": now - timedelta(hours=2)}
    marked = '<small class="txtasks-warning">'
    client = viewer()
    row(Status.CLAIMED, started_at=now)
    row(Status.CLAIMED, timeout=60.0, **old)
    row(Status.PENDING, started_at=now - timedelta(hours=2))
    assert shown_ids(client, f"{TASKS}?running=long") == set()
    assert marked not in page(client, TASKS)
    long = row(Status.CLAIMED, **old)
    assert shown_ids(client, f"{TASKS}?running=long") == {long.pk}
    assert marked in page(client, TASKS)


@pytest.mark.parametrize(
    "query", ["state=x", "queue=x", "task=%00", "due=x", "running=x", "state=%27"]
)
def test_a_filter_value_that_nobody_offered_finds_nothing(query: str) -> None:
    row(run_after=timezone.now() - timedelta(hours=1))
    assert shown_ids(viewer(), f"{TASKS}?{query}") == set()


@pytest.mark.parametrize("url", [TASKS, FINISHED])
def test_search_finds_a_task_by_its_whole_id(url: str) -> None:
    make = row if url == TASKS else finished
    task = make()
    make()
    client = viewer()
    for text in (str(task.pk), task.pk.hex, f" {str(task.pk).upper()} "):
        assert shown_ids(client, f"{url}?q={text}") == {task.pk}


@pytest.mark.parametrize(
    "text", ["x", "%27", "%25", "0190d0c5-0000-7000-8000-00000000000", "💥", "send%receipt"]
)
def test_a_search_for_anything_else_finds_nothing(text: str) -> None:
    row()
    assert shown_ids(viewer(), f"{TASKS}?q={text}") == set()


def test_the_page_of_a_task_that_is_not_there_goes_back_to_the_index() -> None:
    client = viewer()
    for key in ("garbage", uuid.uuid4()):
        assert client.get(f"{TASKS}{key}/change/").status_code == 302


@pytest.mark.parametrize(
    "query", ["kwargs__password__startswith=x", "task_name__icontains=x", "args__0=1"]
)
def test_no_lookup_but_the_filters_can_be_put_into_the_url(query: str) -> None:
    """Else staff could guess a redacted value letter by letter."""
    assert viewer().get(f"{TASKS}?{query}").status_code == 400


def test_merged_tasks_are_shown_beside_the_one_that_ran() -> None:
    winner = row(unique_text=MARKUP, absorbed=25, snoozes=3, cancel_asked_at=timezone.now())
    merged = [finished(outcome=Outcome.MERGED, merged_into=winner.pk) for _ in range(25)]
    text = page(viewer(), f"{TASKS}{winner.pk}/change/")
    assert MARKUP not in text
    assert "&lt;script&gt;" in text
    assert sum(f"finishedtask/{one.pk}/change/" in text for one in merged) == 20
    assert "and others" in text
    text = page(viewer(), f"{FINISHED}{merged[0].pk}/change/")
    assert f"task/{winner.pk}/change/" in text
    ended = finished(id=winner.pk)
    winner.delete()
    assert f"finishedtask/{ended.pk}/change/" in page(viewer(), f"{FINISHED}{merged[0].pk}/change/")
    text = page(viewer(), f"{FINISHED}{ended.pk}/change/")
    assert sum(f"finishedtask/{one.pk}/change/" in text for one in merged) == 20


def test_an_action_says_that_no_living_worker_can_run_its_tasks() -> None:
    one, other = row(task_name="gone.tasks.run"), row(queue_name="mail")
    assert send(viewer("run_now"), "run_now", one.pk) == [
        "1 task made due now."
    ]  # no worker lives at all
    values = {"host": "a", "pid": 7, "threads": 2, "lease": 60.0, "task_names": [KNOWN]}
    Worker.objects.create(id=uuid.uuid4(), queues=["default"], **values)
    assert send(viewer("run_now"), "run_now", one.pk, other.pk, row().pk) == [
        "3 tasks made due now.",
        "No living worker of queue default runs gone.tasks.run, so these tasks wait.",
        "No living worker serves queue mail, so its tasks wait.",
    ]


def test_an_action_on_a_task_of_an_async_function_warns_only_without_a_worker() -> None:
    """Its hints travel in a queue of another name, which no worker serves."""
    values = {"host": "a", "pid": 7, "threads": 2, "lease": 60.0, "task_names": [ASYNC]}
    Worker.objects.create(id=uuid.uuid4(), queues=["default"], **values)
    task = row(task_name=ASYNC)
    assert send(viewer("run_now"), "run_now", task.pk) == ["1 task made due now."]


def test_the_filter_by_task_finds_a_name_that_no_app_declares() -> None:
    task = row(task_name="gone.tasks.run")
    row()
    assert shown_ids(viewer(), f"{TASKS}?task=gone.tasks.run") == {task.pk}
    assert shown_ids(viewer(), f"{TASKS}?task=a%00b") == set()


def test_a_name_that_no_app_declares_is_visible_as_such() -> None:
    note = "no task with this name is declared in this code"
    row()
    client = viewer()
    assert note not in page(client, TASKS)
    task = row(task_name="elsewhere.tasks.run")
    assert note in page(client, TASKS)
    assert note in page(client, f"{TASKS}{task.pk}/change/")


def test_a_list_looks_at_so_many_rows_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "MAX_ROWS", 60)
    Task.objects.bulk_create(Task(id=uuid.uuid4(), task_name=KNOWN) for _ in range(60))
    client = viewer("hold")
    html = page(client, TASKS)
    assert "60 tasks\n" in html and "The table has more rows" not in html
    row()
    html = page(client, TASKS)
    assert "60+ tasks\n" in html
    assert "All 60+ selected" in html and "Select all 60+ tasks" in html
    assert (
        "The table has more rows than a page reads. This page has read 60: those with the highest ids, which"
        in html
    )
    assert len(shown_ids(client, f"{TASKS}?p=2")) == 10


def test_a_list_costs_the_same_queries_for_eleven_rows_and_for_fifty() -> None:
    client = viewer("hold")
    for _ in range(11):  # the overview, whose numbers the filters have, reads the ten longest
        row(Status.CLAIMED)
    page(client, TASKS)
    with CaptureQueriesContext(connection) as few:
        page(client, TASKS)
    for _ in range(39):
        row(Status.CLAIMED, errors=[{"type": "E", "message": "m"}])
    with CaptureQueriesContext(connection) as many:
        page(client, TASKS)
    assert len(few) == len(many)


def test_the_list_shows_the_newest_error() -> None:
    row(errors=[{"type": "KeyError", "message": "old"}, {"type": "OSError", "message": 'a "b" ü'}])
    html = page(viewer(), TASKS)
    assert "OSError: a &quot;b&quot; ü" in html and "KeyError" not in html


# -- foreign rows


def hostile(**columns: Any) -> dict[str, Any]:
    error = dict.fromkeys(("at", "attempt", "worker", "type", "message", "traceback"), MARKUP)
    return {
        "task_name": MARKUP,
        "queue_name": MARKUP,
        "args": [MARKUP, {MARKUP: MARKUP}],
        "kwargs": {MARKUP: MARKUP, "list": [MARKUP]},
        "errors": [error, MARKUP, {MARKUP: MARKUP}, error],
        "late_finishes": [
            MARKUP,
            dict.fromkeys(("attempt", "abandoned_at", "finished_at"), MARKUP),
        ],
        **columns,
    }


def test_markup_in_a_row_is_shown_as_text() -> None:
    worker = Worker.objects.create(
        id=uuid.uuid4(), host=MARKUP, pid=1, queues=[MARKUP], threads=1, lease=15.0
    )
    hooks = {MARKUP: {"task_name": MARKUP}, "on_retry": MARKUP}
    task = row(Status.CLAIMED, **hostile(worker=worker.pk, hooks=hooks))
    done = finished(**hostile(result={MARKUP: MARKUP}, worker=worker.pk))
    client = viewer(*ACTIONS)
    for url, one in ((TASKS, task), (FINISHED, done), (WORKERS, worker)):
        for html in (page(client, url), page(client, f"{url}{one.pk}/change/")):
            assert MARKUP not in html
            assert "&lt;script&gt;alert(1)" in html


def test_markup_in_the_name_of_a_task_is_shown_as_text_in_the_history() -> None:
    task = row(**hostile())
    client = viewer("hold")
    send(client, "hold", task.pk)
    for url in (f"{TASKS}{task.pk}/history/", f"{TASKS}{task.pk}/change/", "/admin/"):
        assert MARKUP not in page(client, url)


WRONG = [None, 5, "text", True, {"a": 1}, [], [1, None, "x"], [{"type": {"a": 1}, "message": [2]}]]


@pytest.mark.parametrize("value", WRONG, ids=json.dumps)
def test_json_of_a_wrong_type_is_shown_all_the_same(value: Any) -> None:
    task = row(
        Status.DEAD,
        errors=value if value is not None else [],
        late_finishes=value or 0,
        hooks=value or 0,
        args=value or 0,
        kwargs=value or 0,
    )
    done = finished(
        errors=value or 0,
        late_finishes=value or 0,
        args=value or 0,
        kwargs=value or 0,
        result=value,
    )
    client = viewer()
    for url, one in ((TASKS, task), (FINISHED, done)):
        page(client, url)
        page(client, f"{url}{one.pk}/change/")


def put_json(one: Task | Worker, column: str, text: str) -> None:
    cast = {"postgresql": "CAST(%s AS jsonb)"}.get(connection.vendor, "%s")
    with connection.cursor() as cursor:
        sql = f"UPDATE {one._meta.db_table} SET {column} = {cast} WHERE id = %s"
        cursor.execute(sql, [text, one.pk.hex])


# As deep as the database allows: MariaDB stops at 32 levels, Python below SQLite's 1,000.
DEPTH = {"postgresql": 5000, "sqlite": 900, "mysql": 30}


def test_a_deeply_nested_row_takes_no_page_down() -> None:
    depth = DEPTH[connection.vendor]
    nested = "[" * depth + "]" * depth
    task = row()
    for column in ("args", "kwargs", "errors", "late_finishes", "hooks"):
        put_json(task, column, nested)
    worker = Worker.objects.create(
        id=uuid.uuid4(), host="h", pid=1, queues=[], threads=1, lease=15.0
    )
    for column in ("queues", "sessions"):
        put_json(worker, column, nested)
    client = viewer()
    for url in (TASKS, WORKERS, f"{WORKERS}{worker.pk}/change/"):
        page(client, url)
    assert "[" in page(client, f"{TASKS}{task.pk}/change/")


def test_a_lone_surrogate_takes_no_page_down() -> None:
    """Only SQLite lets one in; Python decodes it to what no page can be encoded with."""
    escape = "\\ud800" if connection.vendor == "sqlite" else "\\u0041"
    task = row()
    put_json(task, "args", f'["{escape}"]')
    put_json(task, "errors", f'[{{"type": "E", "message": "{escape}", "traceback": "{escape}"}}]')
    client = viewer()
    page(client, TASKS)
    page(client, f"{TASKS}{task.pk}/change/")


def test_huge_texts_are_cut() -> None:
    huge = "x" * 300_000
    errors = [{"type": huge, "message": huge, "traceback": huge}] * 3
    task = row(args=[huge], kwargs={"many": [huge[:5000]] * 150}, errors=errors)
    client = viewer()
    assert len(page(client, TASKS)) < 50_000
    detail = page(client, f"{TASKS}{task.pk}/change/")
    assert len(detail) < 250_000
    assert "characters left out" in detail


def test_json_beyond_the_limit_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MAX_JSON_CHARACTERS", 1000)
    task = row(kwargs={"password": "hunter2", "filler": "x" * 2000})
    detail = page(viewer(), f"{TASKS}{task.pk}/change/")
    assert "not shown: more than 1,000 characters of JSON" in detail
    assert "hunter2" not in detail


# -- the page of one task


def test_the_page_shows_each_error_with_its_traceback() -> None:
    error = {
        "at": "2026-01-02 03:04:05.678Z",
        "attempt": 3,
        "worker": str(uuid.uuid4()),
        "type": "KeyError",
        "message": "'a' is missing",
        "traceback": "Traceback (most recent call last):\n  File …\nKeyError",
    }
    task = row(Status.DEAD, errors=[error], attempt=3, failures=3, crashes=1)
    html = page(viewer(), f"{TASKS}{task.pk}/change/")
    for text in ("attempt 3", error["at"], error["worker"], "&#x27;a&#x27; is missing"):
        assert text in html
    assert f"<pre>{error['traceback']}</pre>" in html
    assert (
        "failures: 3/5" in html and "crashes: 1<" in html
    )  # it was dead at the first, whatever max_crashes says
    task = row(Status.DEAD, errors=[error], attempt=3, crashes=1, on_crash=OnCrash.RETRY)
    assert "crashes: 1/3" in page(viewer(), f"{TASKS}{task.pk}/change/")


def test_the_page_of_a_task_that_was_asked_to_stop_loads_itself_again_until_it_says_more() -> None:
    worker = Worker.objects.create(
        id=uuid.uuid4(), host="a", pid=7, queues=[], threads=2, lease=60.0
    )
    task = row(Status.CLAIMED, worker=worker.pk)
    url = f"{TASKS}{task.pk}/change/"
    assert "To stop it: manage.py txtasks_task stop" in page(viewer(), url)
    client = viewer("ask_to_stop")
    assert "To stop it, press “Ask to stop” on this page, or run manage.py" in page(client, url)
    assert LOADS_AGAIN not in client.get(url).text
    Task.objects.update(
        cancel_asked_at=timezone.now() + timedelta(minutes=1)
    )  # this test may take 10 s
    answer = client.get(url)
    assert LOADS_AGAIN in answer.text and "This page loads itself again." in answer.text
    Task.objects.update(cancel_asked_at=timezone.now() - timedelta(minutes=1))
    answer = client.get(url)
    assert LOADS_AGAIN not in answer.text and "kill -9 7 on a" in answer.text
    assert "loads itself again" not in answer.text


def test_the_page_of_a_live_task_leads_to_the_finished_one() -> None:
    ended = finished()
    url = f"{TASKS}{ended.pk}/change/"
    answer = viewer().get(url)
    assert (answer.status_code, answer.url) == (302, f"{FINISHED}{ended.pk}/change/")
    assert logged_in("view_task").get(url).url == "/admin/"
    assert viewer().get(f"{TASKS}{uuid.uuid4()}/change/").url == "/admin/"


def test_the_page_shows_what_the_task_declared_and_hook_names_only() -> None:
    hook = {"task_name": "orders.tasks.tell", "queue_name": "quiet-queue", "hooks": {}}
    task = row(
        timeout=1.5,
        expires_at=timezone.now() + timedelta(hours=3),
        on_crash=OnCrash.COMPENSATE,
        hooks={"compensate": hook, "on_failure": {**hook, "task_name": "orders.tasks.page"}},
    )
    html = page(viewer(), f"{TASKS}{task.pk}/change/")
    assert (
        "<div>compensate: orders.tasks.tell</div><div>on_failure: orders.tasks.page</div>" in html
    )
    assert "quiet-queue" not in html
    assert "1.5 s" in html and "(in 2 h 59 min)" in html
    assert "leave it dead and run its compensation" in html


@pytest.mark.parametrize("url", [TASKS, FINISHED])
def test_an_attempt_that_finished_after_it_was_abandoned_is_a_line(url: str) -> None:
    late = {"attempt": 1, "abandoned_at": "2026-01-02 03:04:05Z", "finished_at": "2026-01-02 04Z"}
    unknown = {**late, "attempt": 2, "abandoned_at": None}
    make = row if url == TASKS else finished
    html = page(viewer(), f"{url}{make(late_finishes=[late, unknown]).pk}/change/")
    for text in (
        "attempt 1, abandoned at 2026-01-02 03:04:05Z, yet finished at 2026-01-02 04Z",
        f"attempt 2, abandoned at {shown.EMPTY}, yet finished at 2026-01-02 04Z",
    ):
        assert f"<div>{text}</div>" in html


@pytest.mark.parametrize(
    ("show", "text", "lines"),
    [
        (shown.late_finishes, '[1, null, "x", {"attempt": 3}]', 1),
        (shown.late_finishes, '{"attempt": 3}', 1),
        (shown.hooks, '{"on_retry": "x", "on_failure": {"task_name": [1]}}', 2),
        (shown.hooks, '["on_retry"]', 0),
        (shown.hooks, "null", 0),
    ],
)
def test_what_somebody_wrote_by_hand_is_shown_as_far_as_it_can_be(
    show: Any, text: str, lines: int
) -> None:
    """Asked directly: on a page Django shows a dash for whatever raises AttributeError."""
    assert show(text).count("<div>") == lines


def test_a_task_that_was_not_started_in_time_says_so() -> None:
    finished(outcome=Outcome.EXPIRED)
    assert 'txtasks-expired">cancelled: expired<' in page(viewer(), FINISHED)


def test_secrets_are_redacted_at_any_depth() -> None:
    hidden = {"Password": "s1", "apiKey": {"id": "s2"}, "list": [{"x-auth-token": "s3"}]}
    task = row(kwargs={"open": "seen", "deep": {"deeper": hidden}, "secret": ["s4"]})
    html = page(viewer(), f"{TASKS}{task.pk}/change/")
    assert "seen" in html and "Password" in html
    assert html.count(str(redaction.REDACTED)) == 4
    for value in ("s1", "s2", "s3", "s4"):
        assert f"&quot;{value}&quot;" not in html


@pytest.mark.parametrize(
    "name",
    [
        "auth", "smtp_pass", "otp", "totp_code", "jwt", "dsn", "SENTRY_DSN", "api_key", "apiToken", "x-auth",
        "HTTP_COOKIE", "Signature", "passphrase", "pwd", "client_secret", "session_id", "credentials",
    ],
)  # fmt: skip
def test_what_is_named_like_a_secret_is_hidden(name: str) -> None:
    assert redaction.is_secret(name)


def test_all_that_error_reports_of_django_hide_is_hidden() -> None:
    for word in SafeExceptionReporterFilter.hidden_settings.pattern.split("|"):
        assert redaction.is_secret(f"my_{word.lower()}_x"), word


@pytest.mark.parametrize("name", ["user", "amount", "carbon_footprint", "order_id", "text", "urls"])
def test_other_names_are_shown(name: str) -> None:
    assert not redaction.is_secret(name)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("amqp://guest:hunter2@rabbit:5672/", "amqp://guest:[redacted]@rabbit:5672/"),
        ("a postgres://u:hunter2@db/x and redis://:hunter2@r", "a postgres://u:[redacted]@db/x and redis://:[redacted]@r"),
        ("postgres://u:hunt@r2@db/x", "postgres://u:[redacted]@db/x"),
        ("amqp://u:hunter2@a,amqp://u:hunter2@b", "amqp://u:[redacted]@a,amqp://u:[redacted]@b"),
        ("https://example.com/a:b@c", "https://example.com/a:b@c"),
    ],
)  # fmt: skip
def test_a_password_in_a_url_is_hidden_whatever_its_name(value: str, text: str) -> None:
    assert redaction.redacted({"broker": [value]}) == {"broker": [text]}


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task function of this test: it takes a user and a token."""
    known = {KNOWN: ["user", "token"]}
    monkeypatch.setattr(redaction, "parameters", lambda name: known.get(name, []))


@pytest.mark.usefixtures("judged")
def test_positional_secrets_are_redacted_by_their_parameters_names() -> None:
    text = shown.arguments('["anna", "hunter-1", "beyond what it takes"]', KNOWN)
    assert "anna" in text and "hunter-1" not in text and "beyond" not in text
    assert text.count(str(redaction.REDACTED)) == 2


@pytest.mark.usefixtures("judged")
def test_positional_arguments_of_an_unknown_name_are_redacted() -> None:
    task = row(
        task_name="elsewhere.tasks.run", args=["hunter-1", {"user": "anna"}], kwargs={"a": "seen"}
    )
    html = page(viewer(), f"{TASKS}{task.pk}/change/")
    assert html.count(str(redaction.REDACTED)) == 2 and "hunter-1" not in html and "seen" in html


@pytest.mark.usefixtures("judged")
@pytest.mark.parametrize("name", [KNOWN, "elsewhere.tasks.run"])
def test_what_a_hook_is_told_hides_the_secrets_of_the_task_it_is_told_of(name: str) -> None:
    event = {"task_name": name, "args": ["anna", "hunter-1"], "kwargs": {"password": "hunter-2"}}
    for text in (
        shown.json_block(json.dumps({"event": event})),
        shown.json_block(json.dumps([event])),
    ):
        assert ("anna" in text) == (name == KNOWN)
        assert "hunter-1" not in text and "hunter-2" not in text


def test_a_row_of_a_dead_notice_hides_the_secrets_of_the_dead_task() -> None:
    event = {
        "task_name": "elsewhere.tasks.run",
        "args": ["hunter-1"],
        "kwargs": {"token": "hunter-2"},
    }
    name = "django_txtasks.notices.mail_dead_notice"
    html = page(viewer(), f"{TASKS}{row(task_name=name, args=[event]).pk}/change/")
    assert "elsewhere.tasks.run" in html and "hunter-1" not in html and "hunter-2" not in html


def test_the_parameters_of_a_task_function_leave_its_context_out() -> None:
    assert redaction.parameters(KNOWN) == ["order_id"]
    assert redaction.parameters("elsewhere.tasks.run") == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"), (59, "59 s"), (192, "3 min 12 s"), (3600, "1 h"), (3660, "1 h 1 min"),
        (3605, "1 h"), (90_000, "1 d 1 h"), (-192, "3 min 12 s"), (10**8, "1,157 d 9 h"),
    ],
)  # fmt: skip
def test_a_span_shows_its_two_largest_units(seconds: float, text: str) -> None:
    assert shown.span(timedelta(seconds=seconds)) == text


# -- workers


def test_workers_show_their_health() -> None:
    common = {"pid": 7, "queues": ["default", "mail"], "threads": 4, "running": 3, "lease": 15.0}
    Worker.objects.create(id=uuid.uuid4(), host="alive-host", **common)
    old = timezone.now() - timedelta(minutes=1)
    Worker.objects.create(id=uuid.uuid4(), host="silent-host", seen_at=old, **common)
    a_moment_ago = timezone.now() - timedelta(seconds=3, milliseconds=200)
    suspect = {"suspected_at": a_moment_ago, **common}
    Worker.objects.create(id=uuid.uuid4(), host="suspected-host", **suspect)
    Worker.objects.create(id=uuid.uuid4(), host="lost-host", lost=True, **suspect)
    client = viewer()
    html = page(client, WORKERS)
    for health in ("alive", "silent", "suspected", "lost"):
        line = next(part for part in html.split("<tr>") if f"{health}-host" in part)
        assert f'txtasks-badge txtasks-{health}"' in line
        assert "default, mail" in line and ("3 / 4" in line) == (health != "lost")
        assert bool(re.search(r"\d s ago</time></small>", line)) == (health == "suspected")
    for worker in Worker.objects.all():
        assert "default, mail" in page(client, f"{WORKERS}{worker.pk}/change/")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("eb-1", {"web-1"}),
        ("WEB", {"web-1", "web-2"}),
        ("77", {"web-2", "db-77"}),
        ("8" * 30, set()),
    ],
)
def test_a_search_finds_processes_by_host_and_process_id(text: str, found: set[str]) -> None:
    """As the log names them: nobody has a worker's id at hand."""
    for host, pid in (("web-1", 5), ("web-2", 77), ("db-77", 6)):
        common: dict[str, Any] = {"host": host, "pid": pid, "lease": 15.0}
        Worker.objects.create(id=uuid.uuid4(), queues=[], threads=1, **common)
        Cleaner.objects.create(id=uuid.uuid4(), **common)
    client = logged_in("view_worker", "view_cleaner")
    for url in (WORKERS, WORKERS.replace("worker", "cleaner")):
        assert set(re.findall(r">([\w-]+) pid \d+</a>", page(client, f"{url}?q={text}"))) == found


@pytest.mark.parametrize(
    ("listening", "will", "icon"), [(True, 3, "yes"), (True, 0, "no"), (None, 0, "unknown")]
)
def test_a_worker_shows_whether_rabbitmq_holds_its_last_will(
    listening: bool | None, will: int, icon: str
) -> None:
    Worker.objects.create(
        id=uuid.uuid4(), host="h", pid=1, queues=[], threads=1, lease=15.0, will=will,
        listening=listening, sessions={"not": ["a", "list"]},
    )  # fmt: skip
    html = page(viewer(), WORKERS)
    cell = html.split('class="field-last_will"')[1].split("</td>")[0]
    assert f"icon-{icon}.svg" in cell
    for text in (cell, html.partition("txtasks-note")[2]):
        assert ("holds no last will of the worker" in text) is (icon == "no")


@pytest.mark.parametrize(("listening", "icon"), [(False, "no"), (True, "yes"), (None, "unknown")])
def test_a_worker_that_no_hint_reaches_says_what_that_means(
    listening: bool | None, icon: str, txtasks: Any
) -> None:
    worker = Worker.objects.create(
        id=uuid.uuid4(), host="h", pid=1, queues=[], threads=1, lease=15.0, listening=listening, will=1
    )  # fmt: skip
    html, form = page(viewer(), WORKERS), page(viewer(), f"{WORKERS}{worker.pk}/change/")
    cell = html.split('class="field-hints"')[1].split("</td>")[0]
    assert f"icon-{icon}.svg" in cell and f"icon-{icon}.svg" in form
    for text in (cell, html.partition("txtasks-note")[2], form):
        assert ("so a new task waits up to" in text) is (icon == "no")


def test_a_lost_worker_has_no_cross() -> None:
    Worker.objects.create(
        id=uuid.uuid4(), host="h", pid=1, queues=[], threads=1, lease=15.0, listening=False, lost=True
    )  # fmt: skip
    html = page(viewer(), WORKERS)
    assert "icon-no.svg" not in html and "txtasks-note" not in html


def test_the_page_of_a_claimed_task_links_its_worker() -> None:
    worker = Worker.objects.create(
        id=uuid.uuid4(), host="web-1", pid=1, queues=[], threads=1, lease=15.0
    )
    known, gone = row(Status.CLAIMED, worker=worker.pk), row(Status.CLAIMED)
    client = viewer()
    assert f'href="{WORKERS}{worker.pk}/change/"' in page(client, f"{TASKS}{known.pk}/change/")
    assert str(gone.worker) in page(client, f"{TASKS}{gone.pk}/change/")
