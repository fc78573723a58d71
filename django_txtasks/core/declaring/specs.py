"""Task specs: descriptions of tasks to be enqueued later, as rows keep them for their hooks.

Another program may have written a row, so a spec that is read from a row is checked like the options of ``@task``.
"""

from __future__ import annotations

from typing import Any

from django_txtasks.core.declaring.declaring import undeclared
from django_txtasks.core.declaring.registry import find
from django_txtasks.core.declaring.table import OPTIONS, checked, columns_of
from django_txtasks.exceptions import TxTasksError

_REQUIRED = undeclared("").task_spec.keys()
_OPTIONS = {**OPTIONS.whole.columns, "expires": OPTIONS.whole.of_task["expires"]}
_KNOWN = _REQUIRED | {"with_result", "lane", *_OPTIONS}


def task_spec(name: str) -> dict[str, Any]:
    """Return the spec of a task; for a name that this code does not declare, the defaults."""
    return (find(name) or undeclared(name)).task_spec


def is_task_spec(value: Any) -> bool:
    """Return whether a value is a spec as a declaration makes it."""
    return (
        (isinstance(value, dict) and _REQUIRED <= value.keys() <= _KNOWN)
        and _is_text(value["task_name"], 200)
        and _is_text(value["queue_name"], 100)
        and all(_fits(name, value[name]) for name in _OPTIONS if name in value)
        and value["on_crash"] in ("dead", "retry", "compensate", "retry+undo")
        and (value.get("lane", "") == "" or _is_text(value["lane"], 200))
        and value.get("with_result", False) in (True, False)
        and isinstance(value["hooks"], dict)
        and all(is_task_spec(hook) for hook in value["hooks"].values())
    )


def row_of(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the values of the row that a spec describes; its ``hooks`` are not yet JSON text."""
    row = {name: value for name, value in spec.items() if name not in ("with_result", "expires")}
    row["expires_at"] = _OPTIONS["expires"].check("", "expires", spec.get("expires"))
    options = {name: value for name, value in row.items() if name in OPTIONS.whole.columns}
    return {**row, **columns_of(checked(spec["task_name"], OPTIONS.whole.columns, options))}


def _fits(option: str, value: Any) -> bool:
    try:
        _OPTIONS[option].check("", option, value)
    except TxTasksError:
        return False
    return True


def _is_text(value: Any, length: int) -> bool:
    return isinstance(value, str) and 0 < len(value) <= length and value.isprintable()
