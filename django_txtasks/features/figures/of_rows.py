"""Arrows that no worker counts in its memory are counted in their transaction."""

from __future__ import annotations

from collections.abc import Sequence

from django_txtasks.core.rows.arrow_parts import ArrowPart
from django_txtasks.core.rows.attempts import Ended
from django_txtasks.features.figures import of_arrows as figures


class Counts(ArrowPart):
    """Appends the counts of such arrows."""

    def without_run(self, alias: str, names: Sequence[tuple[str, str]]) -> None:
        figures.append_others(alias, names)

    def recovered(self, alias: str, ended: Sequence[Ended]) -> None:
        figures.append_ends(alias, ended)

    def recorded_last(self, alias: str, ended: Sequence[Ended]) -> None:
        figures.append_ends(alias, ended)


PARTS = (Counts(),)
