"""Histograms of seconds with fixed bounds, in a column as text: ``"3:12 4:2"`` = 12 times in bucket 3, 2 in 4."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence

BOUNDS = (
    0.02, 0.03, 0.045, 0.065, 0.1, 0.15, 0.2, 0.3, 0.45, 0.65,
    1.0, 1.5, 2.0, 3.0, 4.5, 6.5, 10.0, 15.0, 20.0, 30.0, 45.0, 65.0, 100.0, 150.0, 220.0, 335.0,
)  # fmt: skip
"""Upper ends of the buckets in seconds, each about 1.5 times the one before. The last bucket has no end.

Stored texts name buckets by their place here, so a later release may only add bounds behind the last one.
"""
BUCKETS = len(BOUNDS) + 1
MAX_COUNT = 10**17
"""Highest count of a bucket in a text, so that the text of all buckets fits in the column."""
_PAIR = re.compile(r"\b(\d{1,2}):(\d{1,18})\b", re.ASCII)


def empty() -> list[int]:
    """Return the counts of an empty histogram."""
    return [0] * BUCKETS


def bucket_of(seconds: float) -> int:
    """Return the place of the bucket that counts these seconds. Its end belongs to the bucket."""
    return bisect_left(BOUNDS, seconds)


def text_of(counts: Sequence[int]) -> str:
    """Return the text for the column, without empty buckets."""
    pairs = [(place, min(count, MAX_COUNT)) for place, count in enumerate(counts) if count]
    return " ".join([f"{place}:{count}" for place, count in pairs])


def add_text(counts: list[int], text: str) -> None:
    """Add the counts of a column's text. Parts that are no bucket are left out: a person may have written them."""
    for place, count in _PAIR.findall(text):
        if int(place) < BUCKETS:
            counts[int(place)] += int(count)
