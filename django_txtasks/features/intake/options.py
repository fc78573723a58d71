"""The option of intake."""

# No `from __future__ import annotations`: the entries are read at run time.

from typing import Annotated, TypedDict

from django_txtasks.core.declaring.table import Option


class IntakeOptions(TypedDict, total=False):
    """The option of intake."""

    intake: Annotated[bool, Option(False)]
    """Let messages of an AMQP queue enqueue the function, by ``manage.py runintake``. Each ``message_id`` counts
    once, as a key of ``once`` does; ``once_for`` sets for how long."""
