"""The part of the questions that the address of a list asks for."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from django.http import Http404
from django.utils.http import urlencode

from django_txtasks.contrib.people.lists import Box, Place

MOST_KEY = 2**63 - 1
MOST_SEARCH_CHARACTERS = 200
_PLACE = re.compile(r"([\dT:.+-]{19,40})/(\d{1,19})")


@dataclass(frozen=True)
class Wanted:
    """A part of a list.

    Attributes:
        kind: the only kind; None: all kinds.
        search: a part of the titles; empty: all titles.
        after: the place where the page begins; None: it is the first page.
    """

    box: Box
    kind: str | None
    search: str
    after: Place | None

    def address(self, box: Box, after: Place | None = None) -> str:
        """Return the query of another list of the same kind, or of another page, which keeps the search."""
        place = f"{after.due_at.isoformat()}/{after.pk}" if after else ""
        values = {"box": box.value, "kind": self.kind, "after": place}
        if after:
            values["search"] = self.search
        return f"?{urlencode({key: one for key, one in values.items() if one})}"


def wanted_of(query: Mapping[str, str], kinds: Collection[str]) -> Wanted:
    """Return what a query asks for.

    Args:
        kinds: the names of the kinds that the reader may see.

    Raises:
        Http404: no list is like this.
    """
    box, kind = query.get("box") or Box.MINE.value, query.get("kind") or None
    if box not in [one.value for one in Box]:
        raise Http404("No such list.")
    if kind is not None and kind not in kinds:
        raise Http404("No such kind of questions.")
    search = query.get("search", "").strip()[:MOST_SEARCH_CHARACTERS]
    return Wanted(Box(box), kind, search, _place(query.get("after")))


def _place(text: str | None) -> Place | None:
    if text is None:
        return None
    found = _PLACE.fullmatch(text)
    try:
        moment = datetime.fromisoformat(found[1]) if found else None
        if found and moment and moment.utcoffset() is not None and int(found[2]) <= MOST_KEY:
            return Place(moment.astimezone(timezone.utc), int(found[2]))
    except (ValueError, OverflowError):  # OverflowError: before the year 1 in UTC
        pass
    raise Http404("No such place in a list.")
