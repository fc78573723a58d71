"""An attempt whose arguments do not fit its function is released, and waits."""

from __future__ import annotations

from django_txtasks.declarations.registry import Declaration
from django_txtasks.lifecycle.attempts import Attempt, Ended
from django_txtasks.worker.running.misfits import release_of_misfit
from django_txtasks.worker.running.verdicts import ErrorPart


class Misfits(ErrorPart):
    """Releases such attempts."""

    def verdict(
        self, attempt: Attempt, error: BaseException, declaration: Declaration | None
    ) -> Ended | None:
        """Return the release; None = the function was called."""
        return release_of_misfit(attempt, error, declaration)


PARTS = (Misfits(),)
