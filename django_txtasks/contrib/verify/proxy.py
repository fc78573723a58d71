"""A TCP proxy whose connections can be reset."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time

_RESET = struct.pack("ii", 1, 0)  # linger for no time: close() sends RST instead of FIN


class Proxy:
    """Forwards bytes between clients on this machine and one server. Close it after use.

    Attributes:
        port: its port on 127.0.0.1.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        _, self.port = self._listener.getsockname()
        self._pairs: set[Pair] = set()
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
        """Reset all connections on both sides, refuse new ones for ``away`` seconds, and return their number."""
        self._away_until = time.monotonic() + away
        pairs = list(self._pairs)
        for pair in pairs:
            pair.reset()
        return len(pairs)

    def connect(self) -> socket.socket:
        """Connect to the server for a new client.

        Raises:
            OSError: the server is not there, or is supposed to seem so.
        """
        if time.monotonic() < self._away_until:
            raise ConnectionRefusedError
        server = socket.create_connection(self._target, timeout=5)
        server.settimeout(None)
        return server

    def pair(self, client: socket.socket, server: socket.socket) -> Pair:
        """Return the pair that forwards bytes between these two."""
        return Pair(client, server)

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                continue  # closed, or out of file descriptors for a moment
            threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = self.connect()
        except OSError:
            client.close()
            return
        pair = self.pair(client, server)
        self._pairs.add(pair)
        back = threading.Thread(target=pair.pump_back, daemon=True)
        back.start()
        pair.pump()
        back.join()
        self._pairs.discard(pair)
        pair.close()


class Pair:
    """One client and its connection to the server."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self._reset = False

    def up(self, data: bytes) -> bool:
        """Forward the client's bytes; return False after the last."""
        self.server.sendall(data)
        return True

    def down(self, data: bytes) -> None:
        """Forward the server's bytes."""
        self.client.sendall(data)

    def pump(self) -> None:
        """Forward the client's bytes until one side ends."""
        with contextlib.suppress(OSError):
            while (data := self.client.recv(65536)) and self.up(data):
                pass
        self._end()

    def pump_back(self) -> None:
        """Forward the server's bytes until one side ends."""
        with contextlib.suppress(OSError):
            while data := self.server.recv(65536):
                self.down(data)
        self._end()

    def shut(self, how: int = socket.SHUT_RDWR) -> None:
        """End both connections in good order."""
        for one in (self.client, self.server):
            with contextlib.suppress(OSError):
                one.shutdown(how)

    def reset(self) -> None:
        """Wake both threads without a FIN; ``close`` then sends RST to both sides."""
        self._reset = True
        for one in (self.client, self.server):
            with contextlib.suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.shut(socket.SHUT_RD)

    def close(self) -> None:
        """Close both sockets."""
        self.client.close()
        self.server.close()

    def _end(self) -> None:
        if not self._reset:
            self.shut()
