"""Names of options and methods in other task queues, with their counterparts here, for error messages."""

from __future__ import annotations

import difflib
from collections.abc import Collection

_LATER = "fn.using(run_after=…).enqueue(…), with seconds, a timedelta or an aware datetime"
_WITH_OPTIONS = "using(run_after=…, queue_name=…, priority=…).enqueue(…)"
_ATTEMPTS = "@task(max_attempts=…): what raises is tried again by itself, with growing waits"
_WAITS = "@task(backoff=…), TXTASKS['retry_base'], or raise Retry(after=…) in the task"
_UNIQUE = "@task(unique_key=…), text or a function of the arguments"
_NEXT = "using(on_success=…) for what comes next, or batch() for what runs side by side"
_PERIODIC = (
    "missing so far: django-crontask (Python 3.12 or newer) schedules tasks of Django's own @task"
)

OPTIONS = {
    **dict.fromkeys(["countdown", "eta", "delay", "scheduled_at", "schedule_at"], _LATER),
    **dict.fromkeys(["retry", "retries", "max_retries", "autoretry_for", "attempts"], _ATTEMPTS),
    **dict.fromkeys(["retry_backoff", "default_retry_delay", "retry_delay"], _WAITS),
    **dict.fromkeys(["unique", "unique_for", "queueing_lock"], _UNIQUE),
    **dict.fromkeys(["cron", "crontab", "schedule", "run_every"], _PERIODIC),
    **dict.fromkeys(["queue", "routing_key"], "queue_name=…"),
    **dict.fromkeys(["time_limit", "soft_time_limit", "job_timeout"], "@task(timeout=…)"),
    **dict.fromkeys(["ttl", "max_age", "expire", "expires_at"], "expires=…"),
    **dict.fromkeys(
        ["acks_late", "reject_on_worker_lost"], "@task(idempotent=True) or @task(atomic=True)"
    ),
    **dict.fromkeys(["ignore_result", "result_ttl", "store_results"], "TXTASKS['keep_finished']"),
    "bind": "@task(takes_context=True)",
    "link": "@task(on_success=…)",
    "link_error": "@task(on_failure=…)",
    "database": "fn.using(using=…)",
    "name": "the function's module and name, which cannot be chosen",
}
"""Option of another task queue, and its counterpart here."""

METHODS = {
    **dict.fromkeys(["delay", "send", "defer", "perform_async"], "enqueue(…)"),
    **dict.fromkeys(["apply_async", "send_with_options", "configure"], _WITH_OPTIONS),
    **dict.fromkeys(["schedule", "enqueue_in", "enqueue_at"], "using(run_after=…).enqueue(…)"),
    **dict.fromkeys(["adelay", "defer_async"], "aenqueue(…)"),
    **dict.fromkeys(
        ["revoke", "abort"], "enqueue(…), and the cancel() of the handle that it returns"
    ),
    **dict.fromkeys(["s", "si", "signature", "subtask"], _NEXT),
    "delay_on_commit": "enqueue(…), whose row is part of the transaction",
}
"""Method of another task queue's task functions, and its counterpart here."""

OF_HANDLES = {
    **dict.fromkeys(["get", "wait", "join", "get_result"], "result(timeout=…)"),
    **dict.fromkeys(["aget", "await_result"], "aresult(timeout=…)"),
    **dict.fromkeys(["revoke", "abort", "terminate"], "cancel()"),
    **dict.fromkeys(
        ["ready", "successful", "failed", "is_finished"],
        "status(), which is 'succeeded' after success",
    ),
    **dict.fromkeys(["state", "get_status"], "status()"),
}
"""Method or attribute of another task queue's results, and its counterpart on a handle."""


def about_option(name: str, known: Collection[str]) -> str:
    """Return a sentence on an unknown option: its counterpart here, the likely name, or the known names."""
    if name in OPTIONS:
        return f"Here it is {OPTIONS[name]}."
    return about_name(name, known)


def about_name(name: str, known: Collection[str]) -> str:
    """Return a sentence with the likely name, or with the known names."""
    if near := difflib.get_close_matches(name, known, n=1, cutoff=0.6):
        return f"Did you mean {near[0]!r}?"
    return f"It has {', '.join(map(repr, known))}." if known else "It has none."


def no_attribute(owner: object, name: str) -> AttributeError:
    """Return the error for a missing attribute of a task function, or of a task of Django's."""
    if name in METHODS:
        shown = getattr(owner, "module_path", owner)
        return AttributeError(f"{shown} has no .{name}(…). Use .{METHODS[name]}.")
    return _missing(owner, name)


def no_attribute_of_handle(owner: object, name: str) -> AttributeError:
    """Return the error for a missing attribute of a handle."""
    if name in OF_HANDLES:
        return AttributeError(f"A TaskHandle has no .{name}. Use .{OF_HANDLES[name]}.")
    return _missing(owner, name)


def _missing(owner: object, name: str) -> AttributeError:
    return AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}")
