"""A storm on the user's own servers, and its account: the implementation of ``manage.py txtasks_verify``.

Only that command imports this. It writes only to a scratch database and to RabbitMQ queues with a random
prefix; it makes both and removes both.

* ``scratch``: the database; ``project``, ``settings``, ``router``: the user's project, pointed at it
* ``apps``, ``models``, ``tasks``, ``prepare``: the app that only the storm's processes install
* ``plan``: the tasks and the faults, a pure function of the seed
* ``producer``: enqueues tasks, and sends the values that tasks wait for
* ``journal``: notes on disk about promised and started tasks
* ``crew``, ``proxy``, ``faults``, ``storm``: the processes, and the faults that hit them
* ``conformance``, ``guest``, ``guest_rules``: the check of a worker in another language, instead of a storm
* ``evidence``, ``keys``: observations, and the tasks that they belong to
* ``account``, ``verdict``, ``report``: the checks (pure), their result, and its text
"""
