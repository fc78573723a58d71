"""A call whose row is handed over cannot have what only workers keep."""

from __future__ import annotations

from django_txtasks.core.enqueueing.calls import BoundFunction
from django_txtasks.core.enqueueing.parts import CallPart
from django_txtasks.features.hand_over.refusals import refuse_what_it_cannot_keep


class RefusesWhatItCannotKeep(CallPart):
    """Refuses such options when a function is bound."""

    def check(self, bound: BoundFunction) -> None:
        refuse_what_it_cannot_keep(bound)


PARTS = (RefusesWhatItCannotKeep(),)
