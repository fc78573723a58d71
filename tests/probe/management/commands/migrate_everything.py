"""The migrate of a project that has put it under a name of its own, as packages for tenants do."""

from django.core.management.commands.migrate import Command  # noqa: F401 -- as it is
