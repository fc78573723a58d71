"""The list of guards follows the code: what it takes out is there, once."""

import mutations
import pytest

pytestmark = pytest.mark.once


@pytest.mark.parametrize("mutant", mutations.MUTANTS, ids=lambda mutant: mutant.guard)
def test_a_guard_is_found_once_and_its_tests_are_there(mutant):
    source = (mutations.ROOT / "django_txtasks" / mutant.file).read_text()
    assert mutations.mutated(source, mutant) != source
    assert all((mutations.ROOT / file).exists() for file in mutations.files(mutant))
