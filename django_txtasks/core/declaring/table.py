"""The table of options of ``@task`` and of ``using()``.

An option is an entry: its type, its default, its check (``values.py``) and, for a column of a row, how the column
takes it. The signature, the errors, the row, hooks and Django's ``@task`` follow from the entry. ``core_options``
has the entries of the core. Features have theirs in their modules ``options``, and ``options`` composes all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from django_txtasks.core.declaring.registry import Declaration
from django_txtasks.core.declaring.values import Check, as_given
from django_txtasks.core.ground.seams import Composed

Refusal: TypeAlias = Callable[[Declaration, str], None]
"""Refuses a function as a hook; the text begins the error, with the names of the task, the option and the hook."""


class Option(NamedTuple):
    """One option, besides its type.

    Attributes:
        default: the value of an option that ``@task`` leaves out.
        check: takes the task's name, the option's name and the value; returns the value in the form that the code
            reads. It must be hashable, and JSON for an option with a column.
        column: takes the checked value and returns the value of the row's column with the option's name; None: no
            column has this name.
        of_call: takes the checked value, the declaration and the option's name; returns the value in the form that
            calls read, if that depends on the function; None: it does not.
    """

    default: Any = None
    check: Check = as_given
    column: Callable[[Any], Any] | None = None
    of_call: Callable[[Any, Declaration, str], Any] | None = None


def as_checked(value: Any) -> Any:
    """Return a value that its column takes unchanged."""
    return value


class Table(NamedTuple):
    """All options, by name.

    Attributes:
        of_task: options of ``@task``.
        of_using: options of ``using()``.
        columns: options with a column of a row.
        refusals: raise InvalidDeclaration if options of a declaration contradict each other.
        of_hooks: raise InvalidDeclaration if the function of a hook has an option that a hook cannot have.
    """

    of_task: dict[str, Option]
    of_using: dict[str, Option]
    columns: dict[str, Option]
    refusals: Sequence[Callable[[Declaration], None]] = ()
    of_hooks: Sequence[Refusal] = ()


def entries_of(*kinds: Any) -> dict[str, Option]:
    """Return the options that these classes declare, by name."""
    return {
        name: entry.__metadata__[0]
        for kind in kinds
        for name, entry in kind.__annotations__.items()
    }


def table_of(
    of_task: dict[str, Option],
    of_using: dict[str, Option],
    *,
    refusals: Sequence[Callable[[Declaration], None]] = (),
    of_hooks: Sequence[Refusal] = (),
) -> Table:
    """Return the table of these options."""
    of_task = {**of_task, "takes_context": Option(False)}
    columns = {name: one for name, one in {**of_using, **of_task}.items() if one.column is not None}
    return Table(of_task, of_using, columns, refusals, of_hooks)


OPTIONS: Composed[Table] = Composed("django_txtasks.core.declaring.options.CORE")
"""The options of this site."""


def checked(name: str, known: Mapping[str, Option], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of options in the form that the code reads.

    Args:
        name: of the task, for errors.
        known: the options of ``@task`` or of ``using()``.

    Raises:
        InvalidDeclaration, InvalidOption: see ``values.py``.
    """
    return {option: known[option].check(name, option, value) for option, value in options.items()}


def columns_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a row's columns for checked values. Options without a column are left out."""
    return {
        name: option.column(values[name])
        for name, option in OPTIONS.whole.columns.items()
        if name in values and option.column is not None
    }
