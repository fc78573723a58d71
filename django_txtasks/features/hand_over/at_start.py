"""``migrate`` tells the view ``txtasks_load`` which queues are handed over, because it cannot read the setting."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.db import connections
from django.db.models.signals import post_migrate

# The text of a function takes no parameters, so PostgreSQL itself quotes the names.
_KNOWN = """
    SELECT txtasks_handed_queues() = CAST(%s AS text[]),
           quote_literal(format('SELECT CAST(%%L AS text[])', CAST(%s AS text[])))
"""
_REPLACE = (
    "CREATE OR REPLACE FUNCTION txtasks_handed_queues() RETURNS text[] LANGUAGE sql STABLE AS "
)


def note_handed_queues(*, using: str, **other_facts: Any) -> None:
    """Write the queues of ``hand_over`` into the function that the view asks.

    Do nothing after ``flush``, which sends the same signal without a plan, on other databases, and if the
    function is missing, as after ``migrate txtasks zero``.
    """
    from django_txtasks.conf import get_config

    if "plan" not in other_facts or connections[using].vendor != "postgresql":
        return
    queues = sorted(get_config().hand_over)
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT to_regproc('txtasks_handed_queues') IS NOT NULL")
        if cursor.fetchone()[0]:
            cursor.execute(_KNOWN, [queues, queues])
            is_known, text = cursor.fetchone()
            if not is_known:
                cursor.execute(f"{_REPLACE}{text}")


post_migrate.connect(note_handed_queues, sender=apps.get_app_config("txtasks"))
