"""The speed of a worker with no-op tasks, and the cost of each task.

    python benchmarks/drain.py [--tasks 20000] [--repeat 3] [--processes 1,2] [--threads 4]
        [--policy default] [--history on] [--broker none] [--chart drain.svg]
        [--peers pgqueuer,dramatiq,celery,procrastinate,django_tasks_db --peers-python X/bin/python]

The tasks are enqueued beforehand, in bulk; then a worker is started. Each run of a task appends a record to
a file. The speed counts from the first record to the last; with several processes, from the first record of
the last process to join. CPU is that of all processes together, including the servers, from the first
record until half a second after the last. Each key must have run exactly once, and no row may be left. The
first claim is not included, so a queue that claims 500 at a time needs thousands of tasks.

Right before each figure the limit is measured, on the same server and table: one process claims 100 (500)
rows in one statement, calls a no-op for each, and deletes them in one statement. Only ratios within one run
count. X comes from `python -m venv X && X/bin/pip install -U pip && X/bin/pip install --group peers`.
"""

from __future__ import annotations

import drains
import options
from drains import Case


def main() -> None:
    """Print the table."""
    parser = options.parser(__doc__)
    parser.add_argument("--processes", default="1,2", help="of the worker, one drain for each")
    arguments = parser.parse_args()
    cases = [
        Case(
            f"{contender.title}, {processes} process{'es' * (processes > 1)}", contender, processes
        )
        for processes in map(int, arguments.processes.split(","))
        for contender in options.contenders(arguments)
    ]
    drains.report(cases, drains.measured(cases, arguments), arguments)


if __name__ == "__main__":
    main()
