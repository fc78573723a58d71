"""The red crosses in the list of workers, with a sentence: what a cross means, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.utils.html import format_html
from django.utils.translation import gettext as _

from django_txtasks.conf import get_config
from django_txtasks.models import Worker
from django_txtasks.wording import span


def listening(worker: Any) -> bool | None:
    """Return whether hints reach the worker; None if there are no hints, or if it is lost."""
    found: bool | None = None if worker.lost else worker.listening
    return found


def has_will(worker: Any) -> bool | None:
    """Return whether RabbitMQ holds a last will of the worker; None without a broker, or if it is lost."""
    if worker.lost or worker.listening is None or get_config().has_database_hints:
        return None
    return bool(worker.will)


def no_hints() -> str:
    """Return the meaning of a cross under *listening*."""
    if get_config().has_database_hints:
        text = _(
            "no hint of the database reaches the worker, so a new task waits up to %(poll)s until the worker "
            "looks. A new worker needs some seconds to connect. If the cross stays, the log of the worker has the "
            "reason."
        )
    else:
        text = _(
            "the worker has no connection to RabbitMQ (%(broker)s), so a new task waits up to %(poll)s until the "
            "worker looks. A new worker needs some seconds to connect. If the cross stays, start RabbitMQ, or "
            "restore the way to it; the log of the worker has the reason."
        )
    return _filled(text)


def no_will() -> str:
    """Return the meaning of a cross under *last will*."""
    text = _(
        "RabbitMQ (%(broker)s) holds no last will of the worker, so a crash is noticed only %(lease)s later. "
        "A new worker needs some seconds to leave its will. If the cross stays, start RabbitMQ, or restore "
        "the way to it; the log of the worker has the reason."
    )
    return _filled(text)


def _no_broker() -> str:
    text = _(
        "A cross under “listening” or “last will”: the worker has no connection to RabbitMQ (%(broker)s). A new "
        "task then waits up to %(poll)s until the worker looks, and a crash of the worker is noticed only "
        "%(lease)s later. A new worker needs some seconds to connect. If the cross stays, start RabbitMQ, or "
        "restore the way to it; the log of the worker has the reason."
    )
    return _filled(text)


def _filled(text: str) -> str:
    """Return a text with the broker and the times of the settings."""
    config = get_config()
    poll, lease = span(config.poll_interval), span(config.lease)
    return text % {"broker": config.broker_address, "poll": poll, "lease": lease}


def icon(value: bool | None, meaning: str) -> str:
    """Return Django's icon, with the meaning as the tooltip of a cross."""
    if value is not False:
        return str(_icon(value))
    return format_html('<span title="{}">{}</span>', meaning, _icon(value))


def in_words(value: bool | None, meaning: str) -> str:
    """Return Django's icon, with the meaning beside a cross."""
    return format_html("{} {}", _icon(value), meaning if value is False else "")


def _icon(value: bool | None) -> str:
    # the import takes time, and a process without the admin's pages needs no icon
    from django.contrib.admin.templatetags.admin_list import _boolean_icon  # type: ignore[attr-defined]

    return str(_boolean_icon(value))


def notes(alias: str) -> Iterator[str]:
    """Yield what the crosses of the list mean."""
    workers = Worker.objects.using(alias).filter(lost=False).only("listening", "will")
    found = {(listening(one), has_will(one)) for one in workers}
    text = _("A cross under “%(column)s”: %(meaning)s")
    lacks_hints = any(hints is False for hints, _will in found)
    lacks_will = any(will is False for _hints, will in found)
    if lacks_hints and lacks_will:
        yield _no_broker()
    elif lacks_hints:
        yield text % {"column": _("listening"), "meaning": no_hints()}
    elif lacks_will:
        yield text % {"column": _("last will"), "meaning": no_will()}
