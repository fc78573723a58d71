"""The package's TCP proxy, with connections that are lost at a chosen moment, or lead nowhere."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from pika import frame, spec

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


class SilentProxy(Proxy):
    """Passes on what the client sends, and nothing of the answers while it is silent."""

    is_silent = False

    def pair(self, client: socket.socket, server: socket.socket) -> _Pair:
        pair = super().pair(client, server)
        down = pair.down
        pair.down = lambda data: None if self.is_silent else down(data)  # type: ignore[method-assign]
        return pair


class Withholding(Proxy):
    """Lets all through but the confirm of the first message of a connection. RabbitMQ takes this message, too."""

    def pair(self, client: socket.socket, server: socket.socket) -> _Pair:
        pair = super().pair(client, server)
        up, asked, told, tags = pair.up, bytearray(), bytearray(), itertools.count(1)

        def confirm(data: bytes) -> bool:
            went = up(data)
            for one in frames_of(asked, data):
                is_message = isinstance(getattr(one, "method", None), spec.Basic.Publish)
                if is_message and (tag := next(tags)) > 1:
                    ack = frame.Method(one.channel_number, spec.Basic.Ack(tag))
                    client.sendall(ack.marshal())
            return went

        def withhold(data: bytes) -> None:
            for one in frames_of(told, data):
                if not isinstance(getattr(one, "method", None), spec.Basic.Ack):
                    client.sendall(one.marshal())

        pair.up, pair.down = confirm, withhold  # type: ignore[method-assign]
        return pair


def frames_of(rest: bytearray, data: bytes) -> Iterator[Any]:
    """Yield the whole frames of a stream. ``rest`` keeps what is left."""
    rest += data
    while True:
        size, one = frame.decode_frame(bytes(rest))
        if one is None:
            return
        del rest[:size]
        yield one


class Alarm(Proxy):
    """A RabbitMQ that may lack memory: it takes no messages then, and later all that it was sent meanwhile.

    Attributes:
        is_on: it lacks memory.
        held: the connections that it has blocked, with what they have sent since.
    """

    def __init__(self, host: str, port: int) -> None:
        self.is_on = False
        self.held: dict[_Pair, list[bytes]] = {}
        super().__init__(host, port)

    def pair(self, client: socket.socket, server: socket.socket) -> _Pair:
        pair = super().pair(client, server)
        up = pair.up

        def hold(data: bytes) -> bool:
            if not self.is_on or (pair not in self.held and PUBLISH not in data):
                return up(data)
            if pair not in self.held:
                client.sendall(BLOCKED)
            self.held.setdefault(pair, []).append(data)
            return True

        pair.up = hold  # type: ignore[method-assign]
        return pair

    def connections_with(self, text: bytes) -> int:
        """Return how many blocked connections have sent this text."""
        return sum(text in b"".join(parts) for parts in self.held.values())

    def end(self) -> None:
        """Let it have memory again."""
        self.is_on = False
        for pair, parts in self.held.items():
            pair.client.sendall(UNBLOCKED)
            pair.server.sendall(b"".join(parts))


@contextmanager
def before(url: str, kind: type[Proxy] = Proxy) -> Iterator[tuple[Any, str]]:
    """Put a proxy before the server of this URL. Gives the proxy, and the URL that leads through it."""
    server = urlsplit(url)
    with kind(str(server.hostname), int(server.port or 0)) as proxy:
        yield proxy, url.replace(f":{server.port}/", f":{proxy.port}/")


PUBLISH = b"\x00\x3c\x00\x28"
BLOCKED = frame.Method(0, spec.Connection.Blocked("low on memory")).marshal()
UNBLOCKED = frame.Method(0, spec.Connection.Unblocked()).marshal()


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
