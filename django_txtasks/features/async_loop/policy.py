"""The size of a loop's claims: not by how long tasks take, but by how many bytes of arguments they have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django_txtasks.core.rows.attempts import Attempt
from django_txtasks.fast.prefetch import CLAIM_BYTES, CLAIM_TASKS, FIRST_TASKS, PrefetchPolicy


class NoPrefetch(PrefetchPolicy):
    """Claims nothing ahead, because a loop has a slot for each task that it claims."""

    def runs(self, claimed: Sequence[Attempt]) -> Iterator[list[Attempt]]:
        """Yield all attempts together, so that the loop is woken once."""
        if claimed:
            yield list(claimed)


class ClaimWidth:
    """The number of tasks in the next claim: at most 500, and about 4 MB of arguments.

    Without this limit 2,500 slots would claim 640 MB at once if each task had arguments of 256 kB.
    """

    def __init__(self) -> None:
        self.most = FIRST_TASKS

    def learn(self, claimed: Sequence[Attempt]) -> None:
        """Adapt to the size of claimed tasks. A claim grows to at most twice the last one."""
        size = sum([len(one.args) + len(one.kwargs) for one in claimed])
        fit = CLAIM_BYTES * len(claimed) // max(size, 1)
        self.most = max(1, min(CLAIM_TASKS, fit, max(FIRST_TASKS, 2 * len(claimed))))
