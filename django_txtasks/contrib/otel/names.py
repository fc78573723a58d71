"""Names from the semantic conventions of OpenTelemetry for messaging, version 1.44.

All of them except ``error.type`` and ``exception.*`` are in development there, so they are texts here: the package
of the conventions says that its own names of this kind may disappear.
"""

from __future__ import annotations

SYSTEM = "messaging.system"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
QUEUE = "messaging.destination.name"
MESSAGE_ID = "messaging.message.id"
COUNT = "messaging.batch.message_count"
ERROR_TYPE = "error.type"
EXCEPTION = "exception"
EXCEPTION_TYPE = "exception.type"
EXCEPTION_MESSAGE = "exception.message"
EXCEPTION_STACKTRACE = "exception.stacktrace"

SENT = "messaging.client.sent.messages"
CONSUMED = "messaging.client.consumed.messages"
DURATION = "messaging.process.duration"

DJANGO_TXTASKS = "django_txtasks"
ENQUEUE, SEND, PROCESS = "enqueue", "send", "process"

TASK = "txtasks.task"
ATTEMPT = "txtasks.attempt"
OUTCOME = "txtasks.outcome"
