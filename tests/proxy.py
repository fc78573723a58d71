"""A TCP proxy that loses connections on purpose."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable

Asked = Callable[[bytes], bool]


class Proxy:
    """Passes bytes on between clients and one server; close it after use.

    Attributes:
        port: where it listens.
        swallow: pass nothing on and answer nothing, like a black hole.
        cuts: how many connections ``cut_when`` has cut.
    """

    def __init__(self, host: str, port: int, *, swallow: bool = False) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.swallow = swallow
        self.cuts = 0
        self._cut: tuple[Asked, bool] | None = None
        self._answered = threading.Event()
        self._resetting = False
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        _shut(self._listener)
        self.cut_all()
        for thread in self._threads:
            thread.join(10)
        for one in [self._listener, *self._sockets]:
            one.close()

    def cut_when(self, asked: Asked, *, delivered: bool) -> None:
        """Cut a connection, once, at the first bytes from a client for which ``asked`` is true.

        Args:
            delivered: let the server have these bytes and lose only its answer.
        """
        self._cut = (asked, delivered)

    def cut_all(self) -> None:
        """Cut all connections."""
        for one in self._sockets:
            _shut(one)

    def reset_all(self) -> None:
        """Cut all connections at once, as a firewall that has forgotten them does: both ends get RST."""
        sockets, self._sockets[:] = list(self._sockets), []
        self._resetting = True
        for one in sockets:
            with contextlib.suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                one.shutdown(socket.SHUT_RD)  # wakes the thread that reads it, and tells nobody
        for thread in [one for one in self._threads[1:] if one.is_alive()]:
            thread.join(1)
        for one in sockets:
            one.close()
        self._resetting = False

    def _start(self, work: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                if not self.swallow:
                    self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._target)
        except OSError:
            _shut(client)
            return
        self._sockets.append(server)
        deaf = threading.Event()
        self._start(self._up, client, server, deaf)
        self._start(self._down, server, client, deaf)

    def _up(self, client: socket.socket, server: socket.socket, deaf: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                cut = self._cut
                if cut is not None and cut[0](data):
                    self._cut = None
                    self.cuts += 1
                    if cut[1]:
                        deaf.set()
                        server.sendall(data)
                        self._answered.wait(10)
                    break
                server.sendall(data)
        if not self._resetting:
            _shut(client)
            _shut(server)

    def _down(self, server: socket.socket, client: socket.socket, deaf: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if deaf.is_set():
                    self._answered.set()  # and nobody hears it
                else:
                    client.sendall(data)
        if not self._resetting:
            _shut(client)


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
