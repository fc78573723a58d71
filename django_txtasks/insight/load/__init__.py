"""The load of each queue as numbers: what waits, what runs, and how many threads that needs.

By Little's law, the tasks that run are arrivals times run time, so no rates and no counters are needed. Only tasks
of worker threads count. Tasks that only an event loop or a drain takes are left out, and also tasks whose function
no worker at work declares.
``look`` reads the numbers: on PostgreSQL from the view ``txtasks_load``, elsewhere by bounded statements.
"""

from django_txtasks.insight.load.reading import look
from django_txtasks.insight.load.records import Look, QueueLoad, WorkerLoad

__all__ = ["Look", "QueueLoad", "WorkerLoad", "look"]
