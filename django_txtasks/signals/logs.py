"""Log lines: the task that a line belongs to, and output as JSON."""

from __future__ import annotations

import json
import logging
import sys
from contextvars import ContextVar
from datetime import datetime, timezone
from typing import Any

current: ContextVar[dict[str, Any] | None] = ContextVar("txtasks_current", default=None)
"""Facts for each log line inside a task: task_id, task, queue, attempt, worker."""

_OF_EVERY_RECORD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class TaskFilter(logging.Filter):
    """Gives each record ``task_id``, ``task`` and ``attempt`` of the task that logs it; empty outside tasks."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the attributes; keep every record."""
        facts = current.get() or {}
        for name in ("task_id", "task", "attempt"):
            if not hasattr(record, name):
                setattr(record, name, facts.get(name, ""))
        return True


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, pid, message, the task's facts, ``extra``, error."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        extra = {
            name: value for name, value in vars(record).items() if name not in _OF_EVERY_RECORD
        }
        line: dict[str, Any] = {
            **{name: value for name, value in extra.items() if not _is_empty(value)},
            **(current.get() or {}),
            "time": datetime.fromtimestamp(record.created, tz=timezone.utc).isoformat(
                timespec="milliseconds"
            ),
            "level": record.levelname,
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        try:
            return json.dumps(line, default=str, allow_nan=False)
        except (TypeError, ValueError):  # keys that are not text, NaN, a value that contains itself
            return json.dumps({name: _plain(value) for name, value in line.items()})


def _is_empty(value: Any) -> bool:
    return isinstance(value, str) and not value


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, int)) else repr(value)


def write_json() -> None:
    """Make every handler of the process write JSON lines; add one for stderr if the root logger lacks one."""
    loggers = [logging.root, *map(logging.getLogger, list(logging.root.manager.loggerDict))]
    handlers = {handler for logger in loggers for handler in logger.handlers}
    if not logging.root.handlers:
        stderr = logging.StreamHandler()
        handlers.add(stderr)
        logging.root.addHandler(stderr)
        if logging.root.level == logging.WARNING:  # Python's default
            logging.root.setLevel(logging.INFO)
        for logger in loggers[1:]:  # avoids duplicate lines; files keep their names
            for handler in list(logger.handlers):
                if logger.propagate and getattr(handler, "stream", None) is sys.stderr:
                    logger.removeHandler(handler)
    for handler in handlers:
        handler.setFormatter(JsonFormatter())
