"""New rows of counts. Nothing here changes a row of another process, so that no process waits for another."""

from __future__ import annotations

import uuid

from django_txtasks.database import cost
from django_txtasks.database.execute import execute
from django_txtasks.features.figures.tally import Tally
from django_txtasks.models import RawStat

WRITE_SECONDS = 15.0
"""Time between two writes of a worker's counts."""
WRITE_IDLE_SECONDS = 60.0
"""The same while no attempt has ended, and the worker writes only its own cost for the database."""
# W's COMMIT may have succeeded although its answer was lost. Then a cleaner may have added the rows up and deleted
# them, so only W's own row can tell W that they were written. It is locked until the rows are committed.
NEXT_SEQ = """
    UPDATE txtasks_worker SET stats_seq = %(seq)s WHERE id = %(worker)s AND stats_seq < %(seq)s
"""


def append_once(alias: str, worker: uuid.UUID, seq: int, tally: Tally) -> bool:
    """Append a worker's counts in the open transaction, unless they are there already under this number.

    Returns:
        False: they were appended before, or the worker has no row any more.
    """
    if not execute(alias, NEXT_SEQ, worker=worker, seq=seq):
        return False
    _insert(alias, worker, seq, tally)
    return True


def append(alias: str, tally: Tally) -> None:
    """Append the counts of arrows that rows take in the open transaction."""
    if tally:
        _insert(alias, uuid.uuid4(), 0, tally)


def append_cost(alias: str) -> None:
    """Append what this process has cost the database since the last time."""
    tally = Tally()
    tally.add_cost(cost.take(alias))
    append(alias, tally)


def _insert(alias: str, writer: uuid.UUID, seq: int, tally: Tally) -> None:
    RawStat.objects.using(alias).bulk_create(
        RawStat(
            worker=writer,
            seq=seq,
            queue_name=name.queue,
            task_name=name.task,
            **counts.columns()._asdict(),
        )
        for name, counts in tally.items()
    )
