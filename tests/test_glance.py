"""The admin's page *At a glance*: shown to whoever may view tasks, escaped, with buttons by permission."""

from __future__ import annotations

import re
import uuid
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest
from django.contrib.admin import AdminSite
from django.contrib.admin import site as default_site
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.test.utils import override_settings
from django.urls import path
from django.utils import timezone

from django_txtasks import overview as overview_room
from django_txtasks.admin.glance import figures, processes
from django_txtasks.admin.lists import FinishedTaskAdmin
from django_txtasks.admin.overview import OverviewAdmin
from django_txtasks.features.figures import histogram
from django_txtasks.models import (
    FinishedTask,
    Lane,
    Overview,
    PausedQueue,
    Schedule,
    Stat,
    Status,
    Task,
    Worker,
)
from django_txtasks.overview import gathering

pytestmark = pytest.mark.django_db

PAGE = "/admin/txtasks/overview/"
MARKUP = "<script>alert(1)</script>"
KNOWN = "orders.tasks.send_receipt"


@pytest.fixture
def client() -> Client:
    return signed_in(is_superuser=True)


def signed_in(*permissions: str, **columns: Any) -> Client:
    user = User.objects.create(username="ada", is_staff=True, **columns)
    user.user_permissions.set(
        Permission.objects.filter(content_type__app_label="txtasks", codename__in=permissions)
    )
    client = Client()
    client.force_login(user)
    return client


def task(**columns: Any) -> Task:
    return Task.objects.create(**{"id": uuid.uuid4(), "task_name": KNOWN} | columns)


def page(client: Client, query: str = "") -> str:
    answer = client.get(PAGE + query)
    assert answer.status_code == 200
    return answer.content.decode()


def test_it_is_the_first_page_of_the_app(client):
    answer = client.get("/admin/").content.decode()
    pages = re.findall(r'href="/admin/txtasks/(\w+)/"', answer)
    assert pages[0] == "overview"


@pytest.mark.parametrize(
    "name",
    ["task", "finishedtask", "worker", "cleaner", "batch", "lane", "pausedqueue", "schedule"],
)
def test_each_list_has_a_link_to_it(client, name):
    assert (
        f'<a href="{PAGE}">At a glance</a>'
        in client.get(f"/admin/txtasks/{name}/").content.decode()
    )


def test_a_list_has_no_link_for_who_may_not_view_tasks():
    client = signed_in("view_worker")
    assert PAGE not in client.get("/admin/txtasks/worker/").content.decode()


def test_an_empty_site(client):
    text = page(client)
    assert "No worker is alive" in text
    assert "No task is running." in text


def test_numbers_lead_to_their_lists(client):
    task(status=Status.DEAD)
    text = page(client)
    links = re.findall(r'href="(/admin/txtasks/task/\?[^"]*)"', text)
    assert any("state=dead" in link for link in links)
    for link in {link.replace("&amp;", "&") for link in links}:
        assert client.get(link).status_code == 200


def test_a_queue_that_is_behind_leads_to_its_due_tasks(client):
    queues, names = ["default"], [KNOWN]
    Worker.objects.create(
        id=uuid.uuid4(), host="x", pid=1, queues=queues, task_names=names, threads=1, lease=15
    )
    task(run_after=timezone.now() - timedelta(hours=1))
    text = page(client)
    assert "Queue default is behind" in text
    assert 'class="txg-act" href="/admin/txtasks/task/?due=due&amp;queue=default"' in text


def test_foreign_text_is_escaped(client, txtasks):
    worker = Worker.objects.create(
        id=uuid.uuid4(), host=MARKUP, pid=1, queues=[MARKUP], threads=1, lease=15.0, release=MARKUP
    )
    task(
        task_name=MARKUP, queue_name=MARKUP, status=Status.CLAIMED, worker=worker.pk,
        claimed_at=timezone.now(), args=[MARKUP], kwargs={MARKUP: MARKUP},
    )  # fmt: skip
    task(queue_name=MARKUP, task_name=MARKUP)
    PausedQueue.objects.create(pk=MARKUP, paused_by=MARKUP, reason=MARKUP)
    text = page(client)
    assert MARKUP not in text
    assert "&lt;script&gt;" in text


def test_arguments_are_short_and_without_secrets(client):
    worker = Worker.objects.create(
        id=uuid.uuid4(), host="a", pid=1, queues=["default"], threads=1, lease=15.0
    )
    task(
        status=Status.CLAIMED, worker=worker.pk, claimed_at=timezone.now(), args=[1288],
        kwargs={"token": "s3cret", "text": "x" * 500},
    )  # fmt: skip
    text = page(client)
    assert "1288" in text
    assert "s3cret" not in text
    assert "x" * (processes.MOST_ARGUMENT_CHARACTERS + 1) not in text


def test_a_button_pauses_and_resumes_a_queue_and_is_logged(client):
    assert 'name="pause" value="default"' in page(client)
    assert client.post(PAGE, {"pause": "default"}).status_code == 302
    assert PausedQueue.objects.get().paused_by == "ada"
    assert 'name="resume" value="default"' in page(client)
    assert client.post(PAGE, {"resume": "default"}).status_code == 302
    assert not PausedQueue.objects.exists()
    assert [one.object_id for one in LogEntry.objects.all()] == ["default", "default"]


def test_a_second_click_changes_and_logs_nothing(client):
    client.post(PAGE, {"resume": "default"})
    client.post(PAGE, {"pause": "default"})
    client.post(PAGE, {"pause": "default"})
    assert LogEntry.objects.count() == 1


@pytest.mark.parametrize(
    ("form", "status"), [({"pause": "nowhere"}, 400), ({}, 400), ({"resume": "a\0b"}, 302)]
)
def test_a_wrong_form_changes_nothing(client, form, status):
    assert client.post(PAGE, form).status_code == status
    assert not PausedQueue.objects.exists()


def test_who_may_only_view_tasks_gets_no_buttons():
    PausedQueue.objects.create(pk="default")
    task()
    client = signed_in("view_task")
    text = page(client)
    assert "<form method=" not in text.partition('id="txtasks-glance"')[2].partition("</main>")[0]
    assert client.post(PAGE, {"resume": "default"}).status_code == 403
    assert client.post(PAGE, {"pause": "default"}).status_code == 403
    assert PausedQueue.objects.exists()


def test_who_may_not_view_tasks_does_not_see_the_page():
    client = signed_in("view_worker")
    assert client.get(PAGE).status_code == 403
    assert "overview" not in client.get("/admin/").content.decode()


def test_the_fragment_is_the_body_alone(client):
    text = page(client, "?fragment=1")
    assert "<html" not in text
    assert "txg-queues" in text


def test_neither_style_nor_script_stands_in_the_page(client):
    """A policy of contents that allows only files of the site blocks nothing."""
    text = page(client, "?fragment=1")
    assert "style=" not in text
    assert "<style" not in text + page(client).partition("txtasks-glance")[2]
    assert "<script" not in text


def test_a_database_that_does_not_exist(client):
    assert client.get(PAGE + "?db=nowhere").status_code == 400


def test_no_row_can_be_opened(client):
    found = task()
    assert client.get(f"{PAGE}{found.pk}/change/").status_code == 302


def test_a_database_that_does_not_answer_is_named(client, monkeypatch):
    from django.db import OperationalError

    def fail(*_: Any) -> Any:
        raise OperationalError("the server is gone")

    monkeypatch.setattr(overview_room, "gather", fail)
    assert "the server is gone" in page(client)


def test_the_last_hour_is_a_chart_with_a_sentence_for_who_does_not_see_it(client):
    start = timezone.now().replace(second=0, microsecond=0) - timedelta(minutes=2)
    Stat.objects.create(
        width=60, starts_at=start, queue_name="default", succeeded=1200, failed=3, due=7
    )
    text = page(client)
    assert "In the last hour 1200 attempts succeeded and 3 failed." in text.replace(",", "")
    assert 'class="txg-bar-good" d="M' in text


@pytest.mark.parametrize(
    ("query", "title"),
    [("", "Last hour"), ("?span=day", "Last day"), ("?span=month", "Last 31 days"), ("?span=no", "Last hour")],
)  # fmt: skip
def test_the_time_of_the_chart_is_chosen(client, query, title):
    text = page(client, query)
    heading = text.partition('<h2 id="txg-hour">')[2].partition("</h2>")[0]
    assert heading.startswith(title)
    assert re.findall(r'href="\?span=(\w+)"', heading) == [
        name for name in figures.SPANS if figures.SPANS[name].title != title
    ]


def test_the_choice_of_a_time_keeps_the_database(client):
    assert 'href="?span=day&amp;db=default"' in page(client, "?db=default")


def test_labels_of_releases_do_not_cover_each_other():
    places = [
        ("old", 10.0),
        ("much older than others", 40.0),
        ("b", 50.0),
        ("c", 51.0),
        ("d", 52.0),
        ("e", 99.0),
    ]
    marks = [figures._mark(10 * place, 1000, name) for name, place in places]  # fmt: skip
    rows = figures._in_rows(marks)
    assert [[mark.label.removeprefix("release ") for mark in row] for row in rows] == [
        ["e", "d", "old"],
        ["c"],
        ["b"],
    ]


def test_a_task_that_was_asked_to_stop_says_so_and_leads_to_its_page(client):
    worker = Worker.objects.create(
        id=uuid.uuid4(), host="a", pid=1, queues=["default"], threads=1, lease=15.0
    )
    since, now = timezone.now() - timedelta(hours=2), timezone.now()
    one = task(
        status=Status.CLAIMED, worker=worker.pk, claimed_at=since, started_at=since, cancel_asked_at=now
    )  # fmt: skip
    text = page(client)
    assert "after it was asked to stop" in text
    assert f'class="txg-act" href="/admin/txtasks/task/{one.pk}/change/">Look at this task' in text
    assert re.search(r"<small>[^<]* · asked to stop at 20[^<]*</small>", text)


def test_waiting_tasks_behind_the_last_bucket_are_said(client, monkeypatch):
    assert "than these numbers say" not in page(client)
    monkeypatch.setattr(gathering, "MOST_BUCKETS", 1)
    task()
    assert "There are more waiting tasks than these numbers say" in page(client)


def test_functions_say_how_late_their_figures_are(client):
    start = timezone.now().replace(minute=0, second=0, microsecond=0)
    Stat.objects.create(
        width=600, starts_at=start, queue_name="default", task_name=KNOWN, succeeded=1
    )
    assert "a worker reports every 15 s" in page(client)


def test_a_time_above_the_last_bound_is_shown_as_more_than_that_bound(client):
    start = timezone.now().replace(minute=0, second=0, microsecond=0)
    run = histogram.text_of([0] * 26 + [4])
    Stat.objects.create(
        width=600, starts_at=start, queue_name="default", task_name=KNOWN, succeeded=4, run=run
    )
    text = page(client)
    assert text.count("&gt; 5 min 35 s") + text.count("> 5 min 35 s") == 2
    assert "≤ 5 min" not in text


def test_without_counts_the_page_has_no_chart(client, txtasks):
    txtasks(stats=False)
    assert "<svg" not in page(client, "?fragment=1")


def test_what_fails_is_shown_by_cause(client):
    error = {"class": f"a.{MARKUP}", "type": "Gone", "message": MARKUP}
    for _ in range(21):
        task(status=Status.DEAD, cause=7, errors=[error], task_name=MARKUP)
    text = page(client)
    assert "What fails" in text
    assert MARKUP not in text
    assert "cause=7" in text


def test_pause_is_offered_only_for_queues_of_the_settings(client):
    task(queue_name="foreign")
    text = page(client)
    assert 'name="pause" value="default"' in text
    assert 'name="pause" value="foreign"' not in text
    PausedQueue.objects.create(pk="foreign")
    assert 'name="resume" value="foreign"' in page(client)


def test_queues_that_are_left_out_are_said(client, monkeypatch):
    monkeypatch.setattr(gathering, "MOST_QUEUES", 1)
    for name in ("a", "b"):
        task(queue_name=name)
    assert "3 more queues are not shown." in page(client)


@pytest.mark.parametrize("name", ["a/b", "a_5Fb", "a b?c#d", "é", "x;y&z"])
def test_the_name_of_a_lane_leads_to_its_page(client, name, txtasks):
    txtasks(lanes={"other": {"at_most": 1}})
    Lane.objects.create(pk=name, paused_at=timezone.now())
    task(lane=name)
    found = re.search(r'href="(/admin/txtasks/lane/[^"]+/change/)"', page(client))
    assert client.get(found[1].replace("&amp;", "&")).status_code == 200


@pytest.fixture
def narrow_site(monkeypatch):
    """An admin site that has only this page and finished tasks."""
    site = AdminSite("ops")
    site.register(Overview, OverviewAdmin)
    site.register(FinishedTask, FinishedTaskAdmin)
    urls = ModuleType("urls_of_a_narrow_site")
    urls.urlpatterns = [path("ops/", site.urls), path("admin/", default_site.urls)]
    with override_settings(ROOT_URLCONF=urls):
        yield


def test_a_site_with_few_pages_has_few_links(client, narrow_site):
    worker = Worker.objects.create(
        id=uuid.uuid4(), host="a", pid=1, queues=["default"], threads=1, lease=15
    )
    task(status=Status.CLAIMED, worker=worker.pk, claimed_at=timezone.now())
    task(status=Status.DEAD, cause=7)
    Schedule.objects.create(name="gone", task_name="gone.tasks.run", every=60.0)
    done = FinishedTask.objects.create(
        id=uuid.uuid4(), task_name=KNOWN, outcome="discarded", worker=worker.pk
    )
    text = client.get("/ops/txtasks/overview/").content.decode()
    assert KNOWN in text
    assert "/admin/txtasks" not in text
    assert 'href=""' not in text
    assert client.get("/ops/txtasks/finishedtask/").status_code == 200
    assert client.get(f"/ops/txtasks/finishedtask/{done.pk}/change/").status_code == 200


def test_workers_that_no_hint_reaches_are_a_click_away(client):
    Worker.objects.create(
        id=uuid.uuid4(), host="x", pid=1, queues=["default"], task_names=[KNOWN], threads=1, lease=15,
        listening=False, started_at=timezone.now() - timedelta(hours=1),
    )  # fmt: skip
    text = page(client)
    assert "Hints reach none of the workers" in text
    assert 'class="txg-act" href="/admin/txtasks/worker/">Look at the workers' in text


def test_a_task_that_fills_its_lane_is_a_click_away(client, txtasks):
    txtasks(lanes={"printer": {"at_most": 1}})
    hangs = task(
        status=Status.CLAIMED, worker=uuid.uuid4(), claimed_at=timezone.now(), lane="printer"
    )
    task(lane="printer")
    assert f'class="txg-act" href="/admin/txtasks/task/{hangs.pk}/change/">' in page(client)


def test_when_a_queue_is_empty_is_not_known_in_the_first_minute(client):
    Worker.objects.create(
        id=uuid.uuid4(),
        host="x",
        pid=1,
        queues=["default"],
        task_names=[KNOWN],
        threads=1,
        lease=15,
    )
    task()
    assert "not known yet" in page(client)
    Task.objects.update(run_after=timezone.now() - timedelta(hours=1))
    assert ">never<" in page(client)
