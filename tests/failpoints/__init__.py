"""Faults on order, in real processes: one fault strikes once at one point.

Nothing in the package knows of this app. A process that a test starts with ``failpoints.settings``
hooks, if the environment says so, seams that are there anyway: Django's ``execute_wrapper``, a
connection's commit, pika's ``basic_publish``, the task functions of this app.

* ``points``: where
* ``faults``: what
* ``steps``: the same for steps of a task, each of which plans a fault of its own
* ``waits``: for tasks that wait for a value, their workers, and those who bring it
* ``tasks``, ``sender``: a load of every kind of task, whose runs can be counted
"""
