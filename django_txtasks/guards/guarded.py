"""The guards around the code of a task, each against what that code may do to its worker.

======================  ==========================================================================================
Guard                   What the code of a task may do
======================  ==========================================================================================
``connections``         leave a transaction open, change the session, or change Django's connection objects
``session_watch``       send statements that change the session, such as SET
``wrapper_state``       set attributes of a connection object, or put another object in its place
``awaited_sessions``    wait long for a database that gives no session
``slot_sessions``       fail one after the other, because no session is given
``forked_task``         fork: the child must not go on as the worker
``generators``          leave an async generator at its ``yield``
``task_threads``        leave threads with open sessions
``file``                put another file in the place of SQLite's database
======================  ==========================================================================================
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable

from django_txtasks.guards import generators
from django_txtasks.guards.awaited_sessions import awaiting
from django_txtasks.guards.connections import (
    after_attempt,
    before_attempt,
    close_old,
    have_session,
    note_states,
)
from django_txtasks.guards.file import refuse_replaced
from django_txtasks.guards.forked_task import (
    await_in_this_process,
    call_in_this_process,
    end_child,
    forks_of_process,
    watch_forks,
)

__all__ = [
    "after_attempt",
    "await_in_this_process",
    "awaiting",
    "before_attempt",
    "before_turn",
    "call_in_this_process",
    "close_old",
    "end_child",
    "forks_of_process",
    "have_session",
    "note_states",
    "watch",
    "watch_generators",
]

watch, before_turn = watch_forks, refuse_replaced


def watch_generators() -> Callable[[], Awaitable[None]]:
    """Return a function that closes the async generators which the running event loop begins from now on."""
    begun = generators.Generators()
    generators.watch()
    begun.own_this_context()
    return functools.partial(generators.close_in_own_loop, begun)
