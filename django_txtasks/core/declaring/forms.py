"""The forms of functions. A function is called with the arguments of a row, as its form says."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django_txtasks.core.ground.seams import Composed

if TYPE_CHECKING:
    from django_txtasks.core.declaring.registry import Declaration


class Form:
    """A function that is called with the arguments of one row. A feature may have another form."""

    def signature(self, of_function: inspect.Signature) -> inspect.Signature:
        """Return the signature of the arguments in a row, with the context."""
        return of_function

    of_row: Callable[[Callable[..., Any], Any, Any], Callable[..., Any]] | None = None
    """Returns the function of a row's arguments, from the declared one, an ``AttemptRun`` and the
    ``CancelRequests``; None = it is the declared one."""


def form_of(declaration: Declaration) -> Form:
    """Return the form of a function, without features."""
    return Form()


FORM_OF: Composed[Callable[[Declaration], Form]] = Composed(
    "django_txtasks.core.declaring.forms.form_of"
)
"""The function with what features add."""
