"""The package's TCP proxy, with connections that are lost at a chosen moment, or lead nowhere."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

from django_txtasks.contrib.verify import proxy

Asked = Callable[[bytes], bool]


class Proxy(proxy.Proxy):
    """Passes bytes on between clients and one server; close it after use.

    Attributes:
        swallow: pass nothing on and answer nothing, like a black hole.
        cuts: how many connections ``cut_when`` has cut.
    """

    def __init__(self, host: str, port: int, *, swallow: bool = False) -> None:
        self.swallow, self.cuts = swallow, 0
        self.cut_at: tuple[Asked, bool] | None = None
        self._open = threading.Event()
        super().__init__(host, port)

    def __exit__(self, *_: object) -> None:
        self._open.set()
        super().__exit__(*_)

    def cut_when(self, asked: Asked, *, delivered: bool) -> None:
        """Cut a connection, once, at the first bytes from a client for which ``asked`` is true.

        Args:
            delivered: let the server have these bytes and lose only its answer.
        """
        self.cut_at = (asked, delivered)

    def move(self, host: str, port: int) -> None:
        """Lead new connections to another server."""
        self._target = (host, port)

    def cut_all(self) -> None:
        """Cut all connections."""
        for pair in list(self._pairs):
            pair.shut()

    def reset_all(self) -> None:
        """Cut all connections at once, as a firewall that has forgotten them does: both ends get RST."""
        self.cut()
        end = time.monotonic() + 10
        while self._pairs and time.monotonic() < end:
            time.sleep(0.01)

    def connect(self) -> socket.socket:
        if self.swallow:
            self._open.wait()
            raise ConnectionRefusedError
        return super().connect()

    def pair(self, client: socket.socket, server: socket.socket) -> _Pair:
        return _Pair(client, server, self)


class _Pair(proxy.Pair):
    def __init__(self, client: socket.socket, server: socket.socket, owner: Proxy) -> None:
        super().__init__(client, server)
        self._owner = owner
        self._deaf, self._answered = threading.Event(), threading.Event()

    def up(self, data: bytes) -> bool:
        if self._owner.cut_at is None:
            return super().up(data)
        asked, delivered = self._owner.cut_at
        if not asked(data):
            return super().up(data)
        self._owner.cut_at = None
        self._owner.cuts += 1
        if delivered:
            self._deaf.set()
            self.server.sendall(data)
            self._answered.wait(10)
        return False

    def down(self, data: bytes) -> None:
        if self._deaf.is_set():
            self._answered.set()  # and nobody hears it
        else:
            super().down(data)
