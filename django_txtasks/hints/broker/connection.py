"""A pika connection that looks up host names, and sends, in the calling thread.

pika starts a thread for each look-up. From Python 3.12 on, no thread can start once the main thread has ended, so
a short process could not send its last hints. This package connects in a thread of its own, which may wait for the
look-up.

pika leaves all sending to its loop, frame by frame. For one hint that takes ten system calls and 70 us of Python,
and the requests of this process lose this time, because they share the GIL.
"""

from __future__ import annotations

import codecs
import socket
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from pika import frame, spec
from pika.adapters.select_connection import SelectConnection
from pika.adapters.utils.nbio_interface import AbstractIOReference
from pika.adapters.utils.selector_ioloop_adapter import SelectorIOServicesAdapter
from pika.channel import ContentFrameAssembler

from django_txtasks.hints.sending.message import MAX_BYTES

FRAME_START = ">BHL"
"""Type, channel and size, as every frame has them."""
HEADER_START = ">HHQ"
"""Class, weight, and size of the body, at the start of the header of a message."""
FRAME_END = bytes([spec.FRAME_END])
TRANSIENT = spec.BasicProperties(content_type="application/json", delivery_mode=1)

codecs.lookup("idna")  # host names need it, and nothing can be imported while Python ends


class _Done(AbstractIOReference):  # type: ignore[misc]  # pika ships no types
    """A look-up that can no longer be cancelled."""

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
        """Look the name up now, and call back from the loop, as pika expects."""
        result: Any
        try:
            result = socket.getaddrinfo(host, port, family, socktype, proto, flags)
        except OSError as error:
            result = error
        self._loop.call_later(0, lambda: on_done(result))
        return _Done()


class _ShortBodies(ContentFrameAssembler):  # type: ignore[misc]  # pika ships no types
    """Reads bodies frame by frame, and drops the frames after the first ``MAX_BYTES``."""

    def _handle_body_frame(self, body_frame: Any) -> Any:
        before = self._seen_so_far
        whole = super()._handle_body_frame(body_frame)
        if whole is None and before > MAX_BYTES:
            self._body_fragments.pop()
        return whole


class Connection(SelectConnection):  # type: ignore[misc]  # pika ships no types
    """The connection inside a ``BlockingConnection``.

    It delivers a message even if pika cannot decode its properties. The error would end the connection, RabbitMQ
    would deliver the message again on the next one, and so for ever.

    Attributes:
        assembler: puts the frames of a message together.
    """

    assembler: type[ContentFrameAssembler] = _ShortBodies

    @classmethod
    def create_connection(
        cls,
        connection_configs: Any,
        on_done: Any,
        custom_ioloop: Any = None,
        workflow: Any = None,
    ) -> Any:
        """Connect as pika does, but look host names up in this thread."""
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
        """Return pika's channel. By default it keeps of a large body only enough to show that it is too large."""
        channel = super()._create_channel(channel_number, on_open_callback)
        channel._content_assembler = self.assembler()
        return channel

    def _read_frame(self) -> Any:
        try:
            return super()._read_frame()
        except Exception as error:
            found = _with_empty_properties(self._frame_buffer, error)
            if found is None:
                raise
            return found

    def publish(self, channel: int, queue: str, body: bytes) -> bool:
        """Send one small transient message to a queue. Return True if the socket took all of it.

        It does the same as ``basic_publish()``, which spends ten times as long on parts that never change.
        """
        self._output_marshaled_frames([_head(channel, queue, len(body)), body, FRAME_END])
        return self._transport is not None and not self._transport.get_write_buffer_size()

    def publish_now(self, channel: int, queue: str, body: bytes) -> bool:
        """Send a message as ``publish`` does, if the socket takes it at once. Return True if it took all of it.

        First the loop must have read what RabbitMQ may have sent, because the connection may be closed or blocked.
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
        """Return True if RabbitMQ has sent unread data, or is gone. With TLS this is not visible."""
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
        """Send at once what the socket takes. The loop sends the rest, and notices failures."""
        frames = b"".join(marshaled_frames)
        sent = self._send(frames)
        self.bytes_sent += sent
        if sent < len(frames):
            super()._output_marshaled_frames([frames[sent:]])

    def _send(self, data: bytes) -> int:
        sock = getattr(self._transport, "_sock", None)
        if type(sock) is not socket.socket or self._transport.get_write_buffer_size():
            return 0  # with TLS, or while other data waits
        try:
            return sock.send(data)
        except OSError:
            return 0


def _with_empty_properties(data: bytes, error: Exception) -> Any:
    """Return the length of the first frame, and the frame without its properties; None = it is no header."""
    kind, channel, size = struct.unpack_from(FRAME_START, data)
    if kind != spec.FRAME_HEADER:
        return None
    _, _, body_size = struct.unpack_from(HEADER_START, data, spec.FRAME_HEADER_SIZE)
    properties = spec.BasicProperties()
    properties.unreadable = f"{type(error).__name__}: {error}"
    length = spec.FRAME_HEADER_SIZE + size + spec.FRAME_END_SIZE
    return length, frame.Header(channel, body_size, properties)


@lru_cache(maxsize=1000)
def _head(channel: int, queue: str, length: int) -> bytes:
    """Return the bytes in front of a body: two frames, and the header of the body's frame."""
    publish = spec.Basic.Publish(exchange="", routing_key=queue)
    header = frame.Header(channel, length, TRANSIENT)
    own = frame.Body(channel, bytes(length)).marshal()[: -length - len(FRAME_END)]
    return bytes(frame.Method(channel, publish).marshal() + header.marshal() + own)
