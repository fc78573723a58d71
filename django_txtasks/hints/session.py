"""A database session for hints only, outside the connections and the pool of tasks and requests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections

CONNECT_TIMEOUT_SECONDS = 5
ANSWER_TIMEOUT_MS = 10_000
"""Milliseconds after which a server whose packets no longer arrive is given up (``tcp_user_timeout``)."""


def open_session(alias: str) -> Any:
    """Return Django's wrapper of a new connection, in autocommit mode."""
    wrapper = connections.create_connection(alias)
    limits = {
        "connect_timeout": CONNECT_TIMEOUT_SECONDS,
        "tcp_user_timeout": ANSWER_TIMEOUT_MS,
    }
    options = {**limits, **wrapper.settings_dict["OPTIONS"]}
    options.pop("pool", None)
    wrapper.settings_dict = {**wrapper.settings_dict, "OPTIONS": options, "AUTOCOMMIT": True}
    wrapper.connect()
    return wrapper


def close(wrapper: Any) -> None:
    """Close the session, whatever its state."""
    with contextlib.suppress(Exception):
        wrapper.close()


@contextmanager
def session(alias: str) -> Iterator[Any]:
    """Open a session for the block."""
    wrapper = open_session(alias)
    try:
        yield wrapper.connection
    finally:
        close(wrapper)
