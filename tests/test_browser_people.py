"""The pages for people in a real Chromium: two windows, a phone, German, the keyboard, without JavaScript."""

from __future__ import annotations

import re
from typing import Any

import browsing
import pytest
from probe import asking
from test_browser import (
    LAPTOP,
    PHONE,
    Visitor,
    address,  # noqa: F401 -- fixtures
    axe,
    chromium,  # noqa: F401
)
from test_people import asked, person  # noqa: F401
from test_people_pages import ADMIN, INBOX, MAY, page, purchase_question, signed_in  # noqa: F401

from django_txtasks.contrib import people
from django_txtasks.contrib.people.models import Question
from django_txtasks.testing import run_due_tasks

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("rows", "quick")]
LONG = "Order of Ms Brown: 7,500.00 " + "x" * 150


@pytest.fixture
def visit(chromium: Any, address: str) -> Any:  # noqa: F811
    """Return a function that opens a browser for a user. At the end no page may have complained."""
    contexts, visitors = [], []

    def open_browser(user: Any, **options: Any) -> Visitor:
        session = signed_in(user).cookies["sessionid"].value
        contexts.append(chromium.new_context(**{"viewport": LAPTOP} | options))
        contexts[-1].add_cookies([{"name": "sessionid", "value": session, "url": address}])
        visitors.append(Visitor(contexts[-1], address))
        return visitors[-1]

    yield open_browser
    for context in contexts:
        context.close()
    for visitor in visitors:
        assert [one for one in visitor.complaints if "409 (Conflict)" not in one] == []


def serious(window: Any, part: str) -> list[str]:
    found = axe.Axe().run(window, {"include": [[part]]}).response["violations"]
    return [one["id"] for one in found if one["impact"] in ("serious", "critical")]


def test_a_question_is_answered_in_two_windows(visit, person):  # noqa: F811
    """Neither window has JavaScript, as each page of these must work without."""
    question, title = asked(asking.approve, "order 7"), "order 7"
    ada, bob = person("ada", first_name="Ada"), person("bob")
    first, second, third = (
        visit(one, java_script_enabled=False).go(page(question)) for one in (ada, bob, bob)
    )
    for window in (first, second, third):
        window.get_by_label("Reason").fill("seen")
    first.get_by_role("button", name="Take").click()
    assert first.get_by_text("You have it until").is_visible()
    second.get_by_role("button", name="Answer").click()
    assert second.get_by_role("alert").filter(has_text="Ada has this question until").is_visible()
    assert second.get_by_label("Reason").input_value() == "seen"
    first.get_by_label("Reason").fill("fine")
    first.get_by_role("button", name="Answer").click()
    assert first.get_by_text(f"Your answer is saved: {title}").is_visible()
    third.get_by_role("button", name="Answer").click()
    assert third.get_by_role("alert").filter(has_text="Ada answered at").is_visible()
    assert third.get_by_text("Not used: your answer").is_visible()
    assert third.get_by_role("button", name="Answer").count() == 0
    assert run_due_tasks()[0].result == "Ada fine"


def test_the_keyboard_alone_is_enough(visit, person, purchase_question):  # noqa: F811
    """The key Enter in a field presses none of the buttons *Approve* and *Refuse*."""
    window = visit(person("ada", "approvals.approve_purchase")).go(INBOX)
    browsing.press(window, "Take the next question")
    assert window.get_by_text("You have it until").is_visible()
    browsing.go_to(window, "Reason")
    window.keyboard.type("no money")
    with window.expect_navigation():
        window.keyboard.press("Enter")
    assert window.get_by_text("This field is required.").is_visible()
    assert window.get_by_label("Reason").input_value() == "no money"
    browsing.press(window, "Refuse")
    assert window.get_by_text("Your answer is saved: Miller: 2,000.00").is_visible()
    assert Question.objects.get().answered_as == "ada"
    assert run_due_tasks()[0].result == "refused"


def test_several_questions_are_answered_together(visit, person):  # noqa: F811
    ada = person("ada")
    questions = [asked(asking.approve, f"order {number}") for number in range(4)]
    window = visit(ada, java_script_enabled=False).go(f"{INBOX}?box=free")
    for number in (0, 1, 3):
        window.get_by_label(f"order {number}", exact=True).check()
    window.get_by_role("button", name="Answer together").click()
    window.get_by_label("Reason").fill("fine")
    people.take(questions[3], person("bob"))
    window.get_by_role("button", name="Answer", exact=True).click()
    assert window.get_by_text(
        "2 of 3 answered. Your answer is saved: order 0, order 1."
    ).is_visible()
    assert (
        window.get_by_role("alert").filter(has_text="order 3: bob has this question").is_visible()
    )
    assert window.get_by_role("link", name="order 2").is_visible()
    window.get_by_label("Title").fill("R 2")
    window.get_by_role("button", name="Search all open questions").click()
    assert window.get_by_role("link", name=re.compile("order")).count() == 1
    window.get_by_label("order 2", exact=True).check()
    window.get_by_role("button", name="Not for me").click()
    assert window.get_by_text("Hidden from you; others still see it. order 2").is_visible()
    window.get_by_role("button", name="Log out").click()
    assert window.get_by_label("Password").is_visible()


@pytest.mark.parametrize("place", [(INBOX, "dark"), (ADMIN, "light")], ids=str)
def test_a_phone_is_wide_enough_in_german(visit, person, settings, purchase_question, place):  # noqa: F811
    root, scheme = place
    settings.LANGUAGE_CODE = "de"
    may = (MAY, "approvals.approve_purchase", "txtasks_people.assign_question")
    boss = person("boss", *may, is_staff=True)
    question, _other = asked(asking.approve_guarded, LONG), asked(asking.approve, LONG)
    people.take(question, boss)
    visitor = visit(boss, viewport=PHONE, color_scheme=scheme)
    one = page(question) if root == INBOX else f"{ADMIN}{question.pk}/change/"

    def fits(window: Any) -> None:
        assert not browsing.is_too_wide(window)
        assert window.locator(".txp").evaluate(browsing.UNREACHABLE) == []
        assert serious(window, ".txp") == []

    window = visitor.go(f"{root}?box=all")
    fits(window)
    window.get_by_label("Miller: 2,000.00", exact=True).check()
    window.get_by_role("button", name="Gemeinsam beantworten").click()
    fits(window)
    assert window.get_by_role("button", name="Genehmigen").is_visible()
    window = visitor.go(one)
    fits(window)
    assert window.get_by_role("button", name="Antworten").is_visible()
    colour = window.locator("body").evaluate("one => getComputedStyle(one).backgroundColor")
    red, green, blue = (int(part) for part in re.findall(r"\d+", colour)[:3])
    assert (red + green + blue < 3 * 80) is (scheme == "dark")
