"""The unique key of a call is a column of its row."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django_txtasks.core.enqueueing.calls import (
    Asked,
    BoundFunction,
    checked_text,
    digest_of,
    option_of,
)
from django_txtasks.core.enqueueing.parts import CallPart
from django_txtasks.core.rows.enqueueing import Edge
from django_txtasks.exceptions import InvalidOption


class KeyOfCall(CallPart):
    """Makes the digest of the key, and the time until which ``settle`` collects."""

    options = ("unique_key", "settle")

    def bind(self, bound: BoundFunction, said: Mapping[str, Any]) -> BoundFunction:
        name, key = bound.declaration.name, option_of(bound, said, "unique_key")
        settle = option_of(bound, said, "settle")
        if settle is not None and key is None:
            raise InvalidOption(
                f"{name} has settle= without unique_key=: say which of its tasks are the same."
            )
        if settle is not None and "run_after" in said:
            raise InvalidOption(
                f"{name} has settle= and run_after=: settle says when it may run. Leave one of them out."
            )
        if key is None:
            return bound
        bound = bound.having(unique_key=key, settle=settle)
        return bound._replace(asked=(*bound.asked, Asked("unique_key", key, "unique key")))

    def columns(self, bound: BoundFunction, texts: Mapping[str, str | None]) -> Mapping[str, Any]:
        key = texts.get("unique_key")
        if key is None:
            return {}
        checked_text(bound, "unique_key", key)
        defaults, lane = bound.defaults, texts.get("lane")
        digest = digest_of(defaults.task_name, defaults.queue_name, *([lane] if lane else ()), key)
        found = {"unique_key": digest, "unique_text": key}
        settle = bound.values.get("settle")
        return found if settle is None else {**found, "run_after": _grid(digest, settle)}


def _grid(digest: str, settle: timedelta) -> Edge:
    """Return the edges at which the tasks of a key are due together; each key has its own offset."""
    width = settle // timedelta(microseconds=1)
    return Edge(width, int(digest[:12], 16) % width)


PARTS = (KeyOfCall(),)
