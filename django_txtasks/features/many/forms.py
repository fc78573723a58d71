"""The form of a function of many tasks, where one task is run alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django_txtasks.core.declaring.forms import Form

if TYPE_CHECKING:
    from django_txtasks.core.declaring.registry import Declaration

_OF_ITEM = inspect.Signature([inspect.Parameter("value", inspect.Parameter.POSITIONAL_ONLY)])


class OfItems(Form):
    """A row has one argument, which is ``item.value``. The function gets a list with one item."""

    def signature(self, of_function: inspect.Signature) -> inspect.Signature:
        """Return the signature of the value."""
        return _OF_ITEM

    def of_row(self, function: Callable[..., Any], run: Any, requests: Any) -> Callable[..., Any]:
        """Return a function of the value."""
        from django_txtasks.features.many.items import call_of_one  # web processes do not need it

        return call_of_one(function, run.attempt, alias=run.alias, requests=requests)


def form_of(declaration: Declaration) -> Form:
    """Return the form of a function."""
    return Form() if declaration.many is None else OfItems()
