"""Formatting of values for the pages. Values may be foreign: they are capped, redacted, and escaped by Django."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from django.template.loader import render_to_string
from django.utils.formats import date_format, number_format
from django.utils.html import format_html, format_html_join
from django.utils.timezone import is_aware, localtime
from django.utils.translation import gettext as _

from django_txtasks.admin.columns import MAX_LISTED_JSON_CHARACTERS, parse
from django_txtasks.core.ground.payload import clean_text
from django_txtasks.core.ground.wording import seconds, span
from django_txtasks.features.progress.notes import Progress
from django_txtasks.features.redaction.declaring import judged, redacted
from django_txtasks.models import Step, label_of

P = ParamSpec("P")
EMPTY = "–"  # noqa: RUF001 -- a dash, visible as an empty cell of a table
MAX_SHOWN_CHARACTERS = 20_000
MAX_ERRORS = 20
MAX_LINE_CHARACTERS = 200
MAX_LISTED_CALL_CHARACTERS = 60
MAX_LISTED_ERROR_CHARACTERS = 120
"""Longest error in a list; a longer one would make the row too high."""


def _of_json(
    show: Callable[Concatenate[Any, P], str],
) -> Callable[Concatenate[str | None, P], str]:
    """Let a function that shows a value take the value's JSON text. It shows a text that cannot be parsed, too."""

    @wraps(show)
    def of_text(text: str | None, /, *args: P.args, **kwargs: P.kwargs) -> str:
        try:
            value = parse(text)
        except ValueError as error:
            return format_html("<em>{}</em>", _why_not_shown(error))
        return EMPTY if text is None else show(value, *args, **kwargs)

    return of_text


def short_span(duration: timedelta) -> str:
    """Return a duration that may be below a second: ``0.025 s``."""
    length = duration.total_seconds()
    return seconds(length, 3) if length < 10 else span(duration)


def age(when: datetime | None, now: datetime) -> str:
    """Return how long ago, or in how long; the time itself is the tooltip."""
    if when is None:
        return EMPTY
    distance = _distance(when, now)
    return format_html(
        '<time datetime="{}" title="{}">{}</time>', when.isoformat(), clock(when), distance
    )


def moment(when: datetime | None, now: datetime) -> str:
    """Return a time, followed by how long ago it was."""
    if when is None:
        return EMPTY
    return format_html("{} <span class=quiet>({})</span>", clock(when), _distance(when, now))


def badge(kind: str, label: Any) -> str:
    """Return a state as a coloured word."""
    return format_html('<span class="txtasks-badge txtasks-{}">{}</span>', kind, label)


def attempt(number: int | str) -> str:
    """Return the name of an attempt."""
    return _("attempt %(n)s") % {"n": number}


def state(value: str) -> str:
    """Return a state or an outcome in the reader's language."""
    return line(label_of(value))


def line(value: Any, limit: int = MAX_LINE_CHARACTERS) -> str:
    """Return a value as one short line of text."""
    text = " ".join(_text(value).split())
    return text if len(text) <= limit else f"{text[:limit]}…"


@_of_json
def arguments(value: Any, task_name: str) -> str:
    """Return positional arguments as JSON, with secret and unknown ones redacted; see ``judged``."""
    return _block(judged(value, task_name))


def call(args: str | None, kwargs: str | None, task_name: str, limit: int) -> str:
    """Return the arguments of a task in one short line, as in code, with secret and unknown ones redacted."""
    try:
        positional, named = call_values(args, kwargs, task_name)
    except ValueError as error:
        return f"({_why_not_shown(error)})"
    parts = [_literal(one) for one in positional] if isinstance(positional, list) else ["…"]
    if isinstance(named, dict):
        parts += [f"{line(key)}={_literal(value)}" for key, value in named.items()]
    return line(f"({', '.join(parts)})", limit)


def call_values(args: str | None, kwargs: str | None, task_name: str) -> tuple[Any, Any]:
    """Return the arguments of a task as JSON values, with secret and unknown ones redacted.

    Raises:
        ValueError: they cannot be shown; the message says why.
    """
    return redacted(judged(parse(args), task_name)), redacted(parse(kwargs))


def listed_call(
    args: str | None, kwargs: str | None, task_name: str, limit: int = MAX_LISTED_CALL_CHARACTERS
) -> str:
    """Return ``call`` for a list, whose texts are cut; arguments that are not read whole are not shown."""
    if max(len(args or ""), len(kwargs or "")) > MAX_LISTED_JSON_CHARACTERS:
        return f"({_('long')})"
    return call(args, kwargs, task_name, limit)


@_of_json
def json_block(value: Any) -> str:
    """Return a JSON value indented, with the values of secret-looking keys redacted."""
    return _block(value)


@_of_json
def names(value: Any) -> str:
    """Return a JSON list of names as one line."""
    return ", ".join(line(name) for name in value[:20]) if isinstance(value, list) else line(value)


@_of_json
def errors(entries: Any, steps: Sequence[Step] = ()) -> str:
    """Return the errors of a row, newest first, with their tracebacks and the step done before each.

    Args:
        steps: the task's steps in order.
    """
    entries = entries if isinstance(entries, list) else [entries]
    shown = [_error(entry, steps) for entry in reversed(entries[-MAX_ERRORS:]) if entry is not None]
    return render_to_string("admin/txtasks/errors.html", {"errors": shown}) if shown else EMPTY


@_of_json
def late_finishes(entries: Any) -> str:
    """Return a line for each attempt that finished after its worker was declared lost."""
    entries = entries if isinstance(entries, list) else [entries]
    return lines(
        _("attempt %(attempt)s, abandoned at %(abandoned_at)s, yet finished at %(finished_at)s")
        % {key: line(entry.get(key)) or EMPTY for key in ("attempt", "abandoned_at", "finished_at")}
        for entry in entries[-MAX_ERRORS:]
        if isinstance(entry, dict)
    )


def progress(said: Progress | None) -> str:
    """Return a progress bar, if the total is known, and the note."""
    if said is None:
        return EMPTY
    of = amount(said.done)
    if said.total is not None:
        of = f"{of} / {amount(said.total)}"
    words = f"{of} {said.note}".strip()
    if said.share is None:
        return line(words)
    bar = format_html('<progress max="1" value="{}"></progress>', f"{said.share:.3f}")
    return format_html("{} {}", bar, line(words))


def amount(number: float) -> str:
    """Return a number that is whole or not, as the reader's language writes it."""
    return str(number_format(f"{number:.12g}"))


def in_seconds(number: float) -> str:
    """Return a number of seconds, which may have a fraction."""
    return _("%(n)s s") % {"n": amount(number)}


def percent(share: float) -> str:
    """Return a share of one in per cent."""
    return _("%(n)s%%") % {"n": f"{100 * share:.0f}"}


@_of_json
def hooks(value: Any) -> str:
    """Return a line for each hook: the option of ``@task``, and the task that it enqueues."""
    if not isinstance(value, dict):
        return EMPTY
    return lines(
        f"{line(option)}: {line(hook.get('task_name') if isinstance(hook, dict) else hook)}"
        for option, hook in list(value.items())[:MAX_ERRORS]
    )


@_of_json
def last_error(value: Any) -> str:
    """Return one line for ``[type, message]``, the value of LastError."""
    return (
        line(_class_and_message(value, MAX_LINE_CHARACTERS), MAX_LISTED_ERROR_CHARACTERS) or EMPTY
    )


def error_text(text: str | None) -> str:
    """Return class and message of ``[type, message]``; empty if they cannot be shown."""
    try:
        return _class_and_message(parse(text), MAX_SHOWN_CHARACTERS)
    except ValueError:
        return ""


def _class_and_message(value: Any, limit: int) -> str:
    return ": ".join(line(part, limit) for part in value or () if part)


def first_of(found: Sequence[Any], most: int, line_of: Callable[[Any], str]) -> str:
    """Return a line for each of the first ``most`` entries, and a note if there are more."""
    entries = format_html_join("", "<div>{}</div>", ((line_of(one),) for one in found[:most]))
    more = _("and others") if len(found) > most else ""
    return format_html("{}{}", entries, more) or EMPTY


def lines(texts: Iterable[str]) -> str:
    """Return each text as a line of its own."""
    return format_html_join("", "<div>{}</div>", ((text,) for text in texts)) or EMPTY


def _distance(when: datetime, now: datetime) -> str:
    template = _("in %(span)s") if when > now else _("%(span)s ago")
    return template % {"span": span(now - when)}


def clock(when: datetime) -> str:
    """Return a time in the site's time zone."""
    when = localtime(when) if is_aware(when) else when
    # a format of Django, which a translation may change
    return date_format(when, _("Y-m-d H:i:s T"))


def _block(value: Any) -> str:
    return format_html("<pre>{}</pre>", _pretty(redacted(value)))


def _literal(value: Any) -> str:
    return clean_text(json.dumps(value, ensure_ascii=False), MAX_LINE_CHARACTERS)


def _pretty(value: Any) -> str:
    """Return short values on one line and long ones indented."""
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > 80:
        text = json.dumps(value, ensure_ascii=False, indent=2)
    return clean_text(text, MAX_SHOWN_CHARACTERS)


def _why_not_shown(error: ValueError) -> str:
    return _("not shown: %(reason)s") % {"reason": line(str(error))}


def _error(entry: Any, steps: Sequence[Step]) -> dict[str, str]:
    if not isinstance(entry, dict):
        return {"message": clean_text(_text(entry), MAX_SHOWN_CHARACTERS)}
    entry = {
        key: entry.get(key)
        for key in ("attempt", "at", "worker", "type", "message", "traceback", "log")
    }
    long = {
        key: clean_text(_text(entry.pop(key)), MAX_SHOWN_CHARACTERS)
        for key in ("message", "traceback", "log")
    }
    attempt = entry["attempt"]
    before = [one.name for one in steps if isinstance(attempt, int) and one.attempt <= attempt]
    entry["step"] = before[-1] if before else None
    return {**{key: line(value) for key, value in entry.items()}, **long}


def _text(value: Any) -> str:
    """Return strings unchanged, an empty string for None, and JSON for other values."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(redacted(value), default=str)
    return clean_text(text, MAX_SHOWN_CHARACTERS)
