"""Secrets in the arguments of tasks: pages show neither values that are named like secrets nor unknown ones."""

from __future__ import annotations

import inspect
import re
from typing import Any

from django.utils.translation import gettext_lazy as _lazy

from django_txtasks.core.declaring import registry
from django_txtasks.exceptions import UnknownTask

REDACTED = _lazy("[redacted]")
_SECRET_NAME = re.compile(
    "api|auth|cookie|credential|dsn|jwt|key|otp(?!r)|pass|pwd|secret|session|signature|token", re.IGNORECASE
)  # fmt: skip
"""Words that Django's error reports hide, and more. "otp" must not match "footprint"."""
_PASSWORD_OF_URL = re.compile(r"(\w://[^\s/@:]*:)[^\s/]+(?=@)")
MAX_DEPTH_LEVELS = 50


def redacted(value: Any, depth: int = 0) -> Any:
    """Return a JSON value with the values of secret-looking keys, and passwords in URLs, redacted.

    Arguments of a hook or a notice, ``{"task_name": …, "args": […]}``, are redacted as on that task's page.
    """
    if depth > MAX_DEPTH_LEVELS:
        return "…"
    if isinstance(value, dict):
        if isinstance(value.get("task_name"), str) and "args" in value:
            value = {**value, "args": judged(value["args"], value["task_name"])}
        return {
            key: str(REDACTED) if is_secret(key) else redacted(item, depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, str):
        return _PASSWORD_OF_URL.sub(lambda found: f"{found[1]}{REDACTED}", value)
    return [redacted(item, depth + 1) for item in value] if isinstance(value, list) else value


def is_secret(name: str) -> bool:
    """Return True if a key or a parameter is named like a secret."""
    return _SECRET_NAME.search(name) is not None


def judged(value: Any, task_name: str) -> Any:
    """Return positional arguments, with those redacted whose parameter is named like a secret, or is unknown
    here.

    A parameter is unknown if the function is not declared in this code, takes ``*args``, or takes fewer
    parameters.
    """
    if not isinstance(value, list):
        return value
    names = parameters(task_name)
    open_ = [not is_secret(name) for name in names][: len(value)]
    open_ += [False] * (len(value) - len(open_))
    return [item if shown else str(REDACTED) for item, shown in zip(value, open_, strict=True)]


def parameters(task_name: str) -> list[str]:
    """Return the names of a task function's positional parameters; empty if the function is unknown here."""
    try:
        declaration = registry.get(task_name)
        found = inspect.signature(declaration.function).parameters.values()
    except (UnknownTask, TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [one.name for one in found if one.kind in kinds]
    return names[1:] if declaration.takes_context else names
