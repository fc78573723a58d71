"""Tokens of waits, and the delivery of their values, by ``resume()`` or by a signed URL."""

from __future__ import annotations

import json
import uuid
from functools import partial
from typing import Any, NamedTuple

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.signing import BadSignature, Signer
from django.urls import reverse

from django_txtasks.core.enqueueing.commit_hints import notify_on_commit
from django_txtasks.core.ground import payload
from django_txtasks.database.transactions import repeated
from django_txtasks.exceptions import InvalidArguments, InvalidToken
from django_txtasks.features.steps import waits
from django_txtasks.features.steps.context import check_name

MOST_URL_BYTES = 500
"""Longest JSON text of a value in a URL."""


class Awaited(NamedTuple):
    """The wait that a token names."""

    alias: str
    task_id: uuid.UUID
    name: str


def token_of(alias: str, task_id: uuid.UUID, name: str) -> str:
    """Return the token of a wait; see ``TaskContext.token``."""
    check_name(name)
    return _signer("token").sign_object([alias, task_id.hex, name])


def resume(token: str, value: Any = None) -> bool:
    """Deliver the value for which a task waits, or will wait, in the current transaction.

    The task's row is locked until the commit.

    Args:
        token: the return value of ``ctx.token(name)``.
        value: JSON of at most 256 kB, which ``ctx.wait_for(name)`` returns.

    Returns:
        True if this value counts. False, and nothing changes, if a value arrived before, if the wait has timed
        out, or if the task has ended.

    Raises:
        InvalidToken: not a token of this site.
        InvalidArguments: the value cannot be stored as JSON.
    """
    return bring(_awaited(_read(token, "token")), value)


async def aresume(token: str, value: Any = None) -> bool:
    """Like ``resume``, from async code; see ``aenqueue_task``."""
    return await sync_to_async(resume, thread_sensitive=True)(token, value)


def resume_url(token: str, value: Any = None) -> str:
    """Return the path of a page that delivers this value when a person presses its button, or by a POST.

    Include ``django_txtasks.urls`` in your URLs. The owner of the URL can read the value, but cannot change it.

    Args:
        value: JSON of at most 500 bytes.

    Raises:
        InvalidToken: not a token of this site.
        InvalidArguments: the value cannot be stored as JSON, or is too long.
        NoReverseMatch: the URLs are not included.
    """
    awaited = _awaited(_read(token, "token"))
    text = payload.encode(value, name="the value of a URL")
    if len(text) > MOST_URL_BYTES:
        raise InvalidArguments(
            f"The value of a URL is {len(text):,} bytes of JSON, more than {MOST_URL_BYTES}. Pass an id."
        )
    signed = _signer("url").sign_object([awaited.alias, awaited.task_id.hex, awaited.name, text])
    return reverse("txtasks:resume", args=[signed])


def of_url(signed: str) -> tuple[Awaited, Any]:
    """Return the wait and the value that the last part of such a path names.

    Raises:
        InvalidToken: not signed by this site.
    """
    *awaited, text = _read(signed, "url")
    return _awaited(awaited), json.loads(text)


def bring(awaited: Awaited, value: Any) -> bool:
    """Deliver a value to a wait, like ``resume``."""
    text = payload.encode(value, name="value")
    end = partial(waits.end, awaited.alias, awaited.task_id, awaited.name, text)
    counts, to_notify = repeated(awaited.alias, end)
    if to_notify:
        notify_on_commit(awaited.alias, to_notify)
    return counts


def _signer(what: str) -> Signer:
    return Signer(salt=f"django_txtasks.{what}")


def _read(signed: str, what: str) -> list[Any]:
    try:
        parts: list[Any] = _signer(what).unsign_object(signed)
    except (BadSignature, TypeError, AttributeError, UnicodeError):
        raise InvalidToken(
            "No task of this site has given this token out, or it was changed on its way, or the SECRET_KEY was: "
            "then keep the old one in SECRET_KEY_FALLBACKS."
        ) from None
    return parts


def _awaited(parts: list[Any]) -> Awaited:
    alias, task_id, name = parts
    if alias not in settings.DATABASES:
        raise InvalidToken(
            f"This token names the database {alias!r}, which this site does not have."
        )
    return Awaited(alias, uuid.UUID(task_id), name)
