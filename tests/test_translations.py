"""The catalogues have all texts of the code, and each translation has the placeholders of its text."""

from __future__ import annotations

import gettext
from collections import Counter
from pathlib import Path

import catalogue
import polib
import pytest

pytestmark = pytest.mark.once
LANGUAGES = catalogue.languages()
CATALOGUES = [(language, place) for language in LANGUAGES for place in catalogue.PLACES]
EACH = pytest.mark.parametrize(("language", "place"), CATALOGUES)
ADD = "Run: python tests/catalogue.py"


def read(language: str, place: Path) -> polib.POFile:
    return polib.pofile(str(catalogue.path_of(language, place)))


def test_german_is_one_of_them():
    assert "de" in LANGUAGES


@EACH
def test_a_catalogue_has_the_texts_of_the_code(language, place):
    known = {catalogue.Text(one.msgid, one.msgid_plural) for one in read(language, place)}
    of_code = set(catalogue.texts_of_code(place))
    assert of_code - known == set(), ADD
    assert known - of_code == set(), ADD


@EACH
def test_each_text_is_translated(language, place):
    entries = read(language, place)
    assert [one.msgid for one in entries if not one.translated()] == []
    assert [one.msgid for one in entries if one.fuzzy or one.obsolete] == []


@EACH
def test_a_translation_has_the_placeholders_of_its_text(language, place):
    for one in read(language, place):
        wanted = [catalogue.placeholders(text) for text in (one.msgid, one.msgid_plural) if text]
        for text in one.msgstr_plural.values() if one.msgid_plural else [one.msgstr]:
            assert catalogue.placeholders(text) in wanted, one.msgid


@EACH
def test_a_translation_begins_and_ends_with_the_spaces_of_its_text(language, place):
    for one in read(language, place):
        for text in [one.msgstr, *one.msgstr_plural.values()]:
            if text:
                assert text[: len(text) - len(text.lstrip())] == _first_spaces(one.msgid), one.msgid
                assert not text.endswith(" "), one.msgid


@EACH
def test_the_compiled_catalogue_is_that_of_its_source(language, place):
    path = catalogue.path_of(language, place).with_suffix(".mo")
    with path.open("rb") as file:
        compiled = gettext.GNUTranslations(file)._catalog
    assert compiled == catalogue.compiled(read(language, place))._catalog, ADD


def test_a_text_has_one_plural_at_most():
    counts = Counter(one.single for one in catalogue.texts_of_code())
    assert [text for text, count in counts.items() if count > 1] == []


def test_placeholders_have_names():
    unnamed = [one.single for one in catalogue.texts_of_code() if "%s" in one.single + one.plural]
    assert unnamed == []


def test_texts_are_found_as_makemessages_finds_them():
    module = """
from django.utils.translation import gettext as _, ngettext_lazy
a = _("one " "text")
b = ngettext_lazy("%(n)s task", "%(n)s tasks", "n")
c = other("no text")
"""
    template = (
        "{% load i18n %}{% translate 'A' %} {{ x|default:_(\"B)\") }}"
        "{% blocktranslate count n=m with x=y %}{{ n }} {{ x }}{% plural %}{{ n }} of {{ x }}"
        "{% endblocktranslate %}"
    )
    assert list(catalogue.texts_of_module(module)) == [
        ("one text", ""),
        ("%(n)s task", "%(n)s tasks"),
    ]
    assert list(catalogue.texts_of_template(template)) == [
        ("A", ""),
        ("B)", ""),
        ("%(n)s %(x)s", "%(n)s of %(x)s"),
    ]


def test_a_text_that_is_no_constant_is_refused():
    module = "from django.utils.translation import gettext\ngettext(f'{1}')"
    with pytest.raises(ValueError, match="must be a constant"):
        list(catalogue.texts_of_module(module))


def _first_spaces(text: str) -> str:
    return text[: len(text) - len(text.lstrip())]
