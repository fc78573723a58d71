"""What a turn costs the database: by its own counters, since a clock tells nothing on a busy machine."""

import helpers
import pytest
from django.db import connection, transaction
from probe import tasks

from django_txtasks import enqueue_many
from django_txtasks.conf import get_config
from django_txtasks.lifecycle import engines, workers
from django_txtasks.lifecycle.turn import Capacity, Scan, TurnRequest

pytestmark = pytest.mark.usefixtures("rows")


def _rows_read() -> int:
    return sum(int(n) for _, n in helpers.execute("SHOW SESSION STATUS LIKE 'Handler_read%%'"))


@pytest.mark.skipif(
    connection.vendor != "mysql",
    reason="test_lifecycle counts the pages that PostgreSQL reads; SQLite does not tell",
)
def test_a_scan_reads_no_more_of_a_backlog_than_it_claims():
    config = get_config()
    worker = workers.register(
        "default", queues=["default"], threads=1, listening=None, lease=config.lease
    )
    for priority in (3, 0):
        enqueue_many([(tasks.note.using(priority=priority), ["x"])] * 3000)
    request = TurnRequest(Capacity(2), scan=Scan(("default", "mail"), seconds=10.0))
    with transaction.atomic():
        before = _rows_read()
        result = engines.claim(helpers.subscription("default", "mail"), worker, request)
        read = _rows_read() - before
    assert len(result.claimed) == 2
    assert read < 500, f"{read} rows of 6,000 were read"
