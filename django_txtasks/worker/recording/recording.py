"""Writing outcomes that the database may refuse, or that may be recorded already."""

from __future__ import annotations

import uuid

from django.db import DatabaseError, InterfaceError, OperationalError, transaction

from django_txtasks import signals
from django_txtasks.conf import Config
from django_txtasks.database.errors import message_of
from django_txtasks.exceptions import ClaimLost
from django_txtasks.lifecycle import outcomes
from django_txtasks.lifecycle.attempts import Arrow, Attempt, Ended
from django_txtasks.worker.running.runner import describe


def record_one(alias: str, one: Ended, config: Config) -> outcomes.Recorded | None:
    """Record one outcome, in the open transaction: what the database refuses leaves the task dead.

    Returns:
        None: it has refused even that.
    """
    refused = one
    for _ in range(2):
        try:
            with transaction.atomic(using=alias):
                return outcomes.record(alias, [refused], config=config)
        except (OperationalError, InterfaceError):
            raise
        except ClaimLost:
            return outcomes.Recorded(lost=[one])
        except DatabaseError as error:
            signals.outcome_refused.emit(**one.attempt.facts, error=message_of(error))
            refused = unrecorded(one, error)
    return None


def look_again(alias: str, recorded: outcomes.Recorded, me: uuid.UUID) -> None:
    """Tell those that finished by a COMMIT whose answer was lost from those that finished too late."""
    for one in list(recorded.lost):
        if outcomes.finished_by(alias, one.attempt):
            recorded.lost.remove(one)
            recorded.done.append(one._replace(arrow=Arrow.FINISH))
        elif one.arrow is Arrow.FINISH and one.attempt.worker != me:
            _note_late_finish(alias, one.attempt)


def _note_late_finish(alias: str, attempt: Attempt) -> None:
    """Note a late finish beside the task, unless the database refuses: that must not cost the turn."""
    try:
        with transaction.atomic(using=alias):
            outcomes.note_late_finish(alias, attempt)
    except (OperationalError, InterfaceError):
        raise
    except DatabaseError as error:
        signals.outcome_refused.emit(**attempt.facts, error=message_of(error))


def unrecorded(one: Ended, error: Exception) -> Ended:
    """Return what is recorded instead of an outcome that the database refuses: the task is dead, and why."""
    if one.arrow is Arrow.FINISH:
        what = f"The task has ended well, but its result ({len(one.result or ''):,} bytes of JSON)"
    else:
        what = f"This attempt's {one.arrow.value} ({one.error.get('type')})"
    entry = describe(error)
    entry["message"] = (
        f"{what} could not be recorded: {message_of(error)}. Reviving the task runs it again."
    )
    return Ended(attempt=one.attempt, arrow=Arrow.BURY, error=entry)
