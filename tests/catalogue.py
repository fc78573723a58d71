"""Bring the translations up to date with the texts of the code, or add a language.

    python tests/catalogue.py de

Writes ``django_txtasks/locale/de/LC_MESSAGES/django.po``, with an empty entry for each new text, and compiles
it to ``django.mo``; the same for the forms of the example project. GNU gettext is not needed. Texts that the
code no longer has are removed; their translations are printed, because a changed text is often near to its old
one. It ends with 1 if a translation is missing.
"""

from __future__ import annotations

import ast
import gettext
import io
import re
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import django
import polib
from django.conf import settings
from django.utils.translation.template import templatize

PACKAGE = Path(__file__).resolve().parents[1] / "django_txtasks"
DEMO = PACKAGE.parent / "testproject/approvals"
PLACES = (PACKAGE, DEMO)
"""Directories with catalogues of their own, for the texts of the code below them."""
TEXTS_OF = {"gettext": 1, "gettext_lazy": 1, "ngettext": 2, "ngettext_lazy": 2}
"""Functions that translate, with the number of texts that they take."""
DJANGO = "django.utils.translation"
PLACEHOLDER = re.compile(r"%(?:\(\w+\))?[-+ #0-9.]*[sdfgr%]")
_CALL = re.compile(r"(?<![A-Za-z])(?:(_|gettext)|(ngettext))\(")


class Text(NamedTuple):
    """A text to translate; ``plural`` is empty if it has none."""

    single: str
    plural: str = ""


def path_of(language: str, place: Path = PACKAGE) -> Path:
    return place / "locale" / language / "LC_MESSAGES" / "django.po"


def languages() -> list[str]:
    """Return the languages that have a catalogue."""
    return sorted(one.name for one in (PACKAGE / "locale").iterdir())


def texts_of_code(place: Path = PACKAGE) -> dict[Text, list[str]]:
    """Return the texts of the code below a directory, with the files that have them."""
    if not settings.configured:
        settings.configure()
    found: dict[Text, list[str]] = {}
    for path in sorted(place.rglob("*")):
        read = {".py": texts_of_module, ".html": texts_of_template}.get(path.suffix)
        if read is None:
            continue
        name = str(path.relative_to(PACKAGE.parent))
        for text in read(path.read_text()):
            files = found.setdefault(text, [])
            files += [name] * (name not in files)
    return found


def texts_of_module(source: str) -> Iterator[Text]:
    """Yield the texts that a module translates.

    Raises:
        ValueError: a text is no constant, so that no catalogue can have it.
    """
    tree = ast.parse(source)
    numbers = {
        alias.asname or alias.name: TEXTS_OF[alias.name]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == DJANGO
        for alias in node.names
        if alias.name in TEXTS_OF
    }
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        if number := numbers.get(node.func.id):
            values = [getattr(one, "value", None) for one in node.args[:number]]
            if not all(isinstance(value, str) for value in values):
                raise ValueError(f"{ast.unparse(node)}: a text to translate must be a constant.")
            yield Text(*values)


def texts_of_template(source: str) -> Iterator[Text]:
    """Yield the texts that a template translates, as Django's ``makemessages`` finds them."""
    calls = templatize(source)
    for found in _CALL.finditer(calls):
        ends = (one.end() for one in re.finditer(r"\)", calls[found.start() :]))
        call = next(filter(None, (_parsed(calls[found.start() :][:end]) for end in ends)))
        values = [one.value for one in call.args[: 2 if found[2] else 1]]
        yield Text(*values)


def _parsed(code: str) -> ast.Call | None:
    try:
        found = ast.parse(code, mode="eval").body
    except SyntaxError:
        return None
    return found if isinstance(found, ast.Call) else None


def placeholders(text: str) -> list[str]:
    return sorted(PLACEHOLDER.findall(text))


def compiled(catalogue: polib.POFile) -> gettext.GNUTranslations:
    return gettext.GNUTranslations(io.BytesIO(catalogue.to_binary()))


def update(language: str, place: Path = PACKAGE) -> polib.POFile:
    """Write the catalogue of a language, with the texts of the code in their order, and return it."""
    path = path_of(language, place)
    before = polib.pofile(str(path)) if path.exists() else _new(language)
    known = {Text(one.msgid, one.msgid_plural): one for one in before}
    after = polib.POFile(wrapwidth=110)
    after.header, after.metadata = before.header, before.metadata
    for text, files in texts_of_code(place).items():
        entry = known.pop(text, None) or polib.POEntry(msgid=text.single, msgid_plural=text.plural)
        if text.plural and not entry.msgstr_plural:
            entry.msgstr_plural = dict.fromkeys(range(_number_of_plurals(before)), "")
        entry.occurrences = [(name, "") for name in files]
        entry.flags = ["python-format"] * bool(placeholders(text.single + text.plural))
        after.append(entry)
    for text, entry in known.items():
        print(f"no longer in the code: {text.single!r}: {entry.msgstr or entry.msgstr_plural}")
    path.parent.mkdir(parents=True, exist_ok=True)
    after.save(str(path))
    path.with_suffix(".mo").write_bytes(after.to_binary())
    return after


def _new(language: str) -> polib.POFile:
    place = Path(django.__file__).parent / "conf/locale" / language / "LC_MESSAGES/django.mo"
    if not place.exists():
        raise SystemExit(f"Django has no language {language!r}: give one such as de, fr or pt_BR.")
    of_django = polib.mofile(str(place))
    catalogue = polib.POFile()
    catalogue.metadata = {
        "Project-Id-Version": "django-txtasks",
        "Language": language,
        "MIME-Version": "1.0",
        "Content-Type": "text/plain; charset=UTF-8",
        "Content-Transfer-Encoding": "8bit",
        "Plural-Forms": of_django.metadata["Plural-Forms"],
    }
    return catalogue


def _number_of_plurals(catalogue: polib.POFile) -> int:
    found = re.match(r"nplurals=(\d+)", catalogue.metadata["Plural-Forms"])
    return int(found[1]) if found else 2


def main(*names: str) -> int:
    """Return the exit code."""
    missing = 0
    for language, place in product(names or languages(), PLACES):
        catalogue = update(language, place)
        empty = catalogue.untranslated_entries()
        missing += len(empty)
        print(f"{path_of(language, place)}: {len(catalogue)} texts, {len(empty)} not translated")
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
