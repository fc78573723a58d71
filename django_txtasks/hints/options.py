"""The settings of hints: RabbitMQ, and the messages of databases."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit

from django_txtasks.core.ground.config import CoreConfig, in_test_run, parsed_by, switch
from django_txtasks.exceptions import ConfigError

MAX_NAME_BYTES = 255
"""Longest name of a queue that AMQP allows, in bytes of UTF-8."""


def _prefix(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value or len(value) > 50:
        raise ConfigError(
            f"TXTASKS['queue_prefix'] is {value!r}: use a name of 1 to 50 characters."
        )
    return value


def _broker_url(key: str, value: Any) -> str | None:
    if not value:
        return None
    if not isinstance(value, str) or _broker_parts(value) is None:  # no message repeats a password
        raise ConfigError(
            "TXTASKS['broker_url'] must look like amqp://user:password@host:5672/vhost, or amqps://; several "
            "hosts of one cluster as first:5672,second:5672. In user, password and vhost "
            "write / ? # [ ] @ % as urllib.parse.quote(text, safe='') does, such as %2F for /."
        )
    return value


def _broker_parts(url: str) -> SplitResult | None:
    """Return the parts of a broker's URL; None if part of a password may have ended up in the wrong place."""
    try:
        parts = urlsplit(url)
        several = [urlsplit(one) for one in _urls_by_host(url)]
        for one in several:
            one.port  # noqa: B018 -- reading it is the validation
    except ValueError:
        return None
    after_host = parts.path + parts.query
    known = parts.scheme in ("amqp", "amqps") and (
        len(several) == 1 or all(one.hostname for one in several)
    )
    return parts if known and "@" not in after_host and "#" not in url else None


def _urls_by_host(url: str) -> list[str]:
    """Return one URL for each host of ``amqp://user:password@first:5672,second:5672/vhost``.

    Raises:
        ValueError: the URL cannot be parsed.
    """
    parts = urlsplit(url)
    login, at, hosts = parts.netloc.rpartition("@")
    if "," not in hosts:
        return [url]
    return [parts._replace(netloc=f"{login}{at}{host}").geturl() for host in hosts.split(",")]


def exchange(key: str, value: Any) -> str:
    """Return a setting that names an exchange."""
    if not isinstance(value, str) or len(value.encode()) > MAX_NAME_BYTES:
        raise ConfigError(
            f"TXTASKS[{key!r}] is {value!r}: it must be the name of an exchange, of at most {MAX_NAME_BYTES} "
            "bytes, or '' for none."
        )
    return value


@dataclass(frozen=True, kw_only=True)
class HintConfig(CoreConfig):
    """The settings of hints.

    Attributes:
        broker_url: ``amqp://`` or ``amqps://`` URL of RabbitMQ, with several hosts for a cluster; None = no
            broker.
        database_hints: without a broker, or while it is unreachable, the database tells workers of new
            tasks. None: see ``may_hint_by_database``.
        queue_prefix: first part of RabbitMQ's queue names, so that several sites can share a broker.
    """

    broker_url: str | None = field(  # may contain a password
        default=None, repr=False, metadata=parsed_by(_broker_url)
    )
    database_hints: bool | None = field(default=None, metadata=parsed_by(switch))
    queue_prefix: str = field(default="txtasks", metadata=parsed_by(_prefix))

    def __post_init__(self) -> None:
        super().__post_init__()
        for queue in self.queues if self.broker_url else ():
            size = len(f"{self.queue_prefix}.{queue}".encode())
            if size > MAX_NAME_BYTES:
                raise ConfigError(
                    f"TXTASKS['queues'] has {queue!r}: with TXTASKS['queue_prefix'] the name has {size} bytes in "
                    f"RabbitMQ, which takes {MAX_NAME_BYTES}. Shorten one of them."
                )

    @property
    def broker_address(self) -> str:
        """Address of RabbitMQ without user and password, or ``none``."""
        if self.broker_url is None:
            return "none"
        parts = _broker_parts(self.broker_url)
        if parts is None:
            return "amqp://..."
        usual = 5671 if parts.scheme == "amqps" else 5672
        hosts = [urlsplit(url) for url in self.broker_urls]
        places = [f"{one.hostname or 'localhost'}:{one.port or usual}" for one in hosts]
        return f"{parts.scheme}://{','.join(places)}{parts.path}"

    @property
    def broker_urls(self) -> list[str]:
        """One URL for each host in ``broker_url``, in its order; the hosts are nodes of one cluster."""
        return _urls_by_host(self.broker_url) if self.broker_url is not None else []

    @property
    def has_database_hints(self) -> bool:
        """True if the database itself tells workers of new tasks.

        With a broker the broker does this; see ``may_hint_by_database``.
        """
        return self.broker_url is None and self.may_hint_by_database

    @property
    def may_hint_by_database(self) -> bool:
        """True if the database may tell workers of new tasks: without a broker, or while it is unreachable.

        By default it may, except in test runs: a session that sends hints would keep Django from removing
        the test database.
        """
        return not in_test_run() if self.database_hints is None else self.database_hints
