"""The class of tasks of a ``Celery`` app."""

from __future__ import annotations

from typing import Any

from celery.contrib.django.task import DjangoTask

from django_txtasks.contrib.celery import app


class Task(DjangoTask):  # type: ignore[misc]  # Celery has no types
    """A task of Celery whose call in a transaction is part of it."""

    abstract = True

    def delay_on_commit(self, *args: Any, **kwargs: Any) -> None:
        """Send the task if the open transaction commits: its row is part of the transaction."""
        self.apply_async_on_commit(args, kwargs)

    def apply_async_on_commit(self, *args: Any, **kwargs: Any) -> None:
        """Send the task if the open transaction commits, as ``delay_on_commit`` does, with options.

        In a transaction of another database, Celery's own hook sends it after that commit.
        """
        if app.is_in_transaction(self._get_app().using):
            self.apply_async(*args, **kwargs)
        else:
            super().apply_async_on_commit(*args, **kwargs)

    def replace(self, sig: Any) -> Any:
        """Replace the task. All parts of the new work go straight to the broker, also the tasks of a group."""
        with app.going_straight():
            return super().replace(sig)
