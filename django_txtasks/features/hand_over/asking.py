"""One call of a target, and its answers, whatever the target does."""

from __future__ import annotations

import time
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
    not keep all others back, so it is postponed: see ``_postpone_suspects``.

    Args:
        blames: several calls in a row have not reached the target.
    """
    if ordered:
        return _in_order(target, rows, until)
    answers = Answers()
    for is_again in (False, True):
        some = [row for row in rows if bool(row.snoozes) is is_again]
        if some and not answers.away and time.monotonic() < until:
            found = _answers(target, some, until)
            is_there = is_again and bool(answers.taken)
            if found.away and (is_there or (len(rows) == 1 and (is_again or blames))):
                _postpone_suspects(some, found, is_there=is_there)
            answers.add(found)
    if not (answers.known or answers.away):
        answers.away = "it has answered for no row"
    return answers


def _postpone_suspects(rows: Sequence[Row], answers: Answers, *, is_there: bool) -> None:
    """Postpone rows without an answer, because one of them may be the reason.

    Args:
        is_there: the target has just taken other rows, so it can be reached.
    """
    known = answers.known
    answers.postponed.update({row.id: answers.away for row in rows if row.id not in known})
    if is_there:
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
