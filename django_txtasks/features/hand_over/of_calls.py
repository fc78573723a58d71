"""A call whose row is handed over cannot have what only workers keep."""

from __future__ import annotations

from django_txtasks.enqueueing.calls import BoundFunction
from django_txtasks.enqueueing.handed_over import refuse_what_it_cannot_keep
from django_txtasks.enqueueing.parts import CallPart


class RefusesWhatItCannotKeep(CallPart):
    """Refuses such options when a function is bound."""

    def check(self, bound: BoundFunction) -> None:
        refuse_what_it_cannot_keep(bound)


PARTS = (RefusesWhatItCannotKeep(),)
