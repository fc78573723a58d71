"""A TCP proxy in front of RabbitMQ, whose connections can be reset."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time

_RESET = struct.pack("ii", 1, 0)  # linger for no time: close() sends RST instead of FIN


class Proxy:
    """Passes bytes on between clients on this machine and one server; close it after use.

    Attributes:
        port: where it listens, on 127.0.0.1.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._pairs: set[_Pair] = set()
        self._closed = False
        self._away_until = 0.0
        threading.Thread(target=self._accept, name="txtasks-proxy", daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self, away: float = 0.0) -> int:
        """Reset all connections, on both sides, and new ones for some seconds; return how many there were."""
        self._away_until = time.monotonic() + away
        pairs = list(self._pairs)
        for pair in pairs:
            pair.reset()
        return len(pairs)

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                continue  # closed, or out of file descriptors for a moment
            threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            if time.monotonic() < self._away_until:
                raise ConnectionRefusedError
            server = socket.create_connection(self._target, timeout=5)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        pair = _Pair(client, server)
        self._pairs.add(pair)
        back = threading.Thread(target=pair.pump, args=[server, client], daemon=True)
        back.start()
        pair.pump(client, server)
        back.join()
        self._pairs.discard(pair)
        pair.close()


class _Pair:
    """One client and its connection to the server."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self._both = (client, server)
        self._reset = False

    def pump(self, source: socket.socket, target: socket.socket) -> None:
        """Pass bytes on until one side ends."""
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        if not self._reset:
            self._shut(socket.SHUT_RDWR)

    def reset(self) -> None:
        """Wake both threads without a FIN; ``close`` then sends RST to both sides."""
        self._reset = True
        for one in self._both:
            with contextlib.suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._shut(socket.SHUT_RD)

    def close(self) -> None:
        """Close both sockets."""
        for one in self._both:
            one.close()

    def _shut(self, how: int) -> None:
        for one in self._both:
            with contextlib.suppress(OSError):
                one.shutdown(how)
