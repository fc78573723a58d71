"""The queues whose tasks are run elsewhere.

``hand_over`` names the queues whose rows go to another system, and where each of them goes.
``external_queues`` names the queues that workers in other languages serve.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from django_txtasks.exceptions import ConfigError

EXCHANGE = "exchange:"
"""Start of the text that names an exchange of RabbitMQ."""
_HINT = (
    "use 'exchange:NAME', the path of a Celery app or of a function such as 'shop.relay.send', or "
    "{'to': ..., 'ordered': True}."
)


class HandOver(NamedTuple):
    """One entry of ``TXTASKS["hand_over"]``.

    Attributes:
        to: ``exchange:NAME``, the path of an object, or the object itself.
        ordered: True: the rows of one priority go in the order of (run_after, id), and none overtakes another.
    """

    to: str | Callable[..., Any]
    ordered: bool = False

    @property
    def exchange(self) -> str | None:
        """The name of the exchange; None: the target is another one."""
        is_exchange = isinstance(self.to, str) and self.to.startswith(EXCHANGE)
        return str(self.to)[len(EXCHANGE) :] if is_exchange else None


def parse(value: Any) -> dict[str, HandOver]:
    """Return the setting by queue.

    Raises:
        ConfigError: the setting is invalid.
    """
    if not isinstance(value, dict) or not all(isinstance(queue, str) for queue in value):
        raise ConfigError(
            f"TXTASKS['hand_over'] is {value!r}: it must be a dict with a target by the names of queues."
        )
    return {queue: _entry(queue, one) for queue, one in value.items()}


def _entry(queue: str, value: Any) -> HandOver:
    where = f"TXTASKS['hand_over'][{queue!r}]"
    if not isinstance(value, dict):
        return HandOver(_target(where, value))
    unknown = sorted(map(str, value.keys() - {"to", "ordered"}))
    if unknown or "to" not in value or not isinstance(value.get("ordered", False), bool):
        raise ConfigError(f"{where} is {value!r}: {_HINT}")
    return HandOver(_target(where, value["to"]), value.get("ordered", False))


def _target(where: str, value: Any) -> str | Callable[..., Any]:
    is_name = isinstance(value, str) and value.isprintable()
    is_exchange = is_name and value.startswith(EXCHANGE)
    is_path = is_name and "." in value and all(map(str.isidentifier, value.split(".")))
    if callable(value) or is_path or (is_exchange and len(value) > len(EXCHANGE)):
        return value  # type: ignore[no-any-return]
    raise ConfigError(f"{where} is {value!r}: {_HINT}")


def check(found: Mapping[str, HandOver], queues: Sequence[str], *, has_broker: bool) -> None:
    """Raise ConfigError if an entry names an unknown queue, or an exchange without a broker."""
    for queue, entry in found.items():
        if queue not in queues:
            raise ConfigError(
                f"TXTASKS['hand_over'] names the queue {queue!r}, which is not among TXTASKS['queues']: "
                f"{', '.join(queues)}. Add it there, or fix the name."
            )
        if entry.exchange is not None and not has_broker:
            raise ConfigError(
                f"TXTASKS['hand_over'][{queue!r}] names an exchange, but there is no TXTASKS['broker_url'] to "
                "reach it."
            )


def parse_external(value: Any) -> tuple[str, ...]:
    """Return the setting ``external_queues``.

    Raises:
        ConfigError: it is no list of names.
    """
    if not isinstance(value, (list, tuple)) or not all(isinstance(one, str) for one in value):
        raise ConfigError(
            f"TXTASKS['external_queues'] is {value!r}: it must be a list of names of queues."
        )
    return tuple(dict.fromkeys(value))


def check_external(
    found: Sequence[str], handed: Mapping[str, HandOver], queues: Sequence[str]
) -> None:
    """Raise ConfigError if an external queue is unknown, or is handed over, too."""
    for queue in found:
        if queue not in queues:
            raise ConfigError(
                f"TXTASKS['external_queues'] names the queue {queue!r}, which is not among TXTASKS['queues']: "
                f"{', '.join(queues)}. Add it there, or fix the name."
            )
        if queue in handed:
            raise ConfigError(
                f"TXTASKS['external_queues'] and TXTASKS['hand_over'] both name the queue {queue!r}: its rows "
                "would go to workers in other languages and to a drain. Leave it out of one of them."
            )
