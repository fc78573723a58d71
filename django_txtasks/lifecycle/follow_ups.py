"""Tasks that an arrow enqueues in its own transaction: hooks, compensation, dead notices.

They are rows like all others: if the arrow is rolled back, there are none; if it commits, each is there exactly
once. Their values come from the row of the task or from the settings, so a cleaner needs no task code.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from django.db import connections, transaction

from django_txtasks.conf import Config
from django_txtasks.database.execute import as_uuid, fetch_as
from django_txtasks.declarations import specs
from django_txtasks.lifecycle.attempts import Arrow, Attempt, Counted, Ended, FollowUps
from django_txtasks.lifecycle.brake import brakes, digest_delay
from django_txtasks.lifecycle.enqueueing import NewTask, RowDefaults, insert, new_id
from django_txtasks.models import OnCrash
from django_txtasks.rules import payload

MAIL = "django_txtasks.notices.mail_dead_notice"
EXCHANGE = "django_txtasks.notices.publish_dead_notice"
DIGEST = "django_txtasks.notices.digest_of_the_dead"

OF_ONE_TASK = (
    "task_id", "task_name", "queue_name", "args", "kwargs", "attempt", "failures", "crashes", "result", "error",
)  # fmt: skip
"""Keys of the hook data about one task. A digest has the same keys, with None as their values."""
_HOOK_OF = {Arrow.FINISH: "on_success", Arrow.RETRY: "on_retry", Arrow.BURY: "on_failure"}

# If a row that has absorbed others leaves the table without a run, its ``on_failure`` is enqueued: otherwise the
# callers of the merged tasks would not learn that their request has failed.
ABSORBERS = """
    SELECT id, attempt, task_name, queue_name, args, kwargs, failures, crashes, hooks FROM txtasks_task
     WHERE id {in_ids} AND absorbed > 0
"""


def follow(
    alias: str, ended: Iterable[Ended], config: Config, *, lost: OnCrash | None = None
) -> FollowUps:
    """Enqueue the hooks, compensations and notices of these arrows, in the transaction that takes them.

    Args:
        lost: the crash policy, if their worker was lost; else None.
    """
    unusual = [one for one in ended if one.arrow is not Arrow.FINISH or one.attempt.hooks != "{}"]
    tasks = [task for one in unusual for task in _tasks(one, lost)]
    deaths = [one for one in unusual if one.arrow is Arrow.BURY and _notices(one.attempt, config)]
    digest: list[NewTask] = []
    if deaths:
        singles, pause = brakes[alias].ask(len(deaths))
        tasks += [
            _notice(name, _hook_data(one), config)
            for one in deaths[:singles]
            for name in _notices(one.attempt, config)
        ]
        if pause is not None:
            digest = [_notice(DIGEST, json.dumps([alias]), config, delay=digest_delay(pause))]
            enqueued = partial(brakes[alias].digest_enqueued, pause)
            transaction.on_commit(enqueued, using=alias, robust=True)
    insert(connections[alias], [*tasks, *digest])
    return [task.hint for task in tasks]


def digest(alias: str, data: dict[str, Any], config: Config) -> FollowUps:
    """Enqueue a digest of dead tasks for each kind of notice, in the open transaction."""
    text = json.dumps([data], separators=(",", ":"))
    tasks = [_notice(name, text, config) for name in _ways(config)]
    insert(connections[alias], tasks)
    return [task.hint for task in tasks]


def fail_absorbers(alias: str, ids: Iterable[uuid.UUID], why: str) -> FollowUps:
    """Enqueue the ``on_failure`` of rows that have absorbed others and are about to leave the table without a run.

    Otherwise the callers of the merged tasks would not learn of it.

    Args:
        why: the outcome of the rows.
    """
    tasks = []
    for row in fetch_as(_Absorber, alias, ABSORBERS, ids=sorted(set(ids))):
        attempt = row.attempt_of()
        error = {"type": why, "message": f"the task, into which others were merged, was {why}"}
        hook = _hooks(attempt).get("on_failure")
        if hook is not None:
            ended = Ended(attempt, Arrow.BURY, error=error, counted=Counted.NOTHING)
            tasks.append(follow_up(hook, args=_hook_data(ended)))
    insert(connections[alias], tasks)
    return [task.hint for task in tasks]


class _Absorber(NamedTuple):
    """The columns of ``ABSORBERS``."""

    id: Any
    attempt: int
    task_name: str
    queue_name: str
    args: str
    kwargs: str
    failures: int
    crashes: int
    hooks: str

    def attempt_of(self) -> Attempt:
        return Attempt(
            task_id=as_uuid(self.id),
            number=self.attempt,
            worker=uuid.UUID(int=0),
            task_name=self.task_name,
            queue_name=self.queue_name,
            args=self.args,
            kwargs=self.kwargs,
            failures=self.failures,
            crashes=self.crashes,
            hooks=self.hooks,
        )


def _tasks(one: Ended, lost: OnCrash | None) -> Iterator[NewTask]:
    attempt = one.attempt
    hooks = _hooks(attempt)
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
            args=f"[{one.result or 'null'}]" if gets_result else _hook_data(one),
            headers=attempt.headers,
        )


def _hooks(attempt: Attempt) -> dict[str, Any]:
    return read_hooks(attempt.hooks)


def read_hooks(text: str) -> dict[str, Any]:
    """Return the hooks in a row's text; invalid ones, written by hand, are left out."""
    if text in ("", "{}"):
        return {}
    try:
        hooks = json.loads(text)
        return {name: hook for name, hook in hooks.items() if specs.is_task_spec(hook)}
    except (ValueError, AttributeError, RecursionError):
        return {}


def _notices(attempt: Attempt, config: Config) -> list[str]:
    """Return the names of the tasks that report a death. The death of a notice is only logged."""
    ways = _ways(config)
    return [] if attempt.task_name in (*ways, DIGEST) else ways


def _ways(config: Config) -> list[str]:
    asked = config.dead_notices
    return [
        name
        for name, wanted in ((MAIL, asked.mail), (EXCHANGE, asked.exchange), (asked.task, True))
        if name and wanted
    ]


def _notice(name: str, args: str, config: Config, delay: timedelta | None = None) -> NewTask:
    task_spec = specs.task_spec(name)
    queues = config.queues_of_workers or config.queues
    if task_spec["queue_name"] not in queues:
        task_spec = {**task_spec, "queue_name": queues[0]}
    return follow_up({**task_spec, "run_after": delay}, args=args)


def follow_up(
    task_spec: dict[str, Any], *, args: str, kwargs: str = "{}", headers: str | None = None
) -> NewTask:
    """Return the row of a spec."""
    hooks = json.dumps(task_spec["hooks"], separators=(",", ":"))
    row = RowDefaults(**{**specs.row_of(task_spec), "hooks": hooks, "headers": headers})
    return NewTask(new_id(), row, args, kwargs)


def _hook_data(one: Ended) -> str:
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
