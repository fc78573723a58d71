"""A storm on the user's own servers, and the account of it: what ``manage.py txtasks_verify`` runs.

Nobody but that command imports this. It writes only into a scratch database and into RabbitMQ queues
of a random prefix, both of which it makes and removes.

* ``scratch``: the database; ``project``, ``settings``, ``router``: the user's project, pointed at it
* ``apps``, ``models``, ``tasks``, ``prepare``: the app that only the storm's processes install
* ``plan``: what is sent and what goes wrong, a pure function of the seed
* ``sender``, ``answers``: who sends, and who brings what tasks wait for
* ``journal``: who notes on disk what was promised and what started
* ``crew``, ``proxy``, ``storm``: the processes, and what is done to them
* ``evidence``, ``keys``: what was found, and which tasks these are
* ``account``, ``verdict``, ``report``: the checks (pure), their result, and its words
"""
