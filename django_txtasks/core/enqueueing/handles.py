"""The handle of an enqueued task. Features add methods: see ``handles``."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol

from django_txtasks.core.declaring import foreign
from django_txtasks.core.ground.seams import Composed

P = ParamSpec("P")


class Enqueueable(Protocol[P]):
    """A task function, or a task of Django's ``@task`` with this package's backend."""

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...


@dataclass(frozen=True, slots=True)
class CoreHandle:
    """A reference to an enqueued task, whose row is in the table once the transaction has committed.

    Attributes:
        queue_name: the queue of this call. If an earlier call had the same key of ``once``, its queue may differ.
        is_new: False: an earlier call had the same key of ``once``, and this is the handle of its task.
    """

    id: uuid.UUID
    task_name: str
    queue_name: str
    using: str
    is_new: bool = True

    if not TYPE_CHECKING:  # type checkers would accept any attribute

        def __getattr__(self, name: str) -> Any:
            raise foreign.no_attribute_of_handle(self, name)


HANDLE: Composed[type[CoreHandle]] = Composed(f"{__name__}.CoreHandle")
"""The class of the handles that enqueueings return."""
