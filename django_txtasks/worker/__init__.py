"""One worker process.

* ``worker``: the loop; ``turns``: each turn is one transaction
* ``running``: the threads that run tasks, and what an attempt may leave there
* ``recording``: what becomes of attempts, on its way into the database
* ``looks``: what the loop looks for besides claims
* ``process``: the supervisor, which starts worker processes and starts them again
"""
