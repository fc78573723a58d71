"""Declarations: what a project says of a task function in ``@task``, and the registry of all of them."""
