"""Where faults strike: thirteen points on the way of a task, one hooked per process.

A statement is hit right after it was executed, in its open transaction if it has one. Around a COMMIT, or a
statement that commits by itself, there are two moments: a cut and a freeze strike before it is sent, an
exception and kill -9 once it has landed and its answer is lost.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.db.backends.signals import connection_created

from failpoints.faults import Fault, shut

# The loop records the ends of most tasks in its turn, but an atomic task its own in its own transaction:
# each kind of finish gets two of the faults, and its commit the other two.
LOOPS_FINISH, ATOMIC_FINISH = "KEEP_GONE", "FINISH"
CLAIMS = "CLAIM", "_CLAIM"
FINISHES = {
    "raise": LOOPS_FINISH,
    "kill": ATOMIC_FINISH,
    "stop": LOOPS_FINISH,
    "cut": ATOMIC_FINISH,
}
COMMITS = {"raise": ATOMIC_FINISH, "kill": LOOPS_FINISH, "stop": ATOMIC_FINISH, "cut": LOOPS_FINISH}

Passed = Callable[[Any], bool]


def arm() -> None:
    """Hook the point that the environment names: ``TXTASKS_FAILPOINT=point:fault:marker``."""
    if "TXTASKS_FAILPOINT" in os.environ:
        point, kind, marker = os.environ["TXTASKS_FAILPOINT"].split(":")
        SEAMS[point](Fault(kind, Path(marker)))


# -- statements and commits -------------------------------------------------------------------------


def statement(*names: str, skip: int = 0, when: Passed | None = None) -> Callable[[Fault], None]:
    """Strike after one of these statements of the lifecycle, or of steps.

    Args:
        when: looks through the connection.
    """

    def hook(fault: Fault) -> None:
        fault.skip = skip

        def execute(call: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
            result = call(sql, params, many, context)
            connection = context["connection"]
            if is_one_of(names, sql) and (when is None or when(connection)):
                fault.strike(functools.partial(cut_database, connection))
            return result

        on_each_connection(lambda connection: connection.execute_wrappers.append(execute))

    return hook


def commit(*names: str, skip: int = 0) -> Callable[[Fault], None]:
    """Strike at the COMMIT of a transaction with one of these statements."""

    def hook(fault: Fault) -> None:
        fault.skip = skip

        def attach(connection: Any) -> None:
            seen: list[str] = []
            real_commit, real_rollback = connection._commit, connection._rollback

            def execute(call: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
                do = functools.partial(call, sql, params, many, context)
                if not is_one_of(names, sql):
                    return do()
                if connection.get_autocommit() or sql.endswith("COMMIT"):
                    return struck(do)
                seen.append(sql)
                return do()

            def struck(do: Callable[[], Any]) -> Any:
                if fault.kind in ("cut", "stop"):
                    fault.strike(functools.partial(cut_database, connection))
                answer = do()
                if fault.kind in ("raise", "kill"):
                    fault.strike(functools.partial(cut_database, connection))
                return answer

            def commit_() -> None:
                meant = bool(seen)
                seen.clear()
                if meant:
                    struck(real_commit)
                else:
                    real_commit()

            def rollback() -> None:
                seen.clear()
                real_rollback()

            connection.execute_wrappers.append(execute)
            connection._commit, connection._rollback = commit_, rollback

        on_each_connection(attach)

    return hook


def by_fault(
    seam: Callable[..., Callable[[Fault], None]], names: dict[str, str]
) -> Callable[[Fault], None]:
    """Hook the statement that this fault is for."""
    return lambda fault: seam(names[fault.kind])(fault)


def on_each_connection(attach: Callable[[Any], None]) -> None:
    """Attach to each of Django's connections, once, however often it connects."""
    attached = f"_failpoints_attached_{id(attach)}"

    def receive(connection: Any, **_: Any) -> None:
        if not hasattr(connection, attached):
            setattr(connection, attached, True)
            attach(connection)

    connection_created.connect(receive, weak=False)


@functools.cache
def pattern(name: str) -> re.Pattern[str]:
    """Match the text of a statement, or of a part, as it is executed: with any pieces and parameters."""
    from django_txtasks.core.rows import statements
    from django_txtasks.fast import postgresql
    from django_txtasks.features.steps import statements as of_steps

    (room, *_) = (one for one in (statements, of_steps, postgresql) if hasattr(one, name))
    parts = re.split(r"\{\w+\}|%\(\w+\)s|<\w+>", getattr(room, name))
    return re.compile(".*".join(map(re.escape, parts)), re.DOTALL)


def is_one_of(names: tuple[str, ...], sql: str) -> bool:
    """Say whether this is one of the lifecycle's statements."""
    return any(pattern(name).search(sql) for name in names)


def cut_database(connection: Any) -> None:
    """Cut the socket below a connection of Django's."""
    connection.ensure_connection()
    shut(connection.connection.pgconn.socket)


def runs_something(connection: Any) -> bool:
    """A beat while a worker has work: there is something to lose."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM txtasks_task WHERE status = 'claimed' LIMIT 1")
        return cursor.fetchone() is not None


def has_lost_workers(connection: Any) -> bool:
    """There is something to recover."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM txtasks_worker WHERE lost")
        return cursor.fetchone() is not None


# -- RabbitMQ -----------------------------------------------------------------------------------------


def publishing(fault: Fault) -> None:
    """Strike in the publisher's thread, before a hint is sent."""
    from django_txtasks.hints.broker.connection import Connection

    real = Connection.publish

    def publish(connection: Any, *args: Any) -> bool:
        fault.strike(lambda: shut(connection._transport._sock.fileno()), RuntimeError)
        return real(connection, *args)

    Connection.publish = publish


def receiving(fault: Fault) -> None:
    """Strike in the consumer's thread, before a hint is read."""
    from django_txtasks.hints.broker import topology
    from django_txtasks.hints.sending import message as hint_message

    connect, decode = topology.connect, hint_message.decode
    opened: list[Any] = []

    def connect_and_remember(*args: Any, **kwargs: Any) -> Any:
        opened.append(connect(*args, **kwargs))
        return opened[-1]

    def strike_and_decode(body: bytes) -> Any:
        fault.strike(lambda: [cut_amqp(one) for one in opened if one.is_open], RuntimeError)
        return decode(body)

    topology.connect, hint_message.decode = connect_and_remember, strike_and_decode


def cut_amqp(connection: Any) -> None:
    """Cut the socket below a connection of pika's, which has no public name for it."""
    shut(connection._impl._transport._sock.fileno())


# -- the task function --------------------------------------------------------------------------------

_in_tasks: dict[tuple[str, str], Fault] = {}


def task(point: str, kind: str) -> Callable[[Fault], None]:
    """Strike where a task of this kind says that it has come to this point."""
    return lambda fault: _in_tasks.update({(point, kind): fault})


def reached(point: str, kind: str) -> None:
    """Said by task functions."""
    from django.db import connection

    if (point, kind) in _in_tasks:
        _in_tasks[point, kind].strike(functools.partial(cut_database, connection), ValueError)


ROLES: dict[str, dict[str, Callable[[Fault], None]]] = {
    "sender": {
        "insert": statement("INSERT_TASKS", skip=4),  # in the middle of the second transaction
        "commit": commit("INSERT_TASKS", skip=1),
        "hint": publishing,
    },
    "worker": {
        "receive": receiving,
        "claim": statement(*CLAIMS),
        "claim commit": commit(*CLAIMS),
        "run": task("run", "default"),
        "effects": task("effects", "atomic"),
        "finish": by_fault(statement, FINISHES),
        "finish commit": by_fault(commit, COMMITS),
        "heartbeat": statement("BEAT", when=runs_something),
    },
    "cleaner": {
        "select": statement("ORPHANS", when=has_lost_workers),
        "update": statement("RETRY", "BURY", "RELEASE"),
    },
}
SEAMS = {point: seam for seams in ROLES.values() for point, seam in seams.items()}
SEAMS["revive"] = statement("REVIVE", skip=2)  # in the third slice of an operation
