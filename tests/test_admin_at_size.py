"""No list, filter, search, count or page of the admin reads a large table whole, whatever statistics say."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin import site
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Model
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from reads import explained, work_counted

from django_txtasks import overview as overview_room
from django_txtasks.admin import bounded, numbers, searching
from django_txtasks.features.redaction import declaring as redaction
from django_txtasks.models import FinishedTask, Outcome, Status, Task, Worker
from django_txtasks.stats import by_cause

pytestmark = pytest.mark.django_db

TASKS, FINISHED, WORKERS = (
    f"/admin/txtasks/{name}/" for name in ("task", "finishedtask", "worker")
)
KNOWN = "orders.tasks.send_receipt"
QUERIES = [
    "", "?p=3", "?p=18", "?o=1", "?o=-3.2", "?all=", "?_facets=True", "?q=send", "?q=zzz", f"?q={uuid.uuid4()}",
    *(f"?state={state}" for state in Status.values), "?state=dead&p=3", "?state=x",
    "?running=long", "?running=long&queue=mail", "?due=due", "?due=later", "?due=overdue", "?due=due&state=dead",
    "?queue=default", "?queue=mail", "?queue=@unknown", f"?task={KNOWN}", "?task=@unknown",
    "?state=pending&queue=mail", "?due=later&queue=mail", "?state=pending&queue=mail&p=2",
    "?state=retrying", "?state=retrying&queue=mail&p=2", "?cause=3", "?cause=3&state=dead", "?cause=x",
    "?exception=shop.Declined",
    f"?state=dead&task={KNOWN}&queue=mail", f"?due=overdue&queue=default&task={KNOWN}&q=send",
]  # fmt: skip
QUERIES_FINISHED = [
    "", "?p=3", "?p=18", "?o=1", "?q=send", "?q=zzz", f"?q={uuid.uuid4()}", "?queue=mail", "?task=@unknown",
    *(f"?outcome={outcome}" for outcome in Outcome.values), "?outcome=discarded&queue=default",
]  # fmt: skip


LISTS = [
    *((Task, query) for query in QUERIES), *((FinishedTask, query) for query in QUERIES_FINISHED), (Worker, ""),
]  # fmt: skip
MOST = 1000


@pytest.fixture
def admin() -> User:
    return User.objects.create_superuser("ada")


@pytest.fixture
def client(admin: User) -> Client:
    client = Client()
    client.force_login(admin)
    return client


SEED = """
    INSERT INTO txtasks_task
           (id, task_name, queue_name, priority, status, run_after, worker, claimed_at, started_at, cause, errors)
    SELECT gen_random_uuid(), CASE WHEN mod(i, 7) = 0 THEN 'gone.tasks.run' ELSE %(known)s END,
           CASE WHEN mod(i, 3) = 0 THEN 'mail' ELSE 'default' END, mod(i, 4),
           (ARRAY['pending', 'pending', 'dead', 'held', 'claimed'])[1 + mod(i, 5)],
           now() + (i - %(rows)s / 2) * interval '1 second', w, CASE WHEN w IS NOT NULL THEN now() END,
           CASE WHEN w IS NOT NULL THEN now() - interval '1 day' END,
           CASE WHEN mod(i, 5) > 0 THEN mod(i, 4) END, '[{"class": "shop.Declined"}]'
      FROM generate_series(1, %(rows)s) i,
           LATERAL (SELECT CASE WHEN mod(i, 5) = 4 THEN gen_random_uuid() END AS w) AS x
"""
SEED_FINISHED = """
    INSERT INTO txtasks_finishedtask (id, task_name, queue_name, outcome, finished_at)
    SELECT gen_random_uuid(), %(known)s, 'default', CASE WHEN mod(i, 9) = 0 THEN 'discarded' ELSE 'succeeded' END,
           now() - i * interval '1 second'
      FROM generate_series(1, %(rows)s) i
"""


@pytest.mark.once
@pytest.mark.skipif(connection.vendor != "postgresql", reason="reads plans of PostgreSQL")
def test_no_page_reads_a_table_of_200_000_rows(
    admin: User, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither with the statistics of an empty table nor with fresh ones."""
    monkeypatch.setattr(bounded, "MAX_ROWS", MOST - 100)
    monkeypatch.setattr(by_cause, "MOST_ENTRIES", MOST - 100)
    with connection.cursor() as cursor:
        for table in ("txtasks_task", "txtasks_finishedtask"):
            cursor.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        cursor.execute("ANALYZE txtasks_task, txtasks_finishedtask")
        cursor.execute(SEED, {"known": KNOWN, "rows": 200_000})
        cursor.execute(SEED_FINISHED, {"known": KNOWN, "rows": 200_000})
    one = Task.objects.order_by("pk")[0]
    too_much = []
    for _ in range(2):
        too_much += read_too_much(admin, LISTS)
        with explained() as statements:
            assert client.get(f"{TASKS}{one.pk}/change/").status_code == 200
        too_much += [text for read, text in statements if read > 100]
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE txtasks_task, txtasks_finishedtask")
    assert not too_much, "\n".join(too_much)


def read_too_much(admin: User, lists: list[tuple[type[Model], str]]) -> list[str]:
    found = []
    for model, query in lists:
        with explained() as statements:
            the_list(admin, model, query)
        assert statements, query
        found += [f"{model.__name__} {query}: {text}" for read, text in statements if read > MOST]
    return found


def the_list(admin: User, model: type[Model], query: str) -> Any:
    """Return the rows that the page of this query would show: found, counted and read, not rendered."""
    request = RequestFactory().get(f"/{query}")
    request.user = admin
    return site.get_model_admin(model).get_changelist_instance(request)


def many_rows(number: int) -> None:
    """Rows of all states, most of them pending and due later."""
    now = timezone.now()
    Task.objects.bulk_create(
        Task(
            id=uuid.uuid4(), task_name=KNOWN, queue_name="mail" if index % 3 else "default",
            priority=index % 4, run_after=now + timedelta(seconds=index - number / 4), **state(index),
        )
        for index in range(number)
    )  # fmt: skip
    FinishedTask.objects.bulk_create(
        FinishedTask(
            id=uuid.uuid4(), task_name=KNOWN, outcome=Outcome.SUCCEEDED,
            finished_at=now - timedelta(seconds=index),
        )
        for index in range(number)
    )  # fmt: skip


def state(index: int) -> dict[str, Any]:
    status = (Status.PENDING, Status.DEAD, Status.HELD, Status.PENDING, Status.CLAIMED)[index % 5]
    if status is not Status.CLAIMED:
        return {"status": status}
    return {"status": status, "worker": uuid.uuid4(), "claimed_at": timezone.now()}


@pytest.mark.skipif(connection.vendor == "postgresql", reason="it tells by itself: see above")
def test_lists_do_the_same_work_for_five_times_as_many_rows(
    admin: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "MAX_ROWS", 60)
    monkeypatch.setattr(by_cause, "MOST", 60)
    monkeypatch.setattr(by_cause, "MOST", 60)
    many_rows(600)
    the_list(admin, Task, "")
    lists = [(model, query) for model, query in LISTS if "p=" not in query]
    work: dict[str, list[int]] = {}
    for _ in range(2):
        for model, query in lists:
            with work_counted() as counted:
                the_list(admin, model, query)
            work.setdefault(f"{model.__name__} {query}", []).extend(counted)
        many_rows(2400)
    slack = {"mysql": 200, "sqlite": 10}[connection.vendor]
    assert not {key: (few, many) for key, (few, many) in work.items() if many > few + slack}


# -- what the lists show


def rows_shown(client: Client, url: str) -> list[Any]:
    response = client.get(url)
    assert response.status_code == 200
    return [one.pk for one in response.context["cl"].result_list]


def task(**columns: Any) -> uuid.UUID:
    return Task.objects.create(id=uuid.uuid4(), **{"task_name": KNOWN, **columns}).pk


def test_a_search_finds_tasks_by_a_part_of_their_name(client: Client) -> None:
    receipt, other = task(), task(task_name="orders.tasks.charge_100%")
    assert rows_shown(client, f"{TASKS}?q=Send_Rec") == [receipt]
    assert rows_shown(client, f"{TASKS}?q=%20orders.tasks.charge%20") == [other]
    assert rows_shown(client, f"{TASKS}?q=_100%25") == [other]
    assert rows_shown(client, f"{TASKS}?q=send%25receipt") == []
    done = FinishedTask.objects.create(id=uuid.uuid4(), task_name=KNOWN, outcome=Outcome.SUCCEEDED)
    assert rows_shown(client, f"{FINISHED}?q=receipt") == [done.pk]
    assert rows_shown(client, f"{WORKERS}?q=receipt") == []


def test_an_id_is_found_wherever_its_row_stands(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "MAX_ROWS", 2)
    for _ in range(5):
        task()
    *others, last = Task.objects.order_by("-pk").values_list("pk", flat=True)
    assert set(rows_shown(client, TASKS)) == set(others[:2])
    assert rows_shown(client, f"{TASKS}?q={last}") == [last]


def test_each_state_is_read_in_its_own_order_whatever_else_there_is(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest rows of all would show none of these."""
    monkeypatch.setattr(bounded, "MAX_ROWS", 2)
    now = timezone.now()
    times = [now + timedelta(hours=hours) for hours in (-3, -2, 5, 6)]
    early, due, later, last = (task(run_after=when, queue_name="mail") for when in times)
    other = task(run_after=now - timedelta(days=1), queue_name="default")
    dead = [task(status=Status.DEAD, run_after=when) for when in times[:2]]
    held = task(status=Status.HELD)
    claims = {"status": Status.CLAIMED, "worker": uuid.uuid4(), "claimed_at": now}
    claimed = task(**claims)
    for _ in range(4):
        task(status=Status.DEAD, run_after=now - timedelta(days=5))
    assert rows_shown(client, f"{TASKS}?state=pending") == [other, early]
    assert rows_shown(client, f"{TASKS}?state=pending&queue=mail") == [early, due]
    assert rows_shown(client, f"{TASKS}?due=due&queue=mail") == [early, due]
    assert rows_shown(client, f"{TASKS}?due=later") == [last, later]
    assert rows_shown(client, f"{TASKS}?state=dead") == dead[::-1]
    assert rows_shown(client, f"{TASKS}?state=held") == [held]
    assert rows_shown(client, f"{TASKS}?state=claimed") == [claimed]


def test_live_tasks_are_listed_by_their_time_whatever_their_ids_are(client: Client) -> None:
    """Raw SQL makes ids at random."""
    now = timezone.now()
    ids = [task(enqueued_at=now - timedelta(minutes=minutes)) for minutes in range(9)]
    assert ids != sorted(ids)
    assert rows_shown(client, TASKS) == ids
    assert rows_shown(client, f"{TASKS}?q=send") == ids


def test_a_page_says_by_what_it_has_chosen_live_tasks(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "MAX_ROWS", 2)
    now = timezone.now()
    for _ in range(3):
        task()
    ids = list(
        Task.objects.order_by("pk").values_list("pk", flat=True)
    )  # as the database orders them
    for minutes, one in enumerate((ids[2], ids[0], ids[1])):
        Task.objects.filter(pk=one).update(enqueued_at=now + timedelta(minutes=minutes))
    page = client.get(TASKS)
    assert [one.pk for one in page.context["cl"].result_list] == [ids[1], ids[2]]
    assert "This page has read 2: those with the highest ids" in page.content.decode()


def test_nothing_of_a_list_stays_set_in_the_session(client: Client) -> None:
    """Sites with ATOMIC_REQUESTS answer a whole request in one transaction, as this test does."""
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL is told how to read")
    client.get(TASKS)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('enable_sort'), current_setting('statement_timeout')"
        )
        assert cursor.fetchone() == ("on", "0")


def test_no_page_limits_the_pauses_of_its_request(client: Client) -> None:
    """The server would end the session during a slow page, and with ATOMIC_REQUESTS the request would fail."""
    with CaptureQueriesContext(connection) as asked:
        for page in ("/admin/txtasks/", TASKS, f"{TASKS}?q=send", f"{TASKS}{task()}/change/"):
            assert client.get(page).status_code == 200
    assert not [one["sql"] for one in asked if "idle" in one["sql"].partition("FROM")[0]]


def test_all_workers_are_listed(client: Client) -> None:
    for _ in range(3):
        Worker.objects.create(id=uuid.uuid4(), host="h", pid=1, queues=[], threads=1, lease=15.0)
    assert len(rows_shown(client, WORKERS)) == 3


def test_a_search_looks_into_arguments_and_errors_of_the_first_rows(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = timezone.now()
    old = task(args=["needle"], enqueued_at=now - timedelta(hours=1))
    by_args = task(task_name="orders.tasks.send_receipt", args=[7, "a NEEDLE"])
    by_error = task(status=Status.DEAD, errors=[{"type": "KeyError", "message": "needle"}])
    task(kwargs={"password": "needle"}, args=["no"])
    task(
        task_name="gone.tasks.run", args=["needle"]
    )  # its parameters are unknown, so it is redacted
    monkeypatch.setattr(
        redaction, "parameters", lambda name: ["order", "mail"] if name == KNOWN else []
    )
    assert set(rows_shown(client, f"{TASKS}?q=needle")) == {old, by_args, by_error}
    assert set(rows_shown(client, f"{TASKS}?q=keyerror:%20NEEDLE")) == {by_error}
    monkeypatch.setattr(searching, "MAX_ROWS_SEARCHED", 4)
    monkeypatch.setattr(searching, "ROWS_PER_READ", 3)
    page = client.get(f"{TASKS}?q=needle")
    assert {one.pk for one in page.context["cl"].result_list} == {by_args, by_error}
    assert "last errors of the first 4 rows" in page.content.decode()
    assert "The search has looked" not in client.get(TASKS).content.decode()


def test_a_search_ends_in_time(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    task(args=["needle"])
    monkeypatch.setattr(searching, "MAX_SECONDS", -1.0)
    assert rows_shown(client, f"{TASKS}?q=needle") == []


def test_arguments_and_short_ids_stand_in_lists(client: Client) -> None:
    one = task(args=["Order 7"], kwargs={"password": "x", "copies": 2})
    long = task(args=["z" * 3000])
    html = client.get(TASKS).content.decode()
    assert f"…{str(one)[-8:]}</span>" in html and f"{one}</span>" not in html
    assert f"/admin/txtasks/task/{one}/change/" in html
    assert "password=&quot;[redacted]&quot;" in html and "copies=2" in html
    assert html.count("(long)") == 1 and "zzz" not in html
    page = client.get(f"{TASKS}{long}/change/").content.decode()
    assert f"{long}</span>" in page and "zzz" in page


def test_numbers_that_are_older_than_the_rows_say_so(client: Client, monkeypatch: Any) -> None:
    monkeypatch.setattr(overview_room, "is_in_test_case", lambda alias: False)
    monkeypatch.setattr(overview_room, "_kept", {})
    monkeypatch.setattr(numbers, "MAX_AGE_SECONDS", 10_000.0)
    monkeypatch.setattr(overview_room, "READ_SECONDS", 1_000.0)
    assert "beside the filters" not in client.get(TASKS).content.decode()
    for key, kept in overview_room._kept.items():
        overview_room._kept[key] = kept._replace(read_at=kept.read_at - 2_000)
    html = client.get(TASKS).content.decode()
    assert "The numbers beside the filters are 33 min" in html


def test_filters_have_numbers_in_lists_of_live_tasks(client: Client) -> None:
    for _ in range(3):
        task(status=Status.DEAD, queue_name="mail", cause=1)
    task(status=Status.PENDING, cause=1)
    task(status=Status.PENDING, run_after=timezone.now() + timedelta(days=1))
    html = client.get(TASKS).content.decode()
    for label in ("dead (3)", "pending (2)", "retrying (1)", "held (0)", "claimed (0)"):
        assert label in html
    assert "default (2)" in html and "mail (3)" in html
    assert "mail (3)" in client.get(f"{TASKS}?state=dead").content.decode()
    assert "default (0)" in client.get(f"{TASKS}?state=claimed").content.decode()
    assert "mail (" not in client.get(FINISHED).content.decode()
