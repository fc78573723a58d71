"""Parts of pages that renew themselves, in a real Chromium: where that fails, the page says since when and why."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import helpers
import pytest
import scene
import test_browser
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone
from test_browser import (
    BODY,
    GLANCE,
    PHONE,
    POLICY,
    TASKS,
    Visitor,
    address,  # noqa: F401 -- fixtures
    browsing,
    chromium,  # noqa: F401
    full,  # noqa: F401
    serious,
    still,
    visit,  # noqa: F401
    waiting,
)
from test_stacks import answers, held_by, key_of, process  # noqa: F401

from django_txtasks import overview as overview_room
from django_txtasks.features.stacks.requests import request_stack
from django_txtasks.models import FinishedTask, Outcome, Task

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("rows")]

LINE = ".txtasks-not-renewed"
FOREIGN = "<!doctype html><title>Gate</title><main><h1>Foreign</h1></main>"
LOGIN = f"{FOREIGN}<form><input name=user><input type=password name=word></form>"
ANSWERS: dict[str, tuple[dict[str, Any], str]] = {
    "busy": ({"status": 503, "body": FOREIGN}, "the site answers with status 503."),
    "forbidden": ({"status": 403, "body": FOREIGN}, "the site answers with status 403."),
    "login of a proxy": ({"body": LOGIN}, "you are logged out. Load the page again, and log in."),
    "login with 401": ({"status": 401, "body": LOGIN}, "you are logged out."),
    "page of a proxy": ({"body": FOREIGN}, "another page has come in its place, from /admin/"),
    "empty": ({"body": ""}, "another page has come"),
    "JSON": ({"body": '{"detail": "<b>Foreign</b>"}', "content_type": "application/json"}, "another page"),
}  # fmt: skip
"""Answers that a proxy gives in place of the site, and the reason that the page names."""


def go(visitor: Visitor, path: str = GLANCE) -> Any:
    """Open a page whose time stands still."""
    return still(visitor.page) and visitor.go(path)


def until(page: Any, true: Callable[[], Any], *, hangs: bool = False) -> None:
    """Let the time of the page pass, one try after the other, until something is true."""
    seconds = page.locator("[data-txtasks-live]").get_attribute("data-seconds")
    is_asking: list[Any] = []
    ends = dict.fromkeys(("requestfinished", "requestfailed"), is_asking.remove)
    for event, note in {"request": is_asking.append, **ends}.items():
        page.on(event, lambda one, note=note: note(one) if "fragment" in one.url else None)

    def tried() -> bool:
        overview_room._kept.clear()
        page.clock.fast_forward(f"00:{seconds:0>2}")
        if not hangs:
            helpers.wait_until(lambda: page.evaluate("0") == len(is_asking))
        return bool(true())

    helpers.wait_until(tried)


def until_said(visitor: Visitor, reason: str, *, hangs: bool = False) -> None:
    """Let the time pass until the first line of the part names a reason; nothing foreign is on the page."""
    page, visitor.may_fail = visitor.page, True
    until(page, page.locator(LINE).count, hangs=hangs)
    (text,) = page.locator(LINE).all_inner_texts()
    assert re.fullmatch(rf"Not renewed since \d\d:\d\d: {re.escape(reason)}.*", text), text
    assert page.locator("[data-txtasks-live] > :first-child").inner_text() == text
    assert page.locator(".txtasks-stale").count() == 1
    assert page.get_by_text("Foreign").count() == 0


def until_renewed(page: Any, number: str = "3") -> None:
    until(page, lambda: waiting(page) == number)
    assert page.locator(f"{LINE}, .txtasks-stale").count() == 0


def is_grey(page: Any, selector: str) -> bool:
    return "grayscale(1)" in page.locator(selector).first.evaluate(
        "one => getComputedStyle(one).filter"
    )


def fail(page: Any, **answer: Any) -> None:
    page.route(
        "**/*fragment=*", lambda route: route.fulfill(**{"content_type": "text/html"} | answer)
    )


@pytest.mark.parametrize("name", ANSWERS)
def test_at_a_glance_says_what_came_in_its_place(visit, name):  # noqa: F811
    answer, reason = ANSWERS[name]
    visitor = visit()
    page = go(visitor)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    fail(page, **answer)
    scene.add(3)
    until_said(visitor, reason)
    assert len(asked) >= 2
    assert is_grey(page, ".txg-box") and waiting(page) == "0"
    page.unroute("**/*fragment=*")
    until_renewed(page)


def test_who_is_logged_out_is_told_so_and_the_page_goes_on_after_the_login(visit):  # noqa: F811
    visitor = visit()
    page = go(visitor)
    Session.objects.all().delete()
    scene.add(3)
    until_said(visitor, "you are logged out. Load the page again, and log in.")
    client = Client()
    client.force_login(User.objects.get())
    value = client.cookies["sessionid"].value
    page.context.add_cookies([{"name": "sessionid", "value": value, "url": visitor.address}])
    until_renewed(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_site_that_is_down_is_told_on_a_phone_too(visit, full, scheme):  # noqa: F811
    visitor = visit(viewport=PHONE, color_scheme=scheme)
    page = go(visitor)
    page.route("**/*fragment=*", lambda route: route.abort("connectionrefused"))
    until_said(visitor, "no answer has come.")
    assert not browsing.is_too_wide(page)
    assert serious(page, BODY) == []


def test_a_site_that_hangs_is_told(visit):  # noqa: F811
    visitor = visit()
    page = go(visitor)
    page.route("**/*fragment=*", lambda route: None)
    until_said(visitor, "the site has not answered in time.", hangs=True)
    page.unroute("**/*fragment=*")
    scene.add(3)
    until_renewed(page)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (f"{GLANCE}?fragment=1", "an old copy of the page has come"),
        (TASKS, "another page has come in its place"),
        (f"{GLANCE}?db=second&fragment=", "another page has come in its place"),
    ],
)
def test_an_old_copy_and_another_page_of_the_site_are_not_shown(
    visit,  # noqa: F811
    second_database,
    path,
    reason,
):
    visitor = visit()
    page = go(visitor)

    def answer(route: Any) -> None:
        number = route.request.url.rpartition("=")[2] if path.endswith("=") else ""
        route.fulfill(response=route.fetch(url=f"{visitor.address}{path}{number}"))

    page.route("**/*fragment=*", answer)
    scene.add(3)
    until_said(visitor, reason)
    assert waiting(page) == "0"


def test_a_policy_of_trusted_types_does_not_keep_the_page_from_its_renewal(visit, monkeypatch):  # noqa: F811
    strict = f"{POLICY}; require-trusted-types-for 'script'; trusted-types 'none'"
    monkeypatch.setattr(test_browser, "POLICY", strict)
    page = go(visit())
    scene.add(3)
    until_renewed(page)


def test_a_link_with_the_focus_keeps_the_page_as_it_is_and_the_page_says_so(visit):  # noqa: F811
    visitor = visit()
    page = go(visitor)
    link = page.locator(".txg-tiles a").first
    link.focus()
    scene.add(3)
    until_said(visitor, "a link or button of this page has the focus.")
    assert link.evaluate("one => one === document.activeElement")
    link.evaluate("one => one.blur()")
    until_renewed(page)


def test_a_tab_that_is_shown_again_is_renewed_at_once(visit):  # noqa: F811
    page = go(visit())
    page.evaluate("Object.defineProperty(document, 'hidden', {get: () => window.away})")
    page.evaluate("window.away = true")
    page.clock.fast_forward(3_600_000)
    scene.add(3)
    overview_room._kept.clear()
    page.evaluate("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")
    helpers.wait_until(lambda: waiting(page) == "3")


def test_the_page_is_renewed_in_a_language_that_is_read_from_right_to_left(visit, full, settings):  # noqa: F811
    settings.LANGUAGE_CODE = "ar"
    visitor = visit(viewport=PHONE)
    page = go(visitor)
    assert page.locator("html").get_attribute("dir") == "rtl"
    page.route("**/*fragment=*", lambda route: route.abort())
    until_said(visitor, "no answer has come.")
    assert not browsing.is_too_wide(page)


# -- the page of a task ----------------------------------------------------------------------------


def asked_for_stack(worker: Any) -> Any:
    handle = held_by(worker)
    request_stack(handle.id, by="ann")
    return handle


def asked_to_stop(worker: Any) -> Any:
    handle = held_by(worker)
    Task.objects.update(cancel_asked_at=timezone.now() + timedelta(hours=1))
    return handle


@pytest.mark.parametrize("order", [asked_for_stack, asked_to_stop])
def test_the_page_of_a_task_says_that_it_could_not_be_renewed(visit, process, order):  # noqa: F811
    visitor = visit()
    page = go(visitor, f"{TASKS}{order(process).id}/change/")
    fail(page, status=503, body=FOREIGN)
    until_said(visitor, "the site answers with status 503.")
    assert is_grey(page, "#content-main")
    page.unroute("**/*fragment=*")
    until(page, lambda: not page.locator(LINE).count())
    assert page.locator(".txtasks-stale").count() == 0


def test_the_page_of_a_task_shows_what_was_awaited(visit, process):  # noqa: F811
    handle = asked_for_stack(process)
    page = go(visit(), f"{TASKS}{handle.id}/change/")
    assert page.get_by_text("there is no answer yet").is_visible()
    answers.answer("default", process, key_of(handle), "in the loop")
    page.clock.fast_forward(2000)
    page.locator("[data-seconds='0']").get_by_text("in the loop").wait_for()


def test_the_page_of_a_task_leads_to_the_finished_task(visit, process):  # noqa: F811
    handle = asked_to_stop(process)
    page = go(visit(), f"{TASKS}{handle.id}/change/")
    Task.objects.all().delete()
    FinishedTask.objects.create(id=handle.id, task_name="a.b", outcome=Outcome.CANCELLED)
    page.clock.fast_forward(2000)
    page.wait_for_url(f"**/finishedtask/{handle.id}/change/")


def test_the_page_of_a_task_is_loaded_again_without_javascript(visit, process):  # noqa: F811
    handle = asked_for_stack(process)
    page = visit(java_script_enabled=False).go(f"{TASKS}{handle.id}/change/")
    answers.answer("default", process, key_of(handle), "in the loop")
    helpers.wait_until(lambda: page.get_by_text("in the loop").count())
