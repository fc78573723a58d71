"""An attempt whose arguments do not fit its function is released, and waits."""

from __future__ import annotations

from django_txtasks.core.declaring.registry import Declaration
from django_txtasks.core.rows.attempts import Attempt, Ended
from django_txtasks.core.working.running.verdicts import ErrorPart
from django_txtasks.features.misfits.verdict import release_of_misfit


class Misfits(ErrorPart):
    """Releases such attempts."""

    def verdict(
        self, attempt: Attempt, error: BaseException, declaration: Declaration | None
    ) -> Ended | None:
        """Return the release; None = the function was called."""
        return release_of_misfit(attempt, error, declaration)


PARTS = (Misfits(),)
