"""One worker process.

* ``worker``: the loop; each turn is one transaction
* ``slots``: the threads that run tasks
* ``runner``: one attempt
* ``inbox``: what an idle worker waits on
* ``timers``: the near future
* ``supervisor``: the process that starts workers and starts them again
"""
