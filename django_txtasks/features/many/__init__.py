"""Functions of many tasks: one call gets a list of items."""
