"""Every arrow of a task's life: the only writer of a row's status, and the only raw SQL.

``statements`` holds the SQL with what each statement must check; ``dialect`` what databases spell differently;
``execute`` runs one statement, ``transactions`` opens our own transactions. The other files are the arrows, by who
takes them:

* ``enqueueing``: the caller's transaction
* ``turn``, ``engines``, ``outcomes``, ``workers``: a worker's turn, as data and on each database
* ``cleaning``: a cleaner's turn
* ``operators``: the admin
"""
