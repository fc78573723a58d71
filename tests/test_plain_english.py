"""Hard sentences get fewer: the signs of ``plain_english.py`` in each area have a ceiling that only goes down."""

import plain_english
import pytest

pytestmark = pytest.mark.once

CEILINGS = {
    "README.md": 0,
    "CONTRIBUTING.md": 0,
    "docs": 6,
    "docstrings": 22,
    "comments": 4,
}
"""How many signs each area may have. Lower a number when you have rewritten sentences; never raise one."""


@pytest.fixture(scope="module")
def found():
    return plain_english.counts()


@pytest.mark.parametrize("area", CEILINGS)
def test_an_area_has_no_more_hard_sentences_than_before(area, found):
    assert found[area].total() <= CEILINGS[area], (
        f"{found[area]}; `python tests/plain_english.py PATH` prints each place below a path"
    )


def test_each_area_is_read(found):
    assert set(found) == set(CEILINGS)


@pytest.mark.parametrize("sign", plain_english.SIGNS, ids=lambda sign: sign.name)
def test_a_sign_finds_the_hard_sentence_and_not_the_plain_one(sign):
    assert list(sign.matches(sign.hard))
    assert not [one.name for one in plain_english.SIGNS if list(one.matches(sign.plain))]


def test_a_sign_is_found_across_lines_and_not_in_code(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# What it is\n\n```python\nwhoever = 1\n```\n\nA task in\nhand `whoever`.\n")
    text = plain_english.Text("docs", page, 1, plain_english.markdown(page))
    assert [(sign.name, line) for sign, line, _ in text.signs()] == [("in hand", 7)]


def test_docstrings_and_comments_are_told_apart(tmp_path):
    source = '"""Whether."""\nONE = 1\n"""Who."""\n\n# in\n# hand\nTWO = "whoever"  # nobody\n'
    path = tmp_path / "module.py"
    pieces = [*plain_english.docstrings(path, source), *plain_english.comments(path, source)]
    names = [(text.area, [(sign.name, line) for sign, line, _ in text.signs()]) for text in pieces]
    assert names == [
        ("docstrings", [("opening with a question word", 1)]),
        ("docstrings", [("opening with a question word", 3)]),
        ("comments", [("in hand", 5)]),
        ("comments", [("nobody, somebody", 7)]),
    ]
