"""JSON for rows. A value that cannot be stored is refused before any SQL, with an error that names the part.

``json.dumps`` accepts or changes NaN, NUL characters, lone surrogates and keys that are not strings. PostgreSQL's
jsonb then fails inside the caller's transaction, which cannot be used after that.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from django_txtasks.exceptions import InvalidArguments

MAX_BYTES = 256 * 1024
MAX_DEPTH_LEVELS = 20  # MariaDB's JSON functions stop at 32 levels
MAX_DIGITS = 300
LEFT_OUT = "… earlier lines are left out …"
LONG_TEXT_CHARACTERS = 1_000
"""Length from which a text is checked and encoded separately."""

_LARGE_FLOAT = re.compile(r'"(?:[^"\\]|\\.)*"|-?[\d.]+e\+\d+')
"""Pattern of a string, which is skipped, or of a float that Python writes with an exponent."""

Path: TypeAlias = "str | tuple[Path, object]"
"""Path of a part in a value: the name of the whole, or a key or index of another part. Errors spell it out."""

_to_json = json.JSONEncoder(
    separators=(",", ":"), allow_nan=False, check_circular=False
).encode  # a value that contains itself is refused earlier, as too deep


def encode(value: Any, *, name: str) -> str:
    """Return ``value`` as JSON text.

    Args:
        value: None, bool, int, finite float, str, and lists, tuples and dicts of these. A tuple comes back as a
            list.
        name: the name of the value in an error, such as ``args``.

    Raises:
        InvalidArguments: names the wrong part, the reason, and a value to pass instead.
    """
    if type(value) is tuple and all(map(_is_plain, value)):
        return _refuse_what_is_too_long(f"[{','.join(map(_plain_to_json, value))}]", name)
    refuse_unstorable(value, name=name)
    return _refuse_what_is_too_long(write(value), name)


def refuse_unstorable(value: Any, *, name: str) -> None:
    """Raise ``InvalidArguments`` if ``encode`` would refuse a value for another reason than its length."""
    _refuse_what_json_cannot_keep(value, name, 0)


def _plain_to_json(value: Any) -> str:
    """Return a value that ``_is_plain`` as JSON text. For an int this is faster than the encoder."""
    return str(value) if type(value) is int else _to_json(value)


def write(value: Any) -> str:
    """Return a value that was checked, or read from a row, as JSON text that comes back unchanged.

    PostgreSQL's jsonb changes 1e+16 to an integer, but keeps 10000000000000000.0. (It has no -0.0.)
    """
    text = _to_json(value)
    return _LARGE_FLOAT.sub(_without_exponent, text) if "e+" in text else text


def _without_exponent(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith('"') else f"{float(found[0]):.1f}"


def encode_each(values: Sequence[Sequence[Any]], *, name: str) -> list[str]:
    """Return each of these lists as JSON text, like ``encode``, in a third of the time."""
    if all(all(map(_is_plain, value)) for value in values):
        parts = _to_json(values)[2:-2].split("],[")
        if len(parts) == len(values):  # the separator is only between values, not in one
            return [_refuse_what_is_too_long(f"[{part}]", name) for part in parts]
    return [encode(value, name=name) for value in values]


def decode_arguments(args: str, kwargs: str) -> tuple[list[Any], dict[str, Any]]:
    """Return a row's arguments.

    Raises:
        InvalidArguments: not a list and an object, because the row was written by hand.
    """
    try:
        arguments, keywords = json.loads(args), json.loads(kwargs)
    except (ValueError, RecursionError) as error:
        raise InvalidArguments(f"the row's arguments cannot be read: {error}") from None
    if not isinstance(arguments, list):
        raise InvalidArguments(f"the row's args are {type(arguments).__name__}, not a JSON array")
    if not isinstance(keywords, dict):
        raise InvalidArguments(f"the row's kwargs are {type(keywords).__name__}, not a JSON object")
    return arguments, keywords


def storable(text: str) -> str:
    """Return foreign text in a form that each database stores: NUL and lone surrogates become escapes."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


def clean_text(text: str, limit: int = 10_000) -> str:
    """Return foreign text in a form that each database stores, shortened to ``limit`` characters."""
    text = storable(text)
    if len(text) <= limit:
        return text
    half = limit // 2  # the first and last lines of a traceback are the most useful
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"


def last_lines_within(lines: Iterable[str], limit: int) -> str:
    """Return the last of these lines that fit into ``limit`` bytes, below a note if earlier ones are left out."""
    found, size = [], 0
    for line in reversed(list(lines)):
        size += len(line.encode()) + 1
        if size > limit - len(LEFT_OUT.encode()):
            found.append(LEFT_OUT)
            break
        found.append(line)
    return "\n".join(reversed(found))


def _refuse_what_is_too_long(text: str, name: str) -> str:
    if len(text) > MAX_BYTES:
        raise InvalidArguments(
            f"{name} is {len(text):,} bytes of JSON, more than {MAX_BYTES:,}. "
            "Store the data in a model or a file and pass its id."
        )
    return text


def _refuse_what_json_cannot_keep(value: Any, path: Path, depth: int) -> None:
    if depth > MAX_DEPTH_LEVELS:
        raise InvalidArguments(
            f"{_shown(path)[:200]} is nested more than {MAX_DEPTH_LEVELS} levels deep. Flatten it."
        )
    if isinstance(value, str):
        _refuse_text(value, path)
    elif isinstance(value, (int, float)):
        _refuse_number(value, path)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            if not _is_plain(item):
                _refuse_what_json_cannot_keep(item, (path, index), depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            _refuse_key(key, path)
            if not _is_plain(item):
                _refuse_what_json_cannot_keep(item, (path, key), depth + 1)
    elif value is not None:
        raise InvalidArguments(
            f"{_shown(path)} is {type(value).__name__}, which is not JSON. Use an id, or str, int, float, "
            "bool, None, list or dict (a date as value.isoformat(), a model instance as its pk)."
        )


def _is_plain(value: Any) -> bool:
    """Return True, quickly, for most values that can be stored; False: look closer."""
    kind = type(value)
    if kind is int:
        return bool(-(2**63) <= value < 2**63)
    if kind is str:
        return len(value) < LONG_TEXT_CHARACTERS and value.isascii() and "\0" not in value
    return value is None or kind is bool


def _shown(path: Path) -> str:
    keys: list[str] = []
    while not isinstance(path, str):
        path, key = path
        keys.append(f"[{key!r}]")
    return "".join([path, *reversed(keys)])


def _refuse_number(value: Any, path: Path) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidArguments(
            f"{_shown(path)} is {value}, which JSON does not have. Use None or a str."
        )
    # bits instead of digits, because Python refuses to print integers of more than 4,300 digits
    if isinstance(value, int) and value.bit_length() > MAX_DIGITS * 3.33:
        raise InvalidArguments(f"{_shown(path)} is an integer of more than {MAX_DIGITS} digits.")


def _refuse_key(key: Any, path: Path) -> None:
    if not isinstance(key, str):
        raise InvalidArguments(
            f"{_shown(path)} has the key {key!r} of type {type(key).__name__}; "
            "JSON has only str keys. Convert it."
        )
    _refuse_text(key, path, what="a key of ")


def _refuse_text(text: str, path: Path, *, what: str = "") -> None:
    if "\x00" in text:
        raise InvalidArguments(
            f"{what}{_shown(path)} holds a NUL character, which databases refuse. Remove it."
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArguments(
            f"{what}{_shown(path)} holds a lone surrogate at position {error.start}, which is not text. "
            "Decode the original bytes with errors='replace'."
        ) from None
