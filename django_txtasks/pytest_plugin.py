"""Fixtures for pytest-django. pytest finds them by an entry point."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from django_txtasks.testing import RanTask, TestWorker


@pytest.fixture
def run_due_tasks(db: None) -> Callable[..., list[RanTask]]:
    """Return ``django_txtasks.testing.run_due_tasks``, for a test inside a transaction."""
    from django_txtasks import testing

    return testing.run_due_tasks


@pytest.fixture
def assert_enqueued(db: None) -> Callable[..., Any]:
    """Return ``django_txtasks.testing.assert_enqueued``."""
    from django_txtasks import testing

    return testing.assert_enqueued


@pytest.fixture
def txtasks_worker(transactional_db: None) -> Iterator[TestWorker]:
    """Run a real worker in a thread during the test."""
    from django_txtasks import testing

    with testing.worker() as running:
        yield running
