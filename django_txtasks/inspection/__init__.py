"""Looking at tables without changing them: for people, checks and monitors.

* ``status``: how much waits, for how long, and who works
* ``audit``: what should not be there
* ``bloat``: dead rows, and who keeps them from being removed
"""
