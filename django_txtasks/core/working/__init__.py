"""One worker process.

* ``worker``: the loop; ``turns``: its turns, each one transaction; ``turn_writer``: a turn in the database;
  ``turn_claims``: its claims
* ``schedule``: the time and content of the next turn; ``scan_cursor``: its scans
* ``hint_inbox``: the hints that have come; ``workload``: the tasks that it holds
* ``running``: the threads that run tasks
* ``recording``: outcomes on their way into the database
* ``looks``: searches besides the claims of turns, all in one table
* ``parts``: what features, accelerators and guards add

If the process is killed, ``core.cleaning`` recovers its claims.
"""
