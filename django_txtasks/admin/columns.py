"""JSON columns, which the pages read as text.

Any program may write rows by plain SQL. A JSON value that Python cannot parse, such as one nested thousands
of levels deep, must not break a whole list; so the database returns JSON as text.
"""

from __future__ import annotations

import json
from typing import Any

from django.db.models import CharField, F, Func, TextField
from django.db.models.functions import Cast, Left
from django.utils.translation import gettext as _

from django_txtasks.core.ground.wording import whole

MAX_JSON_CHARACTERS = 1_000_000
"""Longer values are not parsed. They are not shown either, because a value must be parsed to be redacted."""
MAX_LISTED_JSON_CHARACTERS = 2_000
"""The same in lists and searches, which read many rows."""


class LastError(Func):
    """The newest error of a row as JSON text, ``[type, message]``; nulls without errors."""

    output_field = TextField()

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        last = "%(expressions)s #> '{{-1,{}}}'"
        template = f"jsonb_build_array({last.format('type')}, {last.format('message')})::text"
        return self.as_sql(compiler, connection, template=template)

    def as_mysql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        last = (
            "JSON_EXTRACT(%(expressions)s, CONCAT('$[', JSON_LENGTH(%(expressions)s) - 1, '].{}'))"
        )
        template = f"JSON_ARRAY({last.format('type')}, {last.format('message')})"
        return self.as_sql(compiler, connection, template=template)

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        template = "JSON_EXTRACT(%(expressions)s, '$[#-1].type', '$[#-1].message')"
        return self.as_sql(compiler, connection, template=template)


def json_text(column: str, limit: int = MAX_JSON_CHARACTERS) -> Left:
    """Return a JSON column as text, cut one character above the limit; the default is the limit of ``parse``."""
    return Left(Cast(F(column), TextField()), limit + 1, output_field=CharField())


def parse(text: str | None) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: the value cannot be shown; the message says why.
    """
    if text is None:
        return None
    if len(text) > MAX_JSON_CHARACTERS:
        most = whole(MAX_JSON_CHARACTERS)
        raise ValueError(_("more than %(n)s characters of JSON") % {"n": most})
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(_("nested too deeply")) from None
