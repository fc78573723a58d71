"""Durable steps of a task, and waits for an answer from outside."""
