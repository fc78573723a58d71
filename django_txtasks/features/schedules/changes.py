"""Changes of schedules by code (a command, a starting cleaner) and by people, whose changes survive a deployment.

Each change locks the schedule's row, as cleaners do. A task that was written ahead for a future tick is
cancelled, and its tick is written again; if the schedule rule changes, the next tick is the first tick after
now. Tasks that are due and ticks that were missed stay: cleaners catch up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from functools import partial
from typing import Any, Protocol

from django.db import DatabaseError, IntegrityError, connections, transaction

from django_txtasks import signals
from django_txtasks.core.rows.enqueueing import NewTask, insert
from django_txtasks.database.errors import is_repeatable
from django_txtasks.database.execute import fetch_value
from django_txtasks.exceptions import InvalidSchedule
from django_txtasks.features.schedules import statements
from django_txtasks.features.schedules.code_versions import (
    NOT_DECLARED,
    digest_of,
    versions_of,
    with_newest,
)
from django_txtasks.features.schedules.rules import tick_after
from django_txtasks.features.schedules.ticks import moment_of, parse_known, unbegun_of
from django_txtasks.models import DatabaseNow, Schedule
from django_txtasks.operations import operators

MOST_TRIES = 5
"""Number of tries of a sync, because another sync may run at the same time."""
KEPT = "kept as people have changed them"
GONE = "No longer declared by the code it was synchronised from."


class Declared(Protocol):
    """A schedule of the code."""

    @property
    def configuration(self) -> dict[str, Any]:
        """The values of the columns that code and people write."""


class NewerRelease(InvalidSchedule):
    """The schedules in the database are from a newer release of the code."""


def sync(
    alias: str, declared: Mapping[str, Declared], *, release: int = 0, keep: bool, dry: bool = False
) -> Counter[str]:
    """Write the code's schedules to the rows, in one transaction. Rows that people have changed stay.

    A schedule that the code no longer declares is disabled, not deleted. It is enabled again when it comes back.

    Args:
        release: number of the code's release, refused if a row has a higher number; 0: no check.
        keep: True: finished rows of cancelled tasks are kept.
        dry: change nothing.

    Returns:
        The numbers of added, changed, disabled and enabled schedules, and of schedules that people have changed.

    Raises:
        NewerRelease: see ``release``.
    """
    return _repeated(partial(_sync, alias, declared, release=release, keep=keep, dry=dry))


def bring(
    alias: str, declared: Mapping[str, Declared], *, keep: bool, only_new: bool = False
) -> Counter[str]:
    """Add and update the code's schedules automatically, in one transaction.

    No schedule is disabled, and no disabled schedule is enabled. A row stays unchanged if a person has changed or
    added it, if ``sync --release`` has written it, or if a later release of the code has declared something else.

    Args:
        keep: see ``sync``.
        only_new: add missing schedules, and update no others.

    Returns:
        The numbers of added and changed schedules.
    """
    return _repeated(partial(_bring, alias, declared, keep=keep, only_new=only_new))


def _repeated(work: Callable[[], Counter[str]]) -> Counter[str]:
    for _ in range(MOST_TRIES - 1):
        try:
            return work()
        except DatabaseError as error:  # another container writes the same rows
            if not (isinstance(error, IntegrityError) or is_repeatable(error)):
                raise
    return work()


def _bring(
    alias: str, declared: Mapping[str, Declared], *, keep: bool, only_new: bool
) -> Counter[str]:
    done: Counter[str] = Counter()
    with transaction.atomic(using=alias):
        known = set(_rows(alias).values_list("pk", flat=True))
        for name, one in declared.items():
            if name not in known:
                done[_sync_one(alias, (name, one), None, 0, keep=keep)] += 1
        if only_new or known.isdisjoint(declared):
            return done
        for row in _rows(alias).select_for_update().filter(pk__in=sorted(known & declared.keys())):
            if _is_newer(row, declared[row.pk].configuration):
                done[_sync_one(alias, (row.pk, declared[row.pk]), row, 0, keep=keep)] += 1
    del done[""], done[KEPT]
    return done


def _is_newer(row: Schedule, configuration: Mapping[str, Any]) -> bool:
    """Return whether this declaration is newer than all declarations that the row has had."""
    is_free = row.from_code and not row.release
    return is_free and digest_of(configuration) not in versions_of(row)


def _sync(
    alias: str, declared: Mapping[str, Declared], *, release: int, keep: bool, dry: bool
) -> Counter[str]:
    done: Counter[str] = Counter()
    with transaction.atomic(using=alias):
        rows = {row.pk: row for row in _rows(alias).select_for_update().order_by("pk")}
        newest = max((row.release for row in rows.values()), default=0)
        if release and newest > release:
            raise NewerRelease(
                f"The schedules are those of release {newest}, and this code is release {release}. To go back "
                "all the same, leave --release out."
            )
        for name, one in declared.items():
            done[_sync_one(alias, (name, one), rows.get(name), release, keep=keep)] += 1
        for name in sorted(rows.keys() - declared.keys()):
            if rows[name].from_code:
                _forget_code(alias, rows[name], keep)
                done["disabled"] += 1
        if dry:
            transaction.set_rollback(True, using=alias)
    del done[""]
    if +done and not dry:
        text = ", ".join(f"{count} {what}" for what, count in done.items())
        signals.schedules_synchronised.emit(database=alias, done=text)
    return done


def _sync_one(
    alias: str, named: tuple[str, Declared], row: Schedule | None, release: int, *, keep: bool
) -> str:
    name, one = named
    changes: dict[str, Any] = {"release": release} if release else {}
    versions = [] if row is None else versions_of(row)
    newest = with_newest(versions, digest_of(one.configuration))
    if row is None or row.code_versions != newest:
        changes["code_versions"] = newest
    if row is None:
        next_at = _next_at(alias, one.configuration)
        new = Schedule(pk=name, **one.configuration, **changes, from_code=True, next_at=next_at)
        new.save(using=alias, force_insert=True)
        return "added"
    differs = any(getattr(row, key) != value for key, value in one.configuration.items())
    what = ""
    if differs and row.edited:
        what = KEPT
    elif differs:
        _configure(alias, row, one.configuration, keep)
        what = "changed"
    if not row.from_code:
        changes["from_code"] = True
        if row.error == GONE:
            changes.update(enabled=True, error="", **_fresh(alias, row, keep))
            what = "enabled"
    if changes:
        _rows(alias).filter(pk=name).update(**changes)
    return what


def _forget_code(alias: str, row: Schedule, keep: bool) -> None:
    _cancel_ahead(alias, row, keep)
    changes: dict[str, Any] = {"from_code": False}
    changes["code_versions"] = with_newest(versions_of(row), NOT_DECLARED)
    if row.enabled:
        changes.update(enabled=False, error=GONE)
    _rows(alias).filter(pk=row.pk).update(**changes)


def add(
    alias: str,
    name: str,
    configuration: Mapping[str, Any],
    *,
    by: str = "",
    is_import: bool = False,
) -> None:
    """Write a schedule that no code declares.

    Args:
        is_import: it comes from another system, so ``sync`` may replace it by a declaration of the code.
    """
    next_at = _next_at(alias, configuration)
    row = Schedule(pk=name, **configuration, edited=not is_import, next_at=next_at)
    row.save(using=alias, force_insert=True)
    signals.schedule_changed.emit(database=alias, schedule=name, by=by or "?", what="added")


def configure(
    alias: str, name: str, configuration: Mapping[str, Any], *, keep: bool, by: str = ""
) -> bool:
    """Write a person's changes of a schedule; return False if it has no row.

    Args:
        configuration: columns of ``code_versions.CONFIGURATION``; the others stay.
        keep: True: the finished row of a cancelled task is kept.

    Raises:
        InvalidSchedule: an invalid schedule rule.
    """
    with _locked(alias, name) as row:
        if row is not None:
            _configure(alias, row, configuration, keep)
            _rows(alias).filter(pk=name).update(edited=True)
    if row is not None:
        what = ", ".join(map(_said, configuration.items()))
        signals.schedule_changed.emit(database=alias, schedule=name, by=by or "?", what=what)
    return row is not None


def _said(change: tuple[str, Any]) -> str:
    """Return a change for the log, without the values of ``args`` and ``kwargs``, which may be secret."""
    key, value = change
    return f"{key} changed" if key in ("args", "kwargs") else f"{key}={value!r}"


def follow_code(alias: str, name: str, one: Declared, *, keep: bool, by: str = "") -> None:
    """Replace a person's changes by the code's declaration, which later releases change again."""
    with _locked(alias, name) as row:
        if row is not None:
            _configure(alias, row, one.configuration, keep)
            versions = with_newest(versions_of(row), digest_of(one.configuration))
            _rows(alias).filter(pk=name).update(
                edited=False, from_code=True, code_versions=versions
            )
    signals.schedule_changed.emit(
        database=alias, schedule=name, by=by or "?", what="as in the code"
    )


def enable(alias: str, name: str, *, keep: bool, by: str = "") -> bool:
    """Enable a schedule from now on; return False if it is enabled already, or has no row."""
    with _locked(alias, name) as row:
        if row is None or row.enabled:
            return False
        changes = {"enabled": True, "error": "", **_fresh(alias, row, keep)}
        _rows(alias).filter(pk=name).update(**changes)
    signals.schedule_changed.emit(database=alias, schedule=name, by=by or "?", what="enabled")
    return True


def disable(alias: str, name: str, *, keep: bool, by: str = "", reason: str = "") -> bool:
    """Disable a schedule, and cancel the task that was written ahead; return False if it is disabled already.

    The row's error is removed, because only a row that a cleaner or ``sync`` has disabled has an error, and such
    a row is enabled again automatically. A schedule that a person has disabled stays disabled.
    ``watched_from`` keeps the time of this call; see ``off``.
    """
    with _locked(alias, name) as row:
        if row is None or not (row.enabled or row.error):
            return False
        _cancel_ahead(alias, row, keep)
        _rows(alias).filter(pk=name).update(enabled=False, error="", watched_from=DatabaseNow())
    what = f"disabled ({reason})" if reason else "disabled"
    signals.schedule_changed.emit(database=alias, schedule=name, by=by or "?", what=what)
    return True


def run_now(alias: str, name: str, task: NewTask, *, by: str = "") -> None:
    """Write a task of a schedule that runs at once. Its outcome becomes the schedule's last outcome."""
    with _locked(alias, name) as row:
        insert(connections[alias], [task])
        if row is not None and not unbegun_of(alias, [row.last_task]):
            _rows(alias).filter(pk=name).update(last_task=task.task_id, waiting_since=DatabaseNow())
    signals.schedule_changed.emit(database=alias, schedule=name, by=by or "?", what="run now")


def _configure(alias: str, row: Schedule, configuration: Mapping[str, Any], keep: bool) -> None:
    changes = {**configuration, **_changed(alias, row, keep, configuration)}
    # Disabled with an error: a cleaner has disabled it because of its earlier values. See disable().
    if row.error and row.error != GONE:
        changes.update(enabled=True, error="")
    _rows(alias).filter(pk=row.pk).update(**changes)


def _changed(
    alias: str, row: Schedule, keep: bool, configuration: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the new tick of a row whose configuration changes."""
    before = _rule_columns(row)
    rule = before | {key: configuration[key] for key in before if key in configuration}
    parse_known(**rule)  # before anything is cancelled
    is_cancelled = _cancel_ahead(alias, row, keep)
    if row.next_at is not None and _aware(row.next_at) <= _now(alias):
        return {}  # that tick is not yet written
    if rule != before:
        new = _from_now(alias, row, rule)
        if not (row.enabled or row.error):  # off since then
            del new["watched_from"]
        return new
    return {"next_at": row.last_at} if is_cancelled else {}


def _fresh(alias: str, row: Schedule, keep: bool) -> dict[str, Any]:
    """Return the new ticks of a row that was disabled."""
    parse_known(**_rule_columns(row))
    _cancel_ahead(alias, row, keep)
    return _from_now(alias, row, _rule_columns(row))


def _from_now(alias: str, row: Schedule, rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a row whose next tick is the first tick after now.

    If a task that was written ahead cannot be cancelled, because a worker is claiming it, its tick counts as
    written.
    """
    next_at = _next_at(alias, rule, None if row.last_task is None else row.last_at)
    return {"next_at": next_at, "waiting_since": None, "watched_from": DatabaseNow()}


def _rule_columns(row: Schedule) -> dict[str, Any]:
    return {key: getattr(row, key) for key in ("cron", "every", "tz")}


def _next_at(alias: str, configuration: Mapping[str, Any], after: Any = None) -> Any:
    rule = parse_known(configuration["cron"], configuration["every"], configuration["tz"])
    now = _now(alias)
    if after is not None:
        now = max(now, _aware(after))
    return tick_after(rule, now)


def _now(alias: str) -> datetime:
    return moment_of(fetch_value(alias, statements.NOW_IN_UTC))


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def _cancel_ahead(alias: str, row: Schedule, keep: bool) -> bool:
    """Cancel the task of a future tick, unless a worker has begun it; return True if it was cancelled."""
    if row.last_task is None or row.last_at is None or _aware(row.last_at) <= _now(alias):
        return False
    if not unbegun_of(alias, [row.last_task]):
        return False
    if not operators.cancel(alias, [row.last_task], keep=keep):
        return False
    row.last_task = None
    _rows(alias).filter(pk=row.pk).update(last_task=None)
    return True


def _rows(alias: str) -> Any:
    return Schedule.objects.using(alias)


@contextmanager
def _locked(alias: str, name: str) -> Iterator[Schedule | None]:
    with transaction.atomic(using=alias):
        yield _rows(alias).select_for_update().filter(pk=name).first()
