"""The package stays small enough to be read: limits of its folders, its classes, and what a claim needs."""

from collections import Counter

import house
import pytest
import rooms

pytestmark = pytest.mark.once
KNOWN = house.modules(house.ROOT)
HOUSE = rooms.House(house.ROOT)
CORE = {
    place: module
    for module, place in HOUSE.rooms.items()
    if place.startswith("core/") and place != "core/__init__.py"
}
MOST_ARROWS = {"import": 8, "branch": 6}
"""Arrows from the core to what can be left out. These numbers go down, and never up."""
MOST_CORE_LINES = 8558
MOST_LINES_OF_A_FILE: dict[str, int] = {}
"""The files of the core over 450 lines of code."""


def test_no_folder_has_too_many_modules():
    folders = house.widths(house.ROOT, KNOWN)
    assert folders.pop(house.PACKAGE) <= 14
    assert [one for one, number in folders.items() if number > 25] == []


def test_the_core_knows_no_more_of_the_rest():
    found = Counter(one.kind for one in HOUSE.arrows())
    assert found == MOST_ARROWS, (
        "python tests/rooms.py prints each arrow; lower a limit that is too high"
    )


def test_each_arrow_that_is_left_is_named():
    found = {
        (HOUSE.rooms[one.source], HOUSE.rooms.get(one.target, one.target.split(" in line ")[0]))
        for one in HOUSE.arrows()
    }
    assert found == rooms.NAMED.keys()


def test_the_core_stays_small():
    sizes = {place: house.code_lines(KNOWN[module].read_text()) for place, module in CORE.items()}
    assert sum(sizes.values()) <= MOST_CORE_LINES
    long = {place: lines for place, lines in sizes.items() if lines > 450}
    assert all(lines <= MOST_LINES_OF_A_FILE.get(place, 0) for place, lines in long.items()), long


def test_each_file_that_came_into_the_core_serves_a_rule_of_the_protocol():
    planned = rooms.MOVES.values() - rooms.INTO_CORE.keys()
    assert CORE.keys() - planned == rooms.INTO_CORE.keys() & CORE.keys()
    assert all(rule.endswith(".") for rule in rooms.INTO_CORE.values())


def test_what_a_change_of_the_claim_must_know_stays_small():
    found = HOUSE.walk(rooms.PLANNER)
    places = {HOUSE.rooms[one] for one in found}
    assert {"core/rows/statements.py", "core/rows/turn.py"} <= places
    assert len(found) <= 25
    assert len(HOUSE.walk(rooms.PATH, within=("core",))) <= 55


def test_few_classes_are_long():
    long = [name for lines, name in house.classes(KNOWN) if lines > house.LONG_CLASS]
    assert len(long) <= 6, Counter(long)


def test_a_reader_s_first_way_is_short():
    assert house.words(house.ROOT, "README.md") <= 1300
    assert house.words(house.ROOT, *house.FIRST_WAY) < 12_000
