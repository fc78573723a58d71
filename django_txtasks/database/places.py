"""One statement that asks the same question at many places of an index.

A question is a SELECT with the marker ``<number>`` as its first column, and a marker for each column of a place,
such as ``<queue>``. PostgreSQL takes longer to plan a question than to answer it. So it gets the places as VALUES,
and plans the question once for all of them. Elsewhere the statement is a UNION of one question for each place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from django.db import connections

PLACES_PER_STATEMENT = {"postgresql": 200}
FEW_PLACES_PER_STATEMENT = 40
Place = Mapping[str, Any]
"""The values of one place by the names of their markers."""
P = TypeVar("P")


def in_chunks(alias: str, places: Sequence[P]) -> Iterator[Sequence[P]]:
    """Yield as many places at once as one statement may ask about."""
    size = PLACES_PER_STATEMENT.get(connections[alias].vendor, FEW_PLACES_PER_STATEMENT)
    for start in range(0, len(places), size):
        yield places[start : start + size]


def asking(
    alias: str, question: str, places: Sequence[Place], types: Mapping[str, str] | None = None
) -> tuple[str, dict[str, Any]]:
    """Return a statement that asks the question at each place, and its parameters.

    Its rows begin with the number of the place in ``places``.

    Args:
        places: at least one; all have the same names.
        types: for PostgreSQL, the types of values that are not text, by name.
    """
    names = [*places[0]]
    params = {
        f"{name}_{number}": place[name] for number, place in enumerate(places) for name in names
    }
    if connections[alias].vendor != "postgresql":
        texts = [
            _at(question, str(number), {name: f"%({name}_{number})s" for name in names})
            for number in range(len(places))
        ]
        return " UNION ALL ".join(texts), params
    types = types or {}
    rows = ", ".join(
        f"({number}, {', '.join(_typed(f'%({name}_{number})s', types.get(name)) for name in names)})"
        for number in range(len(places))
    )
    beside = _at(question, "place.number", {name: f"place.{name}" for name in names})
    columns = ", ".join(["number", *names])
    of_places = f"(VALUES {rows}) AS place({columns})"
    return f"SELECT answer.* FROM {of_places} CROSS JOIN LATERAL ({beside}) AS answer", params  # noqa: S608


def _at(question: str, number: str, values: Mapping[str, str]) -> str:
    text = question.replace("<number>", number)
    for name, value in values.items():
        text = text.replace(f"<{name}>", value)
    return text


def _typed(text: str, kind: str | None) -> str:
    return f"CAST({text} AS {kind})" if kind else text
