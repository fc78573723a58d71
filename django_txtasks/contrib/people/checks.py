"""Django's checks of questions."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from types import CodeType, ModuleType
from typing import Any

from django.apps import apps
from django.conf import settings
from django.contrib.auth import get_permission_codename, get_user_model
from django.core.checks import CheckMessage, Error, Warning, register
from django.db import router
from django.utils.module_loading import import_string

from django_txtasks.contrib.people.kinds import Kind, kinds
from django_txtasks.contrib.people.models import Question, alias_of_people
from django_txtasks.core.declaring import registry
from django_txtasks.models import Task

ASKS = {"ask", "aask"}
SIMILAR = 0.8
"""Similarity from which an unknown permission is taken for a misspelt one."""
_DECIDES = ("has_perm", "get_all_permissions", "get_user_permissions", "get_group_permissions")
"""Methods of backends and users that decide about permissions."""


@register("txtasks")
def check_questions(**_: Any) -> list[CheckMessage]:
    """Check the database of questions, their permissions, and the functions that ask. Opens no connection."""
    return [*_check_database(), *_check_permissions(), *_check_functions()]


def _check_database() -> Iterator[CheckMessage]:
    alias, users = alias_of_people(), router.db_for_write(get_user_model())
    if alias != users or not router.allow_migrate_model(alias, Task):
        yield Error(
            f"Questions are in the database {alias!r}, users in {users!r}, and tasks in "
            f"{router.db_for_write(Task)!r}. A question needs all three in one transaction.",
            hint="Let the database routers give the app 'txtasks_people' the alias of the users and of the tasks.",
            id="txtasks.E050",
        )
    elif not router.allow_migrate_model(alias, Question):
        yield Error(
            f"The database routers keep the table of questions away from {alias!r}, where the users are.",
            hint="Allow the app 'txtasks_people' to migrate there.",
            id="txtasks.E050",
        )


def _check_permissions() -> Iterator[CheckMessage]:
    """Find permissions that only superusers have, because no model declares them.

    The table of permissions is not read: ``migrate`` fills it later. It may also have rows of the project's own.
    """
    declared = _declared_permissions()
    for kind in kinds():
        if kind.may is None or kind.may in declared:
            continue
        near = difflib.get_close_matches(kind.may, declared, n=1, cutoff=SIMILAR)
        if near or not _has_permissions_of_its_own():
            yield Warning(
                f"question({kind.name!r}) has may={kind.may!r}, a permission that no model of an installed app "
                "declares. If no user gets it in another way, only superusers may answer.",
                hint=f"Did you mean {near[0]!r}?"
                if near
                else "Add it to Meta.permissions of a model.",
                id="txtasks.W051",
            )


def _declared_permissions() -> set[str]:
    """Return the permissions for which ``migrate`` writes rows."""
    found = set()
    for opts in [model._meta for model in apps.get_models()]:
        names = [get_permission_codename(act, opts) for act in opts.default_permissions]
        names += [name for name, _label in opts.permissions]
        found |= {f"{opts.app_label}.{name}" for name in names}
    return found


def _has_permissions_of_its_own() -> bool:
    """Return True if code of the project, or of a package, decides which permissions a user has."""
    backends = [import_string(path) for path in settings.AUTHENTICATION_BACKENDS]
    methods = [getattr(one, name, None) for one in backends for name in _DECIDES]
    methods.append(getattr(get_user_model(), "has_perm", None))
    return any(one and not one.__module__.startswith("django.contrib.auth.") for one in methods)


def _check_functions() -> Iterator[CheckMessage]:
    """Find functions that ask, and that are left dead if their worker dies at that moment."""
    for declaration in registry.declarations():
        if declaration.idempotent or not _asks(declaration.function):
            continue
        yield Warning(
            f"{declaration.name} asks people, and is not declared idempotent: if its worker dies while it asks, "
            "the task is dead, and an answer has no effect until a person revives the task.",
            hint="Put effects into steps, and declare @task(idempotent=True).",
            id="txtasks.W050",
        )


def _asks(function: Any) -> bool:
    """Return True if the code of a function names a kind of question, and one of its methods that ask."""
    code, globals_ = getattr(function, "__code__", None), getattr(function, "__globals__", {})
    names = _names(code) if code is not None else set()
    found = [globals_.get(name) for name in names]
    modules = [one for one in found if isinstance(one, ModuleType)]
    found += [getattr(module, name, None) for module in modules for name in names]
    return bool(names & ASKS) and any(isinstance(one, Kind) for one in found)


def _names(code: CodeType) -> set[str]:
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    return {*code.co_names, *(name for one in inner for name in _names(one))}
