"""Planned faults in real processes: one fault strikes once at one point.

Nothing in the package knows of this app. A process that a test starts with ``failpoints.settings`` hooks
existing seams, if its environment asks for it: Django's ``execute_wrapper``, a connection's commit, pika's
``basic_publish``, the task functions of this app.

* ``points``: the places
* ``faults``: the faults
* ``steps``: the same for steps of a task, each of which plans its own fault
* ``slices``: a task that changes many tasks, and waits for the test
* ``waits``: for tasks that wait for a value, their workers, and the processes that bring the value
* ``tasks``, ``sender``: a load of every kind of task, with runs that can be counted
"""
