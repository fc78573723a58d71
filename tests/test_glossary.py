"""The glossary has the words of the code, and the code has the words of the glossary."""

import ast
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.once
ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "django_txtasks"
PAGE = (ROOT / "docs/reference/glossary.md").read_text()
ROWS = [
    (term, re.findall(r"`([^`]+)`", where))
    for term, where in re.findall(r"^\| ([^|]+) \| [^|]+ \| (`[^|]+`) \|$", PAGE, re.MULTILINE)
]


def words(text):
    """Return source in plain words: TurnWriter and turn_writer are "turn writer"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|[_\s-]+", " ", text).lower()


SOURCE = words(" ".join(path.read_text() for path in sorted(PACKAGE.rglob("*.py"))))


def names_of(path):
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (one.id for one in node.targets if isinstance(one, ast.Name))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_each_term_is_where_the_glossary_says(row):
    term, places = row
    file = None
    for place in places:
        if "/" in place or place.endswith(".py"):
            file = PACKAGE / place
            assert file.is_file(), place
        else:
            assert place in names_of(file), f"{place} in {file}"
    for one in term.split(", "):
        assert re.search(rf"\b{words(one)}s?\b", SOURCE), one


@pytest.mark.parametrize(
    "folder", ["core/rows", "core/working", "fast", "features/async_loop", "guards", "processes"]
)
def test_each_class_is_in_the_glossary(folder):
    known = {name for _, places in ROWS for name in places}
    for path in sorted((PACKAGE / folder).rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                assert node.name in known, path


def test_no_term_stands_there_twice():
    terms = [one for term, _ in ROWS for one in term.split(", ")]
    assert len(terms) == len(set(terms)) > 60
