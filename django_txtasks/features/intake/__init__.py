"""Intake: messages of an AMQP queue enqueue tasks."""
