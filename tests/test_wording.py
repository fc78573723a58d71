"""Texts with a count read well for 1 and for many."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import django_txtasks
from django_txtasks.core.ground.wording import counted
from django_txtasks.insight.finding import Finding

PACKAGE = Path(django_txtasks.__file__).parent
NOUNS = (
    "attempts|batches|changes|claims|cleaners|connections|crashes|errors|events|failures|hints|ids|keys|lanes|messages"
    "|names|processes|queues|questions|rows|schedules|sessions|slots|starts|steps|tasks|threads|times|workers"
)
PLURAL_BEHIND_A_COUNT = re.compile(
    rf"(?:%[sd]|\{{(?![A-Z_]+(?::,)?\}})[^{{}}]+\}}) (?:[a-z]+ )?(?:{NOUNS})\b"
)
ALLOWED = {"rows were", "ended batches", "rows written/s"}
"""Of errors after which a statement is repeated; a key of a figure; and a number with a decimal."""


@pytest.mark.parametrize(("number", "text"), [(0, "0 tasks"), (1, "1 task"), (2000, "2,000 tasks")])
def test_a_noun_follows_its_number(number: int, text: str) -> None:
    assert counted(number, "task") == text


def test_a_plural_may_be_given() -> None:
    assert [counted(n, "crash", "crashes") for n in (1, 2)] == ["1 crash", "2 crashes"]


def test_no_text_has_a_plural_behind_a_number_that_may_be_1() -> None:
    found = [
        f"{path.name}: {line.strip()}"
        for path in PACKAGE.rglob("*.py")
        if path.parent.name != "migrations"
        for line in path.read_text().splitlines()
        if PLURAL_BEHIND_A_COUNT.search(line) and not any(one in line for one in ALLOWED)
    ]
    assert found == []


def test_a_finding_reads_well_whatever_its_count() -> None:
    one = Finding("overdue", "overdue tasks", "", count=1, examples=("0a5c",))
    assert one.line == "overdue tasks (1): 0a5c"
    many = Finding("overdue", "overdue tasks", "", count=1001, examples=("0a5c", "1b6d"))
    assert many.line == "overdue tasks (1000+): 0a5c, 1b6d, …"
    assert Finding("bloat", "The table is large.", "").line == "The table is large."
    why = "No cleaner is running."
    assert Finding("no_cleaner", "no cleaner is running", "", examples=(why,)).line == why
