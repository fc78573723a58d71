"""People as workers: a task asks a question, waits without a slot, and goes on with the answer of a person.

The app has one table. It needs Django's ``auth`` and ``contenttypes``, in the database of the tasks.

* ``kinds``: ``question()`` declares a kind of question, with its form. ``buttons``: a choice of a form as buttons.
  ``asking``: a task asks.
* ``acts``: people take, give back, hide and answer questions. ``refusals``: why an act did not count.
* ``lists``: the lists of open questions. ``totals``: how many were answered, by people and by a machine.
* ``views``, ``urls``: the pages for users of the site. ``admin``: the same in the admin. ``desk``: acts as the
  pages send them. ``together``: chosen questions, and one answer to several of them. ``wanted``: what the address
  of a list asks for. ``showing``: what the pages show. ``outcome``: how the task ended.
  ``about``: links to the business objects.
* ``sweep``: the cleaner closes questions that need no answer any more. ``record``: entries of the admin's log.

Public names are loaded on first use, because some need models.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_txtasks.contrib.people.acts import (
        answer,
        give_back,
        give_to,
        hide,
        hide_for_me,
        open_question,
        take,
        take_next,
        write_note,
    )
    from django_txtasks.contrib.people.asking import Answer
    from django_txtasks.contrib.people.buttons import Buttons
    from django_txtasks.contrib.people.kinds import Kind, question
    from django_txtasks.contrib.people.lists import Box, Page, counts, inbox
    from django_txtasks.contrib.people.refusals import Refusal
    from django_txtasks.contrib.people.totals import Figures, answers_by_kind, figures

__all__ = [
    "Answer",
    "Box",
    "Buttons",
    "Figures",
    "Kind",
    "Page",
    "Refusal",
    "answer",
    "answers_by_kind",
    "counts",
    "figures",
    "give_back",
    "give_to",
    "hide",
    "hide_for_me",
    "inbox",
    "open_question",
    "question",
    "take",
    "take_next",
    "write_note",
]

_NAMES_IN = {
    "acts": (
        "answer", "give_back", "give_to", "hide", "hide_for_me", "open_question", "take", "take_next",
        "write_note",
    ),
    "asking": ("Answer",),
    "buttons": ("Buttons",),
    "kinds": ("Kind", "question"),
    "lists": ("Box", "Page", "counts", "inbox"),
    "refusals": ("Refusal",),
    "totals": ("Figures", "answers_by_kind", "figures"),
}  # fmt: skip
_MODULE_OF = {one: module for module, names in _NAMES_IN.items() for one in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
