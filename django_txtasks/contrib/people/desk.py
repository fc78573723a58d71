"""Acts as the pages send them: each is one transaction, with its entry in the admin's log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from django.contrib.auth import get_user_model
from django.db import transaction
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _lazy

from django_txtasks.contrib.people import acts, refusals, values
from django_txtasks.contrib.people.kinds import Kind
from django_txtasks.contrib.people.lists import ASSIGN
from django_txtasks.contrib.people.models import (
    MOST_NOTE_CHARACTERS,
    Question,
    alias_of_people,
    name_of,
)
from django_txtasks.contrib.people.record import note_in_log
from django_txtasks.contrib.people.refusals import Reason, Refusal, time_at_end
from django_txtasks.contrib.people.showing import row_of
from django_txtasks.database.transactions import repeated
from django_txtasks.exceptions import InvalidArguments

Result = TypeVar("Result")
PREFIX = "answer"
"""Prefix of the fields of a kind's form, so that they differ from the fields of the page."""
HIDE_FOR: dict[str, tuple[Any, timedelta]] = {
    "hour": (_lazy("1 hour"), timedelta(hours=1)),
    "day": (_lazy("1 day"), timedelta(days=1)),
    "days": (_lazy("3 days"), timedelta(days=3)),
    "week": (_lazy("1 week"), timedelta(weeks=1)),
}
"""The times for which a page hides a question, with their labels."""
SAID: dict[str, Any] = {
    "take": _lazy("Taken."),
    "give_back": _lazy("Given back."),
    "give_to": _lazy("Given to a colleague."),
    "hide": _lazy("Hidden from all."),
    "show": _lazy("Shown to all again."),
    "not_for_me": _lazy("Hidden from you; others still see it."),
    "for_me": _lazy("You see this question again."),
    "note": _lazy("Note saved."),
}
"""The acts of the pages, with the text that confirms each of them."""
OF_LISTS = ("take", "give_back", "give_to", "not_for_me")
"""The acts for several chosen questions of a list."""
OF_ROWS = ("take", "show", "for_me")
"""The acts whose buttons are beside one question of a list."""
ANSWERED = _lazy("Answered.")
ENTER = "enter"
"""The act of the key Enter in a field of the page: it gives if a colleague is named, and else saves the note."""


def act_of(data: Mapping[str, Any]) -> str:
    """Return the act that a page was sent with; empty: none."""
    name = str(data.get("act", ""))
    if name != ENTER:
        return name
    return "give_to" if data.get("to") or "note" not in data else "note"


def said(name: str, questions: list[Question], user: Any, data: Mapping[str, Any]) -> str:
    """Return the text that confirms an act on these questions.

    Args:
        questions: the rows as they were before the act.
    """
    titles = [one.title for one in questions]
    text = str(SAID[name])
    if name == "hide":
        text = _text_of_hidden(questions[0])
    if name == "note":
        text = _text_of_note(data)
    if name == "give_to":
        to = _person(data["to"])
        text = _("Given to %(who)s.") % {"who": name_of(to) if to else data["to"].strip()}
        if to == user:
            text = _("Given to you.")
        titles = [_title_with_former(one, user, to) for one in questions]
    return f"{text} {', '.join(titles)}"


def act(name: str, question: Question, user: Any, data: Mapping[str, Any]) -> Refusal | None:
    """Carry out an act of ``SAID``.

    Args:
        data: the fields of the page: ``note``, ``note_was``, ``to``, ``hide_for``.
    """
    typed = new_note(data)
    note = typed or ""
    if len(note) > MOST_NOTE_CHARACTERS:
        text = _("The note has %(number)s characters, and may have %(most)s. Make it shorter.")
        return Refusal(Reason.TOO_LONG, text % {"number": len(note), "most": MOST_NOTE_CHARACTERS})
    if name == "give_to":  # it writes its own entry
        # before a look for the name, which would tell whether it exists
        if not user.has_perm(ASSIGN):
            return refusals.lacks(ASSIGN)
        if not data.get("to", "").strip():
            return Refusal(Reason.NOT_ALLOWED, _("Type the user name of a colleague."))
        to = _person(data["to"])
        if to is None:
            text = _("No user has the name %(name)s. Choose a name of the list.")
            text %= {"name": data.get("to", "")[:100]}
            return Refusal(Reason.NOT_ALLOWED, text)
        return _in_one(lambda: _unseen(question, data) or acts.give_to(question, user, to, note))
    work: dict[str, Callable[[], Refusal | None]] = {
        "take": lambda: acts.take(question, user) or _noted(question, user, note),
        "give_back": lambda: acts.give_back(question, user, note),
        "hide": lambda: acts.hide(question, user, HIDE_FOR[data["hide_for"]][1], note),
        "show": lambda: acts.hide(question, user, None),
        "not_for_me": lambda: acts.hide_for_me(question, user, note=note),
        "for_me": lambda: acts.hide_for_me(question, user, hidden=False, note=note),
        "note": lambda: acts.write_note(question, user, question.note if typed is None else typed),
    }
    said = _text_of_note(data) if name == "note" else str(SAID[name])
    return _logged(user, question, said, lambda: _unseen(question, data) or work[name]())


def new_note(data: Mapping[str, Any]) -> str | None:
    """Return the note that a person has typed; None: the note is as the page showed it.

    Then it is not written, because a colleague may have written another one since.
    """
    note: str = data.get("note", "")
    return None if _letters(note) == _letters(data.get("note_was", "")) else note


def _unseen(question: Question, data: Mapping[str, Any]) -> Refusal | None:
    """Return a refusal if the page would replace a note that its reader has not seen. Lock the row."""
    if new_note(data) is None or "note_was" not in data:
        return None
    rows = Question.objects.using(alias_of_people()).select_for_update()
    now = rows.filter(pk=question.pk).first()
    if now is None or _letters(now.note) in (
        "",
        _letters(data["note_was"]),
        _letters(data["note"]),
    ):
        return None
    text = _(
        "%(who)s has written another note since you opened this page: “%(note)s” Do the same again to replace it."
    )
    return Refusal(Reason.CHANGED, text % {"who": now.noted_as, "note": now.note})


def _noted(question: Question, user: Any, note: str) -> Refusal | None:
    return acts.write_note(question, user, note) if note else None


def answer(question: Question, user: Any, form: Any) -> Refusal | None:
    """Answer the question with its valid form."""
    return _logged(user, question, str(ANSWERED), lambda: acts.answer(question, user, form))


def take_next(user: Any, kind: str | None) -> Question | None:
    """Take the question that is due first; None: no question is free."""

    def work() -> Question | None:
        taken = acts.take_next(user, kind)
        if taken is not None:
            note_in_log(user, taken, str(SAID["take"]))
        return taken

    return _in_one(work)


def form_of(kind: Kind, question: Question, user: Any, data: Any = None) -> Any:
    """Return the form of a question. Its ``clean()`` finds the row and the person in ``question`` and ``user``.

    Args:
        data: the fields of the page; None: the form shows the suggested values.
    """
    initial = values.as_initial(kind, question.suggested)
    form: Any = kind.form(data, prefix=PREFIX, initial=initial)
    form.question, form.user = question, user
    for field in form.fields.values():
        # a browser would cut a longer text without a word; the field's own check says it
        field.widget.attrs.pop("maxlength", None)
    return form


def is_valid(form: Any) -> bool:
    """Return True if the form of a question is valid, and its values can be stored. If not, it has the errors."""
    if not form.is_valid():
        return False
    try:
        values.of_form(form)
    except InvalidArguments as error:
        text = _("This answer cannot be stored. Make it shorter or simpler. (%(reason)s)")
        form.add_error(None, text % {"reason": error})
        return False
    return True


def _letters(text: str) -> str:
    """Return a text without white space, which a browser changes in a field of one line."""
    return "".join(text.split())


def _text_of_hidden(question: Question) -> str:
    question.refresh_from_db(fields=["hidden_until"])
    if question.hidden_until is None:  # a colleague has shown it again since
        return str(SAID["hide"])
    text = _("Free, and hidden from all until %(time)s.")
    return text % {"time": time_at_end(question.hidden_until)}


def _text_of_note(data: Mapping[str, Any]) -> str:
    typed = new_note(data)
    if typed is None:
        return _("The note is as before.") if data.get("note") else _("The note is empty.")
    return str(SAID["note"]) if typed.strip() else _("Note removed.")


def _title_with_former(question: Question, user: Any, to: Any) -> str:
    """Return the title, with the name of another person who had the question before."""
    row = row_of(question, user)
    if not row.person or row.is_mine or question.assignee == to:
        return str(question.title)
    return _("%(title)s (taken from %(who)s)") % {"title": question.title, "who": row.person}


def _person(name: str) -> Any:
    users: Any = get_user_model()
    if "\0" in name:  # PostgreSQL refuses the statement
        return None
    people, field = users._base_manager.using(alias_of_people()), users.USERNAME_FIELD
    exact = people.filter(**{field: name.strip()}).first()
    if exact is not None:
        return exact
    alike = list(people.filter(**{f"{field}__iexact": name.strip()})[:2])
    return alike[0] if len(alike) == 1 else None


def _logged(
    user: Any, question: Question, text: str, work: Callable[[], Refusal | None]
) -> Refusal | None:
    def once() -> Refusal | None:
        refusal = work()
        if refusal is None:
            note_in_log(user, question, text)
        return refusal

    return _in_one(once)


def _in_one(work: Callable[[], Result]) -> Result:
    """Do the work in one transaction."""
    alias = alias_of_people()

    def once() -> Result:
        with transaction.atomic(using=alias):
            return work()

    return repeated(alias, once)
