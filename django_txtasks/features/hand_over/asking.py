"""One call of a target, and its answers, whatever the target does."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

from django_txtasks.database.errors import str_of, text_of
from django_txtasks.exceptions import Away, Refused
from django_txtasks.features.hand_over.rows import Row
from django_txtasks.features.hand_over.target import Answers, NotReturned, Target


def ask(
    target: Target, rows: Sequence[Row], until: float, *, ordered: bool, blames: bool = False
) -> Answers:
    """Send rows to the target until that time by ``time.monotonic()``, and return its answers.

    If one row breaks the call, so that the answers to the others are unknown, the rows without an answer are sent
    one by one. A row that breaks its call alone is postponed. In an ordered queue each row has a call of its own.

    Rows that were postponed before have a call of their own, after the others. If it breaks again, no other row
    arrives twice.

    If a call does not return, a row that was sent alone is postponed. After such a call, rows are sent alone.

    One row alone may end the connection, or get no answer, although the target takes other rows. Such a row must
    not keep all others back, so it is postponed, but only if another row was taken. While the target takes no
    row, none is to blame, and all stay as they are.

    Args:
        blames: several calls in a row have not reached the target, and the next row may be the reason.
    """
    if ordered:
        return _in_order(target, rows, until)
    if blames:
        return _with_witness(target, rows, until)
    answers = Answers()
    for is_again in (False, True):
        some = [row for row in rows if bool(row.snoozes) is is_again]
        if some and not answers.away and time.monotonic() < until:
            found = _answers(target, some, until)
            if found.away and is_again and answers.taken:
                _postpone_suspects(some, found)
            answers.add(found)
    if not (answers.known or answers.away):
        answers.away = "it has answered for no row"
    return answers


def _with_witness(target: Target, rows: Sequence[Row], until: float) -> Answers:
    """Send rows alone, up to the first that the target takes. Then the rows before it are the reason.

    If the target takes none of them, they stay as they are. The next pass brings one more row, so that any number
    of bad rows at the head is passed at last.
    """
    answers = Answers()
    silent: dict[uuid.UUID, str] = {}
    for row in rows:
        if time.monotonic() >= until:
            break
        one = _answers(target, [row], until)
        answers.add(one)
        if one.away and not one.known:
            silent[row.id] = one.away
        if one.taken or (one.away and one.known):  # known, and away: its call has not returned
            break
    if answers.taken:
        answers.postponed.update(silent)
    elif silent:
        answers.away = answers.away or list(silent.values())[-1]
    elif not answers.known:
        answers.away = "it has answered for no row"
    return answers


def _postpone_suspects(rows: Sequence[Row], answers: Answers) -> None:
    """Postpone rows without an answer: the target has just taken other rows, so one of these may be the reason."""
    known = answers.known
    answers.postponed.update({row.id: answers.away for row in rows if row.id not in known})
    answers.away = ""


def _answers(target: Target, rows: Sequence[Row], until: float) -> Answers:
    answers = _send(target, rows, until)
    if answers.broken:
        rest = [row for row in rows if row.id not in answers.known]
        _one_by_one(target, rest, until, answers)
    return answers


def _one_by_one(target: Target, rows: Sequence[Row], until: float, answers: Answers) -> None:
    reason = answers.broken
    for row in rows:
        if time.monotonic() >= until:
            break
        one = Answers(broken=reason) if len(rows) == 1 else _send(target, [row], until)
        answers.add(one)
        if one.broken:
            answers.postponed[row.id] = one.broken
        if one.away:
            break


def _in_order(target: Target, rows: Sequence[Row], until: float) -> Answers:
    """Send one row after the other, up to the first that is not taken. The queue stops there until it goes.

    A target that gets several rows may take a later one and not an earlier one.
    """
    answers = Answers()
    for row in rows:
        if time.monotonic() >= until:
            break
        one = _send(target, [row], until)
        if row.id not in one.taken | one.refused.keys():
            reason = one.postponed.get(row.id) or one.broken or "it has no answer"
            stopped = f"the queue is ordered, and task {row.id} is not taken: {reason}"
            answers.away = one.away or stopped
            break
        answers.add(one)
    return answers


def _send(target: Target, rows: Sequence[Row], until: float) -> Answers:
    try:
        answers = target.send(rows, until)
    except NotReturned as error:
        alone = {rows[0].id: str_of(error)} if len(rows) == 1 else {}
        return Answers(postponed=alone, away=str_of(error))
    except Away as error:
        return Answers(away=str_of(error))
    except Refused as error:
        if len(rows) > 1:
            return Answers(broken=str_of(error))
        return Answers(refused={rows[0].id: str_of(error)})
    except Exception as error:  # an error of the target must not end the drain
        return Answers(broken=text_of(error))
    return answers.about({row.id for row in rows})
