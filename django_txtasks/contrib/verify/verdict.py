"""The result of an account: checks that hold or do not, and figures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

MAX_EXAMPLES = 5


@dataclass(frozen=True)
class Check:
    """One sentence that must be true.

    Attributes:
        number: of the requirement it belongs to, 1 to 5; 0 = housekeeping.
        wrong: what contradicts it, the first few.
        count: how many do.
    """

    number: int
    sentence: str
    count: int = 0
    wrong: tuple[str, ...] = ()

    @classmethod
    def of(cls, number: int, sentence: str, wrong: Iterable[str]) -> Check:
        """Return the check that these contradict."""
        found = sorted(wrong)
        return cls(number, sentence, len(found), tuple(found[:MAX_EXAMPLES]))

    @property
    def holds(self) -> bool:
        """Whether nothing contradicts it."""
        return not self.count


@dataclass
class Verdict:
    """All checks, and the figures that say how hard they were tried."""

    checks: list[Check]
    figures: dict[str, int | float] = field(default_factory=dict)
    dead: dict[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every check holds."""
        return all(check.holds for check in self.checks)
