"""The admin in a real Chromium: what a person sees, clicks and types, under a strict Content-Security-Policy."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import browsing
import helpers
import pytest
import scene
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.utils import timezone
from reviving import Reviver

from django_txtasks import overview as overview_room
from django_txtasks.admin import bulk, confirming
from django_txtasks.admin.overview import REFRESH_SECONDS
from django_txtasks.features.bulk import NAME
from django_txtasks.models import FinishedTask, Outcome, PausedQueue, Status, Task, Worker

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("rows")]
axe = pytest.importorskip("axe_playwright_python.sync_playwright")

GLANCE = "/admin/txtasks/overview/"
TASKS = "/admin/txtasks/task/"
BODY = "#txtasks-glance"
PHONE, LAPTOP = {"width": 390, "height": 844}, {"width": 1200, "height": 800}
POLICY = "default-src 'self'"
HURT = "<img src=x onerror='window.hurt=1'><script>window.hurt=1</script>"
VIEW = ("view_task", "view_finishedtask", "view_worker")
TITLES = {"en": "Tasks at a glance", "de": "Aufgaben auf einen Blick"}
BLOCK_STORAGE = """
    Object.defineProperty(window, "localStorage", {get() { throw new DOMException("blocked", "SecurityError") }});
"""


class Policy:
    """Middleware: the pages may use files of the site alone."""

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        self.get_response = get_response

    def __call__(self, request: Any) -> Any:
        response = self.get_response(request)
        response["Content-Security-Policy"] = POLICY
        return response


class Visitor:
    """A person with a browser.

    Attributes:
        address: that of the site.
        complaints: messages of the browser about errors and violations of the policy.
        may_fail: True = complaints that a request has failed are expected.
    """

    may_fail = False

    def __init__(self, context: Any, address: str) -> None:
        self.page = context.new_page()
        self.complaints = browsing.complaints_of(self.page)
        self.address = address
        self.page.set_default_timeout(1000 * browsing.MOST_SECONDS)

    def go(self, path: str = GLANCE) -> Any:
        """Open a page and return it. The counts of an earlier page are forgotten."""
        overview_room._kept.clear()
        self.page.goto(self.address + path)
        return self.page

    def renew(self) -> None:
        """Let the time pass until the page renews itself; return when it has."""
        overview_room._kept.clear()
        with self.page.expect_response(re.compile("fragment=1")):
            self.page.clock.fast_forward(1000 * REFRESH_SECONDS)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """One Chromium for this file, not for all: Playwright keeps an event loop in this thread."""
    with pytest.MonkeyPatch.context() as patch, browsing.browser() as started:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        yield started


@pytest.fixture
def address(rows: None, settings: Any) -> Iterator[str]:
    settings.MIDDLEWARE = [f"{__name__}.Policy", *settings.MIDDLEWARE]
    with browsing.server() as address:
        yield address


@pytest.fixture
def visit(chromium: Any, address: str, person: Any) -> Iterator[Callable[..., Visitor]]:
    """Return a function that opens a browser for a user: ``visit("view_task", viewport=PHONE)``.

    Without names of permissions it is a superuser. At the end no page may have complained.
    """
    contexts, visitors = [], []

    def open_browser(*permissions: str, **options: Any) -> Visitor:
        person(*permissions)
        User.objects.update(is_superuser=not permissions)
        client = Client()
        client.force_login(User.objects.get())
        session = client.cookies["sessionid"].value
        contexts.append(chromium.new_context(**{"viewport": LAPTOP} | options))
        contexts[-1].add_cookies([{"name": "sessionid", "value": session, "url": address}])
        visitors.append(Visitor(contexts[-1], address))
        return visitors[-1]

    yield open_browser
    for context in contexts:
        context.close()
    for visitor in visitors:
        failed = "Failed to load resource:" if visitor.may_fail else "no complaint"
        assert [one for one in visitor.complaints if not one.startswith(failed)] == []


@pytest.fixture
def full() -> None:
    scene.fill()


def serious(page: Any, part: str, without: str = "nothing") -> list[str]:
    """Return what axe finds in a part of the page, and rates serious or critical."""
    parts = {"include": [[part]], "exclude": [[without]]}
    found = axe.Axe().run(page, parts).response["violations"]
    return [
        f"{one['id']}: {node['html'][:200]} {node['failureSummary']}"
        for one in found
        for node in one["nodes"]
        if one["impact"] in ("serious", "critical")
    ]


# -- the page at a glance -------------------------------------------------------------------------


@pytest.mark.parametrize("viewport", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_an_empty_site_says_so(visit, viewport):
    page = visit(viewport=viewport).go()
    assert page.get_by_text("No worker is alive").is_visible()
    assert page.get_by_text("No task is running.").is_visible()
    assert not browsing.is_too_wide(page)
    assert serious(page, BODY) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_a_full_site_is_readable_and_in_reach(visit, full, viewport, scheme):
    page = visit(viewport=viewport, color_scheme=scheme).go()
    for part in ("Queues", "What fails", "Running now", "Workers", "Functions", "Lanes"):
        assert page.get_by_role("heading", name=re.compile(f"^{part}")).is_visible()
    assert page.locator(".txg-problems li").count() >= 6
    assert not browsing.is_too_wide(page)
    assert page.locator(BODY).evaluate(browsing.UNREACHABLE) == []
    assert serious(page, BODY) == []


@pytest.mark.parametrize(("scheme", "is_dark"), [("light", False), ("dark", True)])
def test_the_page_is_dark_where_the_person_wants_it(visit, full, scheme, is_dark):
    page = visit(color_scheme=scheme).go()
    colour = page.locator(".txg-box").first.evaluate("one => getComputedStyle(one).backgroundColor")
    red, green, blue = (int(part) for part in re.findall(r"\d+", colour)[:3])
    assert (red + green + blue < 3 * 80) is is_dark


@pytest.mark.parametrize("language", TITLES)
def test_a_phone_is_wide_enough_for_each_language(visit, full, settings, language):
    settings.LANGUAGE_CODE = language
    page = visit(viewport=PHONE).go()
    assert page.get_by_role("heading", name=TITLES[language]).is_visible()
    assert not browsing.is_too_wide(page)
    assert page.locator(BODY).evaluate(browsing.UNREACHABLE) == []


def test_foreign_texts_are_shown_as_text_and_stretch_nothing(visit):
    name, long = HURT[:100], "x" * 10_000
    worker = scene.worker(HURT + long[:100], 1, [name, "default"], release=HURT[:100])
    columns = {"task_name": HURT, "queue_name": name, "args": [HURT, long], "kwargs": {HURT: long}}
    now = timezone.now()
    scene.add(status=Status.CLAIMED, worker=worker.pk, claimed_at=now, started_at=now, **columns)
    scene.add(2, **columns | {"task_name": long[:200]})
    errors = [scene.error(long, HURT + long)]
    dead = scene.add(25, status=Status.DEAD, cause=5, errors=errors, **columns)
    PausedQueue.objects.create(pk=name, paused_by=HURT[:150], reason=long[:200])
    visitor = visit(viewport=PHONE)
    for path in (GLANCE, f"{TASKS}?cause=5", f"{TASKS}{dead[0].pk}/change/"):
        page = visitor.go(path)
        assert page.evaluate("window.hurt") is None
        assert page.get_by_text("<img src=x").first.is_visible()
        assert not browsing.is_too_wide(page)


@pytest.mark.parametrize("width", [1100, 1200, 1280])
def test_no_column_of_the_list_of_tasks_is_cut_in_a_narrow_window(visit, full, width):
    page = visit(viewport={"width": width, "height": 800}).go(TASKS)
    assert page.locator("#result_list thead th.column-enqueued").is_visible()
    assert page.evaluate(CUT) == []


CUT = """
    () => [...document.querySelectorAll("#result_list :is(thead th, .field-state, .field-enqueued)")]
        .filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.innerText)
"""
"""Headings, states and times of a list that are cut: a script for ``evaluate``."""


WIDTHS = (390, 1024, 1100, 1280, 1440, 1600)
TELLING = """
    () => [...document.querySelectorAll("#result_list :is(td, th):not(.field-last_error)")]
        .flatMap(one => [one, ...one.querySelectorAll("*")])
        .filter(one => one.clientWidth && one.scrollWidth > one.clientWidth + 1)
        .map(one => `${one.className}: ${one.innerText}`)
"""
"""Parts of a list that are cut, but for the last error: a script for ``evaluate``."""
SHOWN = {
    "task": ("name", "state", "call", "queue", "due", "enqueued"),
    "finishedtask": ("name", "ending", "call", "queue", "finished", "took"),
}


@pytest.mark.parametrize("language", ["en", "de", "ar"])
@pytest.mark.parametrize("table", SHOWN)
def test_nothing_that_tells_rows_apart_is_cut_in_a_list_of_tasks(
    visit, full, settings, table, language
):
    """With and without the side bar and the filters, in both directions of reading."""
    settings.LANGUAGE_CODE = language
    long = {
        "task_name": "enemy.of.the.state.tasks.send_the_invoice_to_the_customer",
        "queue_name": "long" * 8,
    }
    scene.add(3, status=Status.DEAD, args=["visa " * 20], **long)
    FinishedTask.objects.create(
        id=uuid.uuid4(), outcome=Outcome.SUCCEEDED, started_at=timezone.now(), **long
    )
    page = visit().go(f"/admin/txtasks/{table}/")
    for without in ("", "#toggle-nav-sidebar", "#changelist-filter"):
        if without == "#toggle-nav-sidebar":
            page.locator(without).click()
        elif without:
            page.locator(without).evaluate("one => one.remove()")
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate(TELLING) == [], (without, width)
            assert not browsing.is_too_wide(page), (without, width)
            for column in SHOWN[table]:
                assert page.locator(f"#result_list .field-{column}").first.is_visible(), (
                    width,
                    column,
                )


def test_a_list_of_tasks_begins_with_the_function(visit, full):
    page = visit(viewport=PHONE, color_scheme="dark").go(TASKS)
    cell = page.locator("#result_list .field-name").filter(has_text="charge_card").first
    assert re.fullmatch(r"charge_card\s+orders\.tasks\s+…[0-9a-f]{8}", cell.inner_text().strip())
    assert serious(page, "#result_list") == []


@pytest.mark.parametrize("table", ["schedule", "worker", "lane", "cleaner", "pausedqueue"])
def test_nothing_is_cut_in_the_other_lists(visit, full, table):
    page = visit().go(f"/admin/txtasks/{table}/")
    for width in WIDTHS[1:]:
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate(TELLING) == [], width


@pytest.mark.parametrize("name", ["hour", "day", "month"])
def test_the_chart_of_each_time_is_readable_and_in_reach(visit, full, name):
    visitor = visit(viewport=PHONE)
    page = visitor.go(f"{GLANCE}?span={name}")
    assert page.locator("#txg-hour b").inner_text() == name
    assert not browsing.is_too_wide(page)
    assert page.locator(BODY).evaluate(browsing.UNREACHABLE) == []
    assert serious(page, BODY) == []


# -- people ---------------------------------------------------------------------------------------


def test_who_may_not_view_tasks_is_turned_away(visit, full):
    visitor = visit("view_worker")
    page = visitor.go("/admin/")
    assert page.get_by_role("link", name="Workers").is_visible()
    assert page.locator(f'a[href="{GLANCE}"]').count() == 0
    with page.expect_response(re.compile("overview")) as answer:
        visitor.go()
    assert answer.value.status == 403
    visitor.complaints.clear()  # the browser reports the 403


def test_who_may_only_view_tasks_gets_no_button(visit, full):
    page = visit("view_task").go()
    assert page.get_by_role("heading", name="Queues").is_visible()
    assert page.locator(BODY).get_by_role("button").count() == 0


def test_a_queue_is_paused_and_resumed_by_the_keyboard_alone(visit, full):
    page = visit().go()
    browsing.press(page, "Pause queue default")
    assert page.get_by_text("Queue default is paused.").is_visible()
    assert PausedQueue.objects.filter(pk="default").exists()
    browsing.press(page, "Resume queue default")
    assert page.get_by_text("Queue default is resumed.").is_visible()
    assert not PausedQueue.objects.filter(pk="default").exists()


def test_from_a_problem_to_the_tasks_of_its_cause_is_one_click(visit, full):
    page = visit().go()
    page.locator(".txg-problems").get_by_role("link", name="Look at this cause").click()
    page.wait_for_url(re.compile("cause=7001"))
    assert page.get_by_text("TimeoutError").first.is_visible()
    assert serious(page, "#content", without="#changelist-search") == []  # Django's own form


def test_a_cause_is_revived_and_the_revival_is_stopped_and_goes_on(
    visit, processes, txtasks, tmp_path, monkeypatch
):
    """``benchmarks/causes.py`` is the long form: 40,000 failures of one cause in a minute."""
    for module in (confirming, bulk):
        monkeypatch.setattr(module, "MAX_IN_REQUEST", 100)
    txtasks(keep_finished=3600, poll_interval=0.1)
    scene.add(
        700,
        task_name="probe.tasks.note",
        status=Status.DEAD,
        cause=77,
        errors=[scene.error("OSError", "no route")],
    )
    gate = tmp_path / "gate"
    env = {"DJANGO_SETTINGS_MODULE": "failpoints.settings", "TXTASKS_GATE": str(gate)}
    processes.start("runworkers", "--task", NAME, env=env)
    helpers.wait_until(lambda: Worker.objects.filter(beat__gt=0).exists())
    visitor = visit()
    person = Reviver(visitor.page, visitor.address)
    overview_room._kept.clear()  # the page of an earlier test may have asked once more
    assert person.find() == "Tasks of this cause: 700 dead, 0 retrying, 0 held"
    first = person.revive_all()
    helpers.wait_until(lambda: Task.objects.filter(status=Status.DEAD).count() == 200)
    person.ask_to_stop()
    gate.touch()
    assert "cancelled" in person.outcome(first)
    overview_room._kept.clear()
    assert person.find() == "Tasks of this cause: 200 dead, 0 retrying, 0 held"
    assert "succeeded" in person.outcome(person.revive_all())
    assert not Task.objects.filter(status=Status.DEAD).exists()
    assert person.clicks == 8


# -- the page renews itself -----------------------------------------------------------------------


def waiting(page: Any) -> str:
    return str(page.locator(".txg-tiles a", has_text="due").locator(".txg-number").inner_text())


def still(page: Any) -> Any:
    """Stop the clock of the page, so that the test decides when time passes."""
    page.clock.install()
    return page


def test_the_page_renews_itself_but_leaves_the_focus_alone(visit):
    visitor = visit()
    still(visitor.page)
    page = visitor.go()
    assert waiting(page) == "0"
    scene.add(3)
    visitor.renew()
    helpers.wait_until(lambda: waiting(page) == "3")
    link = page.locator(".txg-tiles a").first
    link.focus()
    scene.add(4)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.clock.fast_forward(3000 * REFRESH_SECONDS)
    assert link.evaluate("one => one === document.activeElement")
    assert (waiting(page), requests) == ("3", [])
    link.evaluate("one => one.blur()")
    visitor.renew()
    helpers.wait_until(lambda: waiting(page) == "7")


def test_the_switch_stays_off_after_a_reload(visit):
    visitor = visit()
    still(visitor.page)
    page = visitor.go()
    page.get_by_role("checkbox").uncheck()
    page.get_by_role("checkbox").evaluate("one => one.blur()")
    page.reload()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.clock.fast_forward(3000 * REFRESH_SECONDS)
    assert (page.get_by_role("checkbox").is_checked(), requests) == (False, [])
    page.get_by_role("checkbox").check()
    page.get_by_role("checkbox").evaluate("one => one.blur()")
    visitor.renew()
    helpers.wait_until(page.get_by_role("checkbox").is_checked)


def test_a_browser_that_stores_nothing_renews_the_page_too(visit):
    visitor = visit()
    still(visitor.page)
    visitor.page.add_init_script(BLOCK_STORAGE)
    page = visitor.go()
    scene.add(3)
    visitor.renew()
    helpers.wait_until(lambda: waiting(page) == "3")
    page.get_by_role("checkbox").uncheck()
    assert not any("glance.js" in one for one in visitor.complaints)
    visitor.complaints.clear()  # Django's own scripts complain


# -- many rows ------------------------------------------------------------------------------------


def test_the_page_and_the_list_open_with_100_000_rows(visit):
    for status, cause in (("pending", None), ("dead", 5)):
        helpers.execute(MANY[connection.vendor], status, cause)
    page = visit().go()
    assert page.get_by_role("link", name=re.compile(r"^\d,\d{3}\+ dead")).is_visible()
    page.get_by_role("link", name=re.compile(r"^\d,\d{3}\+ due")).click()
    page.wait_for_url(re.compile("due=due"))
    assert page.locator("#result_list tbody tr").count() > 0
    assert Task.objects.count() == 100_000


NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50000)"
COLUMNS = "INSERT INTO txtasks_task (id, task_name, status, cause)"
MANY = {
    "postgresql": f"{NUMBERS} {COLUMNS} SELECT gen_random_uuid(), 'a.b', %s, %s FROM n",
    "sqlite": f"{COLUMNS} {NUMBERS} SELECT lower(hex(randomblob(16))), 'a.b', %s, %s FROM n",
    "mysql": f"{COLUMNS} {NUMBERS} SELECT replace(uuid(), '-', ''), 'a.b', %s, %s FROM n",
}
