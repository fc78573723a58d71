"""The result of an account: checks that hold or fail, and figures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

MAX_EXAMPLES = 5


@dataclass(frozen=True)
class Check:
    """One sentence that must be true.

    Attributes:
        number: the requirement that it belongs to, 1 to 5; 0 = housekeeping.
        wrong: the first few contradictions.
        count: number of contradictions.
    """

    number: int
    sentence: str
    count: int = 0
    wrong: tuple[str, ...] = ()

    @classmethod
    def of(cls, number: int, sentence: str, wrong: Iterable[str]) -> Check:
        """Return a check, with the keys that contradict it."""
        found = sorted(wrong)
        return cls(number, sentence, len(found), tuple(found[:MAX_EXAMPLES]))

    @property
    def holds(self) -> bool:
        """True if nothing contradicts it."""
        return not self.count


@dataclass
class Verdict:
    """All checks, and figures that say how hard they were tested."""

    checks: list[Check]
    figures: dict[str, int | float] = field(default_factory=dict)
    dead: dict[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True if every check holds."""
        return all(check.holds for check in self.checks)
