"""The option and the setting of lanes."""

# No `from __future__ import annotations`: the entries are read at run time.

from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

from django_txtasks.core.declaring.registry import Declaration
from django_txtasks.core.declaring.table import Option
from django_txtasks.core.declaring.values import TextOfCall
from django_txtasks.core.ground.config import CoreConfig, parsed_by
from django_txtasks.exceptions import InvalidDeclaration
from django_txtasks.features.lanes.rules import NO_LANES, LaneRules, parse_rules, problem_of_name
from django_txtasks.features.unique.key_functions import by_name


def lane_of(name: str, option: str, value: Any) -> Any:
    """Return the name of a lane, or the function of a task's arguments that makes it.

    Raises:
        InvalidDeclaration: neither None, nor a function, nor text that can name a lane.
    """
    if value is None or callable(value):
        return value
    if problem := problem_of_name(value):
        raise InvalidDeclaration(
            f"{name} has {option}={value!r}: {problem}, or a function of the task's arguments that returns it."
        )
    return str(value)


class LaneOptions(TypedDict, total=False):
    """The option of lanes."""

    lane: Annotated[TextOfCall | None, Option(None, lane_of, of_call=by_name)]
    """Text of at most 200 characters, or a function of the task's arguments that returns it, or None. All tasks of
    a lane share the limits that ``TXTASKS["lanes"]`` sets for it."""


def refuse_as_hook(declaration: Declaration, said: str) -> None:
    """Refuse a function as a hook if its lane depends on its arguments."""
    if callable(declaration.lane):
        raise InvalidDeclaration(
            f"{said}, whose lane is a function of its arguments: a hook's lane is text."
        )


def _lanes(key: str, value: Any) -> LaneRules:
    return parse_rules(value)


@dataclass(frozen=True, kw_only=True)
class LaneConfig(CoreConfig):
    """The setting of lanes.

    Attributes:
        lanes: limits of lanes, by name or pattern.
    """

    lanes: LaneRules = field(default=NO_LANES, metadata=parsed_by(_lanes))
