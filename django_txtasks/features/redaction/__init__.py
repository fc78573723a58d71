"""Redaction: pages hide the secrets in the arguments of tasks."""
