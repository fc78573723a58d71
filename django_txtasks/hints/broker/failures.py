"""The reason why there is no connection to RabbitMQ, in words for the person who has to repair it."""

from __future__ import annotations

import socket
import ssl
import time
from urllib.parse import unquote, urlsplit

from pika import exceptions
from pika.adapters.utils.connection_workflow import (
    AMQPConnectorSocketConnectError,
    AMQPConnectorStackTimeout,
)

from django_txtasks.conf import Config

SETTING = "TXTASKS['broker_url']"
_WORDS: list[tuple[tuple[type[BaseException], ...], str]] = [
    (
        (exceptions.ProbableAuthenticationError, exceptions.AuthenticationError),
        f"it refuses the user name or the password. Check both in {SETTING}",
    ),
    (
        (exceptions.ProbableAccessDeniedError,),
        "its virtual host is not there, or this user may not use it. Check what follows the last / in "
        f"{SETTING}, and the user's permissions",
    ),
    ((socket.gaierror,), f"no such host name is known. Check the host in {SETTING}"),
    (
        (ConnectionRefusedError,),
        f"nothing listens there. Check that RabbitMQ runs, and host and port in {SETTING}",
    ),
    (
        (exceptions.IncompatibleProtocolError,),
        f"what answers there does not speak AMQP. Check the port in {SETTING}, and amqp or amqps",
    ),
    (
        (TimeoutError, socket.timeout, AMQPConnectorStackTimeout),
        f"it does not answer. Check host and port in {SETTING}, firewalls, and whether RabbitMQ is overloaded",
    ),
    ((ssl.SSLError,), f"TLS failed. Check certificates, and the port in {SETTING}"),
    ((exceptions.ConnectionClosedByBroker,), "it has closed the connection"),
    ((exceptions.StreamLostError,), "the connection was cut"),
]
_DETAILED = (ssl.SSLError, exceptions.ConnectionClosedByBroker, exceptions.StreamLostError)
"""Errors whose own text says more."""


def in_words(error: BaseException, config: Config) -> str:
    """Return the reason in one sentence, without its full stop and without the password."""
    error = _inner(error)
    for kinds, words in _WORDS:
        if isinstance(error, kinds):
            text = f"{words} ({_text(error)})" if isinstance(error, _DETAILED) else words
            break
    else:
        text = f"{type(error).__name__}: {_text(error)}"
    return _without_password(text, config)


def _inner(error: BaseException) -> BaseException:
    """Return the error inside pika's error."""
    while isinstance(error, (exceptions.AMQPConnectionError, AMQPConnectorSocketConnectError)):
        inner = getattr(error, "exception", None) or (error.args[0] if error.args else None)
        if not isinstance(inner, BaseException):
            break
        error = inner
    return error


def _text(error: BaseException) -> str:
    if isinstance(error, (exceptions.ConnectionClosed, exceptions.ChannelClosed)):
        return f"{error.reply_code} {error.reply_text}"
    return str(error) or repr(error)


def _without_password(text: str, config: Config) -> str:
    try:
        password = urlsplit((config.broker_urls or [""])[0]).password or ""
    except ValueError:
        return "the URL cannot be read"
    for secret in (password, unquote(password)):
        if secret:
            text = text.replace(secret, "***")
    return text


class News:
    """The failures that this process has reported, because several of its connections fail for one reason."""

    EVERY = 300.0
    """Seconds after which the same failure is worth another warning."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], float] = {}

    def is_news(self, address: str, reason: str) -> bool:
        """Return True if the failure was not logged for a while. Call it only before logging."""
        now = time.monotonic()
        known = self._told.get((address, reason), -self.EVERY)
        if now - known < self.EVERY:
            return False
        self._told[address, reason] = now
        return True

    def forget(self, address: str) -> None:
        """Forget the failures after a connection, so that the next failure is news."""
        self._told = {key: when for key, when in self._told.items() if key[0] != address}

    def forget_all(self) -> None:
        """Forget everything."""
        self._told = {}


news = News()
