"""pika's connection, but it looks host names up in the thread that connects.

pika starts a thread for each look-up. From Python 3.12 on no thread can be started once the main
thread has ended, so a short process could not send its last hints. Ours has a thread of its own
to connect in, which may as well wait.
"""

from __future__ import annotations

import codecs
import socket
from collections.abc import Callable
from typing import Any

from pika.adapters.select_connection import SelectConnection
from pika.adapters.utils.nbio_interface import AbstractIOReference
from pika.adapters.utils.selector_ioloop_adapter import SelectorIOServicesAdapter

codecs.lookup("idna")  # host names need it, and once Python is ending nothing can be imported


class _Done(AbstractIOReference):  # type: ignore[misc]  # pika ships no types
    """A look-up that cannot be cancelled any more."""

    def cancel(self) -> bool:
        return False


class _InThisThread(SelectorIOServicesAdapter):  # type: ignore[misc]  # pika ships no types
    def getaddrinfo(  # noqa: PLR0917 -- as pika calls it
        self,
        host: str,
        port: int,
        on_done: Callable[[Any], None],
        family: int = 0,
        socktype: int = 0,
        proto: int = 0,
        flags: int = 0,
    ) -> AbstractIOReference:
        """Look it up now, and call back from the loop, as pika expects."""
        result: Any
        try:
            result = socket.getaddrinfo(host, port, family, socktype, proto, flags)
        except OSError as error:
            result = error
        self._loop.call_later(0, lambda: on_done(result))
        return _Done()


class Connection(SelectConnection):  # type: ignore[misc]  # pika ships no types
    """What ``BlockingConnection`` runs inside."""

    @classmethod
    def create_connection(
        cls,
        connection_configs: Any,
        on_done: Any,
        custom_ioloop: Any = None,
        workflow: Any = None,
    ) -> Any:
        """As in pika, with the other look-up."""
        services = _InThisThread(custom_ioloop)

        def make(params: Any) -> Connection:
            return cls(
                parameters=params, custom_ioloop=services, internal_connection_workflow=False
            )

        return cls._start_connection_workflow(
            connection_configs=connection_configs,
            connection_factory=make,
            nbio=services,
            workflow=workflow,
            on_done=on_done,
        )
