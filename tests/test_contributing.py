"""The drawings and lists in CONTRIBUTING.md match the code."""

import ast
import itertools
import re
import sys
from pathlib import Path

import pytest

from django_txtasks.core.rows.attempts import Arrow
from django_txtasks.models import Status
from django_txtasks.operations import operators

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # which pytest needs there

pytestmark = pytest.mark.once
ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
ROOMS, STATES = re.findall(r"```mermaid\n(.*?)```", TEXT, re.DOTALL)


def layer(text):
    return set(re.findall(r"\w+", text))


def test_the_rooms_are_the_layers_of_the_import_contract():

    drawn = dict(re.findall(r'^\s+(\w+)\["(.*)"\]$', ROOMS, re.MULTILINE))
    orders = re.findall(r"^\s+(\w+ --> .*)$", ROOMS, re.MULTILINE)
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    layers = {one["containers"][0]: one["layers"] for one in contracts if one["type"] == "layers"}
    for order, container in zip(orders, ("django_txtasks", "django_txtasks.core"), strict=True):
        names = order.split(" --> ")
        assert [layer(drawn[name]) for name in names] == [layer(one) for one in layers[container]]
        for room in itertools.chain.from_iterable(layer(drawn[name]) for name in names):
            package = ROOT / container.replace(".", "/") / room
            assert package.is_dir() or package.with_suffix(".py").is_file(), room


def test_the_states_and_arrows_are_those_of_the_code():
    arrows = re.findall(r"^\s+(\S+) --> (\S+?)(?:: (.*))?$", STATES, re.MULTILINE)
    states = {state for source, target, _ in arrows for state in (source, target)} - {"[*]"}
    assert states == {*Status.values, "finished"}
    names = {name for *_, labels in arrows for name in labels.split(", ") if name}
    persons = {
        name
        for name in ("hold", "resume", "cancel", "revive", "discard")
        if hasattr(operators, name)
    }
    assert names == {"enqueue", "claim", *(arrow.value for arrow in Arrow), *persons}
    assert len(persons) == 5


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([a-z_]+/[\w/]*\.?\w*)`", TEXT))))
def test_each_file_that_is_named_is_there(name):
    stem, _, inner = name.partition(".")
    places = [ROOT / name, ROOT / "django_txtasks" / name, ROOT / "django_txtasks" / f"{stem}.py"]
    found = [place for place in places if place.exists()]
    assert found, name
    if inner not in ("", "py", "md"):
        assert re.search(rf"\bdef {inner}\b", found[-1].read_text()), name


SQL_ON_TASKS = re.compile(r"\b(FROM|INTO|UPDATE|JOIN|COPY)\s+txtasks_(task|finishedtask)\b")


def texts_of(path):
    """Yield the string literals in a file, including parts of longer ones, without docstrings."""
    tree = ast.parse(path.read_text())
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in docstrings:
            yield node.value


def test_the_modules_with_sql_on_a_task_s_row_are_those_that_are_listed():
    package = ROOT / "django_txtasks"
    (sentence,) = re.findall(r"SQL on the row of a task is in\s(.*?)\.\s", TEXT, re.DOTALL)
    found = {
        str(path.relative_to(package).with_suffix(""))
        for path in package.rglob("*.py")
        if path.parent.name != "migrations"
        and any(SQL_ON_TASKS.search(text) for text in texts_of(path))
    }
    assert set(re.findall(r"`([^`]+)`", sentence)) == found
