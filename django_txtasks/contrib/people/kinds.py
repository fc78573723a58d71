"""Kinds of questions: ``question()`` declares them, and the registry finds them by name.

The name in a row is looked up here. No module is imported for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django import forms
from django.apps import apps

from django_txtasks.contrib.people.buttons import Buttons
from django_txtasks.core.declaring.values import LONGEST_SPAN
from django_txtasks.exceptions import InvalidDeclaration

if TYPE_CHECKING:
    from django_txtasks.context import TaskContext
    from django_txtasks.contrib.people.asking import Answer
    from django_txtasks.functions import TaskFunction

MOST_NAME_CHARACTERS = 100
APP = "django_txtasks.contrib.people"


@dataclass(frozen=True)
class Kind:
    """A kind of question, as ``question()`` declares it.

    Attributes:
        form: the class of the form that a person fills in.
        may: the permission of the people who may take and answer; None: every active user.
        due: time from the asking after which a question is overdue; None: never.
        hold: time for which a person who takes a question has it; None: until it is answered or given back.
        place: module and line of the declaration.
    """

    name: str
    form: type[forms.BaseForm]
    may: str | None
    due: timedelta | None
    hold: timedelta | None
    place: str = field(default="", compare=False, repr=False)

    def ask(
        self,
        ctx: TaskContext,
        name: str = "",
        *,
        title: str = "",
        suggested: Mapping[str, Any] | None = None,
        to: Any = None,
        not_by: Collection[Any] = (),
        machine: Callable[[], Mapping[str, Any] | None] | None = None,
        due: datetime | timedelta | float | None = None,
        timeout: timedelta | float | None = None,
        on_due: TaskFunction[..., Any] | None = None,
    ) -> Answer:
        """Suspend the task until a person has answered, and return the answer.

        The task occupies no slot meanwhile; a later attempt returns from this call, with the same answer. The
        arguments of the first attempt that asks count.

        Args:
            name: different for each step and wait of a task; by default the name of the kind.
            title: line of at most 200 characters in the lists; by default the name.
            suggested: first values of the form, by field.
            to: a user, or a user's key, who has the question at first. A user who may not answer does not get it.
            not_by: users, or users' keys, who must not answer. None in it is ignored.
            machine: is called if nothing was asked under this name before. It returns an answer with all fields of
                the form, or None: ask people.
            due: a time, or a time from now on, instead of the kind's ``due``.
            timeout: from the first attempt that asks; None: no limit.
            on_due: a task function that is enqueued with the question, to start when it is due. Its argument is
                the id of the question. See ``open_question``.

        Raises:
            WaitTimedOut: no person has answered in time. It is raised in each later attempt, too.
            Suspended: no person has answered yet. Do not catch it.
            StepRefused: as from ``ctx.wait_for()``.
            InvalidOption: an argument has another type, or names a field that the form does not have,
                or a user that cannot exist.
            InvalidArguments: values cannot be stored as JSON.
            ClaimLost: the worker was declared lost. Do not catch it.
        """
        from django_txtasks.contrib.people.asking import Asking

        asking = Asking(
            kind=self, name=name or self.name, title=title, suggested=suggested, to=to, not_by=not_by,
            due=due, timeout=timeout, on_due=on_due,
        )  # fmt: skip
        return asking.run(ctx, machine)

    async def aask(self, ctx: TaskContext, name: str = "", **arguments: Any) -> Answer:
        """Like ``ask``, from an async task. The machine is a sync function."""
        return await sync_to_async(self.ask)(ctx, name, **arguments)

    def allows(self, user: Any) -> bool:
        """Return True if the user is active and has the permission to answer."""
        if not user.is_active:
            return False
        return self.may is None or bool(user.has_perm(self.may))


_kinds: dict[str, Kind] = {}


def question(
    name: str,
    *,
    form: type[forms.BaseForm],
    may: str | None,
    due: timedelta | None = None,
    hold: timedelta | None = None,
) -> Kind:
    """Declare a kind of question, in the ``tasks.py`` of an app.

    Args:
        name: text of at most 100 characters, such as ``"shop.approval"``. Rows keep it.
        form: a class of Django forms without fields for files.
        may: permission of the people who may answer, such as ``"shop.approve_order"``; None: every active user.
        due: time from the asking after which a question is overdue; None: never.
        hold: time for which a person who takes a question has it; None: until it is answered or given back.

    Raises:
        InvalidDeclaration: one of these is invalid, or another place declares this name.
    """
    caller = sys._getframe(1)
    place = f"{caller.f_globals.get('__name__', '?')}, line {caller.f_lineno}"
    for problem in _problems(name, form, may, due=due, hold=hold):
        raise InvalidDeclaration(f"question({name!r}){problem}")
    kind = Kind(name, form, may, due, hold, place)
    known = _kinds.setdefault(name, kind)
    if known.place != place:
        raise InvalidDeclaration(
            f"question({name!r}) is declared in two places: {known.place}, and {place}. Rows name it, so each "
            "kind needs a name of its own."
        )
    _kinds[name] = kind
    return kind


def find(name: str) -> Kind | None:
    """Return the kind of this name, or None: no installed app declares it."""
    return _kinds.get(name)


def get(name: str) -> Kind:
    """Return the kind of this name, which was found before."""
    return _kinds[name]


def name_of_kind(kind: Kind | str | None) -> str | None:
    """Return the name of a kind, which functions also take as a name; None: no kind."""
    return kind.name if isinstance(kind, Kind) else kind


def kinds() -> list[Kind]:
    """Return all declared kinds, sorted by name."""
    return [_kinds[name] for name in sorted(_kinds)]


def _problems(name: Any, form: Any, may: Any, **spans: Any) -> Iterator[str]:
    """Yield the mistakes of a declaration, each as the end of a sentence that begins with the declaration."""
    if not apps.is_installed(APP):
        yield f" needs the table of its app: add {APP!r} to INSTALLED_APPS and run migrate."
    is_text = isinstance(name, str) and 0 < len(name) <= MOST_NAME_CHARACTERS
    if not (is_text and name.isprintable() and name == name.strip()):
        yield (
            f": the name must be printable text of 1 to {MOST_NAME_CHARACTERS} characters, such as "
            "'shop.approval'."
        )
    yield from _problems_of_form(form)
    if not (may is None or (isinstance(may, str) and all(may.partition(".")))):
        yield f": may is {may!r}; use a permission, such as 'shop.approve_order', or None for every active user."
    for option, span in spans.items():
        if span is None or (isinstance(span, timedelta) and timedelta(0) < span <= LONGEST_SPAN):
            continue
        yield f": {option} is {span!r}; use a timedelta of at most 100 years, or None."


def _problems_of_form(form: Any) -> Iterator[str]:
    if not (isinstance(form, type) and issubclass(form, forms.BaseForm)):
        yield f": form is {form!r}; use a class of Django forms, not an instance."
        return
    fields = getattr(form, "base_fields", {})
    for name, one in fields.items():
        if isinstance(one, forms.FileField):
            yield (
                f": field {name!r} of {form.__name__} takes a file, and an answer is JSON. Let people store the "
                "file in a model first, and choose its row in the form."
            )
        if isinstance(one.widget, Buttons) and not isinstance(one, forms.ChoiceField):
            yield f": field {name!r} of {form.__name__} has Buttons and no choices; use a ChoiceField."
    with_buttons = [name for name, one in fields.items() if isinstance(one.widget, Buttons)]
    if len(with_buttons) > 1:
        yield (
            f": fields {with_buttons[0]!r} and {with_buttons[1]!r} of {form.__name__} have Buttons, and a person "
            "presses one button. Use Buttons for one field."
        )
