"""The intake: messages of an AMQP queue become rows of tasks, each ``message_id`` once.

Its producers need no database and may be written in any language. Only functions that say ``@task(intake=True)``
can be enqueued so. No other part of the package imports this folder, except the command ``runintake``.

* ``reading``: from a message to a checked call, or to the reason of its refusal
* ``writing``: many calls in one transaction, and which message is at fault if the database refuses it
* ``loop``: takes messages, writes rows, and acknowledges after the COMMIT
"""
