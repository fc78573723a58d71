"""Declarations: the options of ``@task``, their checks, and the registry of all task functions."""
