"""Hand over: ``manage.py rundrain`` gives the rows of a queue to another system, and then deletes them.

A drain claims nothing: the lock on a row is the claim, for one transaction. If the drain dies, the locks are gone
with its session, and another drain has the rows at once. A row may then arrive twice, and is never lost.

* ``rows``: a row as a target gets it. ``target``: the interface of a target, and its answers.
* ``targets``: an exchange of RabbitMQ, a function of the project, or an object that makes its own target.
* ``statements``: the SQL. ``choosing``: the rows of a pass. ``moving``: the arrows that a pass takes.
* ``writing``: the answers of a pass, written. ``passes``: one pass, on a database with row locks or on SQLite.
* ``drain``: the loop of one queue.
* ``process``: the threads of ``rundrain``, and its row among the workers.
* ``external``: tasks whose code is elsewhere.
"""
