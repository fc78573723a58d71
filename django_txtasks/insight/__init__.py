"""Read-only reports on the tables, for people, checks and monitors.

* ``status``: counts of tasks, workers and cleaners
* ``audit``, ``questions``, ``forgotten``: rows that should not be there
* ``explain``: why one task does not run
* ``bloat``: dead rows, and the sessions that keep them
* ``load``: what waits and runs in each queue
* ``options``: the setting of metrics
"""
