"""A row as a target gets it."""

from __future__ import annotations

import json
import uuid
from typing import Any, NamedTuple

MESSAGE = "message"
"""Key in the column ``headers`` of a message that was made at enqueueing. The other keys belong to tracers."""


class Row(NamedTuple):
    """A due row of a queue that is handed over.

    Attributes:
        id: the id of the task. A row may arrive twice: the receiver recognizes it by its id.
        args_text, kwargs_text: the arguments as JSON text.
        enqueued_at: ISO text in UTC.
        headers_text: the column ``headers`` as JSON text; None: it is empty.
        snoozes: how often the row was postponed.
        errors_text: the column ``errors`` as JSON text.
        has_ended: history has a task of this id, so the row is not sent again.
    """

    id: uuid.UUID
    task_name: str
    queue_name: str
    priority: int
    args_text: str
    kwargs_text: str
    enqueued_at: str
    headers_text: str | None = None
    snoozes: int = 0
    errors_text: str = "[]"
    has_ended: bool = False

    @property
    def args(self) -> list[Any]:
        """The positional arguments."""
        return json.loads(self.args_text)  # type: ignore[no-any-return]

    @property
    def kwargs(self) -> dict[str, Any]:
        """The arguments by name."""
        return json.loads(self.kwargs_text)  # type: ignore[no-any-return]

    @property
    def headers(self) -> dict[str, Any]:
        """The headers of tracers by the tracer's name, and ``MESSAGE``; empty: the row has no headers."""
        found = None if self.headers_text is None else json.loads(self.headers_text)
        return found if isinstance(found, dict) else {}

    @property
    def body(self) -> bytes:
        """The row as JSON: ``{id, task, args, kwargs, enqueued_at}``."""
        head = f'{{"id":"{self.id}","task":{json.dumps(self.task_name)},"args":{self.args_text}'
        end = f'"kwargs":{self.kwargs_text},"enqueued_at":{json.dumps(self.enqueued_at)}}}'
        return f"{head},{end}".encode()
