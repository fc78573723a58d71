"""The stack of a running task, on request: a person asks in the database, and the task's worker answers there."""

from django_txtasks.features.stacks.requests import StackAnswer, request_stack, stack_of

__all__ = ["StackAnswer", "request_stack", "stack_of"]
