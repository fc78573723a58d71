"""Every arrow of a task's life. No other room writes the status of a row.

``statements`` holds the SQL of enqueueing, of the claim, of the arrows out of claimed and of workers, each
statement with the conditions that it must check. ``history``, ``cleaning`` and a few others hold their own, as
features do; CONTRIBUTING lists all modules with SQL on the row of a task. The other modules are the arrows, by who
takes them:

* the caller's transaction: ``enqueueing``
* a worker's turn: ``turn`` (its request and result), ``engines``, ``outcomes``, ``workers``
* a cleaner's turn: ``cleaning``
* a person, from the admin or a command: ``operators``
"""
