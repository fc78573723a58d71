"""The option of links."""

# No `from __future__ import annotations`: the entries are read at run time.

from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from django.db.models import Model

from django_txtasks.core.declaring.table import Option
from django_txtasks.exceptions import InvalidOption

MOST_SUBJECTS = 100


def subjects_of(name: str, option: str, value: Any) -> tuple[Any, ...]:
    """Return the business objects that a task is about; ``features.links.subjects`` looks at each of them.

    Raises:
        InvalidOption: too many of them.
    """
    found = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    if len(found) > MOST_SUBJECTS:
        raise InvalidOption(
            f"{name} has {option}= with {len(found)} objects; {MOST_SUBJECTS} is the most. Link the task to what "
            "these objects have in common."
        )
    return found


class SubjectOptions(TypedDict, total=False):
    """The option of links, which only ``using()`` has."""

    subject: Annotated[Model | Sequence[Model] | None, Option(None, subjects_of)]
    """The saved object that the task is about, such as an order, or a list of objects, for ``tasks_of()``."""
