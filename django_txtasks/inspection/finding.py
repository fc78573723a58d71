"""The result of an inspection."""

from __future__ import annotations

from dataclasses import dataclass

MAX_COUNTED_ROWS = 1000
"""Rows that are counted, at most."""
SENTENCES = frozenset({"no_cleaner"})
"""Names of findings whose only example is a whole sentence, and counts nothing."""


@dataclass(frozen=True)
class Finding:
    """Something that should not be there, what it means, and what to do about it at 3 a.m.

    Attributes:
        name: for programs; it does not change.
        title: what it is.
        count: at most ``MAX_COUNTED_ROWS`` + 1.
        examples: ids.
        is_problem: False = for your information.
    """

    name: str
    title: str
    action: str
    meaning: str = ""
    count: int = 1
    examples: tuple[str, ...] = ()
    is_problem: bool = True

    @property
    def shown_count(self) -> str:
        """The count for people: ``17`` or ``1000+``."""
        return f"{MAX_COUNTED_ROWS}+" if self.count > MAX_COUNTED_ROWS else str(self.count)

    @property
    def line(self) -> str:
        """The finding in one line, for people: the number behind the noun reads well for 1 and for many."""
        if not self.examples:
            return self.title
        if self.name in SENTENCES:
            return self.examples[0]
        return f"{self.title}: {self.shown_count}, such as {', '.join(self.examples)}"
