"""The admin in German: each page shows the texts of the German catalogue, and none of the English ones."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator
from datetime import timedelta
from functools import cache
from html.parser import HTMLParser
from io import StringIO
from typing import Any

import catalogue
import polib
import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.utils import timezone
from django.utils.translation import deactivate, get_language, override

from django_txtasks import overview as overview_room
from django_txtasks.admin import bulk, confirming
from django_txtasks.admin import shown as shown_values
from django_txtasks.core.ground.wording import in_english, span
from django_txtasks.models import (
    Batch,
    Cleaner,
    FinishedTask,
    Lane,
    OnCrash,
    Outcome,
    PausedQueue,
    Schedule,
    StackRequest,
    Stat,
    Status,
    Step,
    Task,
    Wait,
    Worker,
)
from django_txtasks.overview import overview

pytestmark = [pytest.mark.django_db, pytest.mark.once]
APP = "/admin/txtasks/"
LISTS = ("task", "finishedtask", "worker", "cleaner", "batch", "lane", "pausedqueue", "schedule")
KNOWN = "orders.tasks.send_receipt"
READ_ALOUD = ("title", "aria-label", "data-label", "placeholder", "value")
"""Attributes whose values people read or hear. ``value`` counts only where it is the text of a button."""


class Texts(HTMLParser):
    """The texts of a page, without its code and without values in ``pre``."""

    LEFT_OUT = ("script", "style", "pre", "textarea", "option")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self._within: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag in self.LEFT_OUT:
            self._within.append(tag)
        for name in READ_ALOUD:
            if named.get(name) and (name != "value" or named.get("type") == "submit"):
                self.handle_data(str(named[name]))

    def handle_endtag(self, tag: str) -> None:
        if self._within and self._within[-1] == tag:
            self._within.pop()

    def handle_data(self, data: str) -> None:
        text = re.sub(r"\s*\n\s*", " ", data.strip()).removesuffix(":")
        if not self._within and re.search(r"[A-Za-z]", text):
            self.found.append(text)


def pattern_of(text: str) -> re.Pattern[str]:
    """Return the pattern of a text whose placeholders stand for anything."""
    parts = re.split(r"%(?:\(\w+\))?[sd]", text.strip())
    escaped = (re.escape(part.replace("%%", "%")) for part in parts)
    return re.compile(".+?".join(escaped), re.IGNORECASE | re.DOTALL)


@cache
def english() -> tuple[tuple[re.Pattern[str], int], ...]:
    """Return the English texts that differ from their German ones, with their numbers of words."""
    found = []
    for entry in polib.pofile(str(catalogue.path_of("de"))):
        german = {entry.msgstr.lower(), *map(str.lower, entry.msgstr_plural.values())}
        for text in filter(None, (entry.msgid, entry.msgid_plural)):
            words = len(re.findall(r"[A-Za-z]{2,}", catalogue.PLACEHOLDER.sub("", text)))
            if words and text.lower() not in german:
                found.append((pattern_of(text), words))
    return tuple(found)


@cache
def is_english(text: str) -> bool:
    """Return True for a short English text, and for a text that has a long one within it."""
    return any(
        pattern.search(text) if words >= 4 else pattern.fullmatch(text)
        for pattern, words in english()
    )


def english_in(page: str) -> list[str]:
    return list(filter(is_english, Texts(page).found))


@pytest.fixture
def client(settings: Any) -> Iterator[Client]:
    """A superuser whose browser asks for German."""
    place = settings.MIDDLEWARE.index("django.middleware.common.CommonMiddleware")
    settings.MIDDLEWARE = [
        *settings.MIDDLEWARE[:place],
        "django.middleware.locale.LocaleMiddleware",
        *settings.MIDDLEWARE[place:],
    ]
    client = Client(HTTP_ACCEPT_LANGUAGE="de")
    client.force_login(User.objects.create(username="ada", is_staff=True, is_superuser=True))
    yield client
    deactivate()  # the middleware leaves the language of the last request active in this thread


def shown(client: Client, path: str, **form: Any) -> str:
    answer = client.post(APP + path, form) if form else client.get(APP + path)
    assert answer.status_code == 200, path
    return answer.content.decode()


@pytest.fixture
def rows(txtasks: Any) -> list[str]:
    """Rows in all states; return the addresses of their pages."""
    txtasks(
        lanes={
            "api": {"at_most": 1, "rate": "100/h", "burst": 2, "weight": 2},
            "b": {"rate": "1/h"},
        }
    )
    now = timezone.now()
    long_ago = now - timedelta(hours=3)
    living, silent, *_ = (
        Worker.objects.create(
            id=uuid.uuid4(), host="web", pid=number, queues=["default"], threads=1, running=1, lease=60.0,
            task_names=["other"], release=f"r{number}", listening=False, **columns,
        )
        for number, columns in enumerate(
            ({}, {"seen_at": long_ago}, {"lost": True}, {"suspected_at": now}), 1
        )
    )  # fmt: skip
    for number, columns in enumerate(
        ({"passed_at": now}, {"seen_at": long_ago}, {"started_at": long_ago, "error": "X42"})
    ):
        Cleaner.objects.create(
            id=uuid.uuid4(), host="web", pid=number, lease=9.0, interval=2.5, **columns
        )
    Cleaner.objects.create(id=uuid.uuid4(), host="web", pid=9, lease=9.0, passed_at=now)
    PausedQueue.objects.create(pk="mail", paused_by="bob", reason="X42")
    Lane.objects.create(name="api", tokens=0.0)
    Lane.objects.create(name="b", tokens=0.0, served_at=now)
    Lane.objects.create(name="c", paused_at=now, paused_by="bob", reason="X42")
    batch = Batch.objects.create(id=uuid.uuid4(), opened_by=uuid.uuid4())
    Batch.objects.create(id=uuid.uuid4(), finished_at=now, failed=True)
    Batch.objects.create(id=uuid.uuid4(), finished_at=now, failed=False)
    error = {
        "attempt": 1, "at": "2026-11-27", "worker": str(living.pk), "type": "X42", "message": "X42",
        "traceback": "X42", "log": "X42", "class": "shop.X42",
    }  # fmt: skip
    claim = {"status": Status.CLAIMED, "worker": living.pk, "claimed_at": now, "attempt": 2}
    failed = {"failures": 1, "attempt": 1, "cause": 7, "errors": [error]}
    tasks = [
        {}, {"queue_name": "mail"}, {"queue_name": "mail", "run_after": long_ago},
        {"run_after": now + timedelta(days=3)}, {"lane": "api"}, {"lane": "b"}, {"lane": "c"}, {"lane": "d"},
        {"task_name": "weg.x"}, {"expires_at": long_ago}, {"attempt": 2_147_483_647},
        {"run_after": now + timedelta(hours=1), **failed},
        {"status": Status.HELD, "unique_key": uuid.uuid4(), "unique_text": "k", "timeout": 3.5},
        {"status": Status.DEAD, "batch": batch.pk, "priority": 5, "snoozes": 2, **failed},
        {"status": Status.DEAD, "crashes": 1, "on_crash": OnCrash.COMPENSATE, "attempt": 1},
        {"lane": "api", "started_at": long_ago, "batch": batch.pk, **claim},
        {"cancel_asked_at": now - timedelta(minutes=5), "timeout": 60.0, "started_at": long_ago, **claim},
        {**claim, "worker": silent.pk}, {**claim, "worker": uuid.uuid4()},
        {"late_finishes": [{"attempt": 1, "abandoned_at": "1", "finished_at": "2"}], "hooks": {"on_success": {
            "task_name": KNOWN}}},
    ]  # fmt: skip
    made = [Task.objects.create(**{"id": uuid.uuid4(), "task_name": KNOWN} | one) for one in tasks]
    Task.objects.bulk_create(
        Task(id=uuid.uuid4(), task_name=KNOWN, status=Status.DEAD, **failed) for _ in range(25)
    )
    asked = Task.objects.filter(status=Status.CLAIMED).first()
    assert asked is not None
    StackRequest.objects.create(
        task_id=asked.pk, attempt=2, worker=asked.worker, asked_at=long_ago, asked_by="bob"
    )
    Step.objects.create(task_id=made[0].pk, name="s1", value="1", attempt=1, done_at=now)
    Wait.objects.create(task_id=made[3].pk, name="w1", is_sleep=False)
    done = [
        FinishedTask.objects.create(
            id=uuid.uuid4(), task_name=KNOWN, outcome=outcome, attempt=1, started_at=long_ago,
            merged_into=made[0].pk if outcome == Outcome.MERGED else None,
        )
        for outcome in Outcome.values
    ]  # fmt: skip
    for number, columns in enumerate(
        (
            {
                "next_at": long_ago,
                "last_task": done[0].pk,
                "last_at": long_ago,
                "cron": "0 3 * * *",
            },
            {"every": 1.5, "enabled": False, "last_task": uuid.uuid4(), "last_at": long_ago},
            {"every": 60.0, "task_name": "gone.x", "from_code": True, "edited": True},
            {"every": 60.0, "error": "X42", "last_task": made[0].pk, "last_at": now},
        )
    ):
        Schedule.objects.create(**{"name": f"s{number}", "task_name": KNOWN} | columns)
    begin = now.replace(second=0, microsecond=0) - timedelta(minutes=5)
    for width in (60, 600, 3600, 86_400, 0):
        Stat.objects.create(
            width=width, starts_at=begin, queue_name="default", task_name="" if width == 60 else KNOWN,
            succeeded=1500, failed=3, died=2, run_ms=90_000, wait="3:12", run="3:12", due=4, oldest=9.0,
        )  # fmt: skip
    others = (Worker, Cleaner, Batch, Lane, PausedQueue, Schedule)
    shown_rows = [*made, *done, *(row for model in others for row in model._default_manager.all())]
    return [f"{row._meta.model_name}/{row.pk}/change/" for row in shown_rows]


def pages(client: Client, rows: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each page with its address."""
    yield "index", client.get("/admin/").content.decode()
    for path in (
        "",
        "overview/",
        *(f"{name}/" for name in LISTS),
        "schedule/add/",
        "pausedqueue/add/",
    ):
        yield path, shown(client, path)
    for path in (
        "state=retrying",
        "state=dead",
        "cause=7",
        "state=pending&queue=default",
        "due=later",
    ):
        yield path, shown(client, f"task/?{path}")
    for path in rows:
        yield path, shown(client, path)
    for name in ("cancel", "discard", "ask_to_stop"):
        ids = [str(one.pk) for one in Task.objects.all()[:20]]
        yield name, shown(client, "task/", action=name, index="0", _selected_action=ids)


def test_the_page_about_many_tasks_and_its_messages_are_german(client, rows, monkeypatch):
    for room in (confirming, bulk):
        monkeypatch.setattr(room, "MAX_IN_REQUEST", 4)
    ids = [str(one.pk) for one in Task.objects.filter(status=Status.DEAD)[:1]]
    form = {"action": "discard", "index": "0", "select_across": "1", "_selected_action": ids}
    page = shown(client, "task/?state=dead", **form)
    assert "Keine davon" in page or "Aufgaben passen" in page
    assert english_in(page) == []
    answer = client.post(f"{APP}task/?state=dead", {**form, "way": "hand"}, follow=True)
    assert "4 Aufgaben verworfen." in answer.text
    assert english_in(answer.text) == []


def test_an_empty_site_shows_no_english_text(client):
    for path in ("overview/", *(f"{name}/" for name in LISTS)):
        assert english_in(shown(client, path)) == [], path


def test_no_page_shows_an_english_text(client, rows):
    found = {path: english_in(page) for path, page in pages(client, rows)}
    assert {path: texts for path, texts in found.items() if texts} == {}


def test_numbers_times_and_spans_follow_the_language(client, rows):
    page = shown(client, "overview/")
    assert "in einer Minute: 1.500" in page or "in einer Minute: 1.505" in page
    assert re.search(r"[Ss]eit 3\xa0Std\.", page)
    moment = timezone.now()
    assert f"{moment:%d.%m.%Y}, " in shown(client, "task/")
    with override("de"):
        assert span(timedelta(hours=2, minutes=5)) == "2\xa0Std. 5\xa0Min."
        assert shown_values.short_span(timedelta(seconds=0.025)) == "0,025\xa0Sek."
        assert shown_values.percent(0.5) == "50\xa0%"
        with in_english():
            assert span(timedelta(days=1, hours=2)) == "1 d 2 h"


def test_each_reader_gets_an_overview_in_the_own_language(rows, monkeypatch):
    monkeypatch.setattr(overview_room, "is_in_test_case", lambda alias: False)
    monkeypatch.setattr(overview_room, "_kept", {})
    said = {}
    for language in ("de", "en", "de"):
        with override(language):
            said[language] = {one.text for one in overview().problems}
    assert len(said["de"]) == len(said["en"]) > 3
    assert said["de"].isdisjoint(said["en"])


def test_commands_speak_english_whatever_the_language_is(rows):
    said = {}
    for language in ("de", "en"):
        out = StringIO()
        with override(language):
            call_command("txtasks_explain", str(Task.objects.latest("pk").pk), stdout=out)
            call_command("txtasks_lane", "list", stdout=out)
            assert get_language() == language
        said[language] = re.sub(r"\d", "0", out.getvalue())
    assert said["de"] == said["en"]
