"""An HTTP server for probes in one thread: whatever clients do, it takes few descriptors and little time.

It is not a web server: it reads one small request, answers with a line, and closes the connection.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

from django_txtasks import signals

MAX_CONNECTIONS = 64
"""Connections at a time. One more closes the oldest, because that client had the most time to send its request."""
ACCEPTS_PER_ROUND = MAX_CONNECTIONS // 2
"""Connections to accept in a round, so that each connection stays for another round at least, and its client has
time to send, however many clients connect.
"""
MAX_REQUEST_BYTES = 8_192
REQUEST_SECONDS = 5.0
"""Seconds from the accept to the end of the request, however often the client sends a byte."""
PAUSE_SECONDS = 0.05
"""Seconds of rest after each round. Without a rest, a flood of requests would take a core from the tasks. So would
an accept that fails at once, again and again, because the process has no descriptor left."""
POLL_SECONDS = 0.5
"""Seconds until the thread sees that it should end."""

MAX_PAGES = 4
"""Threads that answer requests of pages at a time."""
TELL_SECONDS = 60.0
"""Seconds between two log lines about requests of pages for which no thread could be started."""

Answer = Callable[[str], "tuple[int, str]"]
"""Returns the status code and the text for a path."""
Page = Callable[[str], "tuple[int, str]"]
"""Returns the status code and the text for the value of the header ``Authorization``. It may block."""


class _Client(NamedTuple):
    """A connection, with the bytes that it has sent."""

    socket: socket.socket
    deadline: float
    received: bytearray


class _Request(NamedTuple):
    """A request. ``refusal``: the answer to a wrong one, as status code and text; None = it is right."""

    path: str
    is_head: bool
    authorization: str
    refusal: tuple[int, str] | None


class ProbeServer:
    """Answers GET and HEAD at an address until it is closed.

    Args:
        address: host name or IP address; empty = all interfaces, IPv4 and IPv6.
        port: 0 = a free one.
        answer: is called in the server's thread and must not block.
        pages: by path; each request of a page has a thread of its own.

    Raises:
        OSError: the address or the port cannot be used.
        RuntimeError: no thread can be started.
    """

    def __init__(
        self, address: str, port: int, answer: Answer, pages: Mapping[str, Page] | None = None
    ) -> None:
        self._answer, self._pages = answer, dict(pages or {})
        self._free_threads = threading.Semaphore(MAX_PAGES)
        self._listener = _listen(address, port)
        self._listener.setblocking(False)
        self._clients: dict[int, _Client] = {}  # by descriptor, oldest first
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._closing = threading.Event()
        self._told = -TELL_SECONDS
        self._thread = threading.Thread(target=self._run, name="txtasks-probes", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._selector.close()
            self._listener.close()
            raise

    @property
    def port(self) -> int:
        """Port of the server."""
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Stop answering."""
        self._closing.set()
        self._thread.join()
        for client in list(self._clients.values()):
            self._drop(client)
        self._selector.close()
        self._listener.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            for key, _ in self._selector.select(POLL_SECONDS):
                if key.fileobj is self._listener:
                    self._accept_some()
                elif key.fd in self._clients:
                    self._read(self._clients[key.fd])
            self._drop_late_ones()
            self._closing.wait(PAUSE_SECONDS)

    def _accept_some(self) -> None:
        """Accept waiting clients, and read at once, because most clients have sent their request by then."""
        for _ in range(ACCEPTS_PER_ROUND):
            try:
                accepted, _address = self._listener.accept()
            except OSError:
                # No client waits any more, or no descriptor is left: the next round tries again.
                return
            accepted.setblocking(False)
            if len(self._clients) >= MAX_CONNECTIONS:
                self._drop(next(iter(self._clients.values())))
            client = _Client(accepted, time.monotonic() + REQUEST_SECONDS, bytearray())
            self._clients[accepted.fileno()] = client
            self._selector.register(accepted, selectors.EVENT_READ)
            self._read(client)

    def _read(self, client: _Client) -> None:
        try:
            data = client.socket.recv(MAX_REQUEST_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        client.received.extend(data)
        is_whole = b"\r\n\r\n" in client.received or b"\n\n" in client.received
        if data and not is_whole and len(client.received) <= MAX_REQUEST_BYTES:
            return
        if data:
            request = _parse(bytes(client.received), is_whole=is_whole)
            if (page := self._pages.get(request.path)) and not request.refusal:
                self._hand_over(client, request, page)
                return
            # It fits the socket's buffer, so the server does not wait for a client that reads nothing.
            refused = request.refusal or self._answer(request.path)
            _send(client.socket, _response(request, *refused))
        self._drop(client)

    def _hand_over(self, client: _Client, request: _Request, page: Page) -> None:
        """Let a thread of its own answer. If all threads wait, such as for a database, refuse."""
        if not self._free_threads.acquire(blocking=False):
            _send(client.socket, _response(request, 503, "busy: ask again later"))
            self._drop(client)
            return
        thread = threading.Thread(
            target=self._serve,
            args=[client.socket, request, page],
            name="txtasks-page",
            daemon=True,
        )
        self._leave(client)
        try:
            thread.start()
        except RuntimeError as error:  # the process, or its container, has no thread left
            self._free_threads.release()
            with client.socket:
                _send(client.socket, _response(request, 503, f"no thread can answer: {error}"))
            self._tell(request.path, error)

    def _tell(self, path: str, error: Exception) -> None:
        now = time.monotonic()
        if now >= self._told + TELL_SECONDS:
            self._told = now
            signals.probe_unanswered.emit(path=path, error=error)

    def _serve(self, connection: socket.socket, request: _Request, page: Page) -> None:
        try:
            with connection:
                connection.settimeout(REQUEST_SECONDS)
                _send(connection, _response(request, *page(request.authorization)))
        finally:
            self._free_threads.release()

    def _drop(self, client: _Client) -> None:
        self._leave(client)
        client.socket.close()

    def _leave(self, client: _Client) -> None:
        del self._clients[client.socket.fileno()]
        self._selector.unregister(client.socket)

    def _drop_late_ones(self) -> None:
        now = time.monotonic()
        for client in list(self._clients.values()):
            if client.deadline > now:
                return  # later connections are behind it
            self._drop(client)


def _listen(address: str, port: int) -> socket.socket:
    if address:
        family, *_, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(where[:2], family=family)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def _parse(received: bytes, *, is_whole: bool) -> _Request:
    first, *rest = received.decode("latin-1").split("\n")
    method, _, target = first.strip().partition(" ")
    path, _, version = target.partition(" ")
    refusal = None
    if not version.startswith("HTTP/"):
        refusal = 400, "ask in HTTP"
    elif not is_whole:
        refusal = 431, f"a request of more than {MAX_REQUEST_BYTES} bytes"
    elif method not in ("GET", "HEAD"):
        refusal = 501, "only GET and HEAD are answered"
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)
    }
    authorization = headers.get("authorization", "")
    return _Request(path.partition("?")[0], method == "HEAD", authorization, refusal)


def _response(request: _Request, code: int, text: str) -> bytes:
    body = f"{text}\n".encode()
    head = (
        f"HTTP/1.1 {code} {HTTPStatus(code).phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if request.is_head else body)


def _send(connection: socket.socket, response: bytes) -> None:
    try:
        connection.sendall(response)
        connection.shutdown(socket.SHUT_WR)
    except OSError:  # the client hung up, or reads nothing
        return
