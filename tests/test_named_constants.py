"""A docstring or comment that names a constant names one that the package has."""

import ast
import functools
import re
from pathlib import Path

import plain_english
import pytest

pytestmark = pytest.mark.once
PACKAGE = Path(__file__).parent.parent / "django_txtasks"
NAME = re.compile(
    r"``(?:\w+\.)*([A-Z][A-Z0-9_]+)``"  # in double backticks, also behind its module
    r"|(?<![\w.])(_?[A-Z][A-Z0-9]*_[A-Z0-9_]+)\b"  # elsewhere with an underscore: no SQL word has one
)
NOT_OURS = {
    "CONN_HEALTH_CHECKS", "CONN_MAX_AGE", "DATABASES", "DATABASE_ROUTERS", "EX_TEMPFAIL", "FOUND_ROWS",
    "INSTALLED_APPS", "JSON_TYPE", "LOGGING", "PQTRANS_IDLE", "QUEUES", "SECRET_KEY", "TASKS", "TXTASKS", "USE_TZ",
}  # fmt: skip
"""Names of Django, of databases and of settings."""
NOT_NAMES = {"ROLLED_BACK"}
"""Arguments of a command line."""
SOURCES = {
    path: path.read_text() for path in PACKAGE.rglob("*.py") if path.parent.name != "migrations"
}


def names_of(source):
    """Yield the names that a file assigns, imports or reads as attributes."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.asname or node.name


def prose_of(source):
    """Yield the docstrings and comments of a file, those below constants too."""
    for node in plain_english.docstring_nodes(ast.parse(source)):
        yield node.value
    for token in plain_english.comment_tokens(source):
        yield token.string


def named_in(text):
    return {one or other for one, other in NAME.findall(text)}


@functools.cache
def ours():
    """Return all names of the package, read once, and only where these tests run."""
    return {name for source in SOURCES.values() for name in names_of(source)}


@pytest.mark.parametrize("path", sorted(SOURCES), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_each_constant_that_is_named_is_there(path):
    named = {name for text in prose_of(SOURCES[path]) for name in named_in(text)}
    assert named - ours() - NOT_OURS - NOT_NAMES == set()


def test_a_constant_that_is_gone_is_found():
    assert named_in("At most BYTES_AT_ONCE; see ``turns.PATIENCE`` and ``SELECT``.") == {
        "BYTES_AT_ONCE",
        "PATIENCE",
        "SELECT",
    }
