"""Paths of SVG for charts. A page that draws them needs no script and no style of its own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

HEIGHT = 100
STEP_WIDTH = 10
GAP = 2
"""Width between two bars; ``STEP_WIDTH`` is the width of a bar with its gap."""


class Bars(NamedTuple):
    """A chart of stacked bars with a line over it, in units of its view box.

    Attributes:
        width: of the view box; its height is ``HEIGHT``.
        good, bad: paths of the bars: attempts that succeeded, and above them attempts that failed.
        line: path of the line; empty = no figures.
        most: the value of the highest bar; ``most_of_line``: the highest value of the line.
    """

    width: int
    good: str
    bad: str
    line: str
    most: int
    most_of_line: int


def bars(good: Sequence[int], bad: Sequence[int], line: Sequence[int | None] = ()) -> Bars:
    """Return the chart of these steps, the oldest first. A line has a gap where a value is missing."""
    most = max((one + other for one, other in zip(good, bad, strict=True)), default=0)
    most_of_line = max((one for one in line if one is not None), default=0)
    lower, upper = [], []
    for place, (one, other) in enumerate(zip(good, bad, strict=True)):
        lower.append(_bar(place, 0, one, most))
        upper.append(_bar(place, one, other, most))
    return Bars(
        max(1, len(good)) * STEP_WIDTH,
        "".join(lower),
        "".join(upper),
        _line(line, most_of_line),
        most,
        most_of_line,
    )


def place_of(moment: datetime, starts: Sequence[datetime], step: float) -> float | None:
    """Return the place of a moment on the horizontal axis; None = it is before the first step."""
    if not starts or moment < starts[0]:
        return None
    return STEP_WIDTH * min(len(starts), (moment - starts[0]).total_seconds() / step)


def _bar(place: int, below: int, value: int, most: int) -> str:
    if not value:
        return ""
    bottom = HEIGHT - HEIGHT * below / most
    height = HEIGHT * value / most
    left, width = place * STEP_WIDTH + GAP / 2, STEP_WIDTH - GAP
    return f"M{left:g} {bottom:.2f}v{-height:.2f}h{width:g}v{height:.2f}z"


def _line(values: Sequence[int | None], most: int) -> str:
    parts, is_open = [], False
    for place, value in enumerate(values):
        if value is None:
            is_open = False
            continue
        x, y = (place + 0.5) * STEP_WIDTH, HEIGHT - HEIGHT * value / max(1, most)
        parts.append(f"{'L' if is_open else 'M'}{x:g} {y:.2f}")
        is_open = True
    return "".join(parts)
