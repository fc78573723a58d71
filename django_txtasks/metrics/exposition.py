"""The text of the metrics in Prometheus' exposition format, version 0.0.4."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from django_txtasks.metrics.kept import samples
from django_txtasks.metrics.names import METRICS
from django_txtasks.metrics.samples import Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\0": ""})


def text(aliases: Sequence[str]) -> str:
    """Return the metrics of these databases, at most 15 s old.

    Raises:
        DatabaseError: a database cannot be reached, or did not answer in time.
    """
    return text_of({alias: samples(alias) for alias in aliases})


def text_of(found: Mapping[str, Sequence[Sample]]) -> str:
    """Return the text of values by database. The values of a metric stand together."""
    lines: dict[str, list[str]] = defaultdict(list)
    for alias, values in found.items():
        for one in values:
            lines[one.metric].append(_line(alias, one))
    return "".join(line for name in METRICS for line in _block(name, lines[name]))


def _block(name: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield f"# HELP {name} {METRICS[name].help}\n"
        yield f"# TYPE {name} {METRICS[name].kind}\n"
        yield from lines


def _line(alias: str, sample: Sample) -> str:
    labels = ",".join(
        f'{label}="{value.translate(_ESCAPED)}"'
        for label, value in {"database": alias, **sample.labels}.items()
    )
    return f"{sample.metric}{sample.suffix}{{{labels}}} {_number(sample.value)}\n"


def _number(value: float) -> str:
    return repr(float(value)).removesuffix(".0")
