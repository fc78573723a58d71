"""The TXTASKS setting as one frozen, validated object, which other modules get from ``get_config``."""

from __future__ import annotations

import contextlib
import difflib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import cached_property, lru_cache, partial
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit

from django.conf import settings
from django.core.signals import setting_changed

from django_txtasks.exceptions import ConfigError
from django_txtasks.rules import hand_over
from django_txtasks.rules.hand_over import HandOver
from django_txtasks.rules.lanes import NO_LANES, LaneRules, parse_rules
from django_txtasks.rules.retention import (
    KeepFinished,
    Retention,
    check_kept,
    check_queues,
    parse_dead,
    parse_kept,
)

LONGEST_DURATION = timedelta(days=36525)
"""Longest duration of a setting. Databases add it to a time, or subtract it."""


@dataclass(frozen=True, kw_only=True)
class DeadNotices:
    """Receivers of a notice about each task that dies. Each way of delivery is a separate task.

    Attributes:
        mail: addresses; sent through Django's mail settings.
        exchange: a RabbitMQ exchange; the queue's name is the routing key.
        task: dotted name of a task function that takes the hook data.
    """

    mail: tuple[str, ...] = ()
    exchange: str = ""
    task: str = ""


MAX_KEPT_LINES = 1000
MIN_TOKEN_CHARACTERS = 16
MAX_NAME_BYTES = 255
"""Longest name of a queue that AMQP allows, in bytes of UTF-8."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The setting ``TXTASKS``. Durations are timedelta; in the setting a number means seconds.

    Attributes:
        broker_url: ``amqp://`` or ``amqps://`` URL of RabbitMQ, with several hosts for a cluster; None = no
            broker.
        database_hints: without a broker, or while it is unreachable, the database tells workers of new
            tasks. None: see ``may_hint_by_database``.
        queues: the queues that tasks may use; a worker serves all of them by default.
        queue_prefix: first part of RabbitMQ's queue names, so that several sites can share a broker.
        poll_interval: time between two scans of a worker for due tasks.
        heartbeat_interval: time between two beats of a worker, which renew its lease.
        lease: silence after which a worker may be declared lost; at least 3 beats.
        clean_interval: time between two passes of a cleaner.
        keep_finished: time for which finished tasks are kept; 0 = not at all, None = for ever. Or a dict of
            such times by queue, with ``*`` for all others; a time can also be a dict of times by outcome. In a
            dict, 0 = until the cleaner's next pass if another queue keeps tasks with this outcome.
        discard_dead_after: time after which a cleaner discards dead tasks, by queue, with ``*`` for all
            others; None, or a queue that is not covered = never.
        grace: time for which running tasks may continue after the first stop signal.
        hint_retry_interval: time after which a hint is looked up again if its row is not there yet.
        hint_give_up_after: time after which such a hint is dropped.
        retry_base: wait after the first failure; it doubles with each further failure.
        retry_ceiling: the longest wait between two attempts.
        events: the events that may be published; None = any.
        lanes: limits of lanes, by name or pattern.
        sync_schedules: ``migrate`` copies schedules of the code into the database, and a starting cleaner
            adds new ones; see ``syncs_schedules``.
        with_runserver: ``manage.py runserver`` starts ``runworkers`` beside it.
        ageing: the priority of a due task increases by 1 each time it has waited this long; None = never.
        long_running_after: age from which a claim without a time limit is shown and reported.
        keep_log: number of the last log lines of an attempt that are kept if it fails; 0 = none.
        dead_notices: receivers of notices about tasks that die.
        stats: workers count ended attempts, and cleaners add the counts up.
        lifecycle_exchange: a RabbitMQ exchange that learns of the life of workers and of dead tasks; empty = none.
        release: the release of the project's code, or a function that returns it.
        hand_over: the queues whose rows ``rundrain`` hands over to another system, with the target of each.
        metrics_token: secret text with which a program may read the metrics; empty = none.
    """

    broker_url: str | None = field(default=None, repr=False)  # may contain a password
    database_hints: bool | None = None
    queues: tuple[str, ...] = ("default",)
    queue_prefix: str = "txtasks"
    poll_interval: timedelta = timedelta(seconds=1)
    heartbeat_interval: timedelta = timedelta(seconds=1)
    lease: timedelta = timedelta(seconds=15)
    clean_interval: timedelta = timedelta(seconds=30)
    keep_finished: KeepFinished = timedelta(days=7)
    discard_dead_after: Mapping[str, timedelta | None] = field(default_factory=dict)
    grace: timedelta = timedelta(seconds=30)
    hint_retry_interval: timedelta = timedelta(seconds=2)
    hint_give_up_after: timedelta = timedelta(seconds=10)
    retry_base: timedelta = timedelta(seconds=5)
    retry_ceiling: timedelta = timedelta(hours=1)
    events: tuple[str, ...] | None = None
    lanes: LaneRules = NO_LANES
    sync_schedules: bool = True
    with_runserver: bool = False
    ageing: timedelta | None = None
    long_running_after: timedelta = timedelta(hours=1)
    keep_log: int = 50
    dead_notices: DeadNotices = DeadNotices()
    stats: bool = True
    lifecycle_exchange: str = ""
    release: str | Callable[[], str] = ""
    hand_over: Mapping[str, HandOver] = field(default_factory=dict)
    metrics_token: str = field(default="", repr=False)

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
        return not _in_test_run() if self.database_hints is None else self.database_hints

    @property
    def queues_of_workers(self) -> tuple[str, ...]:
        """The queues whose rows are not handed over."""
        return tuple(queue for queue in self.queues if queue not in self.hand_over)

    @property
    def syncs_schedules(self) -> bool:
        """True if schedules of the code are copied into the database automatically. Never in test runs."""
        return self.sync_schedules and not _in_test_run()

    def __post_init__(self) -> None:
        if self.lease < 3 * self.heartbeat_interval:
            raise ConfigError(
                f"TXTASKS['lease'] is {self.lease}, TXTASKS['heartbeat_interval'] is {self.heartbeat_interval}: "
                "a lease shorter than 3 beats declares living workers lost. Lengthen the lease or beat more often."
            )
        if self.hint_give_up_after < self.hint_retry_interval:
            raise ConfigError(
                f"TXTASKS['hint_give_up_after'] is {self.hint_give_up_after}, shorter than "
                f"TXTASKS['hint_retry_interval'] ({self.hint_retry_interval}): a hint would be forgotten before "
                "its row is looked up again."
            )
        if self.retry_ceiling < self.retry_base:
            raise ConfigError(
                f"TXTASKS['retry_ceiling'] is {self.retry_ceiling}, shorter than "
                f"TXTASKS['retry_base'] ({self.retry_base}). Raise the ceiling."
            )
        check_kept(self.keep_finished, self.queues)
        check_queues("discard_dead_after", self.discard_dead_after, self.queues)
        hand_over.check(self.hand_over, self.queues, has_broker=self.broker_url is not None)
        _check_broker(self)

    @cached_property
    def retention(self) -> Retention:
        """The times for which finished tasks are kept, by queue and outcome."""
        return Retention(self.keep_finished)

    def keeps(self, outcome: str) -> bool:
        """Return True if tasks with this outcome get a finished row."""
        return self.retention.keeps(outcome)


def _check_broker(config: Config) -> None:
    """Raise ConfigError if RabbitMQ takes no queue of a name, or is missing although an exchange is named."""
    for queue in config.queues if config.broker_url else ():
        size = len(f"{config.queue_prefix}.{queue}".encode())
        if size > MAX_NAME_BYTES:
            raise ConfigError(
                f"TXTASKS['queues'] has {queue!r}: with TXTASKS['queue_prefix'] the name has {size} bytes in "
                f"RabbitMQ, which takes {MAX_NAME_BYTES}. Shorten one of them."
            )
    if config.dead_notices.exchange and config.broker_url is None:
        raise ConfigError(
            "TXTASKS['dead_notices'] names an exchange, but there is no TXTASKS['broker_url'] to reach it."
        )
    if config.lifecycle_exchange and config.broker_url is None:
        raise ConfigError(
            "TXTASKS['lifecycle_exchange'] is set, but there is no TXTASKS['broker_url'] to reach RabbitMQ."
        )


def parse(setting: Any) -> Config:
    """Return the Config for a TXTASKS dict.

    Raises:
        ConfigError: not a dict, unknown keys, wrong types, or values that contradict each other.
    """
    if not isinstance(setting, dict):
        raise ConfigError(f"TXTASKS is {type(setting).__name__}, it must be a dict.")
    _refuse_unknown_keys("TXTASKS", setting, Config)
    return Config(
        **{key: _PARSERS.get(key, _duration)(key, value) for key, value in setting.items()}
    )


@lru_cache(maxsize=1)
def get_config() -> Config:
    """Return the site's Config. Raise ConfigError if the setting is wrong.

    Without the key ``queues``, the queues are "default" and the ``QUEUES`` of this package's backends in
    ``TASKS``.
    """
    setting = getattr(settings, "TXTASKS", {})
    queues = _queues_of_backends(getattr(settings, "TASKS", None) or {})
    if queues and isinstance(setting, dict):
        setting = {"queues": sorted({"default", *queues}), **setting}
    return parse(setting)


def _queues_of_backends(backends: dict[str, Any]) -> list[str]:
    ours = [
        entry
        for entry in backends.values()
        if str(entry.get("BACKEND")).startswith("django_txtasks.backends.")
    ]
    return sorted({queue for entry in ours for queue in entry.get("QUEUES", ())})


def _in_test_run() -> bool:
    """Return True if Django's test environment is set up, as by its test runner or by pytest-django."""
    utils = sys.modules.get("django.test.utils")
    return hasattr(getattr(utils, "_TestState", None), "saved_data")


def _reset(*, setting: str, **_: Any) -> None:
    if setting in ("TXTASKS", "TASKS"):
        get_config.cache_clear()


setting_changed.connect(_reset)


def _duration(key: str, value: Any) -> timedelta:
    what = f"TXTASKS[{key!r}] is {value!r}"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError, ValueError):  # for example NaN
            value = timedelta(seconds=value)
    if not isinstance(value, timedelta) or value > LONGEST_DURATION:
        raise ConfigError(
            f"{what}: use seconds (a number) or a datetime.timedelta, of 100 years at most"
            f"{', or None to keep them for ever' if key == 'keep_finished' else ''}."
        )
    if value < timedelta(0) or (not value and key not in ("keep_finished", "grace")):
        raise ConfigError(f"{what}: it must be longer than zero.")
    return value


def _keep_finished(key: str, value: Any) -> KeepFinished:
    return parse_kept(value, partial(_duration_or_none, key))


def _discard_dead_after(key: str, value: Any) -> dict[str, timedelta | None]:
    return parse_dead(value, partial(_duration_or_none, key))


def _duration_or_none(key: str, value: Any) -> timedelta | None:
    return None if value is None else _duration(key, value)


def _queues(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value):
        raise ConfigError(f"TXTASKS['queues'] is {value!r}: it must be a list of names.")
    if not value or len(set(value)) < len(value):
        raise ConfigError(f"TXTASKS['queues'] is {value!r}: name at least one queue, each once.")
    for name in value:
        if not name or len(name) > 100 or "@" in name or not name.isprintable():
            raise ConfigError(
                f"TXTASKS['queues'] has {name!r}: a queue name has 1 to 100 printable characters "
                "and no '@'."
            )
    return tuple(value)


def _hand_over(key: str, value: Any) -> dict[str, HandOver]:
    return hand_over.parse(value)


def _events(key: str, value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, (list, tuple, set)) or not all(isinstance(one, str) for one in value):
        raise ConfigError(
            f"TXTASKS['events'] is {value!r}: it must be a list of names, or None for any."
        )
    return tuple(value)


def _lanes(key: str, value: Any) -> LaneRules:
    return parse_rules(value)


def _prefix(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value or len(value) > 50:
        raise ConfigError(
            f"TXTASKS['queue_prefix'] is {value!r}: use a name of 1 to 50 characters."
        )
    return value


def _switch(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"TXTASKS[{key!r}] is {value!r}: it must be True or False.")
    return value


def _count_of_lines(key: str, value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAX_KEPT_LINES:
        raise ConfigError(
            f"TXTASKS[{key!r}] is {value!r}: use a number of lines from 0 (none) to {MAX_KEPT_LINES}."
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


def _dead_notices(key: str, value: Any) -> DeadNotices:
    if not isinstance(value, dict):
        raise ConfigError(
            f"TXTASKS['dead_notices'] is {type(value).__name__}, "
            "it must be a dict with 'mail', 'exchange' or 'task'."
        )
    _refuse_unknown_keys("TXTASKS['dead_notices']", value, DeadNotices)
    mail, texts = value.get("mail", ()), {}
    if not isinstance(mail, (list, tuple, set)) or not all(
        isinstance(one, str) and "@" in one for one in mail
    ):
        raise ConfigError(
            f"TXTASKS['dead_notices']['mail'] is {mail!r}: it must be a list of addresses."
        )
    for name in ("exchange", "task"):
        texts[name] = value.get(name, "")
        if not isinstance(texts[name], str) or len(texts[name]) > 200:
            raise ConfigError(
                f"TXTASKS['dead_notices'][{name!r}] is {texts[name]!r}: it must be a name."
            )
    return DeadNotices(mail=tuple(mail), **texts)


def _exchange(key: str, value: Any) -> str:
    if not isinstance(value, str) or len(value.encode()) > MAX_NAME_BYTES:
        raise ConfigError(
            f"TXTASKS[{key!r}] is {value!r}: it must be the name of an exchange, of at most {MAX_NAME_BYTES} "
            "bytes, or '' for none."
        )
    return value


def _release(key: str, value: Any) -> str | Callable[[], str]:
    if not isinstance(value, str) and not callable(value):
        raise ConfigError(
            f"TXTASKS['release'] is {value!r}: it must be a text such as '2026-11-27.1', or a function without "
            "arguments that returns one."
        )
    return cast("str | Callable[[], str]", value)


def _metrics_token(key: str, value: Any) -> str:
    is_text = isinstance(value, str) and value.isascii() and value.isprintable()
    if value is None or value == "":
        return ""
    if not (is_text and len(value) >= MIN_TOKEN_CHARACTERS and " " not in value):
        raise ConfigError(  # no message repeats the token
            f"TXTASKS[{key!r}] must be a text of at least {MIN_TOKEN_CHARACTERS} ASCII characters without spaces, "
            "such as secrets.token_urlsafe() returns, or '' for no token."
        )
    return cast(str, value)


def _refuse_unknown_keys(name: str, setting: dict[Any, Any], shape: type) -> None:
    known = [field.name for field in fields(shape)]
    for key in setting:
        if key not in known:
            near = difflib.get_close_matches(str(key).lower(), known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else f" Known keys: {', '.join(known)}."
            raise ConfigError(f"{name} has the unknown key {key!r}.{hint}")


_PARSERS: dict[str, Any] = {
    "keep_finished": _keep_finished,
    "discard_dead_after": _discard_dead_after,
    "ageing": _duration_or_none,
    "events": _events,
    "hand_over": _hand_over,
    "lanes": _lanes,
    "dead_notices": _dead_notices,
    "keep_log": _count_of_lines,
    "queues": _queues,
    "queue_prefix": _prefix,
    "broker_url": _broker_url,
    "database_hints": _switch,
    "sync_schedules": _switch,
    "with_runserver": _switch,
    "stats": _switch,
    "lifecycle_exchange": _exchange,
    "release": _release,
    "metrics_token": _metrics_token,
}
