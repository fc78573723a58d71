"""The package stays small enough to be read: limits of its folders, its classes, and what a claim needs."""

from collections import Counter

import house
import pytest

pytestmark = pytest.mark.once
KNOWN = house.modules(house.ROOT)


def test_no_folder_has_too_many_modules():
    folders = house.widths(house.ROOT, KNOWN)
    assert folders.pop(house.PACKAGE) <= 17
    assert [one for one, number in folders.items() if number > 26] == []


def test_what_a_change_of_the_claim_must_know_stays_small():
    found = house.claim(house.ROOT)
    assert {"django_txtasks.lifecycle.statements", "django_txtasks.lifecycle.turn"} <= found
    assert len(found) <= 14


def test_few_classes_are_long():
    long = [name for lines, name in house.classes(KNOWN) if lines > house.LONG_CLASS]
    assert len(long) <= 6, Counter(long)


def test_a_reader_s_first_way_is_short():
    assert house.words(house.ROOT, "README.md") <= 1300
    assert house.words(house.ROOT, *house.FIRST_WAY) < 12_000
