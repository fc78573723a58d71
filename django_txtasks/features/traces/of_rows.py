"""If there is a tracer, claims read the headers that came along with the tasks."""

from __future__ import annotations

from django_txtasks.core.rows.claim_parts import ClaimPart
from django_txtasks.features.traces import tracing


class ReadsHeaders(ClaimPart):
    """Reads the column only if there is a tracer."""

    def reads_headers(self) -> bool:
        return bool(tracing.tracers)


PARTS = (ReadsHeaders(),)
