"""Sentry: transactions of attempts, spans of enqueueing, and check-ins of schedules. Needs ``sentry-sdk``."""
