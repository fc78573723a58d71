"""The arrow of an attempt that raised, and the entry of its error in the row."""

from __future__ import annotations

import contextlib
import copy
from datetime import timedelta
from functools import cache
from typing import Any

from django_txtasks import signals
from django_txtasks.core.declaring import registry
from django_txtasks.core.declaring.registry import Declaration
from django_txtasks.core.ground import payload
from django_txtasks.core.ground.causes import cause_of
from django_txtasks.core.ground.config import CoreConfig
from django_txtasks.core.ground.retry import backoff, is_last, seconds_from
from django_txtasks.core.ground.seams import OF_ERRORS
from django_txtasks.core.ground.wording import counted
from django_txtasks.core.rows.attempts import Arrow, Attempt, Ended
from django_txtasks.database.errors import NothingDone, str_of
from django_txtasks.exceptions import Retry, Snooze, Suspended, TaskCancelled, class_path
from django_txtasks.signals import tracebacks


class ErrorPart:
    """A part that a feature adds to each error of an attempt. Its module is named in ``assembly.FEATURES``."""

    def verdict(
        self, attempt: Attempt, error: BaseException, declaration: Declaration | None
    ) -> Ended | None:
        """Return the outcome for this error; None = it is as any other error."""

    def details(self, attempt: Attempt) -> dict[str, str]:
        """Return further parts of the error's entry in the row."""
        return {}


@cache
def error_parts() -> tuple[ErrorPart, ...]:
    """Import the modules, and return their parts."""
    return tuple(part for module in OF_ERRORS.modules for part in module.PARTS)


def failed(attempt: Attempt, error: BaseException, config: CoreConfig) -> Ended:
    """Choose the arrow of an attempt that raised: RETRY or BURY count as a failure, the others do not."""
    declaration = registry.find(attempt.task_name)
    if (ended := _not_begun_or_suspended(attempt, error, declaration)) is not None:
        return ended
    if isinstance(error, Snooze):
        most = declaration.max_snoozes if declaration is not None else 0
        if attempt.snoozes < most:
            return Ended(attempt=attempt, arrow=Arrow.SNOOZE, delay=error.after)
        error = _with_text(
            error, f"{error}, though it has done so {counted(attempt.snoozes, 'time')} before"
        )
    if isinstance(error, TaskCancelled):
        return Ended(attempt, Arrow.CANCEL, error=describe(error), exception=error)
    ended = buried(attempt, error)
    if _is_asked_retry(error):
        ended = ended._replace(exception=None)
    if is_last(error, failures=attempt.failures, max_attempts=attempt.max_attempts):
        return ended
    if isinstance(error, Retry) and error.after is not None:
        delay = max(error.after, timedelta(0))
    else:
        delay = _delay(attempt, error, declaration, config)
    return ended._replace(arrow=Arrow.RETRY, delay=delay)


def buried(attempt: Attempt, error: BaseException) -> Ended:
    """Return the outcome of an attempt that another attempt would not improve: the task is dead."""
    cause = cause_of(attempt.task_name, error, registry.own_packages())
    entry = {**describe(error), **details_of(attempt)}
    return Ended(attempt, Arrow.BURY, error=entry, exception=error, cause=cause)


def details_of(attempt: Attempt) -> dict[str, str]:
    """Return what the parts add to the entry of an error of this attempt."""
    return {name: text for part in error_parts() for name, text in part.details(attempt).items()}


def _not_begun_or_suspended(
    attempt: Attempt, error: BaseException, declaration: Declaration | None
) -> Ended | None:
    if isinstance(error, NothingDone):  # the task has done nothing, and is not at fault
        return Ended(attempt=attempt, arrow=Arrow.RELEASE, exception=error)
    if isinstance(error, Suspended):
        return Ended(attempt=attempt, arrow=Arrow.SUSPEND, awaited=error.name)
    verdicts = (part.verdict(attempt, error, declaration) for part in error_parts())
    return next((one for one in verdicts if one is not None), None)


def is_asked(error: BaseException) -> bool:
    """Return True if a task has raised this to continue later. Then its sessions are as after a success."""
    return isinstance(error, (Snooze, Suspended)) or _is_asked_retry(error)


def _is_asked_retry(error: BaseException) -> bool:
    return type(error) is Retry and error.__context__ is None  # otherwise an error has led to it


def _delay(
    attempt: Attempt, error: BaseException, declaration: Declaration | None, config: CoreConfig
) -> timedelta:
    """Return the time until the retry: from the function's own ``backoff``, if it works."""
    failures = attempt.failures + 1
    own = None if declaration is None else declaration.backoff
    if own is not None:
        try:
            return seconds_from(own(failures, error))
        except BaseException as problem:  # such as SystemExit: the task fails as usual
            signals.backoff_failed.emit(**attempt.facts, error=shown(problem), exception=problem)
    return backoff(failures, base=config.retry_base, ceiling=config.retry_ceiling)


def _with_text(error: BaseException, text: str) -> BaseException:
    """Return a copy of an error with another text, because the attempts of a call may share the error."""
    other = copy.copy(error).with_traceback(error.__traceback__)
    other.args = (text,)
    other.__cause__, other.__context__ = error.__cause__, error.__context__
    other.__suppress_context__ = error.__suppress_context__
    return other


def describe(error: BaseException) -> dict[str, Any]:
    """Return an error in the form that the row keeps: no local variables, only text that every database takes."""
    return {
        "type": type(error).__name__,
        "class": class_path(type(error)),
        "message": payload.clean_text(str_of(error), 1000),
        "traceback": payload.clean_text(tracebacks.text_of(error)),
    }


def shown(error: BaseException) -> str:
    """Return type and message of an error for a line of the log."""
    return f"{type(error).__name__}: {payload.clean_text(str_of(error), 1000)}"


def tell_late_error(attempt: Attempt, error: BaseException) -> None:
    """Log an error from the end of an attempt, which has its outcome already. Never raises."""
    with contextlib.suppress(BaseException):
        signals.attempt_end_failed.emit(exception=error, error=shown(error), **attempt.facts)
    tracebacks.forget_locals(error)
