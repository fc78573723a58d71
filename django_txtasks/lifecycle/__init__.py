"""Every arrow of a task's life: the only writer of a row's status, and the only raw SQL.

``statements`` holds the SQL with what each statement must check; ``dialect`` what databases spell
differently; the other files are the arrows, by who takes them:

* ``enqueueing``: the caller's transaction
* ``claims``, ``outcomes``, ``workers``: a worker's turn
* ``cleaning``: a cleaner's turn
* ``operators``: the admin
"""
