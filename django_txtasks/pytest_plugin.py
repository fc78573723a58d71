"""Fixtures for pytest-django; pytest finds them by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from django_txtasks.testing import RanTask, TestWorker


@pytest.fixture
def run_due_tasks(db: None) -> Callable[..., list[RanTask]]:
    """``django_txtasks.testing.run_due_tasks``, in a test's transaction."""
    from django_txtasks import testing

    return testing.run_due_tasks


@pytest.fixture
def assert_enqueued(db: None) -> Callable[..., Any]:
    """``django_txtasks.testing.assert_enqueued``."""
    from django_txtasks import testing

    return testing.assert_enqueued


@pytest.fixture
def txtasks_worker(transactional_db: None) -> Iterator[TestWorker]:
    """Run a real worker in a thread, for as long as the test lasts."""
    from django_txtasks import testing

    with testing.worker() as running:
        yield running
