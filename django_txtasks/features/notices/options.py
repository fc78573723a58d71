"""The setting of notices about dead tasks."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from django_txtasks.core.ground.config import parsed_by, refuse_unknown_keys
from django_txtasks.exceptions import ConfigError
from django_txtasks.hints.options import HintConfig


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


def _dead_notices(key: str, value: Any) -> DeadNotices:
    if not isinstance(value, dict):
        raise ConfigError(
            f"TXTASKS['dead_notices'] is {type(value).__name__}, "
            "it must be a dict with 'mail', 'exchange' or 'task'."
        )
    known = [one.name for one in fields(DeadNotices)]
    refuse_unknown_keys("TXTASKS['dead_notices']", value, known)
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


@dataclass(frozen=True, kw_only=True)
class NoticeConfig(HintConfig):
    """The setting of notices.

    Attributes:
        dead_notices: receivers of notices about tasks that die.
    """

    dead_notices: DeadNotices = field(default=DeadNotices(), metadata=parsed_by(_dead_notices))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dead_notices.exchange and self.broker_url is None:
            raise ConfigError(
                "TXTASKS['dead_notices'] names an exchange, but there is no TXTASKS['broker_url'] to reach it."
            )
