"""Figures for people: a table, and a chart that shows how much they vary."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple


class Figure(NamedTuple):
    """Several measurements of one thing."""

    low: float
    middle: float
    high: float

    def __str__(self) -> str:
        return " / ".join(short(value) for value in (self if self.low < self.high else self[:1]))


def figure(values: Sequence[float]) -> Figure:
    """Return min, median and max."""
    return Figure(min(values), statistics.median(values), max(values))


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value that this percentage of the values does not exceed."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(len(ranked) * percent / 100) - 1)]


def short(value: float) -> str:
    """Return three significant digits, or the whole number."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table whose columns line up."""
    cells = [[str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [" | ".join(_aligned(row, widths)) for row in cells]
    rule = " | ".join(
        [":" + "-" * (widths[0] - 1), *("-" * (width - 1) + ":" for width in widths[1:])]
    )
    return "\n".join(f"| {line} |" for line in [lines[0], rule, *lines[1:]])


def _aligned(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    first, *others = zip(row, widths, strict=True)
    return [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]


LINE, LEFT, WIDTH = 26, 300, 480


def chart(path: str, title: str, bars: Sequence[tuple[str, Figure]]) -> None:
    """Draw a bar for each median, with a line from min to max, into an SVG file."""
    scale = WIDTH / max(one.high for _, one in bars)
    rows = [_bar(name, one, scale, LINE * (number + 2)) for number, (name, one) in enumerate(bars)]
    size = f'width="{LEFT + WIDTH + 90}" height="{LINE * (len(bars) + 2)}"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">'
    )
    name = f'<text x="8" y="{LINE}" font-weight="bold">{escape(title)}</text>'
    ground = '<rect width="100%" height="100%" fill="white"/>'
    Path(path).write_text("\n".join([head, ground, name, *rows, "</svg>\n"]))


def _bar(name: str, one: Figure, scale: float, top: int) -> str:
    middle, low, high = one.middle * scale, LEFT + one.low * scale, LEFT + one.high * scale
    y = top + LINE / 2
    return (
        f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{escape(name)}</text>'
        f'<rect x="{LEFT}" y="{top + 4}" width="{middle:.1f}" height="{LINE - 8}" fill="#44749d"/>'
        f'<path d="M{low:.1f} {y}H{high:.1f}" stroke="#222"/>'
        f'<text x="{max(high, LEFT + middle) + 6:.1f}" y="{y + 4}">{short(one.middle)}</text>'
    )
