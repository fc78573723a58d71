"""Calls that do not fit the function: the row is of another release, so the task waits for code that takes it."""

from __future__ import annotations

from datetime import timedelta

from django_txtasks.core.declaring.arguments import call_text, misfit_of
from django_txtasks.core.declaring.registry import Declaration
from django_txtasks.core.ground import payload
from django_txtasks.core.ground.causes import cause_of_class
from django_txtasks.core.rows.attempts import Arrow, Attempt, Counted, Ended
from django_txtasks.exceptions import ArgumentsDoNotFit, class_path

FIRST_WAIT = timedelta(seconds=10)
"""Time until the second try. Each further wait is twice as long, up to ``LONGEST_WAIT``."""
LONGEST_WAIT = timedelta(minutes=5)
MOST_CHARACTERS = 1_000
"""Length of the text in the row."""


def release_of_misfit(
    attempt: Attempt, error: BaseException, declaration: Declaration | None
) -> Ended | None:
    """Return the outcome of an attempt whose function could not be called; None: it was called.

    The attempt counts neither as a failure nor as a crash. Its entry replaces that of the try before, and has the
    number of tries.
    """
    if type(error) is not TypeError or declaration is None:
        return None
    args, kwargs = payload.decode_arguments(attempt.args, attempt.kwargs)
    why = misfit_of(error, declaration, args, kwargs)
    if not why:
        return None
    text = (
        f"The arguments do not fit: {declaration.name}{declaration.signature} was called as "
        f"{call_text(len(args), kwargs)}: {why}. The task waits for code that takes them."
    )
    tries, errors = _tries_before(attempt)
    return Ended(
        attempt=attempt._replace(errors=errors),
        arrow=Arrow.RELEASE,
        delay=min(FIRST_WAIT * 2 ** min(tries, 10), LONGEST_WAIT),
        counted=Counted.NOTHING,
        cause=cause_of_class(attempt.task_name, ArgumentsDoNotFit),
        error={
            "type": ArgumentsDoNotFit.__name__,
            "class": class_path(ArgumentsDoNotFit),
            "message": payload.clean_text(text, MOST_CHARACTERS),
            "traceback": "",
            "tries": tries + 1,
        },
    )


def _tries_before(attempt: Attempt) -> tuple[int, list[dict[str, object]]]:
    """Return the number of tries that the last entry has, and the errors without it."""
    *errors, last = [*attempt.errors] or [{}]
    if last.get("type") != ArgumentsDoNotFit.__name__:
        return 0, [*attempt.errors]
    tries = last.get("tries")
    return tries if isinstance(tries, int) and tries > 0 else 1, errors
