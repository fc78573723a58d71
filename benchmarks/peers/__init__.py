"""One module for each system under test: this package, its limit, and other task queues.

Each has the same functions, and is run in its own process, by ``python -m peers NAME VERB ARGUMENTS``:

* ``prepare()`` creates its tables in an empty database
* ``enqueue(count, ...)`` writes ``count`` no-op tasks with the keys 0, 1, 2 … as fast as it can
* ``work(processes)`` runs them until it is told to stop
* ``pace(count, seconds)`` enqueues one no-op at a time, and records the time when its commit has returned

DATABASE_URL, BROKER_URL and a NAME for queues are in the environment.
"""
