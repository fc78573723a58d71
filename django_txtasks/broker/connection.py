"""pika's connection, but it looks host names up, and sends, in the thread that asks for it.

pika starts a thread for each look-up. From Python 3.12 on no thread can be started once the main
thread has ended, so a short process could not send its last hints. Ours has a thread of its own
to connect in, which may as well wait.

pika leaves all sending to its loop, frame by frame. For one hint these are ten system calls and 70 us of
Python, and all of the latter is taken from the requests of this process, which share its GIL.
"""

from __future__ import annotations

import codecs
import socket
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from pika import frame, spec
from pika.adapters.select_connection import SelectConnection
from pika.adapters.utils.nbio_interface import AbstractIOReference
from pika.adapters.utils.selector_ioloop_adapter import SelectorIOServicesAdapter
from pika.channel import ContentFrameAssembler

from django_txtasks.sending.message import MAX_BYTES

FRAME_END = bytes([spec.FRAME_END])
TRANSIENT = spec.BasicProperties(content_type="application/json", delivery_mode=1)

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


class _ShortBodies(ContentFrameAssembler):  # type: ignore[misc]  # pika ships no types
    """Reads bodies frame by frame, and drops the frames behind the first ``MAX_BYTES``."""

    def _handle_body_frame(self, body_frame: Any) -> Any:
        before = self._seen_so_far
        whole = super()._handle_body_frame(body_frame)
        if whole is None and before > MAX_BYTES:
            self._body_fragments.pop()
        return whole


class Connection(SelectConnection):  # type: ignore[misc]  # pika ships no types
    """The connection inside a ``BlockingConnection``."""

    @classmethod
    def create_connection(
        cls,
        connection_configs: Any,
        on_done: Any,
        custom_ioloop: Any = None,
        workflow: Any = None,
    ) -> Any:
        """Connect as pika does, with our own look-up of host names."""
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

    def _create_channel(self, channel_number: int, on_open_callback: Any) -> Any:
        """Return pika's channel, which keeps of a large body no more than shows that it is too large."""
        channel = super()._create_channel(channel_number, on_open_callback)
        channel._content_assembler = _ShortBodies()
        return channel

    def publish(self, channel: int, queue: str, body: bytes) -> bool:
        """Send one small transient message to a queue, and say whether the socket took all of it.

        The same as ``basic_publish()``, which spends ten times as long on what is always the same.
        """
        self._output_marshaled_frames([_head(channel, queue, len(body)), body, FRAME_END])
        return self._transport is not None and not self._transport.get_write_buffer_size()

    def publish_now(self, channel: int, queue: str, body: bytes) -> bool:
        """Send one as ``publish`` does, if the socket takes it at once; say whether it took all of it.

        Not before the loop has read what RabbitMQ may have said: that the connection is closed, or blocked.
        """
        if self.has_something_to_read():
            return False
        message = _head(channel, queue, len(body)) + body + FRAME_END
        sent = self._send(message)
        self.bytes_sent += sent
        if 0 < sent < len(message):
            super()._output_marshaled_frames([message[sent:]])
        return sent == len(message)

    def has_something_to_read(self) -> bool:
        """Say whether RabbitMQ has said what the loop has not read, or is gone. (With TLS it is not seen.)"""
        sock = getattr(self._transport, "_sock", None)
        if type(sock) is not socket.socket:
            return False
        try:
            sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True

    def _output_marshaled_frames(self, marshaled_frames: Sequence[bytes]) -> None:
        """Send at once what the socket takes; the loop sends the rest, and finds out about failures."""
        frames = b"".join(marshaled_frames)
        sent = self._send(frames)
        self.bytes_sent += sent
        if sent < len(frames):
            super()._output_marshaled_frames([frames[sent:]])

    def _send(self, data: bytes) -> int:
        sock = getattr(self._transport, "_sock", None)
        if type(sock) is not socket.socket or self._transport.get_write_buffer_size():
            return 0  # TLS, or not before what waits already
        try:
            return sock.send(data)
        except OSError:
            return 0


@lru_cache(maxsize=1000)
def _head(channel: int, queue: str, length: int) -> bytes:
    """Return what is in front of a body: two frames, and the begin of its own."""
    publish = spec.Basic.Publish(exchange="", routing_key=queue)
    header = frame.Header(channel, length, TRANSIENT)
    own = frame.Body(channel, bytes(length)).marshal()[: -length - len(FRAME_END)]
    return bytes(frame.Method(channel, publish).marshal() + header.marshal() + own)
