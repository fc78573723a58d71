"""One finding of an inspection, and the commands that remedies name."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

MAX_COUNTED_ROWS = 1000
"""Highest number of rows that are counted."""
SENTENCES = frozenset({"no_cleaner"})
"""Names of findings whose only example is a whole sentence."""


@dataclass(frozen=True)
class Finding:
    """A problem or a note, with its meaning and its remedy, for people who read it at 3 a.m.

    Attributes:
        name: for programs; it never changes.
        title: a plural noun, or a sentence if there are no examples.
        count: at most ``MAX_COUNTED_ROWS`` + 1.
        examples: ids.
        is_problem: False = for information.
        causes: function, exception and number of the most frequent causes, for dead tasks.
    """

    name: str
    title: str
    action: str
    meaning: str = ""
    count: int = 1
    examples: tuple[str, ...] = ()
    is_problem: bool = True
    causes: tuple[str, ...] = ()

    @property
    def shown_count(self) -> str:
        """The count for people: ``17`` or ``1000+``."""
        return f"{MAX_COUNTED_ROWS}+" if self.count > MAX_COUNTED_ROWS else str(self.count)

    @property
    def line(self) -> str:
        """The finding in one line, for people, such as ``dead tasks (4): shop.tasks.pay: KeyError (4)``."""
        if not self.examples:
            return self.title
        if self.name in SENTENCES:
            return self.examples[0]
        if self.causes:
            return f"{self.title} ({self.shown_count}): {', '.join(self.causes)}"
        more = ", …" if self.count > len(self.examples) else ""
        return f"{self.title} ({self.shown_count}): {', '.join(self.examples)}{more}"


def manage(command: str, alias: str) -> str:
    """Return the line that runs a command of ``manage.py`` for this database."""
    of = "" if alias == "default" else f" --database {shlex.quote(alias)}"
    return f"manage.py {command}{of}"
