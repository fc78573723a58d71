"""The list of guards matches the code: each text to remove is there once, and so are the tests that notice."""

import ast
import functools
from importlib import import_module
from pkgutil import iter_modules

import mutants
import mutations
import pytest

pytestmark = pytest.mark.once


@functools.cache
def functions(file):
    """Return the names of the functions of a test file."""
    tree = ast.parse((mutations.ROOT / file).read_text())
    return {one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)}


def test_each_mutant_is_in_the_module_of_its_room():
    for room in iter_modules(mutants.__path__):
        found = import_module(f"mutants.{room.name}").MUTANTS
        assert {mutants.room_of(one.file) for one in found} == {room.name}


@pytest.mark.parametrize("mutant", mutations.MUTANTS, ids=lambda mutant: mutant.guard)
def test_a_guard_is_found_once_and_its_tests_are_there(mutant):
    source = (mutations.ROOT / "django_txtasks" / mutant.file).read_text()
    assert mutations.mutated(source, mutant) != source
    for test in mutations.tests_of(mutant):
        file, _, name = test.partition("::")
        assert functions(file)
        assert not name or name in functions(file), test
