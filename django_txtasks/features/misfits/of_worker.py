"""A backlog of one form of call that does not fit is one log line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django_txtasks import signals
from django_txtasks.core.rows.attempts import Arrow, Ended
from django_txtasks.core.working.parts import Part, WorkerContext

MOST_TOLD = 1_000
"""Number of different texts, after which a worker reports no more of them."""


class ToldMisfits(Part):
    """Reports each text once for this worker."""

    def __init__(self) -> None:
        self._texts: set[str] = set()

    def recorded(self, ended: Sequence[Ended]) -> None:
        """Send the signal of each misfit whose text is new."""
        for one in ended:
            if one.arrow is Arrow.RELEASE and one.delay:
                self._tell(one)

    def _tell(self, one: Ended) -> None:
        text = str(one.error["message"])
        if text not in self._texts and len(self._texts) < MOST_TOLD:
            self._texts.add(text)
            facts = one.attempt.facts
            signals.arguments_do_not_fit.emit(**facts, context=one.context, error=text)


def parts(context: WorkerContext) -> Iterable[Part]:
    """Return the part for one worker."""
    return [ToldMisfits()]
