"""Parts that features add to claims.

A feature overrides some methods of ``ClaimPart``, and names its module in ``assembly.FEATURES``. The module lists
its parts in ``PARTS``.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from django_txtasks.core.ground.seams import OF_ROWS, overriding

if TYPE_CHECKING:
    from django_txtasks.core.rows.attempts import Attempt
    from django_txtasks.core.rows.turn import Candidate, Subscription


class Picked(NamedTuple):
    """A row to claim.

    Attributes:
        place: the place in the scan of the candidate that has led to this row.
    """

    candidate: Candidate
    place: int


class ClaimPart:
    """The part of a feature in a claim."""

    def reads_headers(self) -> bool:
        """Return True if claims read the column ``headers``. Called for each statement, so it must be quick."""
        return False

    def heads(self, alias: str) -> Sequence[tuple[str, Any]]:
        """Return (queue, id) of the first pending rows that scans of the core leave to this feature."""
        return []

    def pick(
        self, subscription: Subscription, candidates: Sequence[Candidate]
    ) -> tuple[list[Picked], int]:
        """Lock and return the rows to claim for candidates, some of which have a unique key.

        Without a feature that overrides this, rows with a key wait.

        Returns:
            Also the number of candidates that were handled.
        """
        plain = [
            Picked(one, place) for place, one in enumerate(candidates) if one.merge_key is None
        ]
        return plain, len(candidates)

    def absorb(
        self, alias: str, to_claim: Sequence[Attempt], keys: dict[uuid.UUID, Any]
    ) -> tuple[list[Attempt], set[uuid.UUID]]:
        """Merge other rows of their keys into rows that ``pick`` has chosen and that are about to be claimed.

        Returns:
            The attempts with the arguments that their rows have now, and the ids of the merged rows.
        """
        return list(to_claim), set()


class Parts(NamedTuple):
    """The overridden methods of the parts of all features.

    Attributes:
        merging: the part that claims rows with a unique key, or one that lets them wait.
    """

    reads_headers: tuple[Callable[[], bool], ...]
    heads: tuple[Callable[..., Sequence[tuple[str, Any]]], ...]
    merging: ClaimPart


@cache
def parts() -> Parts:
    """Import the modules, and return their parts."""
    found = [one for module in OF_ROWS.modules for one in module.PARTS]
    of_claims = [one for one in found if isinstance(one, ClaimPart)]
    merging = [one for one in of_claims if type(one).pick is not ClaimPart.pick]
    return Parts(
        overriding(ClaimPart.reads_headers, of_claims),
        overriding(ClaimPart.heads, of_claims),
        (*merging, ClaimPart())[0],
    )
