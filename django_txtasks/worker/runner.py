"""One attempt: look the function up, call it, and say which arrow its row takes."""

from __future__ import annotations

import traceback
from datetime import timedelta
from typing import Any

from asgiref.sync import async_to_sync
from django.db import connections, transaction

from django_txtasks import payload, registry
from django_txtasks.conf import Config
from django_txtasks.exceptions import InvalidArguments, Reject, Retry
from django_txtasks.functions import TaskContext
from django_txtasks.lifecycle import outcomes
from django_txtasks.lifecycle.attempts import Arrow, Attempt, Ended
from django_txtasks.registry import Declaration
from django_txtasks.retry import backoff


def run_attempt(attempt: Attempt, *, alias: str, config: Config) -> Ended:
    """Run the task function in this thread. Never raises: whatever happens is in the answer."""
    refresh_connections()
    try:
        declaration = registry.get(attempt.task_name)
        args, kwargs = payload.decode_arguments(attempt.args, attempt.kwargs)
        if declaration.takes_context:
            args.insert(0, _context(attempt))
        if declaration.atomic:
            return _run_atomic(attempt, declaration, args, kwargs, alias=alias, config=config)
        result = _encode(_call(declaration, args, kwargs))
        return Ended(attempt=attempt, arrow=Arrow.FINISH, result=result)
    except BaseException as error:
        return _failed(attempt, error, config)
    finally:
        _end_leftovers()


def _run_atomic(
    attempt: Attempt,
    declaration: Declaration,
    args: list[Any],
    kwargs: dict[str, Any],
    *,
    alias: str,
    config: Config,
) -> Ended:
    """Commit the effects and the finish together, or neither."""
    with transaction.atomic(using=alias, durable=True):
        result = _encode(_call(declaration, args, kwargs))
        outcomes.finish(alias, attempt, result, keep=bool(config.keep_finished))
    return Ended(attempt=attempt, arrow=Arrow.FINISH, result=result, recorded=True)


def _call(declaration: Declaration, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if declaration.is_async:
        return async_to_sync(declaration.function)(*args, **kwargs)
    return declaration.function(*args, **kwargs)


def _encode(result: Any) -> str | None:
    return None if result is None else payload.encode(result, name="result")


def _context(attempt: Attempt) -> TaskContext:
    return TaskContext(
        task_id=attempt.task_id,
        attempt=attempt.number,
        task_name=attempt.task_name,
        queue_name=attempt.queue_name,
        failures=attempt.failures,
        max_attempts=attempt.max_attempts,
    )


def _failed(attempt: Attempt, error: BaseException, config: Config) -> Ended:
    """Choose between RETRY and BURY: this failure counts."""
    entry = describe(error)
    failures = attempt.failures + 1
    hopeless = isinstance(error, (Reject, InvalidArguments))  # another attempt would meet the same
    if hopeless or failures >= attempt.max_attempts:
        return Ended(attempt=attempt, arrow=Arrow.BURY, error=entry)
    delay = backoff(failures, base=config.retry_base, ceiling=config.retry_ceiling)
    if isinstance(error, Retry) and error.after is not None:
        delay = max(error.after, timedelta(0))
    return Ended(attempt=attempt, arrow=Arrow.RETRY, delay=delay, error=entry)


def describe(error: BaseException) -> dict[str, Any]:
    """Return an error as it is kept in the row: no locals, nothing that a database refuses."""
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return {
        "type": type(error).__name__,
        "message": payload.clean_text(_text(error), 1000),
        "traceback": payload.clean_text("".join(lines)),
    }


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(its text cannot be read)"


def refresh_connections() -> None:
    """Close what a restarted server or an earlier task has broken, before the next task needs it."""
    for connection in connections.all(initialized_only=True):
        if (
            connection.connection is not None
            and not connection.in_atomic_block
            and not connection.is_usable()
        ):
            connection.close()


def _end_leftovers() -> None:
    """A task must not leave its transaction to the next one, not even an atomic block never left."""
    for connection in connections.all(initialized_only=True):
        if connection.connection is not None and (
            connection.in_atomic_block or not connection.autocommit
        ):
            connection.close()
            del connections[connection.alias]  # a block that was never left would stay open in it
