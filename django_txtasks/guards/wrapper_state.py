"""State of Django's connection objects: a value that one task sets must not be there for the next task.

Packages for tenants keep the tenant in such attributes. The object stays the same, because instrumentation may
refer to it. Its constructor runs again, so that its first state comes back completely.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.functional import cached_property

_OF_USE = frozenset({
    "atomic_blocks", "autocommit", "close_at", "closed_in_transaction", "commit_on_exit", "connection",
    "errors_occurred", "health_check_done", "health_check_enabled", "in_atomic_block", "init_commands",
    "isolation_level", "needs_rollback", "queries_log", "rollback_exc", "run_commit_hooks_on_set_autocommit_on",
    "run_on_commit", "savepoint_ids", "savepoint_state", "transaction_mode", "_named_cursor_idx",
})  # fmt: skip
"""Attributes that Django itself changes when a connection is used."""
_OF_DJANGO = frozenset({
    "client", "creation", "features", "force_debug_cursor", "introspection", "ops", "settings_dict", "validation",
})  # fmt: skip
"""Attributes of Django that instrumentation may have replaced. They stay as they were before the attempt."""
_CONTAINERS = (list, dict, set)
"""Types whose values are copied, because tasks may change them in place."""


class WrapperState:
    """Attributes of one connection object before an attempt. Only the connection's thread uses it.

    Attributes:
        is_in_block: True if the connection was in a transaction before the attempt, as in a test. It is left
            alone.
    """

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self.connection, self._vars = connection, vars(connection)
        self._index()
        self.note()

    def note(self) -> None:
        """Take the present values as the values before the attempt."""
        if len(self._vars) != self._count:
            self._index()
        self._values = self._get(self._vars)
        self._held = [
            name
            for name, value in zip(self._names, self._values, strict=True)
            if type(value) in _CONTAINERS and name != "settings_dict"
        ]
        self._copies = self._containers()
        self.is_in_block = self.connection.in_atomic_block

    def is_changed(self) -> bool:
        """Return True if an attribute has changed since the start of the attempt, is new, or is gone.

        Attributes that Django changes when a connection is used do not count. An unchanged object counts as
        unchanged whatever it contains, unless it is a list, a dict or a set.
        """
        if len(self._vars) != self._count and not self._has_usual_names():
            return True
        try:
            return self._values != self._get(self._vars) or self._copies != self._containers()
        except Exception:  # an attribute is gone, or a project's __eq__ raises
            return True

    def renew(self) -> None:
        """Run the constructor of the closed connection again.

        Execute wrappers stay, and so do attributes from before the attempt that the constructor does not set. The
        present values become those before the next attempt.
        """
        before = dict(zip(self._names, self._values, strict=True))
        before.update(zip(self._held, self._copies, strict=True))
        alias = self.connection.alias
        self._vars.clear()
        type(self.connection).__init__(self.connection, before["settings_dict"], alias)
        for name, value in before.items():
            if name in _OF_DJANGO or name == "execute_wrappers" or name not in self._vars:
                self._vars[name] = value
        self._index()
        self.note()

    def _index(self) -> None:
        self._count = len(self._vars)
        self._usual: frozenset[str] = frozenset()  # names that were found usual
        names = _watched(tuple(self._vars))
        self._names, self._get = names

    def _containers(self) -> list[Any]:
        return [self._vars[name].copy() for name in self._held]

    def _has_usual_names(self) -> bool:
        """Return True if all attributes that came or went are cached properties, or belong to its use."""
        if self._vars.keys() == self._usual:
            return True
        names = set(_watched(tuple(self._vars))[0])
        came_or_went = names.symmetric_difference(self._names)
        is_usual = all(_is_cached_property(type(self.connection), one) for one in came_or_went)
        if is_usual:
            self._usual = frozenset(self._vars)
        return is_usual


@functools.lru_cache(maxsize=128)
def _watched(names: tuple[str, ...]) -> tuple[tuple[str, ...], Callable[[Any], Any]]:
    """Return the names of the attributes to compare, and a function that returns their values."""
    watched = tuple(
        [name for name in names if name not in _OF_USE and not name.startswith("_thread_sharing_l")]
    )
    return watched, operator.itemgetter(*watched)


def _is_cached_property(kind: type, name: str) -> bool:
    return isinstance(getattr(kind, name, None), (cached_property, functools.cached_property))
