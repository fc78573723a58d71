"""Tasks that an arrow enqueues in its own transaction: hooks, compensation, and what features add.

They are rows like all others: if the arrow is rolled back, there are none; if it commits, each is there exactly
once. Their values come from the row of the task, so a cleaner needs no task code.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django.db import connections

from django_txtasks.core.declaring import specs
from django_txtasks.core.ground import payload
from django_txtasks.core.ground.config import CoreConfig
from django_txtasks.core.rows.arrow_parts import parts
from django_txtasks.core.rows.attempts import Arrow, Counted, Ended, FollowUps
from django_txtasks.core.rows.enqueueing import NewTask, RowDefaults, insert, new_id
from django_txtasks.models import OnCrash

_HOOK_OF = {Arrow.FINISH: "on_success", Arrow.RETRY: "on_retry", Arrow.BURY: "on_failure"}


def follow(
    alias: str, ended: Iterable[Ended], config: CoreConfig, *, lost: OnCrash | None = None
) -> FollowUps:
    """Enqueue the hooks, compensations and other tasks of these arrows, in the transaction that takes them.

    Args:
        lost: the crash policy, if their worker was lost; else None.
    """
    unusual = [one for one in ended if one.arrow is not Arrow.FINISH or one.attempt.hooks != "{}"]
    told = [task for one in unusual for task in _tasks(one, lost)]
    later: list[NewTask] = []
    for of_part in parts().follow_ups if unusual else ():
        more, more_later = of_part(alias, unusual, config)
        told += more
        later += more_later
    insert(connections[alias], [*told, *later])
    return [task.hint for task in told]


def _tasks(one: Ended, lost: OnCrash | None) -> Iterator[NewTask]:
    attempt = one.attempt
    hooks = read_hooks(attempt.hooks)
    is_undone = one.arrow is Arrow.BURY and lost is not None and lost.compensates
    if is_undone and "compensate" in hooks:
        yield follow_up(
            hooks["compensate"], args=attempt.args, kwargs=attempt.kwargs, headers=attempt.headers
        )
    name = _HOOK_OF.get(one.arrow)
    if name is not None and name in hooks:
        gets_result = one.arrow is Arrow.FINISH and hooks[name].get("with_result", False)
        yield follow_up(
            hooks[name],
            args=f"[{one.result or 'null'}]" if gets_result else hook_data(one),
            headers=attempt.headers,
        )


def read_hooks(text: str) -> dict[str, Any]:
    """Return the hooks in a row's text; invalid ones, written by hand, are left out."""
    if text in ("", "{}"):
        return {}
    try:
        hooks = json.loads(text)
        return {name: hook for name, hook in hooks.items() if specs.is_task_spec(hook)}
    except (ValueError, AttributeError, RecursionError):
        return {}


def follow_up(
    task_spec: dict[str, Any], *, args: str, kwargs: str = "{}", headers: str | None = None
) -> NewTask:
    """Return the row of a spec."""
    hooks = json.dumps(task_spec["hooks"], separators=(",", ":"))
    row = RowDefaults(**{**specs.row_of(task_spec), "hooks": hooks, "headers": headers})
    return NewTask(new_id(), row, args, kwargs)


def hook_data(one: Ended) -> str:
    """Return the arguments of a hook: one object, the hook data."""
    attempt = one.attempt
    failed = one.arrow is not Arrow.FINISH and one.counted is Counted.FAILURE
    data = {
        "event": _HOOK_OF[one.arrow][3:],
        "task_id": str(attempt.task_id),
        "task_name": attempt.task_name,
        "queue_name": attempt.queue_name,
        "args": _readable(attempt.args),
        "kwargs": _readable(attempt.kwargs),
        "attempt": attempt.number,
        "failures": attempt.failures + failed,
        "crashes": attempt.crashes + (one.counted is Counted.CRASH),
        "result": _readable(one.result),
        "error": {key: _said(one.error, key) for key in ("type", "message")} if one.error else None,
    }
    return payload.write([data])


def _said(error: Mapping[str, Any], key: str) -> str | None:
    text = error.get(key)
    return None if text is None else payload.storable(text)


def _readable(text: str | None) -> Any:
    """Return the value of a JSON text; None if it cannot be written as JSON again, such as 1e999."""
    try:
        value = None if text is None else json.loads(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return value
